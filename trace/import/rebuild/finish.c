/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a rebuild: what was told becomes a recording directory, the collector makes a database of it as
 * of any other, and that moves to its place. What the trace lacks is said in the table `stats` rather than
 * guessed; only a clock that nobody told of must be made up. collect.c feeds the collector.
 */
#include "trace/collector/clock.h"
#include "trace/error.h"
#include "trace/import/rebuild/rebuild.h"
#include "trace/record.h"
#include "trace/store/publish.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"
#include "trace/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPILLS_OPEN_MAX 512U /* half a megabyte of memory each */

/* ---- rings and processes ---- */

/* Nothing of a ring is older. */
static uint64_t begin_of(const struct rebuild_ring *ring)
{
    return ring->created_ticks < ring->run.first_ticks ? ring->created_ticks : ring->run.first_ticks;
}

/* Ring 0, which is for what comes after the end of threads, after the others. */
static int compare_begin(const void *left, const void *right)
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
    const struct rebuild_run *run = &ring->run;
    uint64_t last = run->last_ticks > ring->created_ticks ? run->last_ticks : ring->created_ticks;

    process->first_ticks = run->first_ticks < process->first_ticks ? run->first_ticks : process->first_ticks;
    process->last_ticks = last > process->last_ticks ? last : process->last_ticks;
}

/* Every ring is settled; those that are left out go. */
static int settle_rings(struct rebuild_end *end, uint64_t *missing, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    int code = VARVE_OK;

    end->order = malloc((rebuild->ring_count + 1) * sizeof(*end->order));
    if (end->order == NULL) {
        return rebuild_no_memory(message);
    }
    for (uint32_t number = 1; number < end->number_limit; number++) {
        struct rebuild_process *process = end->by_number[number];
        if (process != NULL) {
            process->first_ticks = process->is_described ? process->told.start_ticks : UINT64_MAX;
            process->last_ticks = process->told.start_ticks;
        }
    }
    for (size_t i = 0; code == VARVE_OK && i < rebuild->ring_count; i++) {
        struct rebuild_ring *ring = rebuild->rings[i];

        if (!ring->process->is_taken) {
            rebuild_run_drop(&rebuild->folder, &ring->run, true);
            rebuild_side_drop(&rebuild->folder, &ring->side);
            continue;
        }
        code = rebuild_ring_settle(rebuild, ring, message);
        ring->begin_ticks = begin_of(ring);
        note_times(ring->process, ring);
        end->rows += rebuild_run_rows(&ring->run);
        *missing += ring->run.missing;
        end->order[end->order_count++] = ring;
    }
    qsort(end->order, end->order_count, sizeof(*end->order), compare_begin);
    return code;
}

static int prepare(struct rebuild_end *end, uint64_t *left_out, uint64_t *missing,
                   struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    int code = rebuild_processes_choose(rebuild, &end->by_number, &end->number_limit, left_out, message);

    if (code == VARVE_OK) {
        code = settle_rings(end, missing, message);
    }
    if (code == VARVE_OK && end->rows == 0 && !rebuild->has_trace_id) { /* a recording may be empty */
        code =
            varve_message_set(message, VARVE_ERROR_FORMAT, "%.300s: there is no event for it", rebuild->path);
    }
    for (uint32_t number = 1; code == VARVE_OK && number < end->number_limit; number++) {
        if (end->by_number[number] != NULL) {
            code = rebuild_process_write(rebuild, end->by_number[number], message);
        }
    }
    return code;
}

/* ---- the clock ---- */

static bool find_clock_kind(const struct rebuild_end *end, enum varve_clock_kind *kind)
{
    for (uint32_t number = 1; number < end->number_limit; number++) {
        const struct rebuild_process *process = end->by_number[number];
        if (process != NULL && process->is_described) {
            *kind =
                process->told.clock_kind == VARVE_CLOCK_MONOTONIC ? VARVE_CLOCK_MONOTONIC : VARVE_CLOCK_TSC;
            return true;
        }
    }
    *kind = VARVE_CLOCK_TSC;
    return false;
}

static int compare_anchors(const void *left, const void *right)
{
    const struct clock_anchor *a = left;
    const struct clock_anchor *b = right;

    return a->ticks < b->ticks ? -1 : a->ticks > b->ticks;
}

/* Nobody told what ticks are: one is taken for a nanosecond. */
static int make_anchors(const struct rebuild_end *end)
{
    struct clock_anchor first = {.ticks = end->order_count > 0 ? end->order[0]->run.first_ticks : 0};
    struct clock_anchor last = {.ticks = first.ticks + 1};
    int code;

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
    code = collect_clock_add(&end->collector->clock, &first);
    return code == VARVE_OK ? collect_clock_add(&end->collector->clock, &last) : code;
}

static int set_clock(const struct rebuild_end *end)
{
    struct varve_rebuild *rebuild = end->rebuild;
    struct collect_clock *clock = &end->collector->clock;
    enum varve_clock_kind kind;
    bool is_known = find_clock_kind(end, &kind);
    int code = VARVE_OK;

    if (rebuild->anchor_count > 1) {
        qsort(rebuild->anchors, rebuild->anchor_count, sizeof(*rebuild->anchors), compare_anchors);
    }
    for (size_t i = 0; code == VARVE_OK && i < rebuild->anchor_count; i++) {
        code = collect_clock_add(clock, &rebuild->anchors[i]);
    }
    if (code == VARVE_OK && clock->count < 2 && !(is_known && kind == VARVE_CLOCK_MONOTONIC)) {
        code = varve_rebuild_stat(rebuild, "clock_unknown", true, 1);
    }
    return code == VARVE_OK && clock->count == 0 ? make_anchors(end) : code;
}

