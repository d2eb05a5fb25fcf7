/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a rebuild: what came becomes a recording directory (rebuild_rings.c, rebuild_directory.c), the collector
 * makes a database of it as `recover` does of any other, and that moves to its place. What the trace lacks is said in
 * the table `stats`; only a clock of which nothing came must be made up. Ten thousand rings are not opened at once: the
 * collector is told when each begins.
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

struct rebuild_end {
    struct varve_rebuild *rebuild;
    struct collector *collector;
    struct rebuild_process **by_number; /* [number], NULL: none */
    uint32_t number_limit;
    struct session_file *files; /* of the chosen processes and rings, by the time when they begin */
    size_t file_count;
    enum varve_clock_kind clock_kind;
    uint64_t rows;     /* events that will come out */
    uint64_t missing;  /* records of the chosen rings */
    uint64_t left_out; /* records of other recordings */
    varve_collect_progress progress;
    void *progress_context;
};

/* ---- which processes, which rings ---- */

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
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        rebuild->rings[i]->process->rings++;
    }
    for (uint32_t number = 0; number < limit; number++) {
        struct rebuild_process *process = by_number[number];
        if (process != NULL && process->rings == 0 && !process->is_described) {
            by_number[number] = NULL; /* nothing is known of it but that it was there */
        }
    }
    return VARVE_OK;
}

/* ---- the order ---- */

/* The process first, and ring 0, which is for what comes after the end of threads, after the others. */
static int compare_begin(const void *left, const void *right)
{
    const struct session_file *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->process != b->process) {
        return a->process < b->process ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind == SESSION_FILE_PROCESS ? -1 : 1;
    }
    return a->ring - 1 < b->ring - 1 ? -1 : a->ring - 1 > b->ring - 1;
}

static int compare_rings(const void *left, const void *right)
{
    const struct rebuild_ring *a = *(struct rebuild_ring *const *)left;
    const struct rebuild_ring *b = *(struct rebuild_ring *const *)right;
    if (a->process != b->process) {
        return a->process->file < b->process->file ? -1 : 1;
    }
    return a->origin.ring < b->origin.ring ? -1 : a->origin.ring > b->origin.ring;
}

static uint64_t lower_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When rings begin: with all rings of their process that have lower numbers, so that rows are in the order of
 * numbers. Rings are in the order of processes and numbers. */
static void rings_begin(const struct rebuild_end *end)
{
    const struct rebuild_ring *later = NULL;
    for (size_t i = end->rebuild->ring_count; i-- > 0;) {
        struct rebuild_ring *ring = end->rebuild->rings[i];
        struct rebuild_process *process = ring->process;
        uint64_t last = ring->last_ticks > ring->created_ticks ? ring->last_ticks : ring->created_ticks;
        ring->begin_ticks = lower_of(ring->created_ticks, ring->first_ticks);
        if (ring->origin.ring > 0 && later != NULL && later->process == process) {
            ring->begin_ticks = lower_of(ring->begin_ticks, later->begin_ticks);
        }
        later = ring;
        process->first_ticks = lower_of(process->first_ticks, ring->first_ticks);
        process->last_ticks = last > process->last_ticks ? last : process->last_ticks;
        process->begin_ticks = lower_of(process->begin_ticks, ring->begin_ticks);
    }
}

static void file_add(struct rebuild_end *end, enum session_file_kind kind, uint32_t process, uint32_t ring,
                     uint64_t begin)
{
    end->files[end->file_count++] =
        (struct session_file){kind, process, ring, begin > 0 ? begin : 1}; /* 0 would say that it is not known */
}

