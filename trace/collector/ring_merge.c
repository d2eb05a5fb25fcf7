/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rings into one order. Records of one ring keep their order; rings are merged by time, through a binary
 * heap of their next records. Two things make the order exact rather than probable:
 *
 * Watermark. A record may be merged only if no older one can still appear. A producer stores `emitted` before
 * it reads the clock, so a ring that shows no unfinished event cannot bring a record older than the moment
 * at which that store would have been visible. The collector uses the clock of the round BEFORE the present
 * one: at least 100 microseconds, in which any store that precedes the clock read has left its CPU.
 *
 * Ties of two CPUs. A block freed in one thread and reused in another may carry clock values that are a few
 * us the wrong way round, since the CPU may read the clock early; likewise one that is allocated in one
 * thread and freed in another. An allocation of an address that is still live, and a free of one that is not,
 * are therefore deferred until another ring has brought the record in between, or has had MERGE_HOLD_BACK_NS more
 * without it. The wait counts from the record's own time: however many such records a ring has, it is behind by
 * one wait. Physical memory of a device has a handle where other memory has an address.
 *
 * The order depends on the records alone, not on when they were read: a recording that is recovered, or
 * rebuilt from another sink, comes out in the same one. So equal times go by process and ring number.
 */
#include "trace/collector/collector.h"

#include "trace/collector/collector_clock.h"
#include "base/error.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/record_fold.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"

#define SKIPPED_MAX (UINT64_C(1) << 48) /* more is a damaged record */
#define PENDING_MAX UINT64_C(262144)    /* events that wait for a commit, about 100 bytes each */

static bool ring_merge_is_before(const struct ring_reader *a, const struct ring_reader *b)
{
    if (a->key != b->key) {
        return a->key < b->key;
    }
    return a->process->id != b->process->id ? a->process->id < b->process->id : a->index < b->index;
}

static void ring_merge_sift_down(struct collector *collector, size_t at)
{
    struct ring_reader **heap = collector->heap;
    struct ring_reader *reader = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= collector->heap_count) {
            break;
        }
        if (child + 1 < collector->heap_count && ring_merge_is_before(heap[child + 1], heap[child])) {
            child++;
        }
        if (!ring_merge_is_before(heap[child], reader)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = reader;
}

/* The next key of a reader, or false if it has no record. */
static bool load_key(struct collector *collector, struct ring_reader *reader, uint64_t hold_back)
{
    const struct varve_record *record = ring_reader_peek(reader, &collector->directory);
    if (record == NULL) {
        return false;
    }
    reader->key = record->ticks + (reader->is_deferred ? hold_back : 0);
    return true;
}

static void build(struct collector *collector, uint64_t hold_back)
{
    collector->heap_count = 0;
    collector->deferred = NULL;
    for (size_t i = 0; i < collector->reader_count; i++) {
        struct ring_reader *reader = collector->readers[i];
        if (load_key(collector, reader, hold_back)) {
            collector->heap[collector->heap_count++] = reader;
            if (reader->is_deferred) {
                reader->next_deferred = collector->deferred;
                collector->deferred = reader;
            }
        }
    }
    for (size_t i = collector->heap_count / 2; i-- > 0;) {
        ring_merge_sift_down(collector, i);
    }
}

/* The number of the record that comes next. A LOST record stands for those that were dropped before it; one
 * that stands for a gap has no number of its own. */
static uint64_t ring_merge_sequence_of(const struct ring_reader *reader, const struct varve_record *record)
{
    bool is_gap = (varve_record_flags(record) & VARVE_FLAG_GAP) != 0;
    uint64_t skipped = varve_record_kind(record) == VARVE_KIND_LOST ? record->arg : 0;
    return reader->sequence + (skipped < SKIPPED_MAX ? skipped : 0) + !is_gap;
}

