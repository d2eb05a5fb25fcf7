/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a database that a snapshot was imported into are the requests of its history, in the same order. */
#include "analysis/cli/oom_print.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/layout.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>

static void open_rows(struct cursor *cursor, struct database *database, int64_t device)
{
    cursor_open(cursor, database, sql_oom_requests);
    cursor_bind_integer(cursor, 1, device);
}

struct oom_request *oom_scene_add(struct oom_scene *scene, const struct oom_request *request)
{
    struct oom_request *added = MEMORY_ADD(scene->requests, scene->count, scene->capacity);
    *added = *request;
    added->number = OOM_NO_FAILURE;
    added->request.rounded = varve_alloc_block_size(NULL, &scene->config, (uint64_t)request->requested);
    return added;
}

static void read_row(struct oom_scene *scene, struct cursor *cursor)
{
    const struct oom_request request = {
        .request = {.seq = cursor_integer(cursor, 0),
                    .device = cursor_integer(cursor, 2),
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
        .owner = {.callsite_id = cursor_integer(cursor, 9)},
        .thread_id = cursor_integer(cursor, 10),
    };
    oom_scene_add(scene, &request);
}

void oom_scene_configure(struct oom_scene *scene, const char *text)
{
    struct varve_message ignored = {""};
    varve_alloc_config_init(&scene->config);
    if (text != NULL && varve_alloc_config_parse(text, &scene->config, &ignored) != VARVE_OK) {
        varve_alloc_config_init(&scene->config);
    }
}

void oom_scene_number(struct oom_scene *scene, int64_t device)
{
    struct cursor cursor;
    open_rows(&cursor, scene->database, device);
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
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && limit == 0 && scene->database != NULL; i++) {
        char *text = database_meta(scene->database, keys[i]);
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
    if (scene->database == NULL) {
        return 0;
    }
    cursor_open(&cursor, scene->database, "SELECT coalesce(total_bytes, 0) FROM device WHERE id = ?1");
    cursor_bind_integer(&cursor, 1, device);
    uint64_t bytes = 0;
    if (cursor_next(&cursor) && cursor_integer(&cursor, 0) > 0) {
        bytes = (uint64_t)cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return bytes;
}

static void describe_memory(const struct oom_scene *scene, struct oom_request *request)
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

void oom_scene_describe(struct oom_scene *scene, int64_t device)
{
    if (scene->explain != NULL) {
        find_failures(scene, device);
    }
    for (size_t i = 0; i < scene->count && i < OOM_DETAILS_MAX; i++) {
        describe_memory(scene, &scene->requests[i]);
    }
}

void oom_scene_free(struct oom_scene *scene)
{
    owners_free(scene->owners);
    free(scene->requests);
}

/* ---- what is looked up in a database ---- */

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

static void load_sites(struct oom_scene *scene, struct oom_request *request)
{
    struct cursor cursor;
    cursor_open(&cursor, scene->database, sql_oom_sites);
    cursor_bind_integer(&cursor, 1, request->request.device);
    cursor_bind_integer(&cursor, 2, request->request.process_id);
    cursor_bind_integer(&cursor, 3, request->request.seq);
    cursor_bind_integer(&cursor, 4, OOM_SITES_MAX);
    while (cursor_next(&cursor) && request->site_count < OOM_SITES_MAX) {
        request->sites[request->site_count++] =
            (struct oom_site){.owner = owner_of_callsite(scene->owners, scene->database, cursor_integer(&cursor, 0)),
                              .bytes = cursor_integer(&cursor, 1),
                              .blocks = cursor_integer(&cursor, 2)};
    }
    cursor_close(&cursor);
}

static void load_holders(struct oom_scene *scene, const struct oom_request *request,
                         const struct varve_layout_block *blocks, uint64_t count, struct oom_holder *holders)
{
    const struct segments_part part = {.process_id = request->request.process_id, .device = request->request.device};
    struct cursor cursor;
    cursor_open(&cursor, scene->database, sql_oom_allocations_between);
    for (size_t i = 0; i < count && i < FAILURE_BLOCKS_MAX; i++) {
        holders[i].owner = owners_of(scene->owners, &part, blocks[i].addr, request->request.seq);
        cursor_bind_integer(&cursor, 1, request->request.device);
        cursor_bind_integer(&cursor, 2, holders[i].owner.alloc_seq);
        cursor_bind_integer(&cursor, 3, request->request.seq);
        if (holders[i].owner.alloc_seq > 0 && cursor_next(&cursor)) {
            holders[i].allocations = cursor_integer(&cursor, 0);
        }
        cursor_reset(&cursor);
    }
    cursor_close(&cursor);
}

static void load_stages(struct oom_scene *scene, struct oom_request *request)
{
    struct cursor cursor;
    cursor_open(&cursor, scene->database, sql_oom_stages);
    cursor_bind_integer(&cursor, 1, request->request.seq);
    cursor_bind_integer(&cursor, 2, request->thread_id);
    cursor_bind_integer(&cursor, 3, request->request.device);
    cursor_bind_integer(&cursor, 4, OOM_STAGES_MAX);
    while (cursor_next(&cursor) && request->stage_count < OOM_STAGES_MAX) {
        struct oom_stage *stage = &request->stages[request->stage_count++];
        const char *name = cursor_text(&cursor, 0);
        snprintf(stage->name, sizeof(stage->name), "%s", name != NULL ? name : "?");
        stage->seq = cursor_integer(&cursor, 1);
        stage->bytes_freed = cursor_integer(&cursor, 2);
    }
    cursor_close(&cursor);
}

/* After owners_load. */
static void load_details(struct oom_scene *scene, struct oom_request *request)
{
    const struct segments_part part = {.process_id = request->request.process_id, .device = request->request.device};
    const struct failure *failure = &request->failure;
    request->owner = owner_of_callsite(scene->owners, scene->database, request->owner.callsite_id);
    load_stages(scene, request);
    if (failure->is_known) {
        pool_name(scene->database, &part, request->request.pool, request->pool);
        load_holders(scene, request, failure->freeing.first, failure->freeing.blocks, request->freeing);
        load_holders(scene, request, failure->best.first, failure->best.blocks, request->best);
        load_sites(scene, request);
    }
}

int oom_scene_load(struct oom_scene *scene, int64_t device, size_t detailed, struct varve_message *message)
{
    char *conf = database_meta(scene->database, "allocator.conf");
    scene->owners = owners_new();
    oom_scene_configure(scene, conf);
    free(conf);
    struct cursor cursor;
    open_rows(&cursor, scene->database, device);
    while (cursor_next(&cursor)) {
        read_row(scene, &cursor);
    }
    cursor_close(&cursor);
    int error = VARVE_OK;
    for (size_t i = 0; i < scene->count && i < OOM_DETAILS_MAX && error == VARVE_OK; i++) {
        struct oom_request *request = &scene->requests[i];
        error = failure_load(&request->failure, scene->database, &request->request, message);
        oom_scene_want_blocks(scene, request);
    }
    owners_load(scene->owners, scene->database);
    for (size_t i = 0; i < scene->count && i < detailed; i++) {
        load_details(scene, &scene->requests[i]);
    }
    return error == VARVE_OK ? database_error(scene->database, message) : error;
}
