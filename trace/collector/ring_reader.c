/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's end of a ring and of its pieces (order and invariants: format/ring_format.h). What it reads is not
 * trusted: sizes are checked when the file is opened, positions at every refresh, so that a damaged file of a
 * crashed run can end a ring but not the collector. Records stay in the ring until ring_reader_release, which
 * the collector calls after they are committed.
 */
#include "trace/collector/collector.h"

#include "trace/collector/session/recording_directory.h"
#include "trace/event_list.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/record.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POSITION_LIMIT (UINT64_C(1) << 62) /* no thread comes to so many records: sums of them stay numbers */
#define BUFFER_RECORDS RING_STAGING_RECORDS
#define PIECES_LOOKED_AT 64U /* that can't be read, one after the other: their number is the producer's word */

static bool header_is_sound(const struct ring_header *ring, uint32_t process_id, uint32_t index)
{
    return __atomic_load_n(&ring->magic, __ATOMIC_ACQUIRE) == RING_MAGIC && ring->version == VARVE_TRANSPORT_VERSION &&
           ring->process_id == process_id && ring->ring_index == index && ring->capacity >= RING_CAPACITY_MIN &&
           ring->capacity <= RING_CAPACITY_LIMIT && (ring->capacity & (ring->capacity - 1)) == 0;
}

/* Its thread was killed before it had filled it, which ends with `magic`, and before the ring was counted in
 * rings_made. Of a ring that was counted, that figure says that it is missing. */
static bool header_is_unfinished(const struct ring_header *ring)
{
    return ring->magic == 0 && ring->emitted == 0 && ring->head == 0 && ring->spill_head == 0 && ring->lost == 0;
}

/* The file may have been cut behind the header: what is left of it is read. */
static bool ring_reader_is_inside(const struct ring_reader *reader, const struct varve_record *slot)
{
    return (uint64_t)((const char *)(slot + 1) - (const char *)reader->ring) <= reader->ring_bytes;
}

/* The producer stores `magic` when the file has its length: a length that was read before that says nothing, and is
 * read once more. */
static struct ring_header *map_ring(const struct session_directory *directory, const char *name, size_t *bytes)
{
    struct ring_header *ring = session_file_map(directory, name, O_RDWR, RING_HEADER_BYTES, bytes, NULL);
    if (ring != NULL && __atomic_load_n(&ring->magic, __ATOMIC_ACQUIRE) == RING_MAGIC &&
        *bytes < ring_file_bytes(ring->capacity)) {
        munmap(ring, *bytes);
        ring = session_file_map(directory, name, O_RDWR, RING_HEADER_BYTES, bytes, NULL);
    }
    return ring;
}

int ring_reader_open(struct ring_reader **reader_out, const struct session_directory *directory,
                     struct traced_process *process, uint32_t index)
{
    char name[64];
    snprintf(name, sizeof(name), "p%u.r%u", process->id, index);
    size_t bytes = 0;
    struct ring_header *ring = map_ring(directory, name, &bytes);
    if (ring == NULL) {
        return errno == EPERM ? VARVE_ERROR_FORMAT : VARVE_ERROR_NOT_FOUND;
    }
    if (!header_is_sound(ring, process->id, index)) {
        int error = header_is_unfinished(ring) ? VARVE_ERROR_NOT_FOUND : VARVE_ERROR_FORMAT;
        munmap(ring, bytes);
        return error;
    }
    struct ring_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        munmap(ring, bytes);
        return VARVE_ERROR_NO_MEMORY;
    }
    reader->process = process;
    reader->ring = ring;
    reader->ring_bytes = bytes;
    reader->capacity = ring->capacity;
    reader->index = index;
    reader->tid = (int32_t)ring->tid;
    reader->directory = directory;
    reader->piece_fd = -1;
    reader->piece = reader->piece_kept = __atomic_load_n(&ring->pieces_released, __ATOMIC_ACQUIRE) + 1;
    reader->damage = bytes < ring_file_bytes(ring->capacity) ? "cut" : NULL;
    reader->last_ticks = ring->created_ticks;
    *reader_out = reader;
    return VARVE_OK;
}

void ring_reader_close(struct ring_reader *reader)
{
    if (reader->has_staging_apart) {
        munmap((void *)(uintptr_t)reader->staging, RING_STAGING_BYTES);
    }
    munmap(reader->ring, reader->ring_bytes);
    session_descriptor_close(&reader->piece_fd);
    free(reader->buffer);
    free(reader->packed);
    free(reader);
}

