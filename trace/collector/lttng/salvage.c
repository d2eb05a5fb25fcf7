/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping a copy of every record while a recording runs (what for: salvage.h; how it lies:
 * salvage_parts.h). The collector does this for each record that it takes, so it has to be cheap: a
 * look into a hash table and 64 bytes copied; packing and writing come once per block. The hard part is a
 * recording of many rings, most of them idle: buffers start small and double while their ring fills them, and
 * when all of them together are too large, a hand that goes around takes the buffers of rings that were not
 * used since it last came by. A ring without a buffer costs 100 bytes.
 *
 * salvage_marks.c knows which numbers the trace has, salvage_each.c reads it all back.
 */
#include "trace/collector/lttng/salvage.h"

#include "trace/collector/lttng/salvage.h"

#include "trace/collector/lttng/salvage.h"

#include "trace/collector/lttng/salvage.h"

#include "trace/collector/lttng/salvage.h"

#include "trace/collector/lttng/salvage_parts.h"
#include "trace/error.h"
#include "trace/record.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_BITS_MIN 6U
#define GROW_STEPS 4U /* of the hand: a buffer that wants to grow does not look further */

static_assert(SALVAGE_PACKED_BYTES >= SALVAGE_WRITE_ALIGNMENT + SALVAGE_BLOCK_BYTES_MAX,
              "what a write leaves behind and a block have room");

/* The first failure ends the keeping, and salvage_each tells of it. */
static int fail(struct salvage *salvage, int code, int reason)
{
    assert(salvage->failure == VARVE_OK);
    salvage->failure = code;
    salvage->failure_reason = reason;
    return code;
}

/* ---- rings ---- */

static inline size_t slot_of(uint32_t process, int32_t pid, uint32_t ring, unsigned bits)
{
    return salvage_hash((uint64_t)process << 32 | ring, (uint32_t)pid, bits);
}

static inline uint32_t ring_find(const struct salvage *salvage, uint32_t process, int32_t pid, uint32_t ring)
{
    size_t mask = ((size_t)1 << salvage->slot_bits) - 1;

    for (size_t slot = slot_of(process, pid, ring, salvage->slot_bits); salvage->slots[slot] != 0;
         slot = (slot + 1) & mask) {
        const struct varve_mirror_origin *origin = &salvage->rings[salvage->slots[slot] - 1].origin;
        if (origin->process == process && origin->ring == ring && origin->pid == pid) {
            return salvage->slots[slot] - 1;
        }
    }
    return SALVAGE_NO_RING;
}

uint32_t salvage_ring_find(const struct salvage *salvage, uint32_t process, int32_t pid, uint32_t ring)
{
    return ring_find(salvage, process, pid, ring);
}

static void slot_fill(uint32_t *slots, unsigned bits, const struct varve_mirror_origin *origin,
                      uint32_t index)
{
    size_t slot = slot_of(origin->process, origin->pid, origin->ring, bits);

    while (slots[slot] != 0) {
        slot = (slot + 1) & (((size_t)1 << bits) - 1);
    }
    slots[slot] = index + 1;
}

static bool slots_grow(struct salvage *salvage)
{
    unsigned bits = salvage->slot_bits + 1;
    uint32_t *grown = calloc((size_t)1 << bits, sizeof(*grown));

    if (grown == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < salvage->ring_count; i++) {
        slot_fill(grown, bits, &salvage->rings[i].origin, i);
    }
    free(salvage->slots);
    salvage->slots = grown;
    salvage->slot_bits = bits;
    return true;
}

