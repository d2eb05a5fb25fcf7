/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of a rebuild: which record belongs where, whose memory goes when there is too much, and in the
 * end a ring file and spill for each, as a workload would have left them. The hard part is that nothing about
 * the order is certain: the next number of a ring is likely, an earlier one may fill a gap or come twice.
 */
#include "trace/base/array.h"
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"
#include "trace/record.h"
#include "trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFERED_MAX (UINT64_C(64) << 20) /* bytes of records in memory, of all rings */
#define BUFFERED_KEPT (BUFFERED_MAX / 4 * 3)

/* ---- finding one ---- */

static struct rebuild_ring *ring_make(struct varve_rebuild *rebuild, const struct varve_mirror_origin *origin,
                                      struct rebuild_process *process)
{
    struct rebuild_ring *ring = calloc(1, sizeof(*ring));

    if (ring == NULL || !array_grow((void **)&rebuild->rings, &rebuild->ring_capacity,
                                    rebuild->ring_count + 1, sizeof(struct rebuild_ring *))) {
        free(ring);
        return NULL;
    }
    ring->origin = *origin;
    ring->process = process;
    ring->tid_number = UINT64_MAX;
    ring->side.file = rebuild->files;
    rebuild_run_init(&ring->run, rebuild->files++);
    rebuild->rings[rebuild->ring_count++] = ring;
    return ring;
}

struct rebuild_ring *rebuild_ring_of(struct varve_rebuild *rebuild, const struct varve_mirror_origin *origin)
{
    const struct rebuild_key key = {(uint32_t)origin->pid, origin->process, origin->ring};
    struct varve_message message;
    struct rebuild_process *process;
    void **slot;

    if (origin->ring == UINT32_MAX) {
        rebuild->damaged++;
        return NULL;
    }
    slot = rebuild_index_slot(&rebuild->ring_index, &key);
    if (slot != NULL && *slot != NULL) {
        return *slot;
    }
    process = rebuild_process_of(rebuild, origin->process, origin->pid);
    if (process == NULL) {
        return NULL;
    }
    if (slot != NULL) {
        *slot = ring_make(rebuild, origin, process);
        rebuild->ring_index.used += *slot != NULL;
    }
    if (slot == NULL || *slot == NULL) {
        rebuild_keep(rebuild, rebuild_no_memory(&message), &message);
        return NULL;
    }
    return *slot;
}

void rebuild_ring_free(struct varve_rebuild *rebuild, struct rebuild_ring *ring)
{
    rebuild_run_drop(&rebuild->folder, &ring->run, false);
    rebuild_side_drop(&rebuild->folder, &ring->side);
    free(ring);
}

/* ---- records ---- */

/* Rings that got nothing lately give their memory up, until a quarter of it is free. */
static int make_room(struct varve_rebuild *rebuild, struct varve_message *message)
{
    int code = VARVE_OK;

    while (code == VARVE_OK && rebuild->folder.buffered > BUFFERED_KEPT) {
        struct rebuild_ring *ring = rebuild->rings[rebuild->hand++ % rebuild->ring_count];

        if (ring->is_recent) {
            ring->is_recent = false;
            continue;
        }
        code = rebuild_run_park(&rebuild->folder, &ring->run, message);
        if (code == VARVE_OK) {
            code = rebuild_side_park(&rebuild->folder, &ring->side, message);
        }
    }
    return code;
}

/* Not the next one, nor a later one. */
static int take_late(struct varve_rebuild *rebuild, struct rebuild_ring *ring,
                     const struct varve_mirror_origin *origin, uint64_t number,
                     const struct varve_record *record, struct varve_message *message)
{
    const struct rebuild_run *run = &ring->run;

    if (run->markers == 0 || number < run->gap_first || number > run->gap_last) {
        return VARVE_OK; /* told twice */
    }
    if (number < ring->tid_number) {
        ring->tid_number = number;
        ring->origin.tid = ring->is_described ? ring->origin.tid : origin->tid;
    }
    return rebuild_side_add(&rebuild->folder, &ring->side, number, record, message);
}

static struct rebuild_ring *ring_find(struct varve_rebuild *rebuild, const struct varve_mirror_origin *origin)
{
    struct rebuild_ring *ring = rebuild->ring_last;

