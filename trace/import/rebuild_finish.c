/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a rebuild: what came becomes a recording directory (rebuild_directory.c), the collector makes a database
 * of it as of any other, and that moves to its place. What the trace lacks is said in the table `stats`; only a clock
 * of which nothing came must be made up. Ten thousand rings are not opened at once: each is written and shown to the
 * collector before the time of its first record is reached, and goes when it has been read.
 */
#include "base/grown_array.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "trace/import/rebuild.h"
#include "trace/record.h"
#include "base/publish.h"
#include "trace/store/store.h"
#include "base/error.h"
#include "trace/collect.h"
#include "trace/writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPILLS_OPEN_MAX 512U /* half a megabyte of memory each */
#define RINGS_AHEAD 64U      /* opened before they are needed */
#define RUNNING_MAX 16384U   /* processes that stay mapped because nothing said that they ended */

struct rebuild_end {
    struct varve_rebuild *rebuild;
    struct collector *collector;
    struct rebuild_process **by_number; /* [number], NULL: none */
    uint32_t number_limit;
    struct rebuild_ring **order; /* chosen rings, by the time when they began */
    size_t order_count;
    enum varve_clock_kind clock_kind;
    uint64_t rows;        /* events that will come out */
    uint64_t missing;     /* records of the chosen rings */
    uint64_t left_out;    /* records of other recordings */
    unsigned spill_limit; /* rings whose spill files may be open at a time */
    varve_collect_progress progress;
    void *progress_context;
};

/* ---- which processes, which rings ---- */

static int compare_rings(const void *left, const void *right)
{
    const struct rebuild_ring *a = *(struct rebuild_ring *const *)left;
    const struct rebuild_ring *b = *(struct rebuild_ring *const *)right;
    return a->origin.ring < b->origin.ring ? -1 : a->origin.ring > b->origin.ring;
}

static int assign_rings(struct varve_rebuild *rebuild, uint64_t *left_out)
{
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        struct rebuild_ring *ring = rebuild->rings[i];
        struct rebuild_process *process = ring->process;
        if (!process->is_taken) {
            *left_out += ring->records;
        } else if (array_grow((void **)&process->rings, &process->ring_capacity, process->ring_count + 1,
                              sizeof(struct rebuild_ring *))) {
            process->rings[process->ring_count++] = ring;
        } else {
            return VARVE_ERROR_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        struct rebuild_process *process = rebuild->processes[i];
        if (process->ring_count > 1) {
            qsort(process->rings, process->ring_count, sizeof(*process->rings), compare_rings);
        }
    }
    return VARVE_OK;
}

static int compare_by_pid(const void *left, const void *right)
{
    const struct rebuild_process *a = *(struct rebuild_process *const *)left;
    const struct rebuild_process *b = *(struct rebuild_process *const *)right;
    if (a->pid != b->pid) {
        return a->pid < b->pid ? -1 : 1;
    }
    return a->number < b->number ? -1 : a->number > b->number;
}

