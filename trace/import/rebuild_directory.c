/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came as the recording directory that a workload would have left: ring files, of records and of markers (LOST
 * records) where some are missing, control pages and call-site files. Called by rebuild_finish.c.
 */
#include "trace/import/rebuild.h"

#include "trace/collector/collector.h"
#include "base/error.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the rows of a ring: its records, and a marker (a LOST record) where some are missing ---- */

/* Numbers of rows follow from counting: a LOST record says how many it skips, a marker stands for those that are
 * missing. `ring` gathers what its header will say; nothing else is changed. */
struct row_reader {
    struct rebuild_records *records;
    struct rebuild_ring *ring;
    bool has_next, is_over;
    struct varve_record next; /* behind a marker */
};

static void row_reader_begin(struct row_reader *reader, struct rebuild_records *records, struct rebuild_ring *ring)
{
    *reader = (struct row_reader){.records = records, .ring = ring};
    ring->records = ring->markers = ring->missing = ring->last = ring->lost = ring->lost_bytes = 0;
    ring->first_ticks = UINT64_MAX;
    ring->last_ticks = 0;
}

static struct varve_record marker_make(struct rebuild_ring *ring, uint64_t missing, uint64_t ticks)
{
    ring->markers++;
    ring->missing += missing;
    return (struct varve_record){
        .ticks = ticks,
        .arg = missing,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_LOST, VARVE_FLAG_GAP),
    };
}

/* A LOST record says that it skips numbers: what it says and what the numbers say must agree, for the collector
 * counts by the record. Numbers are right; a record that claims too much is damaged. */
static uint64_t skipped_by(struct varve_record *lost, uint64_t room)
{
    if (lost->arg >= REBUILD_NUMBER_LIMIT) {
        return 0; /* the collector does not believe it either */
    }
    lost->arg = lost->arg < room ? lost->arg : room;
    return lost->arg;
}

/* The next record of the table as one row, or two. */
static void row_take(struct row_reader *reader, const struct rebuild_row *row, struct varve_record *record_out)
{
    struct rebuild_ring *ring = reader->ring;
    struct varve_record record = row->record;
    uint64_t room = row->number - ring->last - 1; /* numbers in between */
    ring->first_ticks = ring->last == 0 ? record.ticks : ring->first_ticks;
    ring->last_ticks = record.ticks > ring->last_ticks ? record.ticks : ring->last_ticks;
    ring->records++;
    if (varve_record_kind(&record) == VARVE_KIND_LOST) {
        uint64_t skipped = skipped_by(&record, room);
        room -= skipped;
        ring->lost += skipped;
        ring->lost_bytes += record.size;
    }
    ring->last = row->number;
    reader->has_next = room > 0;
    reader->next = record;
    *record_out = room > 0 ? marker_make(ring, room, record.ticks) : record;
}

/* What the end of the thread adds; true: there is one more marker. */
static bool ring_end(struct rebuild_ring *ring, struct varve_record *marker)
{
    if (ring->created_ticks == 0) { /* of a ring that is known by its end alone */
        ring->created_ticks = ring->process->description.start_ticks;
    }
    uint64_t end_lost = 0; /* dropped at the very end: no LOST record could count them */
    bool has_marker = false;
    if (ring->has_end && ring->end.emitted > ring->last) {
        uint64_t rest = ring->end.emitted - ring->last;
        uint64_t ticks = ring->last > 0 ? ring->last_ticks : ring->created_ticks;
        end_lost = ring->end.lost > ring->lost ? ring->end.lost - ring->lost : 0;
        end_lost = end_lost < rest ? end_lost : rest;
        has_marker = rest > end_lost;
        if (has_marker) {
            *marker = marker_make(ring, rest - end_lost, ticks);
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
    return has_marker;
}

/* VARVE_ERROR_NOT_FOUND: that was all. The table is read at the ring, see rebuild_records_seek. */
static int row_next(struct row_reader *reader, struct varve_record *record, struct varve_message *message)
{
    if (reader->has_next) {
        reader->has_next = false;
        *record = reader->next;
        return VARVE_OK;
    }
    if (reader->is_over) {
        return VARVE_ERROR_NOT_FOUND;
    }
    struct rebuild_row row;
    int error = rebuild_records_next(reader->records, &row, message);
    if (error == VARVE_OK) {
        row_take(reader, &row, record);
    } else if (error == VARVE_ERROR_NOT_FOUND) {
        reader->is_over = true;
        error = ring_end(reader->ring, record) ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
    }
    return error;
}

int rebuild_rings_measure(const struct varve_rebuild *rebuild, struct varve_message *message)
{
    struct row_reader reader;
    int error = rebuild_records_seek(rebuild->records, REBUILD_RINGS_ALL, message);
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        row_reader_begin(&reader, rebuild->records, rebuild->rings[i]);
    }
    struct varve_record record;
    struct rebuild_row row;
    while (error == VARVE_OK && (error = rebuild_records_next(rebuild->records, &row, message)) == VARVE_OK) {
        if (row.ring >= rebuild->ring_count) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "%.300s: was changed by another program",
                                     rebuild->folder);
        }
        reader.ring = rebuild->rings[row.ring];
        row_take(&reader, &row, &record);
    }
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        (void)ring_end(rebuild->rings[i], &record);
    }
    return error == VARVE_ERROR_NOT_FOUND ? VARVE_OK : error;
}