void ring_reader_skip_overwritten(struct ring_reader *reader)
{
    uint64_t head = __atomic_load_n(&reader->ring->head, __ATOMIC_ACQUIRE);
    uint64_t tail = __atomic_load_n(&reader->ring->tail, __ATOMIC_ACQUIRE);
    /* the slot of the oldest one may be the one that was being written */
    uint64_t oldest = head < reader->capacity ? 0 : head - reader->capacity + 1;
    if (tail <= head && head - tail <= reader->capacity && reader->read < tail && reader->read < oldest) {
        uint64_t skipped = (oldest < tail ? oldest : tail) - reader->read;
        reader->unreadable += skipped;
        reader->sequence += skipped;
        reader->read += skipped;
    }
}

/* The producer makes do with fewer slots (format/ring_format.h), which it says before it uses one for the second time.
 * */
static void take_capacity(struct ring_reader *reader)
{
    const uint32_t capacity = __atomic_load_n(&reader->ring->capacity, __ATOMIC_ACQUIRE);
    if (capacity < reader->capacity && capacity >= RING_CAPACITY_MIN && (capacity & (capacity - 1)) == 0 &&
        reader->head_seen <= capacity) {
        reader->capacity = capacity;
    }
}

void ring_reader_refresh(struct ring_reader *reader)
{
    struct ring_header *ring = reader->ring;
    /* the order of these loads is the protocol: see format/ring_format.h and ring_merge.c */
    bool is_retired = __atomic_load_n(&ring->state, __ATOMIC_ACQUIRE) == RING_STATE_RETIRED;
    uint64_t emitted = __atomic_load_n(&ring->emitted, __ATOMIC_ACQUIRE);
    uint64_t spill = __atomic_load_n(&ring->spill_head, __ATOMIC_ACQUIRE);
    uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
    take_capacity(reader);
    uint64_t resume = __atomic_load_n(&ring->spill_resume, __ATOMIC_ACQUIRE);
    uint64_t lost = __atomic_load_n(&ring->lost, __ATOMIC_ACQUIRE);
    if (spill < resume && resume <= __atomic_load_n(&ring->spill_head, __ATOMIC_ACQUIRE)) {
        spill = resume;
    }
    if (head < reader->read || head - reader->read > reader->capacity || spill < reader->spill_read ||
        head >= POSITION_LIMIT || spill >= POSITION_LIMIT) {
        head = reader->read; /* nothing more can be believed */
        spill = reader->spill_read;
        reader->damage = "damaged";
    }
    reader->head_seen = head;
    reader->spill_seen = spill;
    reader->resume_seen = resume < spill ? resume : spill;
    reader->is_in_flight = emitted > head + spill + lost;
    reader->is_retired = is_retired;
    reader->saw_end = reader->process->has_ended;
    if (reader->saw_end && !reader->has_counted_orphans) {
        uint32_t count = __atomic_load_n(&ring->nested_count, __ATOMIC_ACQUIRE);
        uint32_t filed = __atomic_load_n(&ring->nested_filed, __ATOMIC_ACQUIRE);
        reader->orphans_first = filed;
        reader->orphans_seen = count <= RING_NESTED_SLOTS && filed < count ? count - filed : 0;
    }
}

/* The staging slots hold [spill_flushed, spill_head); the producer reuses a slot only after it has raised
 * spill_flushed past it, so a copy is good if spill_flushed is still below it afterwards. By the letter that
 * is a race, which is why the thread sanitizer does not look here. */
__attribute__((no_sanitize("thread"))) static bool copy_staging(struct ring_reader *reader, uint64_t from, uint64_t to)
{
    struct ring_header *ring = reader->ring;
    const struct varve_record *staging = reader->staging;
    for (uint64_t at = from; at < to; at++) {
        reader->buffer[at - from] = staging[at % RING_STAGING_RECORDS];
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&ring->spill_flushed, __ATOMIC_ACQUIRE) <= from;
}

