/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs: records of one ring whose numbers grow, as a spill file that the collector can read as it is. Where
 * numbers are skipped a marker goes into the run, a LOST record that stands for the missing ones; so the
 * number of each record follows from counting, and a jump of 2^40 takes no more space than one of 1. The hard
 * part is memory: a block is 4096 records, and hundreds of rings each have an incomplete one. So records are
 * packed by the hundred, and what does not fit waits packed in a file. Called by rings.c.
 */
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"
#include "trace/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPACITY_FIRST 4U /* thousands of processes emit next to nothing */
#define CAPACITY_MAX 64U  /* then they are packed */

void rebuild_run_path(const struct rebuild_folder *folder, const struct rebuild_run *run, char *path,
                      size_t bytes)
{
    snprintf(path, bytes, "%s/run%llu", folder->path, (unsigned long long)run->file);
}

static void part_path(const struct rebuild_folder *folder, const struct rebuild_run *run, char *path,
                      size_t bytes)
{
    snprintf(path, bytes, "%s/part%llu", folder->path, (unsigned long long)run->file);
}

void rebuild_run_init(struct rebuild_run *run, uint64_t file)
{
    *run = (struct rebuild_run){.file = file, .first_ticks = UINT64_MAX};
}

/* What is in memory goes, `previous` stays. */
static void memory_free(struct rebuild_folder *folder, struct rebuild_run *run)
{
    folder->buffered -= run->capacity * sizeof(*run->buffer) + run->packed_capacity;
    free(run->buffer);
    free(run->packed_records);
    run->buffer = NULL;
    run->packed_records = NULL;
    run->count = run->capacity = run->packed = run->packed_bytes = run->packed_capacity = 0;
}

void rebuild_run_drop(struct rebuild_folder *folder, struct rebuild_run *run, bool files)
{
    char path[REBUILD_PATH_BYTES];

    memory_free(folder, run);
    if (files && run->blocks > 0) {
        rebuild_run_path(folder, run, path, sizeof(path));
        unlink(path);
    }
    if (files && run->parked > 0) {
        part_path(folder, run, path, sizeof(path));
        unlink(path);
    }
}

/* ---- writing ---- */

static bool reserve_packed(struct rebuild_folder *folder, struct rebuild_run *run, size_t more)
{
    size_t needed = run->packed_bytes + more;
    size_t capacity = run->packed_capacity;
    uint8_t *grown;

    if (needed <= capacity) {
        return true;
    }
    capacity = needed > 2 * capacity ? needed : 2 * capacity;
    grown = realloc(run->packed_records, capacity);
    if (grown == NULL) {
        return false;
    }
    folder->buffered += capacity - run->packed_capacity;
    run->packed_records = grown;
    run->packed_capacity = (uint32_t)capacity;
    return true;
}

/* The buffer joins the packed records of its block. A packed record depends on the one before it: that is
 * packed once more in front, and its bytes are left out. */
static int pack_buffer(struct rebuild_folder *folder, struct rebuild_run *run, struct varve_message *message)
{
    size_t bytes;
    size_t before;

    if (run->count == 0) {
        return VARVE_OK;
    }
    before = record_pack(run->buffer, 1, folder->packed);
    bytes = record_pack(run->buffer, run->count + 1, folder->packed) - before;
    if (!reserve_packed(folder, run, bytes)) {
        return rebuild_no_memory(message);
    }
    memcpy(run->packed_records + run->packed_bytes, folder->packed + before, bytes);
    run->packed_bytes += (uint32_t)bytes;
    run->packed += run->count;
    run->previous = run->buffer[0] = run->buffer[run->count];
    run->count = 0;
    return VARVE_OK;
}

int rebuild_run_park(struct rebuild_folder *folder, struct rebuild_run *run, struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    int code = pack_buffer(folder, run, message);

    if (code == VARVE_OK && run->packed > 0) {
        part_path(folder, run, path, sizeof(path));
        code = rebuild_file_write(path, run->packed_records, run->packed_bytes, run->parked_bytes, message);
    }
    if (code == VARVE_OK) {
        run->parked += run->packed;
        run->parked_bytes += run->packed_bytes;
        memory_free(folder, run);
    }
    return code;
}