/* A later image under the same pid: the earlier one has ended, by exec if it is the same process. */
static int note_replaced(struct rebuild_process *const *by_number, uint32_t limit)
{
    struct rebuild_process **sorted = malloc(((size_t)limit + 1) * sizeof(*sorted));
    if (sorted == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    size_t count = 0;
    for (uint32_t number = 0; number < limit; number++) {
        if (by_number[number] != NULL) {
            sorted[count++] = by_number[number];
        }
    }
    qsort(sorted, count, sizeof(*sorted), compare_by_pid);
    for (size_t i = 0; i + 1 < count; i++) {
        if (sorted[i]->pid == sorted[i + 1]->pid) {
            sorted[i]->has_end = true;
            sorted[i]->is_replaced =
                sorted[i]->description.start_ticks_proc == sorted[i + 1]->description.start_ticks_proc &&
                sorted[i]->is_described && sorted[i + 1]->is_described;
        }
    }
    free(sorted);
    return VARVE_OK;
}

/* Which processes are taken, which rings each of them has. */
static int choose_processes(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    uint32_t limit = 1;
    for (size_t i = 0; i < rebuild->process_count; i++) {
        limit = rebuild->processes[i]->number >= limit ? rebuild->processes[i]->number + 1 : limit;
    }
    struct rebuild_process **by_number = calloc(limit, sizeof(*by_number));
    if (by_number == NULL) {
        return rebuild_no_memory(message);
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        struct rebuild_process *process = rebuild->processes[i];
        struct rebuild_process *other = by_number[process->number];
        if (!process->is_of_another && (other == NULL || (process->is_described && !other->is_described))) {
            by_number[process->number] = process;
            process->is_taken = true;
            if (other != NULL) {
                other->is_taken = false;
            }
        }
    }
    end->by_number = by_number;
    end->number_limit = limit;
    int error = assign_rings(rebuild, &end->left_out);
    for (uint32_t number = 0; number < limit; number++) {
        struct rebuild_process *process = by_number[number];
        if (process != NULL && process->ring_count == 0 && !process->is_described) {
            by_number[number] = NULL; /* nothing is known of it but that it was there */
        }
    }
    VARVE_THEN(error, note_replaced(by_number, limit));
    return error == VARVE_OK ? VARVE_OK : rebuild_no_memory(message);
}

/* ---- the order ---- */

/* Nothing of a ring is older. */
static uint64_t rebuild_finish_begin_of(const struct rebuild_ring *ring)
{
    return ring->created_ticks < ring->first_ticks ? ring->created_ticks : ring->first_ticks;
}

/* Ring 0, which is for what comes after the end of threads, after the others. */
static int rebuild_finish_compare_begin(const void *left, const void *right)
{
    const struct rebuild_ring *a = *(struct rebuild_ring *const *)left;
    const struct rebuild_ring *b = *(struct rebuild_ring *const *)right;
    if (a->begin_ticks != b->begin_ticks) {
        return a->begin_ticks < b->begin_ticks ? -1 : 1;
    }
    if (a->process->number != b->process->number) {
        return a->process->number < b->process->number ? -1 : 1;
    }
    return a->origin.ring - 1 < b->origin.ring - 1 ? -1 : a->origin.ring - 1 > b->origin.ring - 1;
}

static void note_times(struct rebuild_process *process, const struct rebuild_ring *ring)
{
    uint64_t last = ring->last_ticks > ring->created_ticks ? ring->last_ticks : ring->created_ticks;
    process->first_ticks = ring->first_ticks < process->first_ticks ? ring->first_ticks : process->first_ticks;
    process->last_ticks = last > process->last_ticks ? last : process->last_ticks;
}

static int order_rings(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    end->order = malloc((rebuild->ring_count + 1) * sizeof(*end->order));
    if (end->order == NULL) {
        return rebuild_no_memory(message);
    }
    for (uint32_t number = 1; number < end->number_limit; number++) {
        struct rebuild_process *process = end->by_number[number];
        if (process != NULL) {
            process->first_ticks = process->is_described ? process->description.start_ticks : UINT64_MAX;
            process->last_ticks = process->description.start_ticks;
        }
    }
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        struct rebuild_ring *ring = rebuild->rings[i];
        if (ring->process->is_taken) {
            ring->begin_ticks = rebuild_finish_begin_of(ring);
            note_times(ring->process, ring);
            end->rows += ring->records + ring->markers;
            end->missing += ring->missing;
            end->order[end->order_count++] = ring;
        }
    }
    qsort(end->order, end->order_count, sizeof(*end->order), rebuild_finish_compare_begin);
    return VARVE_OK;
}

static int rebuild_finish_prepare(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    int error = rebuild_rings_measure(rebuild, message);
    VARVE_THEN(error, choose_processes(end, message));
    VARVE_THEN(error, order_rings(end, message));
    if (error == VARVE_OK && end->rows == 0 && !rebuild->has_trace_id) { /* a recording may be empty */
        error = varve_message_set(message, VARVE_ERROR_FORMAT, "%.300s: there is no event for it", rebuild->path);
    }
    for (uint32_t number = 1; error == VARVE_OK && number < end->number_limit; number++) {
        if (end->by_number[number] != NULL) {
            error = rebuild_process_write(rebuild, end->by_number[number], message);
        }
    }
    return error;
}

/* ---- the clock ---- */

/* As the processes say: they have one clock. */
static void find_clock_kind(struct rebuild_end *end)
{
    end->clock_kind = VARVE_CLOCK_TSC;
    for (uint32_t number = end->number_limit; number-- > 1;) {
        const struct rebuild_process *process = end->by_number[number];
        if (process != NULL && process->is_described) {
            end->clock_kind =
                process->description.clock_kind == VARVE_CLOCK_MONOTONIC ? VARVE_CLOCK_MONOTONIC : VARVE_CLOCK_TSC;
        }
    }
}

