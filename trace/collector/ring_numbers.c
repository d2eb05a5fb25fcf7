/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of a process come one by one: each thread takes a number from its process' control page, then
 * makes the file. A number that was taken but has no file yet holds the watermark of the merge back, for a
 * second at most: its owner may have been killed in between, or only stopped, so the number is remembered and
 * looked for again now and then. traced_process.c calls this in every round.
 */
#include "trace/collector/collector.h"

#include "base/grown_array.h"
#include "trace/collector/session/recording_directory.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/store/store.h"

#include <stdlib.h>

#define ATTACH_PATIENCE_NS UINT64_C(1000000000)

static void lower(uint64_t *bound, uint64_t value)
{
    *bound = value < *bound ? value : *bound;
}

bool collect_file_wait(const struct collector *collector, uint64_t *seen_ns, uint64_t *seen_bound, uint64_t *bound)
{
    uint64_t now_ns = monotonic_ns();
    if (*seen_ns == 0) {
        *seen_ns = now_ns;
        *seen_bound = collector->round_ticks;
    }
    if (collector->is_recovering || now_ns - *seen_ns > ATTACH_PATIENCE_NS) {
        *seen_ns = 0;
        return false;
    }
    lower(bound, *seen_bound);
    return true;
}

static bool ring_numbers_is_before(uint32_t process, uint32_t ring, uint32_t other_process, uint32_t other_ring)
{
    return process != other_process ? process < other_process : ring < other_ring;
}