/* The packed records of the block that is not complete, parked ones first. */
static int gather_packed(const struct rebuild_folder *folder, const struct rebuild_run *run, uint8_t *packed,
                         struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    int code = VARVE_OK;

    if (run->parked > 0) {
        part_path(folder, run, path, sizeof(path));
        code = rebuild_file_read(path, packed, run->parked_bytes, 0, message);
    }
    if (run->packed > 0) {
        memcpy(packed + run->parked_bytes, run->packed_records, run->packed_bytes);
    }
    return code;
}

/* All records of the block are there. */
static int write_block(struct rebuild_folder *folder, struct rebuild_run *run, struct varve_message *message)
{
    char path[REBUILD_PATH_BYTES];
    struct record_block block = {.records = RING_STAGING_RECORDS};
    uint64_t stride;
    int code = pack_buffer(folder, run, message);

    if (code == VARVE_OK) {
        code = gather_packed(folder, run, folder->packed + sizeof(block), message);
    }
    if (code != VARVE_OK) {
        return code;
    }
    block.bytes = run->parked_bytes + run->packed_bytes;
    memcpy(folder->packed, &block, sizeof(block));
    stride = record_block_stride(&block);
    memset(folder->packed + sizeof(block) + block.bytes, 0, stride - sizeof(block) - block.bytes);
    rebuild_run_path(folder, run, path, sizeof(path));
    code = rebuild_file_write(path, folder->packed, stride, run->bytes, message);
    if (code == VARVE_OK) {
        run->blocks++;
        run->bytes += stride;
        run->parked = run->parked_bytes = run->packed = run->packed_bytes = 0;
        memset(&run->previous, 0, sizeof(run->previous));
        run->buffer[0] = run->previous;
    }
    return code;
}

static int buffer_grow(struct rebuild_folder *folder, struct rebuild_run *run, struct varve_message *message)
{
    uint32_t capacity = run->capacity == 0 ? CAPACITY_FIRST : run->capacity * 2;
    struct varve_record *grown = realloc(run->buffer, capacity * sizeof(*grown));

    if (grown == NULL) {
        return rebuild_no_memory(message);
    }
    folder->buffered += (capacity - run->capacity) * sizeof(*grown);
    grown[0] = run->previous;
    run->buffer = grown;
    run->capacity = capacity;
    return VARVE_OK;
}

/* The buffer is full. */
static int make_place(struct rebuild_folder *folder, struct rebuild_run *run, struct varve_message *message)
{
    return run->capacity < CAPACITY_MAX ? buffer_grow(folder, run, message)
                                        : pack_buffer(folder, run, message);
}

/* One more, whatever it is. */
static inline int push(struct rebuild_folder *folder, struct rebuild_run *run,
                       const struct varve_record *record, struct varve_message *message)
{
    if (run->count + 1 >= run->capacity) {
        int code = make_place(folder, run, message);
        if (code != VARVE_OK) {
            return code;
        }
    }
    run->buffer[++run->count] = *record;
    return run->parked + run->packed + run->count < RING_STAGING_RECORDS ? VARVE_OK
                                                                         : write_block(folder, run, message);
}

static int push_marker(struct rebuild_folder *folder, struct rebuild_run *run, uint64_t missing,
                       uint64_t ticks, struct varve_message *message)
{
    const struct varve_record marker = {
        .ticks = ticks,
        .arg = missing,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_LOST, VARVE_FLAG_GAP),
    };

    run->gap_first = run->markers == 0 ? run->last + 1 : run->gap_first;
    run->gap_last = run->last + missing;
    run->markers++;
    run->missing += missing;
    return push(folder, run, &marker, message);
}

/* A LOST record says that it skips numbers: what it says and what the numbers say must agree, for the
 * collector counts by the record. Numbers are right; a record that claims too much is damaged. */
static uint64_t skipped_by(struct varve_record *lost, uint64_t room)
{
    if (lost->arg >= REBUILD_NUMBER_LIMIT) {
        return 0; /* the collector does not believe it either */
    }
    lost->arg = lost->arg < room ? lost->arg : room;
    return lost->arg;
}

static int append_special(struct rebuild_folder *folder, struct rebuild_run *run, uint64_t number,
                          const struct varve_record *record, struct varve_message *message)
{
    struct varve_record told = *record;
    uint64_t room = number - run->last - 1; /* numbers in between */
    int code = VARVE_OK;

    if (varve_record_kind(record) == VARVE_KIND_LOST) {
        uint64_t skipped = skipped_by(&told, room);
        room -= skipped;
        run->lost += skipped;
        run->lost_bytes += record->size;
    }
    if (room > 0) {
        code = push_marker(folder, run, room, record->ticks, message);
    }
    run->last = number;
    return code == VARVE_OK ? push(folder, run, &told, message) : code;
}

