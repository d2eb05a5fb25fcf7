/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring files of a rebuild, written as records come: a record goes behind those before it, and where some are
 * missing a marker (a LOST record) stands for them. Records that come late wait in memory until the end and are woven
 * in then. A file gets its header last, and with it the name that the collector looks for. Called by rebuild.c and
 * rebuild_finish.c.
 */
#include "trace/import/rebuild.h"

#include "base/error.h"
#include "base/grown_array.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS_OFFSET (RING_HEADER_BYTES + RING_STAGING_BYTES) /* of the records in a ring file */

struct rebuild_late {
    uint64_t number;
    uint64_t arrival; /* of equal numbers the first is taken */
    struct varve_record record;
};

static void rebuild_ring_path(const struct varve_rebuild *rebuild, const struct rebuild_ring *ring, char *path,
                              size_t bytes)
{
    snprintf(path, bytes, "%s/ring%u", rebuild->folder, ring->id);
}

void rebuild_ring_free(struct rebuild_ring *ring)
{
    free(ring->buffer);
    free(ring->late);
    free(ring);
}

/* ---- rows: the records, and a marker where some are missing ---- */

static int rows_flush(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    uint64_t count = ring->records + ring->markers - ring->rows_written;
    uint64_t offset = SLOTS_OFFSET + ring->rows_written * sizeof(*ring->buffer);
    if (count == 0) {
        return VARVE_OK;
    }
    rebuild_ring_path(rebuild, ring, path, sizeof(path));
    ring->rows_written += count;
    return rebuild_file_write(path, ring->buffer, count * sizeof(*ring->buffer), (int64_t)offset, message);
}

/* The row that `records` or `markers` will count next. */
static int row_put(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, const struct varve_record *row,
                   struct varve_message *message)
{
    int error = VARVE_OK;
    if (ring->buffer == NULL && (ring->buffer = malloc(REBUILD_BUFFER_RECORDS * sizeof(*ring->buffer))) == NULL) {
        return rebuild_no_memory(message);
    }
    if (ring->records + ring->markers - ring->rows_written == REBUILD_BUFFER_RECORDS) {
        error = rows_flush(rebuild, ring, message);
    }
    ring->buffer[ring->records + ring->markers - ring->rows_written] = *row;
    return error;
}

static int marker_put(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, uint64_t missing, uint64_t ticks,
                      struct varve_message *message)
{
    const struct varve_record marker = {
        .ticks = ticks,
        .arg = missing,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_LOST, VARVE_FLAG_GAP),
    };
    int error = row_put(rebuild, ring, &marker, message);
    ring->markers++;
    ring->missing += missing;
    return error;
}

/* How many numbers before its own a row stands for; a count that cannot be is not believed, by the collector either. */
static uint64_t skipped_by(const struct varve_record *record)
{
    return varve_record_kind(record) == VARVE_KIND_LOST && record->arg < REBUILD_NUMBER_LIMIT ? record->arg : 0;
}

/* A record whose number is beyond the last. What a LOST record says that it skips and what the numbers say must agree,
 * for the collector counts by the record. Numbers are right; a record that claims too much is damaged. */
static int record_put(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, uint64_t number,
                      struct varve_record record, struct varve_message *message)
{
    uint64_t room = number - ring->last - 1; /* numbers in between */
    if (skipped_by(&record) > room) {
        record.arg = room;
    }
    uint64_t skipped = skipped_by(&record);
    int error = room > skipped ? marker_put(rebuild, ring, room - skipped, record.ticks, message) : VARVE_OK;
    VARVE_THEN(error, row_put(rebuild, ring, &record, message));
    ring->first_ticks = ring->last == 0 ? record.ticks : ring->first_ticks;
    ring->last_ticks = record.ticks > ring->last_ticks ? record.ticks : ring->last_ticks;
    ring->records++;
    if (varve_record_kind(&record) == VARVE_KIND_LOST) {
        ring->lost += skipped;
        ring->lost_bytes += record.size;
    }
    ring->last = number;
    return error;
}

int rebuild_ring_add(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, uint64_t number,
                     const struct varve_record *record, struct varve_message *message)
{
    if (number > ring->last) {
        return record_put(rebuild, ring, number, *record, message);
    }
    if (number == ring->last || (ring->markers == 0 && ring->lost == 0)) {
        return VARVE_OK; /* nothing is missing: it came already */
    }
    if (!array_grow((void **)&ring->late, &ring->late_capacity, ring->late_count + 1, sizeof(*ring->late))) {
        return rebuild_no_memory(message);
    }
    ring->late[ring->late_count] = (struct rebuild_late){number, ring->late_count, *record};
    ring->late_count++;
    return VARVE_OK;
}

/* ---- the end: what came late, what the end of the thread adds ---- */

static int compare_late(const void *left, const void *right)
{
    const struct rebuild_late *a = left, *b = right;
    if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    return a->arrival < b->arrival ? -1 : a->arrival > b->arrival;
}

static void rows_begin(struct rebuild_ring *ring)
{
    ring->records = ring->markers = ring->missing = ring->last = ring->lost = ring->lost_bytes = 0;
    ring->rows_written = 0;
    ring->first_ticks = UINT64_MAX;
    ring->last_ticks = 0;
}

