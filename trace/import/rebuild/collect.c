/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector over a rebuilt directory. Everything is there from the beginning, so no round has to wait;
 * but ten thousand rings are not opened at once: each is shown to the collector before the time of its first
 * record is reached, with the watermark of the merge in front of those that are still to come, and goes when
 * it has been read. Called by finish.c.
 */
#include "trace/collector/clock.h"
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"

#include "trace/collector/merge.h"
#include "trace/collector/retire.h"
#include "trace/collector/ring_reader.h"
#include "trace/collector/rings.h"

#include <stdlib.h>

#define RINGS_AHEAD 64U    /* opened before they are needed */
#define RUNNING_MAX 16384U /* processes that stay mapped because nobody said that they ended */

/* ---- processes ---- */

/* For the collector, whoever it finds now has ended; but it may still have rings to show. */
static void keep_running(const struct rebuild_end *end)
{
    struct collector *collector = end->collector;

    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed && process->has_ended &&
            !end->by_number[process->id]->has_closed) {
            process->has_ended = false;
            process->end_ns = -1;
            collector->processes_alive++;
        }
    }
    collector->processes_missing = 0;
}

/* Announce all processes up to this number. */
static int show_processes(const struct rebuild_end *end, uint32_t number, struct varve_message *message)
{
    struct collector *collector = end->collector;
    uint64_t bound = UINT64_MAX;
    int code = VARVE_OK;

    if (collector->process_count < number) {
        collector->directory.counts->process_count = number;
        code = collect_processes_discover(collector, &bound);
        keep_running(end);
    }
    return code == VARVE_OK ? VARVE_OK
                            : varve_message_set(message, code, "cannot follow process %u: %s", number,
                                                varve_strerror(code));
}

/* Those all of whose rings were read, and of which somebody said that they ended; where too many were never
 * heard of again, they are gone too. */
static int close_processes(const struct rebuild_end *end)
{
    struct collector *collector = end->collector;

    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        struct rebuild_process *known = end->by_number[i + 1];

        if (process == NULL || known->has_closed || process->readers > 0 ||
            known->rings_open < known->ring_count ||
            (!known->has_end && collector->processes_alive <= RUNNING_MAX)) {
            continue;
        }
        known->has_closed = true;
        process->has_ended = process->saw_end = true;
        process->is_replaced = known->is_replaced;
        process->end_ns = collect_clock_ns(&collector->clock, known->last_ticks);
        collector->processes_alive--;
    }
    return collect_processes_retire(collector);
}

/* ---- rings ---- */

static unsigned spills_open(const struct collector *collector)
{
    unsigned count = 0;

    for (size_t i = 0; i < collector->reader_count; i++) {
        count += collector->readers[i]->ring->spill_flushed > 0;
    }
    return count;
}

static int ring_show(const struct rebuild_end *end, struct rebuild_ring *ring, struct varve_message *message)
{
    struct collector *collector = end->collector;
    uint32_t index = ring->origin.ring;
    size_t readers = collector->reader_count;
    uint64_t bound = UINT64_MAX;
    struct traced_process *process;
    bool may_spill = ring->run.blocks == 0 || spills_open(collector) < end->spill_limit;
    int code = rebuild_ring_write(end->rebuild, ring, may_spill, message);

    if (code != VARVE_OK) {
        return code;
    }
    ring->is_open = true;
    ring->process->rings_open++;
    process = collector->processes[ring->process->number - 1];
    if (process != NULL) {
        if (index == 0) {
            process->control->late_created = 1;
        } else {
            process->rings_seen = index; /* whatever is between has no file */
            process->control->ring_count = index + 1;
        }
        code = collect_rings_discover(collector, process, &bound);
    }
    if (code == VARVE_OK && collector->reader_count == readers) {
        code = VARVE_ERROR_IO;
    }
    if (code != VARVE_OK) {
        return varve_message_set(message, code, "cannot follow ring %u of process %u: %s", index,
                                 ring->process->number, varve_strerror(code));
    }
    /* What is uncommitted stays so: nobody writes. */
    collector->readers[collector->reader_count - 1]->is_in_flight = false;
    return VARVE_OK;
}