static int compare_anchors(const void *left, const void *right)
{
    const struct clock_anchor *a = left;
    const struct clock_anchor *b = right;
    return a->ticks < b->ticks ? -1 : a->ticks > b->ticks;
}

/* Nothing says what ticks are: one is taken for a nanosecond. */
static int make_anchors(const struct rebuild_end *end)
{
    struct clock_anchor first = {.ticks = end->order_count > 0 ? end->order[0]->first_ticks : 0};
    struct clock_anchor last = {.ticks = first.ticks + 1};
    for (uint32_t number = 1; number < end->number_limit; number++) {
        const struct rebuild_process *process = end->by_number[number];
        if (process != NULL && process->first_ticks < first.ticks && process->first_ticks > 0) {
            first.ticks = process->first_ticks;
        }
        if (process != NULL && process->last_ticks > last.ticks) {
            last.ticks = process->last_ticks;
        }
    }
    first.mono_ns = (int64_t)(first.ticks & INT64_MAX);
    last.mono_ns = (int64_t)(last.ticks & INT64_MAX);
    int error = collect_clock_add(&end->collector->clock, &first);
    return error == VARVE_OK ? collect_clock_add(&end->collector->clock, &last) : error;
}

static int set_clock(const struct rebuild_end *end)
{
    struct varve_rebuild *rebuild = end->rebuild;
    struct collect_clock *clock = &end->collector->clock;
    if (rebuild->anchor_count > 1) {
        qsort(rebuild->anchors, rebuild->anchor_count, sizeof(*rebuild->anchors), compare_anchors);
    }
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < rebuild->anchor_count; i++) {
        error = collect_clock_add(clock, &rebuild->anchors[i]);
    }
    for (size_t i = 0; clock->count > 0 && i < rebuild->meta_count; i++) {
        const struct rebuild_meta *meta = &rebuild->meta[i];
        if (strcmp(meta->key, COLLECT_META_START) == 0 && meta->text == NULL) {
            collect_clock_begin(clock, meta->integer);
        }
    }
    if (error == VARVE_OK && clock->count < 2 && end->clock_kind != VARVE_CLOCK_MONOTONIC) {
        error = varve_rebuild_stat(rebuild, "clock_unknown", true, 1);
    }
    return error == VARVE_OK && clock->count == 0 ? make_anchors(end) : error;
}

/* ---- the collector ---- */

static int collector_begin(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    struct collector *collector = calloc(1, sizeof(*collector));
    end->collector = collector;
    if (collector == NULL) {
        return rebuild_no_memory(message);
    }
    collector->is_recovering = collector->quiet = true;
    collector->directory.rings_fd = collector->directory.owner_fd = collector->directory.watch_fd = -1;
    collector->directory.fd = open(rebuild->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memcpy(collector->directory.path, rebuild->folder, sizeof(rebuild->folder));
    memcpy(collector->directory.rings, rebuild->folder, sizeof(rebuild->folder));
    struct session_control *control =
        mmap(NULL, SESSION_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (control == MAP_FAILED) {
        return rebuild_no_memory(message);
    }
    collector->directory.control = control;
    struct session_counts *counts =
        mmap(NULL, SESSION_COUNTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED) {
        return rebuild_no_memory(message);
    }
    collector->directory.counts = counts;
    find_clock_kind(end);
    control->magic = SESSION_MAGIC;
    control->version = VARVE_TRANSPORT_VERSION;
    control->state = SESSION_STATE_CLOSED;
    control->clock_kind = end->clock_kind;
    control->trace_id = rebuild->trace_id;
    return collector_open(collector, STORE_CREATE_PRIVATE, message);
}

static int store_meta(const struct rebuild_end *end)
{
    const struct varve_rebuild *rebuild = end->rebuild;
    struct store *store = end->collector->store;
    int error = rebuild->has_trace_id ? store_meta_integer(store, "trace_id", (int64_t)rebuild->trace_id) : VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < rebuild->meta_count; i++) {
        const struct rebuild_meta *meta = &rebuild->meta[i];
        if (strcmp(meta->key, "complete") != 0) { /* is not, as yet */
            error = meta->text != NULL ? store_meta_text(store, meta->key, meta->text)
                                       : store_meta_integer(store, meta->key, meta->integer);
        }
    }
    for (size_t i = 0; error == VARVE_OK && i < rebuild->stat_count; i++) {
        const struct rebuild_stat *stat = &rebuild->stats[i];
        error = store_stat(store, stat->name, -1, stat->is_loss ? "data_loss" : "info", "lttng",
                           stat->value > INT64_MAX ? INT64_MAX : (int64_t)stat->value);
    }
    return error;
}

/* ---- feeding the collector: processes ---- */

/* For the collector, whoever it finds now has ended; but it may still have rings to show. */
static void keep_running(const struct rebuild_end *end)
{
    struct collector *collector = end->collector;
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed && process->has_ended && !end->by_number[process->id]->has_closed) {
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
    int error = VARVE_OK;
    if (collector->process_count < number) {
        collector->directory.counts->process_count = number;
        error = collect_processes_discover(collector, &bound);
        keep_running(end);
    }
    return error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, error, "cannot follow process %u: %s", number, varve_strerror(error));
}

