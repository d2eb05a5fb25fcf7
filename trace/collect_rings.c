/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rings of a process come one by one: each thread takes a number from its process' control page, then
 * makes the file. A number that was taken but has no file yet holds the watermark of the merge back, for a
 * second at most: its owner may have been killed in between, or only stopped, so the number is remembered and
 * looked for again now and then. collect_process.c calls this in every round.
 */
#include "trace/collector_internal.h"

#include <stdlib.h>

#define MISSING_EVERY_NS UINT64_C(100000000)
#define ATTACH_PATIENCE_NS UINT64_C(1000000000)

static void lower(uint64_t *bound, uint64_t value)
{
    *bound = value < *bound ? value : *bound;
}

bool collect_file_wait(const struct collector *collector, uint64_t *seen_ns, uint64_t *seen_bound,
                       uint64_t *bound)
{
    uint64_t now_ns = collect_monotonic_ns();

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

/* A ring of an interrupted recording goes on where the database ends, under the number it has there. */
static void continue_known(const struct collector *collector, struct ring_reader *reader)
{
    for (size_t i = 0; i < collector->known_count; i++) {
        const struct store_ring_position *known = &collector->known[i];
        if (known->process_id == reader->process->id && known->ring == reader->index) {
            reader->thread_id = known->thread_id;
            uint64_t head = __atomic_load_n(&reader->ring->head, __ATOMIC_ACQUIRE);

            /* beyond the head: records that handlers had put aside, taken after all others */
            reader->read = known->tail < head ? known->tail : head;
            reader->orphans_read = (uint32_t)(known->tail - reader->read);
            reader->spill_read = known->spill_tail;
            reader->sequence = known->sequence;
            reader->stored = known->tail + known->spill_tail;
        }
    }
}

static int add_reader(struct collector *collector, struct ring_reader *reader)
{
    if (collector->reader_count == collector->reader_capacity) {
        size_t capacity = collector->reader_capacity == 0 ? 64 : collector->reader_capacity * 2;
        struct ring_reader **readers = realloc(collector->readers, capacity * sizeof(struct ring_reader *));
        struct ring_reader **heap;

        if (readers == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        collector->readers = readers;
        heap = realloc(collector->heap, capacity * sizeof(struct ring_reader *));
        if (heap == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        collector->heap = heap;
        collector->reader_capacity = capacity;
    }
    continue_known(collector, reader);
    if (reader->thread_id == 0) {
        reader->thread_id = ++collector->thread_count;
    }
    ring_reader_refresh(reader);
    reader->process->readers++;
    collector->readers[collector->reader_count++] = reader;
    collect_mirror_thread(collector, reader);
    return collect_thread_row(collector, reader, -1);
}

/* `*opened`: whether this ring number is dealt with. */
static int open_ring(struct collector *collector, struct traced_process *process, uint32_t index,
                     bool *opened)
{
    struct ring_reader *reader;
    int error = ring_reader_open(&reader, &collector->directory, process, index);

    *opened = error == VARVE_OK;
    if (error == VARVE_OK) {
        error = add_reader(collector, reader);
        if (error == VARVE_ERROR_NO_MEMORY) {
            ring_reader_close(reader);
        }
        return error;
    }
    return error == VARVE_ERROR_NO_MEMORY ? error : VARVE_OK;
}

static int remember_missing(struct traced_process *process, uint32_t index)
{
    uint32_t *grown = realloc(process->missing, (process->missing_count + 1) * sizeof(*grown));

    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    process->missing = grown;
    process->missing[process->missing_count++] = index;
    return VARVE_OK;
}

/* Now and then, and once more when the process has ended. */
static int look_for_missing(struct collector *collector, struct traced_process *process)
{
    uint64_t now_ns = collect_monotonic_ns();
    uint32_t kept = 0;
    int error = VARVE_OK;

    if (process->missing_count == 0 ||
        (!process->has_ended && !collector->is_draining && now_ns < process->next_missing_ns)) {
        return VARVE_OK;
    }
    process->next_missing_ns = now_ns + MISSING_EVERY_NS;
    for (uint32_t i = 0; i < process->missing_count; i++) {
        bool opened = false;

        if (error == VARVE_OK) {
            error = open_ring(collector, process, process->missing[i], &opened);
        }
        if (!opened) {
            process->missing[kept++] = process->missing[i];
        }
    }
    process->missing_count = kept;
    return error;
}

int collect_rings_discover(struct collector *collector, struct traced_process *process, uint64_t *bound)
{
    uint32_t count = __atomic_load_n(&process->control->ring_count, __ATOMIC_ACQUIRE);
    bool opened = true;
    int error = VARVE_OK;

    while (error == VARVE_OK && process->rings_seen < count) {
        error = open_ring(collector, process, process->rings_seen, &opened);
        if (!opened && process->attach_seen_ns == 0) {
            process->attach_limit = count; /* waited for together */
        }
        if (error == VARVE_OK && !opened && !process->has_ended &&
            process->rings_seen >= process->attach_given_up &&
            collect_file_wait(collector, &process->attach_seen_ns, &process->attach_bound, bound)) {
            break;
        }
        if (error == VARVE_OK && !opened) {
            process->attach_given_up = process->attach_limit;
            error = remember_missing(process, process->rings_seen);
        }
        process->rings_seen++;
        process->attach_seen_ns = 0;
    }
    if (error == VARVE_OK) {
        error = look_for_missing(collector, process);
    }
    if (error == VARVE_OK && !process->late_opened &&
        __atomic_load_n(&process->control->late_created, __ATOMIC_ACQUIRE) != 0) {
        error = open_ring(collector, process, 0, &opened);
        process->late_opened = true;
    }
    return error;
}