/* ---- ring files ---- */

static void rebuild_directory_header_fill(const struct rebuild_ring *ring, uint32_t capacity,
                                          struct ring_header *header)
{
    header->magic = RING_MAGIC;
    header->version = VARVE_TRANSPORT_VERSION;
    header->process_id = ring->process->number;
    header->ring_index = ring->origin.ring;
    header->tid = (uint32_t)ring->origin.tid;
    header->capacity = capacity;
    header->staging_capacity = RING_STAGING_RECORDS;
    header->created_ticks = ring->created_ticks;
    memcpy(header->thread_name, ring->name, sizeof(header->thread_name));
    /* the collector adds what markers stand for, and a row for each */
    header->emitted = ring->last;
    header->lost = ring->lost;
    header->lost_bytes = ring->lost_bytes;
    header->lost_by_kind[VARVE_KIND_LOST] = ring->lost;
    header->state = RING_STATE_RETIRED;
}

static uint32_t capacity_for(uint64_t rows)
{
    uint32_t capacity = RING_CAPACITY_MIN;
    while (capacity < rows && capacity < RING_CAPACITY_MAX) {
        capacity *= 2;
    }
    return capacity;
}

/* A block of rows: of a spilled ring packed behind those before it, else into the slots. */
static int block_write(const struct varve_rebuild *rebuild, const char *path, uint32_t count, uint64_t position,
                       uint64_t *offset, bool is_packed, struct varve_message *message)
{
    struct record_block block = {.records = count, .position = position};
    uint64_t stride = count * sizeof(*rebuild->block);
    if (is_packed) {
        block.bytes = (uint32_t)record_pack(rebuild->block, count, rebuild->packed + sizeof(block));
        memcpy(rebuild->packed, &block, sizeof(block));
        stride = record_block_stride(&block);
        memset(rebuild->packed + sizeof(block) + block.bytes, 0, stride - sizeof(block) - block.bytes);
    }
    int error = rebuild_file_write(path, is_packed ? (const void *)rebuild->packed : (const void *)rebuild->block,
                                   stride, (int64_t)*offset, message);
    *offset += stride;
    return error;
}

/* All rows: whole blocks of a spilled ring into its one piece and the rest into the staging slots; of others into
 * the slots of the ring itself. */
static int rebuild_directory_rows_write(const struct varve_rebuild *rebuild, struct rebuild_ring *ring,
                                        const char *path, const char *spill, struct varve_message *message)
{
    uint64_t slots = RING_HEADER_BYTES + (spill == NULL ? RING_STAGING_BYTES : 0);
    struct row_reader reader;
    uint64_t spill_bytes = 0, position = 0;
    int error = rebuild_records_seek(rebuild->records, ring->id, message);
    row_reader_begin(&reader, rebuild->records, ring);
    uint32_t count = 0;
    while (error == VARVE_OK && (error = row_next(&reader, &rebuild->block[count], message)) == VARVE_OK) {
        if (++count == RING_STAGING_RECORDS) {
            error = spill != NULL ? block_write(rebuild, spill, count, position, &spill_bytes, true, message)
                                  : block_write(rebuild, path, count, position, &slots, false, message);
            position += count;
            count = 0;
        }
    }
    if (error == VARVE_ERROR_NOT_FOUND) {
        error = count > 0 ? block_write(rebuild, path, count, position, &slots, false, message) : VARVE_OK;
    }
    return error;
}