/* The staging slots, in the ring's file or in one of their own. False: they can't be read. */
static bool find_staging(struct ring_reader *reader, const struct session_directory *directory)
{
    if (reader->staging != NULL) {
        return true;
    }
    if (__atomic_load_n(&reader->ring->staging_is_apart, __ATOMIC_ACQUIRE) == 0) {
        bool has_all = ring_reader_is_inside(reader, ring_staging(reader->ring) + RING_STAGING_RECORDS - 1);
        reader->staging = has_all ? ring_staging(reader->ring) : NULL;
        return has_all;
    }
    char name[64];
    snprintf(name, sizeof(name), "p%u.r%u.staging", reader->process->id, reader->index);
    reader->staging = session_file_map(directory, name, O_RDONLY, RING_STAGING_BYTES, NULL, NULL);
    reader->has_staging_apart = reader->staging != NULL;
    return reader->has_staging_apart;
}

static bool fill_from_staging(struct ring_reader *reader, const struct session_directory *directory, uint64_t from)
{
    uint64_t flushed = __atomic_load_n(&reader->ring->spill_flushed, __ATOMIC_ACQUIRE);
    uint64_t to = reader->spill_seen;
    if (from < flushed) {
        return false;
    }
    to = to > flushed + RING_STAGING_RECORDS ? flushed + RING_STAGING_RECORDS : to;
    if (to <= from || !find_staging(reader, directory) || !copy_staging(reader, from, to)) {
        return false;
    }
    reader->buffer_from = from;
    reader->buffer_to = to;
    return true;
}

static void name_piece(const struct ring_reader *reader, uint32_t piece, char *name, size_t bytes)
{
    snprintf(name, bytes, "p%u.r%u.spill%u", reader->process->id, reader->index, piece);
}

static bool open_piece(struct ring_reader *reader)
{
    char name[64];
    if (reader->piece_fd < 0) {
        name_piece(reader, reader->piece, name, sizeof(name));
        reader->piece_fd = session_file_open(reader->directory, name, O_RDONLY);
    }
    return reader->piece_fd >= 0;
}

static void leave_piece(struct ring_reader *reader)
{
    session_descriptor_close(&reader->piece_fd);
    reader->piece++;
    reader->piece_offset = 0;
}

/* The next block of the piece, of records that the producer says are flushed. */
static bool read_head(const struct ring_reader *reader, uint64_t flushed, struct record_block *block)
{
    return pread(reader->piece_fd, block, sizeof(*block), (off_t)reader->piece_offset) == (ssize_t)sizeof(*block) &&
           block->records == RING_STAGING_RECORDS && block->bytes <= RING_STAGING_RECORDS * RECORD_PACKED_MAX &&
           block->position <= flushed && flushed - block->position >= block->records;
}

static bool ring_reader_read_block(struct ring_reader *reader, const struct record_block *block)
{
    if (pread(reader->piece_fd, reader->packed, block->bytes, (off_t)(reader->piece_offset + sizeof(*block))) !=
            (ssize_t)block->bytes ||
        !record_unpack(reader->packed, block->bytes, reader->buffer, block->records)) {
        return false;
    }
    reader->buffer_from = block->position;
    reader->buffer_to = block->position + block->records;
    return true;
}

/* The block of the piece that holds position `from`, or of those after it the first that can be read; earlier ones are
 * stepped over, as a recovered recording begins in the middle. */
static bool find_in_piece(struct ring_reader *reader, uint64_t from, uint64_t flushed)
{
    struct record_block block;
    while (open_piece(reader) && read_head(reader, flushed, &block)) {
        if (from < block.position + block.records) {
            return ring_reader_read_block(reader, &block);
        }
        reader->piece_offset += record_block_stride(&block);
    }
    return false;
}

/* A piece is left when it has no further block, or when that can't be read, if there is a newer one. */
static bool fill_from_pieces(struct ring_reader *reader, uint64_t from)
{
    uint64_t flushed = __atomic_load_n(&reader->ring->spill_flushed, __ATOMIC_ACQUIRE);
    uint32_t newest = __atomic_load_n(&reader->ring->piece, __ATOMIC_ACQUIRE);
    if (from >= flushed) {
        return false;
    }
    if (reader->packed == NULL) {
        reader->packed = malloc((size_t)RING_STAGING_RECORDS * RECORD_PACKED_MAX);
    }
    for (unsigned looked = 0; reader->packed != NULL && looked < PIECES_LOOKED_AT; looked++) {
        if (find_in_piece(reader, from, flushed)) {
            return true;
        }
        if (reader->piece >= newest) {
            break;
        }
        leave_piece(reader);
    }
    return false;
}