static void decode(struct collector *collector, const struct ring_reader *reader, const struct varve_record *record,
                   struct event *event)
{
    event->seq = collector->seq + 1;
    event->ts_ns = collect_clock_ns(&collector->clock, record->ticks);
    if (event->ts_ns < reader->last_ns) {
        event->ts_ns = reader->last_ns; /* a signal handler that interrupted it came first */
    }
    event->process_id = reader->process->id;
    event->thread_id = reader->thread_id;
    event->pid = reader->process->control->pid;
    event->tid = reader->tid;
    event->kind = (uint8_t)varve_record_kind(record);
    event->cause = record->cause;
    event->device = record->device;
    event->flags = (uint8_t)(varve_record_flags(record) & VARVE_FLAGS_STORED);
    event->is_stored = false;
    event->ring_seq = (varve_record_flags(record) & VARVE_FLAG_GAP) == 0 ? ring_merge_sequence_of(reader, record) : 0;
    event->pool = record->pool;
    event->stream = (uint16_t)varve_record_stream(record);
    event->callsite = callsites_global(collector->callsites, reader->process->id, record->callsite);
    event->dev_seq = varve_record_dev_seq(record);
    event->id = varve_record_id(record);
    event->addr = record->addr;
    event->size = record->size;
    event->requested = record->requested;
    event->arg = record->arg;
}

/* What the record that a deferred one waits for has in common with it. */
static uint64_t held_by(const struct event *event)
{
    return event->kind == VARVE_KIND_VMM_CREATE || event->kind == VARVE_KIND_VMM_MAP ||
                   event->kind == VARVE_KIND_VMM_RELEASE
               ? event->arg
               : event->addr;
}

/* An event is taken: what a deferred record waited for may have come. Then it is the oldest record again, and looked at
 * again. `taken` itself, if it was deferred, no longer is. */
static void release_deferred(struct collector *collector, struct ring_reader *taken, const struct event *event)
{
    struct ring_reader **link = &collector->deferred;
    while (*link != NULL) {
        struct ring_reader *reader = *link;
        bool has_come = reader->deferred_addr == held_by(event) && reader->process->id == event->process_id;
        if (reader == taken || has_come) {
            *link = reader->next_deferred;
            reader->is_deferred = false;
            collector->must_rebuild = collector->must_rebuild || reader != taken;
        } else {
            link = &reader->next_deferred;
        }
    }
}

static void note_taken(struct ring_reader *reader, const struct varve_record *record)
{
    uint64_t sequence = ring_merge_sequence_of(reader, record);
    if ((varve_record_flags(record) & VARVE_FLAG_GAP) != 0) {
        reader->gaps += sequence - reader->sequence;
        reader->gap_rows++;
    }
    reader->sequence = sequence;
}