/* At most half of the slots are in use. False: no memory. */
static bool ring_add(struct salvage *salvage, const struct varve_mirror_origin *origin)
{
    if (((size_t)salvage->ring_count + 1) * 2 > (size_t)1 << salvage->slot_bits && !slots_grow(salvage)) {
        return false;
    }
    if (salvage->ring_count == salvage->ring_room) {
        uint32_t room = salvage->ring_room * 2 + 16;
        struct salvage_ring *grown = realloc(salvage->rings, room * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        salvage->rings = grown;
        salvage->ring_room = room;
    }
    salvage->rings[salvage->ring_count] = (struct salvage_ring){.origin = *origin, .block = SALVAGE_NO_BLOCK};
    slot_fill(salvage->slots, salvage->slot_bits, origin, salvage->ring_count);
    salvage->ring_count++;
    return true;
}

/* ---- blocks ---- */

/* Whole pages only: the rest stays in front of what comes next. After an error nothing is lost either. */
static int write_packed(struct salvage *salvage)
{
    size_t bytes = salvage->packed_bytes & ~(size_t)(SALVAGE_WRITE_ALIGNMENT - 1);
    size_t done = 0;
    int reason = 0;

    while (done < bytes && reason == 0) {
        ssize_t step =
            pwrite(salvage->fd, salvage->packed + done, bytes - done, (off_t)(salvage->written + done));
        if (step > 0) {
            done += (size_t)step;
        } else if (step == 0 || errno != EINTR) {
            reason = step == 0 ? ENOSPC : errno;
        }
    }
    salvage->written += done;
    salvage->packed_bytes -= done;
    memmove(salvage->packed, salvage->packed + done, salvage->packed_bytes);
    if (reason == 0) {
        return VARVE_OK;
    }
    return fail(salvage,
                reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? VARVE_ERROR_FULL : VARVE_ERROR_IO,
                reason);
}

/* The waiting records become a block; the buffer stays. */
static int block_write(struct salvage *salvage, struct salvage_ring *ring)
{
    uint8_t *at = salvage->packed + salvage->packed_bytes;
    struct salvage_block block;

    if (ring->count == 0) {
        return VARVE_OK;
    }
    if (SALVAGE_PACKED_BYTES - salvage->packed_bytes < SALVAGE_BLOCK_BYTES_MAX) {
        int error = write_packed(salvage);
        if (error != VARVE_OK) {
            return error;
        }
        at = salvage->packed + salvage->packed_bytes;
    }
    block = (struct salvage_block){.origin = ring->origin,
                                   .first = ring->next - ring->count,
                                   .previous = ring->block,
                                   .count = ring->count};
    block.bytes = (uint32_t)record_pack(ring->records, ring->count, at + sizeof(block));
    memcpy(at, &block, sizeof(block));
    ring->block = salvage->written + salvage->packed_bytes;
    ring->block_count++;
    ring->count = 0;
    salvage->packed_bytes += sizeof(block) + block.bytes;
    return VARVE_OK;
}

/* ---- buffers ---- */

/* The hand comes to a new one last. */
static void circle_enter(struct salvage *salvage, uint32_t index)
{
    struct salvage_ring *ring = &salvage->rings[index];

    if (salvage->hand == SALVAGE_NO_RING) {
        ring->staged_before = ring->staged_after = salvage->hand = index;
        return;
    }
    ring->staged_after = salvage->hand;
    ring->staged_before = salvage->rings[salvage->hand].staged_before;
    salvage->rings[ring->staged_before].staged_after = index;
    salvage->rings[ring->staged_after].staged_before = index;
}

static void circle_leave(struct salvage *salvage, uint32_t index)
{
    const struct salvage_ring *ring = &salvage->rings[index];

    salvage->rings[ring->staged_before].staged_after = ring->staged_after;
    salvage->rings[ring->staged_after].staged_before = ring->staged_before;
    if (salvage->hand == index) {
        salvage->hand = ring->staged_after == index ? SALVAGE_NO_RING : ring->staged_after;
    }
}

static int buffer_drop(struct salvage *salvage, uint32_t index)
{
    struct salvage_ring *ring = &salvage->rings[index];
    int error = block_write(salvage, ring);

    if (error != VARVE_OK) {
        return error;
    }
    circle_leave(salvage, index);
    salvage->staged -= ring->capacity;
    free(ring->records);
    ring->records = NULL;
    ring->capacity = 0;
    return VARVE_OK;
}

/* Take buffers of idle rings, but not that of `spared`, until `records` more have room or the hand has gone
 * `steps` steps. Two times around always suffice: the second time nobody is in use. */
static int buffers_free(struct salvage *salvage, uint32_t spared, uint32_t records, uint64_t steps)
{
    int error = VARVE_OK;

    for (; error == VARVE_OK && steps > 0 && salvage->hand != SALVAGE_NO_RING &&
           salvage->staged + records > SALVAGE_STAGED_MAX;
         steps--) {
        struct salvage_ring *ring = &salvage->rings[salvage->hand];
        if (!ring->is_used && salvage->hand != spared) {
            error = buffer_drop(salvage, salvage->hand);
        } else {
            ring->is_used = false;
            salvage->hand = ring->staged_after;
        }
    }
    return error;
}

static int buffer_begin(struct salvage *salvage, uint32_t index)
{
    struct salvage_ring *ring = &salvage->rings[index];
    int error =
        buffers_free(salvage, index, SALVAGE_BUFFER_RECORDS_MIN, 2 * (uint64_t)salvage->ring_count + 2);

    if (error != VARVE_OK) {
        return error;
    }
    ring->records = malloc(SALVAGE_BUFFER_RECORDS_MIN * sizeof(*ring->records));
    if (ring->records == NULL) {
        return fail(salvage, VARVE_ERROR_NO_MEMORY, ENOMEM);
    }
    ring->capacity = SALVAGE_BUFFER_RECORDS_MIN;
    salvage->staged += ring->capacity;
    circle_enter(salvage, index);
    return VARVE_OK;
}

/* Room in a full buffer: twice the size if that may be had, else by making a block of it. */
static int buffer_make_room(struct salvage *salvage, uint32_t index)
{
    struct salvage_ring *ring = &salvage->rings[index];
    struct varve_record *grown = NULL;
    int error;

    if (ring->capacity < SALVAGE_BLOCK_RECORDS) {
        error = buffers_free(salvage, index, ring->capacity, GROW_STEPS);
        if (error != VARVE_OK) {
            return error;
        }
        if (salvage->staged + ring->capacity <= SALVAGE_STAGED_MAX) {
            grown = realloc(ring->records, 2 * ring->capacity * sizeof(*grown));
        }
    }
    if (grown == NULL) {
        return block_write(salvage, ring);
    }
    ring->records = grown;
    salvage->staged += ring->capacity;
    ring->capacity *= 2;
    return VARVE_OK;
}

/* Room for a record and nothing else to be thought of. */
static inline bool is_plain(const struct salvage_ring *ring, const struct varve_mirror_origin *origin,
                            uint64_t ring_seq)
{
    return ring->count < ring->capacity && ring->next == ring_seq && ring->origin.tid == origin->tid;
}

/* All the rest: the ring's first record, a jump, another thread, no room. `index` is the ring's, which is
 * added if there is none. Afterwards the record may be put behind the ring's others. */
static int prepare(struct salvage *salvage, const struct varve_mirror_origin *origin, uint64_t ring_seq,
                   uint32_t *index)
{
    struct salvage_ring *ring;

    if (ring_seq >= SALVAGE_NUMBER_LIMIT) {
        return VARVE_ERROR_INVALID;
    }
    if (*index == SALVAGE_NO_RING) {
        if (!ring_add(salvage, origin)) {
            return fail(salvage, VARVE_ERROR_NO_MEMORY, ENOMEM);
        }
        *index = salvage->ring_count - 1;
    }
    ring = &salvage->rings[*index];
    if (ring_seq < ring->next) {
        return VARVE_ERROR_INVALID;
    }
    if (ring_seq != ring->next || origin->tid != ring->origin.tid) {
        int error = block_write(salvage, ring);
        if (error != VARVE_OK) {
            return error;
        }
        ring->origin.tid = origin->tid;
        ring->next = ring_seq;
    }
    if (ring->count < ring->capacity) {
        return VARVE_OK;
    }
    return ring->capacity == 0 ? buffer_begin(salvage, *index) : buffer_make_room(salvage, *index);
}

/* ---- what the collector calls ---- */

static int file_open(struct salvage *salvage, const char *path, struct varve_message *message)
{
    salvage->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (salvage->fd < 0 || unlink(path) != 0) {
        int reason = errno;
        int code = reason == ENOSPC || reason == EDQUOT  ? VARVE_ERROR_FULL
                   : reason == ENOENT                    ? VARVE_ERROR_NOT_FOUND
                   : reason == EACCES || reason == EROFS ? VARVE_ERROR_PERMISSION
                                                         : VARVE_ERROR_IO;
        return varve_message_set(message, code, "%s: cannot %s: %s", path,
                                 salvage->fd < 0 ? "create" : "remove", strerror(reason));
    }
    return VARVE_OK;
}

int salvage_open(const char *path, struct salvage **salvage_out, struct varve_message *message)
{
    struct salvage *salvage = calloc(1, sizeof(*salvage));
    int error;

    *salvage_out = NULL;
    if (salvage == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to keep copies of records");
    }
    salvage->fd = -1;
    salvage->hand = SALVAGE_NO_RING;
    salvage->slot_bits = SLOT_BITS_MIN;
    salvage->slots = calloc((size_t)1 << SLOT_BITS_MIN, sizeof(*salvage->slots));
    salvage->packed = malloc(SALVAGE_PACKED_BYTES);
    salvage->path = strdup(path);
    if (salvage->slots == NULL || salvage->packed == NULL || salvage->path == NULL) {
        error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to keep copies of records");
    } else {
        error = file_open(salvage, path, message);
    }
    if (error != VARVE_OK) {
        salvage_close(salvage);
        return error;
    }
    *salvage_out = salvage;
    return VARVE_OK;
}

void salvage_close(struct salvage *salvage)
{
    if (salvage == NULL) {
        return;
    }
    for (uint32_t i = 0; i < salvage->ring_count; i++) {
        free(salvage->rings[i].records);
    }
    salvage_marks_free(salvage);
    free(salvage->rings);
    free(salvage->slots);
    free(salvage->packed);
    free(salvage->path);
    if (salvage->fd >= 0) {
        close(salvage->fd);
    }
    free(salvage);
}

int salvage_keep(struct salvage *salvage, const struct varve_mirror_origin *origin, uint64_t ring_seq,
                 const struct varve_record *record)
{
    struct salvage_ring *ring;
    uint32_t index;

    if (__builtin_expect(salvage->failure != VARVE_OK, 0)) {
        salvage->refused++;
        return VARVE_OK;
    }
    index = ring_find(salvage, origin->process, origin->pid, origin->ring);
    if (index == SALVAGE_NO_RING || !is_plain(&salvage->rings[index], origin, ring_seq)) {
        int error = prepare(salvage, origin, ring_seq, &index);
        if (error != VARVE_OK) {
            salvage->refused += salvage->failure != VARVE_OK;
            return error;
        }
    }
    ring = &salvage->rings[index];
    ring->records[ring->count++] = *record;
    ring->next++;
    ring->is_used = true;
    return VARVE_OK;
}
