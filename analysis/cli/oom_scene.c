/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot, which is imported, has neither sizes of blocks nor stages: following its history gives both. The rows of
 * the database that was given and those of the one that was made are the same requests, in the same order.
 */
#include "analysis/cli/oom_print.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/history_database.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/replay/history_writer.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/writer.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>

#define DETAILS_MAX 50 /* requests whose memory is looked at: each is a state to rebuild */

static void open_rows(struct cursor *cursor, struct database *database, int64_t device)
{
    cursor_open(cursor, database,
                "SELECT o.seq, o.ts_ns, o.device, e.pid, e.tid, o.requested, o.allocated, o.reserved, "
                "o.largest_free, e.callsite_id, e.thread_id, o.process_id, e.stream, e.pool FROM oom o "
                "JOIN event e ON e.seq = o.seq WHERE ?1 < 0 OR o.device = ?1 ORDER BY o.seq");
    cursor_bind_integer(cursor, 1, device);
}

static void read_row(struct oom_scene *scene, struct cursor *cursor)
{
    scene->requests = memory_grow(scene->requests, &scene->capacity, scene->count, sizeof(scene->requests[0]));
    struct oom_request *request = &scene->requests[scene->count++];
    *request = (struct oom_request){
        .request = {.seq = cursor_integer(cursor, 0),
                    .device = cursor_integer(cursor, 2),
                    .rounded = varve_alloc_block_size(NULL, &scene->config, (uint64_t)cursor_integer(cursor, 5)),
                    .process_id = cursor_integer(cursor, 11),
                    .stream = (uint16_t)cursor_integer(cursor, 12),
                    .pool = (uint16_t)cursor_integer(cursor, 13)},
        .seq = cursor_integer(cursor, 0),
        .ts_ns = cursor_integer(cursor, 1),
        .pid = cursor_integer(cursor, 3),
        .tid = cursor_integer(cursor, 4),
        .requested = cursor_integer(cursor, 5),
        .allocated = cursor_integer(cursor, 6),
        .reserved = cursor_integer(cursor, 7),
        .largest_free = cursor_is_null(cursor, 8) ? -1 : cursor_integer(cursor, 8),
        .callsite_id = cursor_integer(cursor, 9),
        .thread_id = cursor_integer(cursor, 10),
        .number = OOM_NO_FAILURE,
    };
}

static void read_config(struct oom_scene *scene)
{
    struct varve_message ignored = {""};
    char *text = database_meta(scene->exact, "allocator.conf");
    varve_alloc_config_init(&scene->config);
    if (text != NULL && varve_alloc_config_parse(text, &scene->config, &ignored) != VARVE_OK) {
        varve_alloc_config_init(&scene->config); /* in the words of another version */
    }
    free(text);
}

/* The numbers and names of the database that people have. */
static void read_given(struct oom_scene *scene, int64_t device)
{
    if (scene->given == scene->exact) {
        return;
    }
    struct cursor cursor;
    open_rows(&cursor, scene->given, device);
    size_t i = 0;
    for (; cursor_next(&cursor) && i < scene->count; i++) {
        scene->requests[i].seq = cursor_integer(&cursor, 0);
        scene->requests[i].pid = cursor_integer(&cursor, 3);
        scene->requests[i].tid = cursor_integer(&cursor, 4);
    }
    cursor_close(&cursor);
}

/* The failures of each device come in the same order in the history and in the database. */
static void find_failures(struct oom_scene *scene, int64_t device)
{
    const struct explain_facts *facts = explain_get_facts(scene->explain);
    size_t expected = 0;
    for (size_t i = 0; i < facts->failure_count; i++) {
        expected += device < 0 || facts->failures[i].device == (unsigned)device;
    }
    size_t next[256] = {0};
    for (size_t i = 0; i < scene->count && expected == scene->count; i++) {
        int64_t number = scene->requests[i].request.device;
        size_t *at = &next[number & 255];
        while (*at < facts->failure_count && facts->failures[*at].device != (unsigned)number) {
            ++*at;
        }
        if (*at == facts->failure_count) {
            return;
        }
        scene->requests[i].number = (*at)++;
    }
}

