/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the copies back, ring by ring: the blocks of a ring are a chain from the newest to the oldest, so
 * it is walked once for the offsets and then handed out the other way. Nearly all records are in the trace:
 * a block that is marked from end to end is skipped without being read. Nothing is changed, so it can be done
 * again after more was marked. `take` may mark, not keep.
 */
#include "trace/collector/lttng/salvage_parts.h"
#include "trace/error.h"
#include "trace/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One call of salvage_each. */
struct reading {
    struct salvage *salvage;
    int (*take)(void *context, const struct varve_mirror_origin *origin, uint64_t ring_seq,
                const struct varve_record *record);
    void *context;
    struct varve_message *message;
    uint64_t count; /* records taken */

    uint64_t *offsets; /* of the blocks of one ring, the oldest first */
    uint64_t offset_room;
    uint8_t packed[SALVAGE_BLOCK_BYTES_MAX];
    struct varve_record records[SALVAGE_BLOCK_RECORDS];
};

/* From the file and from what was not written to it yet; both may have a part. */
static int read_at(const struct reading *reading, uint64_t offset, void *bytes, size_t count)
{
    const struct salvage *salvage = reading->salvage;
    uint8_t *at = bytes;

    while (count > 0 && offset < salvage->written) {
        uint64_t left = salvage->written - offset;
        ssize_t step = pread(salvage->fd, at, count < left ? count : (size_t)left, (off_t)offset);
        if (step < 0 && errno == EINTR) {
            continue;
        }
        if (step <= 0) {
            varve_message_set(reading->message, VARVE_ERROR_IO,
                              "%s: the copies of the records cannot be read: %s", salvage->path,
                              step == 0 ? "the file was cut" : strerror(errno));
            return VARVE_ERROR_IO;
        }
        at += step;
        offset += (size_t)step;
        count -= (size_t)step;
    }
    if (count > 0) {
        memcpy(at, salvage->packed + (offset - salvage->written), count);
    }
    return VARVE_OK;
}

static int damaged(const struct reading *reading, uint64_t offset)
{
    varve_message_set(reading->message, VARVE_ERROR_CORRUPT,
                      "%s: the copies of the records are damaged at byte %llu", reading->salvage->path,
                      (unsigned long long)offset);
    return VARVE_ERROR_CORRUPT;
}

/* The header of a block; its numbers must lie below `bound` as those of the block after it do not. */
static int block_read(const struct reading *reading, const struct salvage_ring *ring, uint64_t offset,
                      uint64_t bound, struct salvage_block *block)
{
    uint64_t end = reading->salvage->written + reading->salvage->packed_bytes;
    int error;

    if (offset > end || end - offset < sizeof(*block)) {
        return damaged(reading, offset);
    }
    error = read_at(reading, offset, block, sizeof(*block));
    if (error != VARVE_OK) {
        return error;
    }
    if (block->count == 0 || block->count > SALVAGE_BLOCK_RECORDS || block->first > bound ||
        bound - block->first < block->count || block->bytes > sizeof(reading->packed) ||
        end - offset - sizeof(*block) < block->bytes || block->origin.process != ring->origin.process ||
        block->origin.pid != ring->origin.pid || block->origin.ring != ring->origin.ring) {
        return damaged(reading, offset);
    }
    return VARVE_OK;
}

/* The numbers `first`, `first` + 1, … of a ring. */
static int hand_out(struct reading *reading, uint32_t ring, const struct varve_mirror_origin *origin,
                    uint64_t first, const struct varve_record *records, uint32_t count)
{
    uint64_t end = first + count;
    uint64_t number = salvage_unmarked(reading->salvage, ring, first, end);

    for (; number < end; number = salvage_unmarked(reading->salvage, ring, number + 1, end)) {
        int error = reading->take != NULL
                        ? reading->take(reading->context, origin, number, &records[number - first])
                        : VARVE_OK;
        if (error != VARVE_OK) {
            return error;
        }
        reading->count++;
    }
    return VARVE_OK;
}

static int hand_out_block(struct reading *reading, uint32_t index, uint64_t offset)
{
    const struct salvage_ring *ring = &reading->salvage->rings[index];
    struct salvage_block block;
    int error = block_read(reading, ring, offset, ring->next, &block);

    if (error != VARVE_OK) {
        return error;
    }
    if (salvage_unmarked(reading->salvage, index, block.first, block.first + block.count) ==
        block.first + block.count) {
        return VARVE_OK;
    }
    error = read_at(reading, offset + sizeof(block), reading->packed, block.bytes);
    if (error != VARVE_OK) {
        return error;
    }
    if (!record_unpack(reading->packed, block.bytes, reading->records, block.count)) {
        return damaged(reading, offset);
    }
    return hand_out(reading, index, &block.origin, block.first, reading->records, block.count);
}

/* Walk the chain of a ring; fills `offsets`. */
static int find_blocks(struct reading *reading, const struct salvage_ring *ring)
{
    uint64_t bound = ring->next - ring->count;
    uint64_t offset = ring->block;
    struct salvage_block block;

    if (ring->block_count > reading->offset_room) {
        uint64_t *grown = realloc(reading->offsets, ring->block_count * sizeof(*grown));
        if (grown == NULL) {
            varve_message_set(reading->message, VARVE_ERROR_NO_MEMORY,
                              "no memory to read the copies of the records");
            return VARVE_ERROR_NO_MEMORY;
        }
        reading->offsets = grown;
        reading->offset_room = ring->block_count;
    }
    for (uint64_t left = ring->block_count; left > 0; left--) {
        int error = block_read(reading, ring, offset, bound, &block);
        if (error != VARVE_OK) {
            return error;
        }
        reading->offsets[left - 1] = offset;
        bound = block.first;
        offset = block.previous;
    }
    return VARVE_OK;
}

static int each_of_ring(struct reading *reading, uint32_t index)
{
    const struct salvage_ring *ring = &reading->salvage->rings[index];
    int error = find_blocks(reading, ring);

    for (uint64_t i = 0; error == VARVE_OK && i < ring->block_count; i++) {
        error = hand_out_block(reading, index, reading->offsets[i]);
    }
    if (error == VARVE_OK && ring->count > 0) {
        error = hand_out(reading, index, &ring->origin, ring->next - ring->count, ring->records, ring->count);
    }
    return error;
}

int salvage_each(struct salvage *salvage,
                 int (*take)(void *context, const struct varve_mirror_origin *origin, uint64_t ring_seq,
                             const struct varve_record *record),
                 void *context, uint64_t *count_out, struct varve_message *message)
{
    struct reading *reading = malloc(sizeof(*reading));
    int error = VARVE_OK;

    *count_out = 0;
    if (reading == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY,
                                 "no memory to read the copies of the records");
    }
    reading->salvage = salvage;
    reading->take = take;
    reading->context = context;
    reading->message = message;
    reading->count = 0;
    reading->offsets = NULL;
    reading->offset_room = 0;
    for (uint32_t i = 0; error == VARVE_OK && i < salvage->ring_count; i++) {
        error = each_of_ring(reading, i);
    }
    *count_out = reading->count;
    free(reading->offsets);
    free(reading);
    if (error == VARVE_OK && salvage->failure != VARVE_OK) {
        error =
            varve_message_set(message, VARVE_ERROR_FULL,
                              "%s: %llu records were not kept: %s at %llu MiB; a killed program's trace "
                              "may lack them; make room and record again",
                              salvage->path, (unsigned long long)salvage->refused,
                              strerror(salvage->failure_reason), (unsigned long long)salvage->written >> 20);
    }
    return error;
}