/* The first known ring of a process from number `ring` on. */
static size_t ring_numbers_find_known(const struct collector *collector, uint32_t process, uint32_t ring)
{
    size_t low = 0;
    size_t high = collector->known_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct store_ring_position *known = &collector->known[middle];
        if (ring_numbers_is_before(known->process_id, known->ring, process, ring)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct store_ring_position *known_ring(const struct collector *collector, uint32_t process, uint32_t ring)
{
    size_t at = ring_numbers_find_known(collector, process, ring);
    struct store_ring_position *known = at < collector->known_count ? &collector->known[at] : NULL;
    return known != NULL && known->process_id == process && known->ring == ring ? known : NULL;
}

/* A ring of an interrupted recording goes on where the database ends, under the number it has there. */
static void continue_known(struct store_ring_position *known, struct ring_reader *reader)
{
    known->is_found = true;
    reader->thread_id = known->thread_id;
    reader->read = known->tail;
    reader->spill_read = known->spill_tail;
    reader->orphans_read = (uint32_t)known->orphans;
    reader->unreadable = known->unreadable;
    reader->unfolded = known->unfolded;
    reader->parts = (uint32_t)known->parts;
    reader->sequence = known->sequence;
    reader->last_ticks = known->last_ticks != 0 ? known->last_ticks : reader->last_ticks;
    reader->last_ns = known->last_ns;
    reader->stored = known->tail + known->spill_tail + known->orphans;
}

int collect_rings_gone(struct collector *collector)
{
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < collector->known_count; i++) {
        const struct store_ring_position *known = &collector->known[i];
        if (!known->is_found && !known->is_final) {
            error = store_thread_gone(collector->store, known, known->is_damaged ? "damaged" : "missing",
                                      (int64_t)collector->newest_ts_ns);
        }
    }
    return error;
}

int collect_rings_missing(struct collector *collector, const struct traced_process *process)
{
    uint32_t made = __atomic_load_n(&process->control->rings_made, __ATOMIC_ACQUIRE);
    size_t known =
        ring_numbers_find_known(collector, process->id + 1, 0) - ring_numbers_find_known(collector, process->id, 0);
    uint64_t found = process->rings_found + known;
    made = made < SESSION_RING_MAX ? made : SESSION_RING_MAX;
    if (made <= found || collector->is_unstored) {
        return VARVE_OK;
    }
    return store_stat(collector->store, "rings_missing", process->id, "data_loss", "ring", (int64_t)(made - found));
}

/* Takes the reader, whatever it returns. */
static int add_reader(struct collector *collector, struct ring_reader *reader)
{
    if (!ARRAY_GROW(collector->readers, collector->reader_capacity, collector->reader_count + 1) ||
        !ARRAY_GROW(collector->heap, collector->heap_capacity, collector->reader_count + 1)) {
        ring_reader_close(reader);
        return VARVE_ERROR_NO_MEMORY;
    }
    struct store_ring_position *known = known_ring(collector, reader->process->id, reader->index);
    if (known != NULL) {
        continue_known(known, reader);
    } else {
        reader->process->rings_found++;
        reader->thread_id = ++collector->thread_count;
    }
    ring_reader_skip_overwritten(reader);
    ring_reader_refresh(reader);
    reader->process->readers++;
    collector->readers[collector->reader_count++] = reader;
    collect_sink_thread(collector, reader);
    return collect_thread_row(collector, reader, -1);
}

/* A ring whose header is damaged: its number, and that it is lost. */
static int add_damaged(struct collector *collector, struct traced_process *process, uint32_t index)
{
    struct store_thread row = {.id = ++collector->thread_count,
                               .process_id = process->id,
                               .ring = index,
                               .pid = process->pid,
                               .start_ns = process->start_ns,
                               .end_ns = process->end_ns >= 0 ? process->end_ns : 0,
                               .damage = "damaged"};
    process->rings_found++;
    return collector->is_unstored ? VARVE_OK : store_thread(collector->store, &row);
}

static bool is_opened(const struct traced_process *process, uint32_t index)
{
    return index / 8 < process->opened_bytes && (process->opened[index / 8] >> index % 8 & 1) != 0;
}

static int note_opened(struct traced_process *process, uint32_t index)
{
    if (!ARRAY_COVER(process->opened, process->opened_bytes, index / 8)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    process->opened[index / 8] |= (uint8_t)(1U << index % 8);
    return VARVE_OK;
}

/* `*opened`: whether this ring number is dealt with. */
static int open_ring(struct collector *collector, struct traced_process *process, uint32_t index, bool *opened)
{
    struct ring_reader *reader;
    int error = ring_reader_open(&reader, &collector->directory, process, index);
    *opened = error == VARVE_OK;
    if (error == VARVE_OK) {
        error = note_opened(process, index);
        if (error != VARVE_OK) {
            ring_reader_close(reader);
            return error;
        }
        return add_reader(collector, reader);
    }
    return error == VARVE_ERROR_NO_MEMORY ? error : VARVE_OK;
}

/* ---- numbers without a file ---- */

int collect_ring_missing(struct collector *collector, struct traced_process *process, uint32_t index)
{
    if (process->rings_missing == 0 || index == 0 || index >= process->rings_seen || is_opened(process, index)) {
        return VARVE_OK;
    }
    bool opened = false;
    int error = open_ring(collector, process, index, &opened);
    process->rings_missing -= opened;
    return error;
}

/* The numbers below `limit` that have a file by now; the others may still get one, and are looked for. */
static int skip_rings(struct collector *collector, struct traced_process *process, uint32_t limit)
{
    struct session_file *files;
    uint32_t first = process->rings_seen;
    size_t count;
    int error = session_directory_scan(&collector->directory, &files, &count);
    if (error != VARVE_OK) {
        return error;
    }
    process->rings_seen = limit;
    process->rings_missing += limit - first;
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        if (files[i].kind == SESSION_FILE_RING && files[i].process == process->id && files[i].ring >= first) {
            error = collect_ring_missing(collector, process, files[i].ring);
        }
    }
    free(files);
    return error;
}

int collect_rings_discover(struct collector *collector, struct traced_process *process, uint64_t *bound)
{
    uint32_t count = __atomic_load_n(&process->control->ring_count, __ATOMIC_ACQUIRE);
    count = count <= SESSION_RING_MAX ? count : SESSION_RING_MAX + 1;
    bool opened = true;
    int error = VARVE_OK;
    while (error == VARVE_OK && process->rings_seen < count) {
        error = open_ring(collector, process, process->rings_seen, &opened);
        if (!opened && process->attach_seen_ns == 0) {
            process->attach_limit = count; /* waited for together */
        }
        if (error == VARVE_OK && !opened && !process->has_ended &&
            collect_file_wait(collector, &process->attach_seen_ns, &process->attach_bound, bound)) {
            break;
        }
        process->attach_seen_ns = 0;
        if (error == VARVE_OK && !opened) {
            error = skip_rings(collector, process, process->attach_limit);
        } else {
            process->rings_seen++;
        }
    }
    if (error == VARVE_OK && !process->late_opened &&
        __atomic_load_n(&process->control->late_created, __ATOMIC_ACQUIRE) != 0) {
        error = open_ring(collector, process, 0, &opened);
        process->late_opened = opened;
    }
    return error;
}

/* ---- a recording that was interrupted ---- */

/* Nobody writes any more: what can't be opened now never will be. */
int collect_ring_left(struct collector *collector, struct traced_process *process, uint32_t index)
{
    struct store_ring_position *known = known_ring(collector, process->id, index);
    struct ring_reader *reader;
    int error = ring_reader_open(&reader, &collector->directory, process, index);
    if (error == VARVE_OK) {
        return add_reader(collector, reader);
    }
    if (error == VARVE_ERROR_NO_MEMORY || collector->is_imported) { /* that file was written a moment ago */
        return error;
    }
    if (error == VARVE_ERROR_FORMAT && known == NULL) {
        return add_damaged(collector, process, index);
    }
    if (known != NULL) {
        known->is_damaged = error == VARVE_ERROR_FORMAT;
    }
    return VARVE_OK;
}