/* Nothing can be read at `at`: the file was deleted or cut, and what it held of the spill is gone; or the
 * ring was, and with it the staging slots. */
static uint64_t readable_again(const struct ring_reader *reader, uint64_t at)
{
    uint64_t flushed = __atomic_load_n(&reader->ring->spill_flushed, __ATOMIC_ACQUIRE);
    if (at >= flushed && reader->damage != NULL) {
        return reader->spill_seen;
    }
    return flushed < reader->spill_seen ? flushed : reader->spill_seen;
}

/* What stands before `end` can't be read. */
static void skip_spill(struct ring_reader *reader, uint64_t end)
{
    uint64_t skipped = end > reader->spill_read ? end - reader->spill_read : 0;
    reader->unreadable += skipped;
    reader->sequence += skipped;
    reader->spill_read += skipped;
}

static const struct varve_record *peek_spill(struct ring_reader *reader, const struct session_directory *directory)
{
    while (reader->spill_read < reader->spill_seen) {
        uint64_t at = reader->spill_read;
        if (at >= reader->buffer_from && at < reader->buffer_to) {
            return &reader->buffer[at - reader->buffer_from];
        }
        if (reader->buffer == NULL) {
            reader->buffer = malloc(BUFFER_RECORDS * sizeof(struct varve_record));
            if (reader->buffer == NULL) {
                return NULL; /* tried again in the next round */
            }
        }
        if (fill_from_staging(reader, directory, at) || fill_from_pieces(reader, at) ||
            fill_from_staging(reader, directory, at)) {
            skip_spill(reader, reader->buffer_from); /* a piece in between is gone */
        } else {
            uint64_t end = readable_again(reader, at);
            if (end <= at) {
                return NULL;
            }
            skip_spill(reader, end);
        }
    }
    return NULL;
}

/* The oldest record is in the ring: what was spilled before the producer came back to it is read. */
static bool is_ring_next(const struct ring_reader *reader)
{
    return reader->read < reader->head_seen && reader->spill_read >= reader->resume_seen;
}

/* The next record of the ring, else of the spill, else the orphans. */
static void advance(struct ring_reader *reader)
{
    if (is_ring_next(reader)) {
        reader->read++;
    } else if (reader->spill_read < reader->spill_seen) {
        reader->spill_read++;
    } else {
        reader->orphans_read++;
    }
}

static void skip_unreadable(struct ring_reader *reader)
{
    reader->unreadable++;
    reader->sequence++;
    advance(reader);
}

/* Records of a ring that was cut, behind its end. */
static void skip_what_is_gone(struct ring_reader *reader)
{
    while (is_ring_next(reader) &&
           !ring_reader_is_inside(reader, &ring_records(reader->ring)[reader->read & (reader->capacity - 1)])) {
        skip_unreadable(reader);
    }
}

/* The thread may have been killed between filing a record and noting that: then it was the last one read. */
static const struct varve_record *peek_orphan(struct ring_reader *reader)
{
    const struct varve_record *orphans = reader->ring->nested;
    if (!reader->has_counted_orphans && reader->orphans_seen > 0) {
        reader->has_counted_orphans = true;
        if (orphans[reader->orphans_first].ticks == reader->last_ticks) {
            reader->orphans_first++;
            reader->orphans_seen--;
        }
    }
    return reader->orphans_read < reader->orphans_seen ? &orphans[reader->orphans_first + reader->orphans_read] : NULL;
}

static const struct varve_record *peek_any(struct ring_reader *reader, const struct session_directory *directory)
{
    const struct varve_record *record;
    do {
        if (reader->damage != NULL) {
            skip_what_is_gone(reader);
        }
        if (is_ring_next(reader)) {
            return &ring_records(reader->ring)[reader->read & (reader->capacity - 1)];
        }
        if (reader->spill_read >= reader->spill_seen) {
            return peek_orphan(reader);
        }
        record = peek_spill(reader, directory);
    } while (is_ring_next(reader)); /* what is gone of the spill was skipped */
    return record;
}

const struct varve_record *ring_reader_peek(struct ring_reader *reader, const struct session_directory *directory)
{
    const struct varve_record *record;

    /* what has no kind was never written: something has put zeros over it */
    while ((record = peek_any(reader, directory)) != NULL && varve_record_kind(record) == 0) {
        skip_unreadable(reader);
    }
    return record;
}