/* With all rings of its process that have lower numbers, so that rows are in the order of numbers. */
static int ring_show_in_order(const struct rebuild_end *end, const struct rebuild_ring *ring,
                              struct varve_message *message)
{
    const struct rebuild_process *process = ring->process;
    int code = VARVE_OK;

    for (uint32_t i = 0; code == VARVE_OK && i < process->ring_count; i++) {
        struct rebuild_ring *other = process->rings[i];

        if (other->origin.ring > ring->origin.ring) {
            break;
        }
        if (!other->is_open && (other->origin.ring > 0 || other == ring)) {
            code = ring_show(end, other, message);
        }
    }
    return code;
}

/* What was read from a spill file lay there for our convenience: the workload did not spill it. */
static void forget_spills(const struct collector *collector)
{
    for (size_t i = 0; i < collector->reader_count; i++) {
        struct ring_reader *reader = collector->readers[i];
        if (reader->spill_read > 0 && reader->spill_read == reader->spill_seen &&
            reader->read == reader->head_seen) {
            reader->read += reader->spill_read;
            reader->head_seen = reader->read;
            reader->spill_read = reader->spill_seen = 0;
        }
    }
}

/* Merge all that is older than the watermark. */
static int merge_until(const struct rebuild_end *end, uint64_t watermark, struct varve_message *message)
{
    struct collector *collector = end->collector;
    uint64_t moved;
    int code;

    do {
        collector->watermark = watermark;
        code = merge_run(collector, &moved, message);
        if (code == VARVE_ERROR_FULL && moved > 0) {
            code = VARVE_OK; /* the store wants a commit; if the disk is full, that will say so */
        }
        forget_spills(collector);
        if (code == VARVE_OK) {
            code = collector_commit(collector, message);
        }
        if (code == VARVE_OK) {
            code = close_processes(end);
        }
        if (end->progress != NULL) {
            end->progress(end->progress_context, "draining", collector->seq, end->rows);
        }
    } while (code == VARVE_OK && moved > 0);
    return code;
}

/* Some more rings, with their processes; `*next` is the first one that remains. */
static int show_some(const struct rebuild_end *end, size_t *next, struct varve_message *message)
{
    size_t to = end->order_count - *next < RINGS_AHEAD ? end->order_count : *next + RINGS_AHEAD;
    uint32_t number = 0;
    int code;

    for (size_t i = *next; i < to; i++) {
        uint32_t other = end->order[i]->process->number;
        number = other > number ? other : number;
    }
    code = show_processes(end, number, message);
    for (; code == VARVE_OK && *next < to; (*next)++) {
        code = ring_show_in_order(end, end->order[*next], message);
    }
    return code;
}

int rebuild_collect(struct rebuild_end *end, struct varve_message *message)
{
    size_t next = 0;
    int code = VARVE_OK;

    while (code == VARVE_OK && next < end->order_count) {
        uint64_t watermark = UINT64_MAX;

        code = show_some(end, &next, message);
        if (next < end->order_count) {
            watermark = end->order[next]->begin_ticks;
            watermark -= watermark > 0;
        }
        if (code == VARVE_OK && watermark > 0) {
            code = merge_until(end, watermark, message);
        }
    }
    if (code == VARVE_OK) {
        code = show_processes(end, end->number_limit - 1, message); /* those without rings */
    }
    if (code == VARVE_OK) {
        code = close_processes(end);
    }
    if (code == VARVE_OK && end->collector->reader_count > 0) {
        code = varve_message_set(message, VARVE_ERROR_IO, "%s: holds records that cannot be read",
                                 end->rebuild->folder.path);
    }
    return code;
}