/* Those all of whose rings were read, and of which somebody said that they ended; where too many were never
 * heard of again, they are gone too. */
static int close_processes(const struct rebuild_end *end)
{
    struct collector *collector = end->collector;
    assert(end->by_number != NULL || collector->process_count == 0);
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        struct rebuild_process *known = end->by_number[i + 1];
        if (process == NULL || known->has_closed || process->readers > 0 || known->rings_open < known->ring_count ||
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

/* ---- feeding the collector: rings ---- */

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
    bool may_spill = ring->records + ring->markers < RING_STAGING_RECORDS || spills_open(collector) < end->spill_limit;
    int error = rebuild_ring_write(end->rebuild, ring, may_spill, message);
    if (error != VARVE_OK) {
        return error;
    }
    ring->is_open = true;
    ring->process->rings_open++;
    struct traced_process *process = collector->processes[ring->process->number - 1];
    if (process != NULL) {
        if (index == 0) {
            process->control->late_created = 1;
        } else {
            process->rings_seen = index; /* whatever is between has no file */
            process->control->ring_count = index + 1;
        }
        error = collect_rings_discover(collector, process, &bound);
    }
    if (error == VARVE_OK && collector->reader_count == readers) {
        error = VARVE_ERROR_IO;
    }
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "cannot follow ring %u of process %u: %s", index,
                                 ring->process->number, varve_strerror(error));
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
    int error = VARVE_OK;
    for (uint32_t i = 0; error == VARVE_OK && i < process->ring_count; i++) {
        struct rebuild_ring *other = process->rings[i];
        if (other->origin.ring > ring->origin.ring) {
            break;
        }
        if (!other->is_open && (other->origin.ring > 0 || other == ring)) {
            error = ring_show(end, other, message);
        }
    }
    return error;
}

/* What was read from a spill file lay there for our convenience: the workload did not spill it. */
static void forget_spills(const struct collector *collector)
{
    for (size_t i = 0; i < collector->reader_count; i++) {
        struct ring_reader *reader = collector->readers[i];
        if (reader->spill_read > 0 && reader->spill_read == reader->spill_seen && reader->read == reader->head_seen) {
            reader->read += reader->spill_read;
            reader->head_seen = reader->read;
            reader->spill_read = reader->spill_seen = 0;
        }
    }
}

/* Merge all that is older than the watermark. */
static int rebuild_finish_merge_until(const struct rebuild_end *end, uint64_t watermark, struct varve_message *message)
{
    struct collector *collector = end->collector;
    uint64_t moved;
    int error;
    do {
        collector->watermark = watermark;
        error = merge_run(collector, &moved, message);
        if (error == VARVE_ERROR_FULL && moved > 0) {
            error = VARVE_OK; /* the store wants a commit; if the disk is full, that will say so */
        }
        forget_spills(collector);
        VARVE_THEN(error, collector_commit(collector, message));
        VARVE_THEN(error, close_processes(end));
        if (end->progress != NULL) {
            end->progress(end->progress_context, "writing events", collector->seq, end->rows);
        }
    } while (error == VARVE_OK && moved > 0);
    return error;
}

/* Some more rings, with their processes; `*next` is the first one that remains. */
static int show_some(const struct rebuild_end *end, size_t *next, struct varve_message *message)
{
    size_t to = end->order_count - *next < RINGS_AHEAD ? end->order_count : *next + RINGS_AHEAD;
    uint32_t number = 0;
    for (size_t i = *next; i < to; i++) {
        uint32_t other = end->order[i]->process->number;
        number = other > number ? other : number;
    }
    int error = show_processes(end, number, message);
    for (; error == VARVE_OK && *next < to; (*next)++) {
        error = ring_show_in_order(end, end->order[*next], message);
    }
    return error;
}