    if (ring == NULL || ring->origin.ring != origin->ring || ring->origin.process != origin->process ||
        ring->origin.pid != origin->pid) {
        ring = rebuild_ring_of(rebuild, origin);
        rebuild->ring_last = ring != NULL ? ring : rebuild->ring_last;
    }
    return ring;
}

int varve_rebuild_record(struct varve_rebuild *rebuild, const struct varve_mirror_origin *origin,
                         uint64_t ring_seq, const struct varve_record *record)
{
    struct varve_record taken = *record;
    struct varve_message message;
    struct rebuild_ring *ring;
    int code;

    if (rebuild->error != VARVE_OK) {
        return rebuild->error;
    }
    if (ring_seq == 0 || ring_seq >= REBUILD_NUMBER_LIMIT) {
        rebuild->damaged++;
        return VARVE_OK;
    }
    ring = ring_find(rebuild, origin);
    if (ring == NULL) {
        return rebuild->error;
    }
    taken.dev_seq_kind_flags &= ~(uint64_t)(0xffU & ~VARVE_FLAGS_STORED);
    rebuild->records++;
    ring->is_recent = true;
    if (ring_seq > ring->run.last) {
        if (ring->tid_number == UINT64_MAX) {
            ring->tid_number = ring_seq;
        }
        code = rebuild_run_append(&rebuild->folder, &ring->run, ring_seq, &taken, &message);
    } else {
        code = take_late(rebuild, ring, origin, ring_seq, &taken, &message);
    }
    if (code == VARVE_OK && rebuild->folder.buffered > BUFFERED_MAX) {
        code = make_room(rebuild, &message);
    }
    return code == VARVE_OK ? VARVE_OK : rebuild_keep(rebuild, code, &message);
}

/* ---- threads ---- */

int varve_rebuild_thread(struct varve_rebuild *rebuild, const struct varve_mirror_thread *thread)
{
    struct rebuild_ring *ring = rebuild->error == VARVE_OK ? rebuild_ring_of(rebuild, &thread->origin) : NULL;

    if (ring != NULL) {
        const char *name = thread->name != NULL ? thread->name : "";
        ring->is_described = true;
        ring->origin.tid = thread->origin.tid;
        ring->created_ticks = thread->created_ticks;
        memset(ring->name, 0, sizeof(ring->name));
        memcpy(ring->name, name, strnlen(name, sizeof(ring->name)));
    }
    return rebuild->error;
}

int varve_rebuild_thread_end(struct varve_rebuild *rebuild, const struct varve_mirror_thread_end *end)
{
    struct rebuild_ring *ring = rebuild->error == VARVE_OK ? rebuild_ring_of(rebuild, &end->origin) : NULL;

    if (ring != NULL && end->emitted < REBUILD_NUMBER_LIMIT && end->lost < REBUILD_NUMBER_LIMIT) {
        ring->has_end = true;
        ring->end = *end;
    } else if (ring != NULL) {
        rebuild->damaged++;
    }
    return rebuild->error;
}

/* ---- the end ---- */

int rebuild_ring_settle(struct varve_rebuild *rebuild, struct rebuild_ring *ring,
                        struct varve_message *message)
{
    struct rebuild_run *run = &ring->run;
    uint64_t told_lost = 0; /* dropped at the very end: no LOST record could tell of them */
    uint64_t ticks;
    int code = VARVE_OK;

    if (ring->side.count + ring->side.slice_count > 0) {
        code = rebuild_side_settle(&rebuild->folder, run, &ring->side, rebuild->files++, message);
    }
    if (ring->created_ticks == 0) { /* of a ring that is known by its end alone */
        ring->created_ticks = ring->process->told.start_ticks;
    }
    ticks = run->last > 0 ? run->last_ticks : ring->created_ticks;
    if (code == VARVE_OK && ring->has_end && ring->end.emitted > run->last) {
        uint64_t rest = ring->end.emitted - run->last;
        told_lost = ring->end.lost > run->lost ? ring->end.lost - run->lost : 0;
        told_lost = told_lost < rest ? told_lost : rest;
        code = rebuild_run_extend(&rebuild->folder, run, ring->end.emitted - told_lost, ticks, message);
    } else if (ring->has_end && run->markers == 0 && ring->end.lost > run->lost) {
        told_lost = ring->end.lost - run->lost;
    }
    run->last += told_lost;
    run->lost += told_lost;
    if (ring->has_end && (run->markers == 0 || ring->end.lost_bytes > run->lost_bytes)) {
        run->lost_bytes = ring->end.lost_bytes;
    }
    if (!ring->is_described || run->first_ticks == UINT64_MAX) {
        run->first_ticks = run->first_ticks == UINT64_MAX ? ring->created_ticks : run->first_ticks;
        ring->created_ticks = run->first_ticks;
    }
    return code;
}