static int list_files(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    end->files = malloc((rebuild->ring_count + end->number_limit + 1) * sizeof(*end->files));
    if (end->files == NULL) {
        return rebuild_no_memory(message);
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        struct rebuild_process *process = rebuild->processes[i];
        process->first_ticks = process->is_described ? process->description.start_ticks : UINT64_MAX;
        process->last_ticks = process->description.start_ticks;
        process->begin_ticks = process->first_ticks;
    }
    if (rebuild->ring_count > 1) {
        qsort(rebuild->rings, rebuild->ring_count, sizeof(struct rebuild_ring *), compare_rings);
    }
    rings_begin(end);
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        const struct rebuild_ring *ring = rebuild->rings[i];
        if (ring->process->is_taken) {
            end->rows += ring->records + ring->markers;
            end->missing += ring->missing;
            file_add(end, SESSION_FILE_RING, ring->process->number, ring->origin.ring, ring->begin_ticks);
        } else {
            end->left_out += ring->records;
        }
    }
    for (uint32_t number = 1; number < end->number_limit; number++) {
        if (end->by_number[number] != NULL) {
            file_add(end, SESSION_FILE_PROCESS, number, 0, end->by_number[number]->begin_ticks);
        }
    }
    if (end->file_count > 1) {
        qsort(end->files, end->file_count, sizeof(*end->files), compare_begin);
    }
    return VARVE_OK;
}

/* All files of the directory. */
static int rebuild_finish_prepare(struct rebuild_end *end, struct varve_message *message)
{
    struct varve_rebuild *rebuild = end->rebuild;
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < rebuild->ring_count; i++) {
        error = rebuild_ring_end(rebuild, rebuild->rings[i], message);
    }
    VARVE_THEN(error, choose_processes(end, message));
    VARVE_THEN(error, list_files(end, message));
    if (error == VARVE_OK && end->rows == 0 && !rebuild->has_trace_id) { /* a recording may be empty */
        error = varve_message_set(message, VARVE_ERROR_FORMAT, "%.300s: there is no event for it", rebuild->path);
    }
    for (size_t i = 0; error == VARVE_OK && i < rebuild->ring_count; i++) {
        if (rebuild->rings[i]->process->is_taken) {
            error = rebuild_ring_name(rebuild, rebuild->rings[i], message);
        }
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
    struct clock_anchor first = {.ticks = UINT64_MAX}, last = {0};
    for (uint32_t number = 1; number < end->number_limit; number++) {
        const struct rebuild_process *process = end->by_number[number];
        if (process != NULL && process->first_ticks < first.ticks && process->first_ticks > 0) {
            first.ticks = process->first_ticks;
        }
        if (process != NULL && process->last_ticks > last.ticks) {
            last.ticks = process->last_ticks;
        }
    }
    first.ticks = first.ticks < UINT64_MAX ? first.ticks : 0;
    last.ticks = last.ticks > first.ticks ? last.ticks : first.ticks + 1;
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
    collector->is_recovering = collector->is_imported = collector->quiet = true;
    collector->files = end->files;
    collector->file_count = end->file_count;
    end->files = NULL;
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

/* ---- the whole ---- */

static int rebuild_finish_collect(struct rebuild_end *end, struct varve_message *message)
{
    int error = collector_begin(end, message);
    VARVE_THEN(error, set_clock(end));
    VARVE_THEN(error, store_meta(end));
    if (error != VARVE_OK && message->text[0] == '\0') {
        varve_message_set(message, error, "%.300s: cannot be written: %s", end->rebuild->path, varve_strerror(error));
    }
    VARVE_THEN(error, collector_drain(end->collector, end->progress, end->progress_context, message));
    VARVE_THEN(error, collector_finish(end->collector, end->progress, end->progress_context, message));
    return error;
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
    struct rebuild_end end = {.rebuild = rebuild, .progress = progress, .progress_context = context};
    struct varve_message reason = {""};
    int error = rebuild_callsites_flush(rebuild);
    memset(result, 0, sizeof(*result));
    snprintf(result->database_path, sizeof(result->database_path), "%s", rebuild->path);
    if (error != VARVE_OK) {
        reason = rebuild->message;
    } else {
        error = rebuild_finish_finish(&end, result, &reason);
    }
    if (error != VARVE_OK) {
        varve_message_set(message, error, "%s", reason.text[0] != '\0' ? reason.text : varve_strerror(error));
    }
    free(end.by_number);
    free(end.files);
    varve_rebuild_abandon(rebuild);
    return error;
}