/* All rows again, those that came late in their places. */
static int rows_weave(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, const struct varve_record *rows,
                      uint64_t count, struct varve_message *message)
{
    uint64_t number = 0; /* of the row before */
    size_t late = 0;
    int error = VARVE_OK;
    qsort(ring->late, ring->late_count, sizeof(*ring->late), compare_late);
    rows_begin(ring);
    for (uint64_t i = 0; error == VARVE_OK && i < count; i++) {
        bool is_marker = (varve_record_flags(&rows[i]) & VARVE_FLAG_GAP) != 0;
        number += skipped_by(&rows[i]) + !is_marker;
        for (; error == VARVE_OK && !is_marker && late < ring->late_count && ring->late[late].number < number; late++) {
            if (ring->late[late].number > ring->last) {
                error = record_put(rebuild, ring, ring->late[late].number, ring->late[late].record, message);
            }
        }
        if (error == VARVE_OK && !is_marker) {
            error = record_put(rebuild, ring, number, rows[i], message);
        }
    }
    return error;
}

static int late_add(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    rebuild_ring_path(rebuild, ring, path, sizeof(path));
    uint64_t count = ring->rows_written;
    size_t bytes = (size_t)(SLOTS_OFFSET + count * sizeof(struct varve_record));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *file = fd >= 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (fd >= 0) {
        close(fd);
    }
    if (file == MAP_FAILED) {
        return varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be read: %s", path, strerror(errno));
    }
    unlink(path); /* it is written anew */
    const void *rows = (const char *)file + SLOTS_OFFSET;
    int error = rows_weave(rebuild, ring, rows, count, message);
    munmap(file, bytes);
    return error;
}

static int ring_end(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, struct varve_message *message)
{
    if (ring->created_ticks == 0) { /* of a ring that is known by its end alone */
        ring->created_ticks = ring->process->description.start_ticks;
    }
    uint64_t end_lost = 0; /* dropped at the very end: no LOST record could count them */
    int error = VARVE_OK;
    if (ring->has_end && ring->end.emitted > ring->last) {
        uint64_t rest = ring->end.emitted - ring->last;
        uint64_t ticks = ring->last > 0 ? ring->last_ticks : ring->created_ticks;
        end_lost = ring->end.lost > ring->lost ? ring->end.lost - ring->lost : 0;
        end_lost = end_lost < rest ? end_lost : rest;
        if (rest > end_lost) {
            error = marker_put(rebuild, ring, rest - end_lost, ticks, message);
        }
        ring->first_ticks = ticks < ring->first_ticks ? ticks : ring->first_ticks;
        ring->last = ring->end.emitted - end_lost;
    } else if (ring->has_end && ring->markers == 0 && ring->end.lost > ring->lost) {
        end_lost = ring->end.lost - ring->lost;
    }
    ring->last += end_lost;
    ring->lost += end_lost;
    if (ring->has_end && (ring->markers == 0 || ring->end.lost_bytes > ring->lost_bytes)) {
        ring->lost_bytes = ring->end.lost_bytes;
    }
    if (!ring->is_described || ring->first_ticks == UINT64_MAX) {
        ring->first_ticks = ring->first_ticks == UINT64_MAX ? ring->created_ticks : ring->first_ticks;
        ring->created_ticks = ring->first_ticks;
    }
    return error;
}

int rebuild_ring_end(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, struct varve_message *message)
{
    int error = VARVE_OK;
    if (ring->late_count > 0) {
        error = rows_flush(rebuild, ring, message);
        VARVE_THEN(error, late_add(rebuild, ring, message));
        free(ring->late);
        ring->late = NULL;
    }
    VARVE_THEN(error, ring_end(rebuild, ring, message));
    VARVE_THEN(error, rows_flush(rebuild, ring, message));
    free(ring->buffer);
    ring->buffer = NULL;
    return error;
}

/* ---- the header ---- */

/* The collector adds what markers stand for, and a row for each. */
static void rebuild_rings_header_fill(const struct rebuild_ring *ring, uint32_t capacity, struct ring_header *header)
{
    memset(header, 0, sizeof(*header));
    header->magic = RING_MAGIC;
    header->version = VARVE_TRANSPORT_VERSION;
    header->process_id = ring->process->number;
    header->ring_index = ring->origin.ring;
    header->tid = (uint32_t)ring->origin.tid;
    header->capacity = capacity;
    header->staging_capacity = RING_STAGING_RECORDS;
    header->created_ticks = ring->created_ticks;
    memcpy(header->thread_name, ring->name, sizeof(header->thread_name));
    header->emitted = ring->last;
    header->head = ring->records + ring->markers;
    header->lost = ring->lost;
    header->lost_bytes = ring->lost_bytes;
    header->lost_by_kind[VARVE_KIND_LOST] = ring->lost;
    header->state = RING_STATE_RETIRED;
}

int rebuild_ring_name(const struct varve_rebuild *rebuild, const struct rebuild_ring *ring,
                      struct varve_message *message)
{
    uint32_t capacity = RING_CAPACITY_MIN;
    while (capacity < ring->records + ring->markers && capacity < RING_CAPACITY_LIMIT) {
        capacity *= 2;
    }
    char path[REBUILD_PATH_BYTES], name[REBUILD_PATH_BYTES];
    rebuild_ring_path(rebuild, ring, path, sizeof(path));
    snprintf(name, sizeof(name), "%s/p%u.r%u", rebuild->folder, ring->process->number, ring->origin.ring);
    if (capacity < ring->records + ring->markers) {
        return varve_message_set(message, VARVE_ERROR_FULL, "ring %u of process %u holds more records than a file can",
                                 ring->origin.ring, ring->process->number);
    }
    struct ring_header header;
    rebuild_rings_header_fill(ring, capacity, &header);
    int error = rebuild_file_write(path, &header, offsetof(struct ring_header, nested), 0, message);
    if (error == VARVE_OK && (truncate(path, (off_t)ring_file_bytes(capacity)) != 0 || rename(path, name) != 0)) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be given its size and name: %s", path,
                                  strerror(errno));
    }
    return error;
}