/* Feed all rings to the collector in the order in which they began. */
static int feed_collector(const struct rebuild_end *end, struct varve_message *message)
{
    size_t next = 0;
    int error = VARVE_OK;
    while (error == VARVE_OK && next < end->order_count) {
        error = show_some(end, &next, message);
        uint64_t watermark = UINT64_MAX;
        if (next < end->order_count) {
            watermark = end->order[next]->begin_ticks;
            watermark -= watermark > 0;
        }
        if (error == VARVE_OK && watermark > 0) {
            error = rebuild_finish_merge_until(end, watermark, message);
        }
    }
    if (error == VARVE_OK) {
        error = show_processes(end, end->number_limit - 1, message); /* those without rings */
    }
    VARVE_THEN(error, close_processes(end));
    if (error == VARVE_OK && end->collector->reader_count > 0) {
        error =
            varve_message_set(message, VARVE_ERROR_IO, "%s: holds records that cannot be read", end->rebuild->folder);
    }
    return error;
}

/* ---- the whole ---- */

static int rebuild_finish_collect(struct rebuild_end *end, struct varve_message *message)
{
    int error = collector_begin(end, message);
    VARVE_THEN(error, set_clock(end));
    VARVE_THEN(error, store_meta(end));
    if (error != VARVE_OK && message->text[0] == '\0') {
        varve_message_set(message, error, "%.300s: cannot be written: %s", end->rebuild->path, varve_strerror(error));
    }
    VARVE_THEN(error, feed_collector(end, message));
    return error == VARVE_OK ? collector_finish(end->collector, end->progress, end->progress_context, message) : error;
}

static void collector_end(struct rebuild_end *end, struct varve_collect_result *result)
{
    if (end->collector == NULL) {
        return;
    }
    collector_result(end->collector, result);
    collector_close(end->collector);
    session_directory_close(&end->collector->directory);
    free(end->collector);
}

static unsigned spill_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 2 > SPILLS_OPEN_MAX) {
        return SPILLS_OPEN_MAX;
    }
    return (unsigned)limit.rlim_cur / 2;
}

static int rebuild_finish_finish(struct rebuild_end *end, struct varve_collect_result *result,
                                 struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    int error = rebuild_finish_prepare(end, message);
    VARVE_THEN(error, varve_rebuild_stat(rebuild, "records_missing", true, end->missing));
    if (error == VARVE_OK && end->left_out > 0) {
        error = varve_rebuild_stat(rebuild, "records_of_others", false, end->left_out);
    }
    if (error == VARVE_OK && rebuild->damaged > 0) {
        error = varve_rebuild_stat(rebuild, "records_damaged", true, rebuild->damaged);
    }
    VARVE_THEN(error, rebuild_finish_collect(end, message));
    collector_end(end, result);
    VARVE_THEN(error, publish_file(rebuild->folder, rebuild->path, rebuild->may_replace, message));
    return error;
}

int varve_rebuild_finish(struct varve_rebuild *rebuild, varve_collect_progress progress, void *context,
                         struct varve_collect_result *result, struct varve_message *message)
{
    struct rebuild_end end = {
        .rebuild = rebuild, .spill_limit = spill_limit(), .progress = progress, .progress_context = context};
    struct varve_message reason = {""};
    int error = rebuild_callsites_flush(rebuild);
    rebuild->block = malloc(RING_STAGING_BYTES);
    rebuild->packed = malloc(sizeof(struct record_block) + (size_t)RING_STAGING_RECORDS * RECORD_PACKED_MAX +
                             sizeof(uint64_t) + RECORD_BLOCK_ALIGNMENT);
    memset(result, 0, sizeof(*result));
    snprintf(result->database_path, sizeof(result->database_path), "%s", rebuild->path);
    if (error != VARVE_OK) {
        reason = rebuild->message;
    } else if (rebuild->block == NULL || rebuild->packed == NULL) {
        error = rebuild_no_memory(&reason);
    } else {
        error = rebuild_finish_finish(&end, result, &reason);
    }
    if (error != VARVE_OK) {
        varve_message_set(message, error, "%s", reason.text[0] != '\0' ? reason.text : varve_strerror(error));
    }
    free(end.by_number);
    free(end.order);
    varve_rebuild_abandon(rebuild);
    return error;
}