void ring_reader_pop(struct ring_reader *reader)
{
    if (is_ring_next(reader)) {
        reader->last_ticks = ring_records(reader->ring)[reader->read & (reader->capacity - 1)].ticks;
    } else if (reader->spill_read < reader->spill_seen) {
        reader->last_ticks = reader->buffer[reader->spill_read - reader->buffer_from].ticks;
    }
    advance(reader);
}

/* Less `bytes` that the producer had counted; whatever the program has written there meanwhile, not below 0. */
static void count_down(uint64_t *count, uint64_t bytes)
{
    uint64_t before = __atomic_load_n(count, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(count, &before, before > bytes ? before - bytes : 0, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
    }
}

static void remove_piece(const struct ring_reader *reader, uint32_t piece)
{
    struct session_counts *counts = reader->directory->counts;
    char name[64];
    name_piece(reader, piece, name, sizeof(name));
    uint64_t bytes = 0;
    bool is_in_rings = false;
    if (session_file_size(reader->directory, name, &bytes, &is_in_rings) && counts != NULL) {
        count_down(&counts->spill_bytes, bytes);
        count_down(&counts->growth_bytes, is_in_rings ? bytes : 0);
        count_down(&counts->memory_bytes, is_in_rings ? bytes : 0);
    }
    session_file_remove(reader->directory, name);
}

/* Pieces that were read to their end; where the producer is back in the ring, or gone, the last one too. */
static void leave_pieces(struct ring_reader *reader)
{
    uint32_t ended = __atomic_load_n(&reader->ring->pieces_ended, __ATOMIC_ACQUIRE);
    if (reader->spill_read < __atomic_load_n(&reader->ring->spill_resume, __ATOMIC_ACQUIRE)) {
        ended = 0;
    }
    if ((reader->is_retired || reader->saw_end) && reader->spill_read == reader->spill_seen) {
        ended = __atomic_load_n(&reader->ring->piece, __ATOMIC_ACQUIRE);
    }
    for (unsigned i = 0; i < PIECES_LOOKED_AT && reader->piece <= ended; i++) {
        leave_piece(reader);
    }
}

void ring_reader_commit(struct ring_reader *reader)
{
    leave_pieces(reader);
    reader->committing = (struct ring_mark){reader->read, reader->spill_read, reader->orphans_read, reader->piece};
}

void ring_reader_release(struct ring_reader *reader)
{
    const struct ring_mark *mark = &reader->committing;
    if (mark->piece == 0) {
        return; /* the ring was found later */
    }
    __atomic_store_n(&reader->ring->spill_tail, mark->spill_read, __ATOMIC_RELEASE);
    __atomic_store_n(&reader->ring->tail, mark->read, __ATOMIC_RELEASE);
    reader->stored = mark->read + mark->spill_read + mark->orphans_read;
    __atomic_store_n(&reader->ring->pieces_released, mark->piece - 1, __ATOMIC_RELEASE);
    for (; reader->piece_kept < mark->piece; reader->piece_kept++) {
        remove_piece(reader, reader->piece_kept);
    }
}

int ring_check(const struct ring_header *ring, bool producer_is_dead, struct varve_message *message)
{
    uint64_t emitted = ring->emitted;
    uint64_t completed = ring->head + ring->spill_head + ring->lost;
    if (ring->tail > ring->head || ring->head - ring->tail > ring->capacity) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "ring %u: tail and head are more than its capacity apart", ring->ring_index);
    }
    if (ring->spill_tail > ring->spill_head || ring->spill_head - ring->spill_flushed > RING_STAGING_RECORDS) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "ring %u: spill positions contradict each other",
                                 ring->ring_index);
    }
    if (ring->spill_resume > ring->spill_head) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "ring %u: went back to the ring before it had spilled",
                                 ring->ring_index);
    }
    if (ring->pieces_released > ring->piece || ring->pieces_ended > ring->piece) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "ring %u: pieces contradict each other",
                                 ring->ring_index);
    }
    uint64_t lost = 0;
    for (unsigned kind = 0; kind < VARVE_KIND_LIMIT; kind++) {
        lost += ring->lost_by_kind[kind];
    }
    if (producer_is_dead &&
        (emitted < completed || emitted - completed > RING_NESTED_SLOTS || lost < ring->lost + ring->lost_folded)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "ring %u: emitted is not completed plus lost",
                                 ring->ring_index);
    }
    return VARVE_OK;
}