int rebuild_ring_write(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, bool may_spill,
                       struct varve_message *message)
{
    uint64_t rows = ring->records + ring->markers;
    bool is_spilled = rows >= RING_STAGING_RECORDS && (may_spill || rows > RING_CAPACITY_MAX);
    uint32_t capacity = is_spilled ? RING_CAPACITY_MIN : capacity_for(rows);
    char path[REBUILD_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/p%u.r%u", rebuild->folder, ring->process->number, ring->origin.ring);
    char spill[REBUILD_PATH_BYTES + 8];
    snprintf(spill, sizeof(spill), "%s.spill1", path);
    int error = rebuild_directory_rows_write(rebuild, ring, path, is_spilled ? spill : NULL, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct ring_header header;
    memset(&header, 0, sizeof(header));
    rebuild_directory_header_fill(ring, capacity, &header);
    if (is_spilled) {
        header.spill_head = rows;
        header.spill_flushed = rows / RING_STAGING_RECORDS * RING_STAGING_RECORDS;
        header.piece = 1;
    } else {
        header.head = rows;
    }
    error = rebuild_file_write(path, &header, offsetof(struct ring_header, nested), 0, message);
    if (error == VARVE_OK && truncate(path, (off_t)ring_file_bytes(capacity)) != 0) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be given its size", path);
    }
    return error;
}

/* ---- files of processes ---- */

static void rebuild_directory_control_fill(const struct rebuild_process *process, struct process_control *control)
{
    const struct varve_sink_process *from = &process->description;
    uint32_t state = process->end == VARVE_SINK_END_EXITED      ? PROCESS_STATE_EXITED
                     : process->end == VARVE_SINK_END_EXECUTING ? PROCESS_STATE_EXECUTING
                                                                : PROCESS_STATE_RUNNING;
    memset(control, 0, sizeof(*control));
    control->magic = PROCESS_MAGIC;
    control->version = VARVE_TRANSPORT_VERSION;
    control->process_id = process->number;
    control->parent_id = from->parent;
    control->pid = process->pid;
    control->parent_pid = from->parent_pid;
    control->rank = from->rank;
    control->start_ticks_proc = from->start_ticks_proc;
    control->start_ticks = process->is_described ? from->start_ticks : process->first_ticks;
    control->state = state;
    control->ring_count = 1;
    if (process->is_described) {
        snprintf(control->executable, sizeof(control->executable), "%s", process->executable);
        snprintf(control->command_line, sizeof(control->command_line) - 1, "%s", process->command_line);
    }
    if (process->exec_path != NULL) {
        snprintf(control->exec_path, sizeof(control->exec_path), "%s", process->exec_path);
    }
}

int rebuild_process_write(const struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message)
{
    struct process_control *control = malloc(PROCESS_CONTROL_BYTES);
    if (control == NULL) {
        return rebuild_no_memory(message);
    }
    rebuild_directory_control_fill(process, control);
    char path[REBUILD_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/p%u", rebuild->folder, process->number);
    int error = rebuild_file_write(path, control, sizeof(*control), 0, message);
    free(control);
    if (error == VARVE_OK && truncate(path, PROCESS_CONTROL_BYTES) != 0) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be given its size", path);
    }
    char callsites[REBUILD_PATH_BYTES];
    if (error == VARVE_OK && process->callsites.has_file) {
        rebuild_callsites_path(rebuild, process->file, callsites, sizeof(callsites));
        snprintf(path, sizeof(path), "%s/p%u.sites", rebuild->folder, process->number);
        if (rename(callsites, path) != 0) {
            error = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be renamed", callsites);
        }
    }
    return error;
}