/* Reserved bytes that were allowed, which only a replay's database says; 0: unknown. */
static uint64_t oom_scene_limit_of(const struct oom_scene *scene)
{
    static const char *const keys[] = {"replay.memory_limit", "replay.capacity"};
    uint64_t limit = scene->explain != NULL ? explain_get_facts(scene->explain)->limit : 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && limit == 0; i++) {
        char *text = database_meta(scene->exact, keys[i]);
        limit = text != NULL ? strtoull(text, NULL, 10) : 0;
        free(text);
    }
    return limit;
}

/* Bytes that the device had free then, as a snapshot says it. */
static uint64_t device_free_of(const struct oom_scene *scene, const struct oom_request *request)
{
    if (request->number == OOM_NO_FAILURE || !scene->history->rests.is_known) {
        return OOM_UNKNOWN;
    }
    const struct explain_failure *failure = &explain_get_facts(scene->explain)->failures[request->number];
    return scene->history->devices[failure->device].events[failure->event].addr;
}

static uint64_t device_total(const struct oom_scene *scene, int64_t device)
{
    struct cursor cursor;
    cursor_open(&cursor, scene->given, "SELECT coalesce(total_bytes, 0) FROM device WHERE id = ?1");
    cursor_bind_integer(&cursor, 1, device);
    uint64_t bytes = 0;
    if (cursor_next(&cursor) && cursor_integer(&cursor, 0) > 0) {
        bytes = (uint64_t)cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return bytes;
}

static void describe_memory(struct oom_scene *scene, struct oom_request *request)
{
    const struct failure *failure = &request->failure;
    request->memory = (struct oom_memory){
        .requested = (uint64_t)request->requested,
        .rounded = request->request.rounded,
        .segment = varve_alloc_segment_size(NULL, &scene->config, request->request.rounded),
        .limit = oom_scene_limit_of(scene),
        .reserved = failure->reserved,
        .allocated = failure->used,
        .pending = failure->pending,
        .live = failure->live,
        .own_free = failure->own.bytes,
        .own_largest = failure->own.largest,
        .with_pending = failure->with_pending,
        .other_free = failure->others.bytes,
        .other_largest = failure->others.largest,
        .device_free = device_free_of(scene, request),
        .device_total = device_total(scene, request->request.device),
        .max_split_size = scene->config.max_split_size,
        .max_rounding = scene->config.max_non_split_rounding_size,
    };
}

static void oom_scene_want_blocks(struct oom_scene *scene, const struct oom_request *request)
{
    const struct failure_freeing *freeing = &request->failure.freeing;
    const struct failure_segment *best = &request->failure.best;
    for (size_t i = 0; i < freeing->blocks && i < FAILURE_BLOCKS_MAX; i++) {
        owners_want(scene->owners, freeing->first[i].addr, request->request.seq);
    }
    for (size_t i = 0; i < best->blocks && i < FAILURE_BLOCKS_MAX; i++) {
        owners_want(scene->owners, best->first[i].addr, request->request.seq);
    }
}

int oom_scene_load(struct oom_scene *scene, int64_t device, struct varve_message *message)
{
    scene->owners = owners_new();
    read_config(scene);
    struct cursor cursor;
    open_rows(&cursor, scene->exact, device);
    while (cursor_next(&cursor)) {
        read_row(scene, &cursor);
    }
    cursor_close(&cursor);
    read_given(scene, device);
    if (scene->explain != NULL) {
        find_failures(scene, device);
    }
    int error = VARVE_OK;
    for (size_t i = 0; i < scene->count && i < DETAILS_MAX && error == VARVE_OK; i++) {
        struct oom_request *request = &scene->requests[i];
        error = failure_load(&request->failure, scene->exact, &request->request, message);
        describe_memory(scene, request);
        oom_scene_want_blocks(scene, request);
    }
    owners_load(scene->owners, scene->exact);
    return error == VARVE_OK ? database_error(scene->exact, message) : error;
}

void oom_scene_free(struct oom_scene *scene)
{
    owners_free(scene->owners);
    free(scene->requests);
}

/* ---- what is looked up for a request that is printed ---- */

size_t oom_scene_sites(struct oom_scene *scene, const struct oom_request *request, struct oom_site sites[OOM_SITES_MAX])
{
    struct cursor cursor;
    cursor_open(&cursor, scene->exact, sql_oom_sites);
    cursor_bind_integer(&cursor, 1, request->request.device);
    cursor_bind_integer(&cursor, 2, request->request.process_id);
    cursor_bind_integer(&cursor, 3, request->request.seq);
    cursor_bind_integer(&cursor, 4, OOM_SITES_MAX);
    size_t count = 0;
    while (cursor_next(&cursor) && count < OOM_SITES_MAX) {
        sites[count++] =
            (struct oom_site){.owner = owner_of_callsite(scene->owners, scene->exact, cursor_integer(&cursor, 0)),
                              .bytes = cursor_integer(&cursor, 1),
                              .blocks = cursor_integer(&cursor, 2)};
    }
    cursor_close(&cursor);
    return count;
}

int64_t oom_scene_allocations(struct oom_scene *scene, const struct oom_request *request, int64_t seq)
{
    struct cursor cursor;
    cursor_open(&cursor, scene->exact, sql_oom_allocations_between);
    cursor_bind_integer(&cursor, 1, request->request.device);
    cursor_bind_integer(&cursor, 2, seq);
    cursor_bind_integer(&cursor, 3, request->request.seq);
    int64_t count = 0;
    if (cursor_next(&cursor)) {
        count = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return count;
}

size_t oom_scene_stages(struct oom_scene *scene, const struct oom_request *request,
                        struct oom_stage stages[OOM_STAGES_MAX])
{
    struct cursor cursor;
    cursor_open(&cursor, scene->exact, sql_oom_stages);
    cursor_bind_integer(&cursor, 1, request->request.seq);
    cursor_bind_integer(&cursor, 2, request->thread_id);
    cursor_bind_integer(&cursor, 3, request->request.device);
    cursor_bind_integer(&cursor, 4, OOM_STAGES_MAX);
    size_t count = 0;
    while (cursor_next(&cursor) && count < OOM_STAGES_MAX) {
        const char *name = cursor_text(&cursor, 0);
        snprintf(stages[count].name, sizeof(stages[count].name), "%s", name != NULL ? name : "?");
        stages[count].seq = cursor_integer(&cursor, 1);
        stages[count++].bytes_freed = cursor_integer(&cursor, 2);
    }
    cursor_close(&cursor);
    return count;
}

struct owner oom_scene_owner(const struct oom_scene *scene, const struct oom_request *request,
                             const struct varve_layout_block *block)
{
    const struct segments_part part = {.process_id = request->request.process_id, .device = request->request.device};
    return owners_of(scene->owners, &part, block->addr, request->request.seq);
}

/* ---- the database of a history's decisions ---- */

/* What is inferred of a history that comes out again; NULL: it does not. */
static struct replay_inference *oom_scene_follow(const struct history *history, struct replay_options *options)
{
    const uint64_t limits[] = {options->memory_limit, 0};
    struct replay_inference *inference;
    struct replay_result result;
    struct varve_message ignored = {""};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        options->memory_limit = limits[i];
        if (replay_infer(history, options, &inference, &result, &ignored) != VARVE_OK) {
            continue;
        }
        if (result.mismatches == 0 && result.segments_equal) {
            return inference;
        }
        replay_inference_free(inference);
    }
    return NULL;
}

static int write_decisions(const struct history *history, const struct replay_inference *inference,
                           struct replay_options *options, struct varve_writer *writer, struct varve_message *message)
{
    struct history_settings settings;
    int error = replay_settings(history, NULL, &settings, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct history_writer *records = history_writer_new(writer, history);
    options->output = history_writer_output(records);
    history_write_settings(writer, &settings, history_writer_begin_us(records));
    struct replay_result result;
    error = replay_play(inference, options, &result, message);
    history_writer_free(records);
    return error;
}

int oom_scene_write(const struct history *history, uint64_t limit, const char *path, struct progress *progress,
                    struct varve_message *message)
{
    struct replay_options options = {.memory_limit = limit, .follow = true, .progress = progress};
    struct replay_inference *inference = oom_scene_follow(history, &options);
    if (inference == NULL) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "the recorded decisions do not come out again");
    }
    struct varve_writer *writer;
    int error = varve_writer_open(path, false, &writer, message);
    if (error == VARVE_OK) {
        error = write_decisions(history, inference, &options, writer, message);
        if (error == VARVE_OK) {
            error = varve_writer_finish(writer, progress_step, progress, message);
        } else {
            varve_writer_abandon(writer);
        }
    }
    replay_inference_free(inference);
    return error;
}