int rebuild_run_append(struct rebuild_folder *folder, struct rebuild_run *run, uint64_t number,
                       const struct varve_record *record, struct varve_message *message)
{
    assert(number > run->last);
    run->first_ticks = run->last == 0 ? record->ticks : run->first_ticks;
    run->last_ticks = record->ticks > run->last_ticks ? record->ticks : run->last_ticks;
    if (number != run->last + 1 || varve_record_kind(record) == VARVE_KIND_LOST) {
        return append_special(folder, run, number, record, message);
    }
    run->last = number;
    return push(folder, run, record, message);
}

int rebuild_run_extend(struct rebuild_folder *folder, struct rebuild_run *run, uint64_t last, uint64_t ticks,
                       struct varve_message *message)
{
    int code = last > run->last ? push_marker(folder, run, last - run->last, ticks, message) : VARVE_OK;

    run->first_ticks = ticks < run->first_ticks ? ticks : run->first_ticks;
    run->last = last > run->last ? last : run->last;
    return code;
}

/* ---- reading ---- */

void rebuild_run_reader_open(struct rebuild_run_reader *reader, const struct rebuild_folder *folder,
                             const struct rebuild_run *run, struct varve_record *records)
{
    *reader = (struct rebuild_run_reader){.folder = folder, .run = run, .records = records};
}

static int read_block(struct rebuild_run_reader *reader, struct varve_message *message)
{
    const struct rebuild_folder *folder = reader->folder;
    char path[REBUILD_PATH_BYTES];
    struct record_block block = {0};
    int code;

    rebuild_run_path(folder, reader->run, path, sizeof(path));
    code = rebuild_file_read(path, &block, sizeof(block), reader->offset, message);
    if (code == VARVE_OK && block.bytes <= RING_STAGING_RECORDS * RECORD_PACKED_MAX) {
        code = rebuild_file_read(path, folder->packed, block.bytes, reader->offset + sizeof(block), message);
    }
    if (code != VARVE_OK) {
        return code;
    }
    if (block.records != RING_STAGING_RECORDS ||
        !record_unpack(folder->packed, block.bytes, reader->records, block.records)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "%.300s: was changed by somebody", path);
    }
    reader->count = block.records;
    reader->offset += record_block_stride(&block);
    reader->block++;
    return VARVE_OK;
}

static int read_rest(struct rebuild_run_reader *reader, struct varve_message *message)
{
    const struct rebuild_run *run = reader->run;
    uint8_t *packed = reader->folder->packed;
    uint32_t count = run->parked + run->packed;
    int code = gather_packed(reader->folder, run, packed, message);

    if (code == VARVE_OK &&
        !record_unpack(packed, run->parked_bytes + run->packed_bytes, reader->records, count)) {
        code = varve_message_set(message, VARVE_ERROR_CORRUPT, "%.300s: was changed by somebody",
                                 reader->folder->path);
    }
    if (run->count > 0) {
        memcpy(reader->records + count, run->buffer + 1, run->count * sizeof(*run->buffer));
    }
    reader->count = count + run->count;
    reader->is_at_end = true;
    return code;
}

int rebuild_run_load(struct rebuild_run_reader *reader, struct varve_message *message)
{
    reader->at = reader->count = 0;
    if (reader->is_at_end) {
        return VARVE_OK;
    }
    return reader->block < reader->run->blocks ? read_block(reader, message) : read_rest(reader, message);
}

int rebuild_run_next(struct rebuild_run_reader *reader, const struct varve_record **record_out,
                     struct varve_message *message)
{
    const struct varve_record *record;
    uint64_t skipped = 0;

    *record_out = NULL;
    if (reader->at == reader->count) {
        int code = rebuild_run_load(reader, message);
        if (code != VARVE_OK || reader->count == 0) {
            return code;
        }
    }
    record = &reader->records[reader->at++];
    if (varve_record_kind(record) == VARVE_KIND_LOST && record->arg < REBUILD_NUMBER_LIMIT) {
        skipped = record->arg;
    }
    reader->number += skipped + !rebuild_is_marker(record);
    *record_out = record;
    return VARVE_OK;
}