static void header_fill(const struct rebuild_ring *ring, uint32_t capacity, struct ring_header *header)
{
    const struct rebuild_run *run = &ring->run;

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
    header->emitted = run->last;
    header->lost = run->lost;
    header->lost_bytes = run->lost_bytes;
    header->lost_by_kind[VARVE_KIND_LOST] = run->lost;
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

/* All records into the slots of the ring itself. */
static int write_slots(struct varve_rebuild *rebuild, const struct rebuild_run *run, const char *path,
                       struct varve_message *message)
{
    struct rebuild_run_reader reader;
    uint64_t at = RING_HEADER_BYTES + RING_STAGING_RECORDS * sizeof(*reader.records);
    int code;

    rebuild_run_reader_open(&reader, &rebuild->folder, run, rebuild->folder.block);
    code = rebuild_run_load(&reader, message);
    while (code == VARVE_OK && reader.count > 0) {
        size_t bytes = reader.count * sizeof(*reader.records);
        code = rebuild_file_write(path, reader.records, bytes, at, message);
        at += bytes;
        if (code == VARVE_OK) {
            code = rebuild_run_load(&reader, message);
        }
    }
    return code;
}

/* Whole blocks as a spill file, the rest into the staging slots. */
static int write_spill(struct varve_rebuild *rebuild, const struct rebuild_ring *ring, const char *path,
                       struct varve_message *message)
{
    char from[REBUILD_PATH_BYTES];
    char to[REBUILD_PATH_BYTES];
    struct rebuild_run_reader rest;
    int code;

    rebuild_run_reader_open(&rest, &rebuild->folder, &ring->run, rebuild->folder.block);
    rest.block = ring->run.blocks;
    code = rebuild_run_load(&rest, message);
    if (code == VARVE_OK && rest.count > 0) {
        code = rebuild_file_write(path, rest.records, rest.count * sizeof(*rest.records), RING_HEADER_BYTES,
                                  message);
    }
    rebuild_run_path(&rebuild->folder, &ring->run, from, sizeof(from));
    snprintf(to, sizeof(to), "%s/p%u.r%u.spill", rebuild->folder.path, ring->process->number,
             ring->origin.ring);
    if (code == VARVE_OK && rename(from, to) != 0) {
        code = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be renamed: %s", from,
                                 strerror(errno));
    }
    return code;
}

int rebuild_ring_write(struct varve_rebuild *rebuild, struct rebuild_ring *ring, bool may_spill,
                       struct varve_message *message)
{
    struct ring_header header;
    const struct rebuild_run *run = &ring->run;
    uint64_t rows = rebuild_run_rows(run);
    bool is_spilled = run->blocks > 0 && (may_spill || rows > RING_CAPACITY_MAX);
    uint32_t capacity = is_spilled ? RING_CAPACITY_MIN : capacity_for(rows);
    char path[REBUILD_PATH_BYTES];
    int code;

    memset(&header, 0, sizeof(header));
    header_fill(ring, capacity, &header);
    snprintf(path, sizeof(path), "%s/p%u.r%u", rebuild->folder.path, ring->process->number,
             ring->origin.ring);
    if (is_spilled) {
        header.spill_head = rows;
        header.spill_flushed = run->blocks * RING_STAGING_RECORDS;
        header.spill_bytes = run->bytes;
    } else {
        header.head = rows;
    }
    code = rebuild_file_write(path, &header, offsetof(struct ring_header, nested), 0, message);
    if (code == VARVE_OK) {
        code =
            is_spilled ? write_spill(rebuild, ring, path, message) : write_slots(rebuild, run, path, message);
    }
    if (code == VARVE_OK && truncate(path, (off_t)ring_file_bytes(capacity)) != 0) {
        code = varve_message_set(message, VARVE_ERROR_IO, "%.300s: cannot be given its size", path);
    }
    rebuild_run_drop(&rebuild->folder, &ring->run, !is_spilled);
    return code;
}