/* ---- the collector ---- */

static int collector_begin(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    struct collector *collector = calloc(1, sizeof(*collector));
    struct session_control *control;
    struct session_counts *counts;
    enum varve_clock_kind kind;

    end->collector = collector;
    if (collector == NULL) {
        return rebuild_no_memory(message);
    }
    collector->is_recovering = collector->quiet = true;
    collector->directory.rings_fd = collector->directory.owner_fd = -1;
    collector->directory.fd = open(rebuild->folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memcpy(collector->directory.path, rebuild->folder.path, sizeof(rebuild->folder.path));
    memcpy(collector->directory.rings, rebuild->folder.path, sizeof(rebuild->folder.path));
    control = mmap(NULL, SESSION_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (control == MAP_FAILED) {
        return rebuild_no_memory(message);
    }
    collector->directory.control = control;
    counts = mmap(NULL, SESSION_COUNTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED) {
        return rebuild_no_memory(message);
    }
    collector->directory.counts = counts;
    find_clock_kind(end, &kind);
    control->magic = SESSION_MAGIC;
    control->version = VARVE_TRANSPORT_VERSION;
    control->state = SESSION_STATE_CLOSED;
    control->clock_kind = kind;
    control->trace_id = rebuild->trace_id;
    return collector_open(collector, STORE_CREATE_PRIVATE, message);
}

static int store_told(const struct rebuild_end *end)
{
    const struct varve_rebuild *rebuild = end->rebuild;
    struct store *store = end->collector->store;
    int code =
        rebuild->has_trace_id ? store_meta_integer(store, "trace_id", (int64_t)rebuild->trace_id) : VARVE_OK;

    for (size_t i = 0; code == VARVE_OK && i < rebuild->meta_count; i++) {
        const struct rebuild_meta *meta = &rebuild->meta[i];
        if (strcmp(meta->key, "complete") != 0) { /* is not, as yet */
            code = meta->text != NULL ? store_meta_text(store, meta->key, meta->text)
                                      : store_meta_integer(store, meta->key, meta->integer);
        }
    }
    for (size_t i = 0; code == VARVE_OK && i < rebuild->stat_count; i++) {
        const struct rebuild_stat *stat = &rebuild->stats[i];
        code = store_stat(store, stat->name, -1, stat->is_loss ? "data_loss" : "info", "lttng",
                          stat->value > INT64_MAX ? INT64_MAX : (int64_t)stat->value);
    }
    return code;
}

static int collect(struct rebuild_end *end, struct varve_message *message)
{
    int code = collector_begin(end, message);

    if (code == VARVE_OK) {
        code = set_clock(end);
    }
    if (code == VARVE_OK) {
        code = store_told(end);
    }
    if (code != VARVE_OK && message->text[0] == '\0') {
        varve_message_set(message, code, "%.300s: cannot be written: %s", end->rebuild->path,
                          varve_strerror(code));
    }
    if (code == VARVE_OK) {
        code = rebuild_collect(end, message);
    }
    return code == VARVE_OK ? collector_finish(end->collector, end->progress, end->progress_context, message)
                            : code;
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

static int finish(struct rebuild_end *end, struct varve_collect_result *result, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    uint64_t left_out = 0;
    uint64_t missing = 0;
    int code = prepare(end, &left_out, &missing, message);

    if (code == VARVE_OK) {
        code = varve_rebuild_stat(rebuild, "records_missing", true, missing);
    }
    if (code == VARVE_OK && left_out > 0) {
        code = varve_rebuild_stat(rebuild, "records_of_others", false, left_out);
    }
    if (code == VARVE_OK && rebuild->damaged > 0) {
        code = varve_rebuild_stat(rebuild, "records_damaged", true, rebuild->damaged);
    }
    if (code == VARVE_OK) {
        code = collect(end, message);
    }
    collector_end(end, result);
    if (code == VARVE_OK) {
        code = publish_file(rebuild->folder.path, rebuild->path, rebuild->may_replace, message);
    }
    return code;
}

int varve_rebuild_finish(struct varve_rebuild *rebuild, varve_collect_progress progress, void *context,
                         struct varve_collect_result *result, struct varve_message *message)
{
    struct rebuild_end end = {
        .rebuild = rebuild, .spill_limit = spill_limit(), .progress = progress, .progress_context = context};
    struct varve_message reason = {""};
    int code = rebuild_sites_flush(rebuild);

    memset(result, 0, sizeof(*result));
    snprintf(result->database_path, sizeof(result->database_path), "%s", rebuild->path);
    if (code != VARVE_OK) {
        reason = rebuild->message;
    } else {
        code = finish(&end, result, &reason);
    }
    if (code != VARVE_OK) {
        varve_message_set(message, code, "%s", reason.text[0] != '\0' ? reason.text : varve_strerror(code));
    }
    free(end.by_number);
    free(end.order);
    varve_rebuild_abandon(rebuild);
    return code;
}