/* Derive and store one event of the record on top. */
static int ring_merge_take_event(struct collector *collector, struct ring_reader *reader,
                                 const struct varve_record *record, struct event *event, struct varve_message *message)
{
    int error = collector->is_unstored ? VARVE_OK : derive_event(collector->derive, event, message);
    if (error == VARVE_OK && !collector->is_unstored) {
        error = store_append(collector->store, collector->derive, event, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (collector->sink.provider != NULL) {
        collect_sink_record(collector, reader, record, event->ring_seq);
    }
    collector->seq++;
    if (event->ts_ns >= 0 && (uint64_t)event->ts_ns > collector->newest_ts_ns) {
        collector->newest_ts_ns = (uint64_t)event->ts_ns;
    }
    note_taken(reader, record);
    reader->last_ns =
        event->ts_ns + (event->kind == VARVE_KIND_MAIN_END); /* what follows it is after main, also by time */
    if (collector->deferred != NULL) {
        release_deferred(collector, reader, event);
    }
    return VARVE_OK;
}

/* All events of the record on top. Where one can't be taken, for want of disk space, the record stays there, and the
 * next attempt goes on with that one. `event` is the first that is due. */
static int ring_merge_take(struct collector *collector, struct ring_reader *reader, const struct varve_record *parts,
                           unsigned count, struct event *event, struct varve_message *message)
{
    while (reader->parts < count) {
        const struct varve_record *part = &parts[reader->parts];
        int error = ring_merge_take_event(collector, reader, part, event, message);
        if (error != VARVE_OK) {
            return error;
        }
        reader->parts++;
        reader->unfolded++;
        if (reader->parts < count) {
            decode(collector, reader, part + 1, event);
        }
    }
    reader->parts = 0;
    reader->unfolded--; /* the record itself */
    ring_reader_pop(reader);
    return VARVE_OK;
}

/* The event by which a record is out of order, if it is: the one that the call was about. */
static bool is_out_of_order(struct collector *collector, struct ring_reader *reader, const struct varve_record *parts,
                            unsigned count, struct event *event)
{
    unsigned about = count > 1 && varve_record_kind(&parts[1]) == VARVE_KIND_ALLOC ? 1 : 0;
    decode(collector, reader, &parts[about], event);
    if (derive_is_out_of_order(collector->derive, event)) {
        return true;
    }
    if (about > 0) {
        decode(collector, reader, &parts[0], event);
    }
    return false;
}

/* Take the record on top of a reader, or defer it. */
static int take_or_defer(struct collector *collector, struct ring_reader *reader, uint64_t *moved,
                         struct varve_message *message)
{
    const struct varve_record *record = ring_reader_peek(reader, &collector->directory), *parts = record;
    struct varve_record unfolded[VARVE_FOLD_EVENTS_MAX];
    unsigned count = 1;
    if (varve_record_is_folded(record)) {
        count = varve_record_unfold(record, unfolded);
        parts = unfolded;
    }
    if (reader->parts >= count) {
        reader->parts = 0; /* of a database that does not fit these files */
    }
    struct event event;
    if (reader->is_deferred || reader->parts > 0) {
        decode(collector, reader, &parts[reader->parts], &event);
    } else if (is_out_of_order(collector, reader, parts, count, &event)) {
        reader->is_deferred = true;
        reader->deferred_addr = held_by(&event);
        reader->next_deferred = collector->deferred;
        collector->deferred = reader;
        return VARVE_OK;
    }
    int error = ring_merge_take(collector, reader, parts, count, &event, message);
    *moved += error == VARVE_OK ? count : 0;
    return error;
}

/* Take from the reader on top of the heap while its records are older than `until`. */
static int take_run(struct collector *collector, uint64_t until, uint64_t hold_back, uint64_t *moved,
                    struct varve_message *message)
{
    struct ring_reader *reader = collector->heap[0];
    do {
        int error = take_or_defer(collector, reader, moved, message);
        if (error != VARVE_OK) {
            return error;
        }
        if (!load_key(collector, reader, hold_back)) {
            if (reader->is_in_flight && !reader->saw_end && reader->last_ticks < collector->watermark) {
                collector->watermark = reader->last_ticks; /* what it is writing may be as old as that */
            }
            collector->heap[0] = collector->heap[--collector->heap_count];
            break;
        }
    } while (reader->key < until && !collector->must_rebuild && collector_pending(collector) < PENDING_MAX);
    return VARVE_OK;
}

int merge_run(struct collector *collector, uint64_t *moved_out, struct varve_message *message)
{
    uint64_t hold_back = collect_clock_ticks_of(&collector->clock, MERGE_HOLD_BACK_NS);
    *moved_out = 0;
    build(collector, hold_back);
    int error = VARVE_OK;
    while (error == VARVE_OK && collector->heap_count > 0 && collector_pending(collector) < PENDING_MAX &&
           collector->heap[0]->key <= collector->watermark) {
        uint64_t until = collector->watermark + (collector->watermark < UINT64_MAX);
        for (size_t child = 1; child < 3 && child < collector->heap_count; child++) {
            until = collector->heap[child]->key < until ? collector->heap[child]->key : until;
        }
        error = take_run(collector, until, hold_back, moved_out, message);
        if (collector->must_rebuild) {
            collector->must_rebuild = false;
            build(collector, hold_back);
        } else if (collector->heap_count > 0) {
            ring_merge_sift_down(collector, 0);
        }
    }
    return error;
}
