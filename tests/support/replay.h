/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * For tests of a replay: a scene is a program's life with a real allocator on a simulated device, recorded as
 * PyTorch would have recorded it, that is without splits, merges, causes and real streams. What the program
 * called is known then, and a replay has to find it out again: the same decisions and the same statistics.
 */
#ifndef VARVE_TESTS_SUPPORT_REPLAY_H
#define VARVE_TESTS_SUPPORT_REPLAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "analysis/history/read.h"
#include "analysis/replay/replay.h"

#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define SCENE_STREAMS 64

struct scene {
    struct history *history;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_alloc_stats stats; /* at the end */
    const char *conf;
    uint64_t limit;
    uint64_t stream;                 /* of the running call */
    uint64_t handles[SCENE_STREAMS]; /* by the allocator's number */
    uint64_t pool;                   /* capture id of the running call, 0: the default pool */
    uint64_t pools[SCENE_STREAMS];   /* by half the allocator's number */
    bool names_pools;                /* events name their pools, as newer versions do */
    int64_t time_us;
};

/* The event's pool, as a number in the history's table. */
static inline uint8_t scene_pool_number(struct scene *scene, unsigned number)
{
    struct history *history = scene->history;
    size_t i = 0;

    number /= 2; /* small and large */
    assert_true(number < SCENE_STREAMS);
    if (number > 0 && scene->pools[number] == 0) {
        scene->pools[number] = scene->pool;
    }
    while (i < history->pool_count && history->pool_ids[i][0] != scene->pools[number]) {
        i++;
    }
    if (i == history->pool_count) {
        history->pool_ids[history->pool_count++][0] = scene->pools[number];
    }
    return (uint8_t)(i + 1);
}

static inline void scene_record(void *context, const struct varve_record *record)
{
    struct scene *scene = (struct scene *)context;
    unsigned action = history_action_of_kind(varve_record_kind(record));
    unsigned number = varve_record_stream(record);
    struct history_event *event;

    if (action == HISTORY_ACTION_LIMIT) {
        return;
    }
    assert_true(number < SCENE_STREAMS);
    if (number > 0 && scene->handles[number] == 0) {
        scene->handles[number] = scene->stream;
    }
    event = history_add_event(&scene->history->devices[0]);
    event->action = (uint8_t)action;
    event->addr = record->addr;
    event->size = event->action <= HISTORY_FREE_COMPLETED ? record->requested : record->size;
    event->time_us = 1000 + ++scene->time_us;
    event->pool = scene->names_pools ? scene_pool_number(scene, record->pool) : 0;
    assert_int_equal(history_stream(scene->history, scene->handles[number], &event->stream), VARVE_OK);
}

/// `conf` "": defaults. `capacity` 0: without limit.
static inline struct scene *scene_open(const char *conf, uint64_t limit, uint64_t capacity)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    struct varve_sim_options sim = {
        .capacity_bytes = capacity, .total_bytes = 1024 * MIB, .events_are_scripted = true};
    struct varve_alloc_options options;

    assert_non_null(scene);
    scene->history = history_new();
    history_device(scene->history, 0);
    scene->conf = conf;
    scene->limit = limit;
    scene->recorder = (struct varve_alloc_recorder){.record = scene_record, .context = scene};
    assert_int_equal(varve_sim_open(&sim, &scene->device, NULL), VARVE_OK);
    varve_alloc_options_init(&options);
    assert_int_equal(varve_alloc_config_parse(conf, &options.config, NULL), VARVE_OK);
    options.device = scene->device;
    options.memory_limit = limit;
    options.recorder = &scene->recorder;
    assert_int_equal(varve_alloc_open(&options, &scene->alloc, NULL), VARVE_OK);
    return scene;
}

/// Address of a block, 0 when there was no memory.
static inline uint64_t scene_alloc(struct scene *scene, uint64_t bytes, uint64_t stream)
{
    uint64_t addr = 0;
    int result;

    scene->stream = stream;
    result = varve_alloc_raw_alloc_with_stream(scene->alloc, bytes, stream, &addr, NULL);
    assert_true(result == VARVE_OK || result == VARVE_ERROR_NO_MEMORY);
    return result == VARVE_OK ? addr : 0;
}

static inline void scene_free(struct scene *scene, uint64_t addr)
{
    assert_int_equal(varve_alloc_raw_delete(scene->alloc, addr, NULL), VARVE_OK);
}

/// A free that waits for `user`.
static inline void scene_free_used(struct scene *scene, uint64_t addr, uint64_t user)
{
    assert_int_equal(varve_alloc_record_stream(scene->alloc, addr, user, NULL), VARVE_OK);
    scene_free(scene, addr);
}

static inline void scene_finish_stream(struct scene *scene, uint64_t stream)
{
    assert_int_equal(varve_sim_stream_complete(scene->device, stream), VARVE_OK);
}

static inline void scene_empty_cache(struct scene *scene)
{
    assert_int_equal(varve_alloc_empty_cache(scene->alloc), VARVE_OK);
}

static inline uint64_t scene_pool_alloc(struct scene *scene, uint64_t pool, uint64_t bytes, uint64_t stream)
{
    struct varve_pool_id id = {pool, 0};
    uint64_t addr;

    assert_int_equal(varve_alloc_begin_allocate_to_pool(scene->alloc, id, NULL, NULL), VARVE_OK);
    scene->pool = pool;
    addr = scene_alloc(scene, bytes, stream);
    scene->pool = 0;
    assert_int_equal(varve_alloc_end_allocate_to_pool(scene->alloc, id), VARVE_OK);
    return addr;
}

/// Drop one reference; each request to the pool has taken one.
static inline void scene_release_pool(struct scene *scene, uint64_t pool)
{
    assert_int_equal(varve_alloc_release_pool(scene->alloc, (struct varve_pool_id){pool, 0}), VARVE_OK);
}

/// The history begins with its event number `count`.
static inline void scene_cut(struct scene *scene, size_t count)
{
    struct history_device *device = &scene->history->devices[0];

    assert_true(count <= device->event_count);
    device->event_count -= count;
    memmove(device->events, device->events + count, device->event_count * sizeof(*device->events));
}

static inline void scene_take_segments(struct scene *scene)
{
    struct history_device *device = &scene->history->devices[0];
    struct varve_alloc_snapshot snapshot;

    assert_int_equal(varve_alloc_snapshot(scene->alloc, &snapshot), VARVE_OK);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *info = &snapshot.segments[i];
        struct history_segment *segment = history_add_segment(device);

        segment->addr = info->addr;
        segment->size = info->bytes;
        segment->allocated = info->allocated_bytes;
        segment->active = info->active_bytes;
        segment->requested = info->requested_bytes;
        segment->pool_id[0] = info->pool.capture;
        segment->pool_id[1] = info->pool.user;
        segment->is_small = info->is_small;
        segment->is_expandable = info->is_expandable;
        segment->first_block = device->block_count;
        segment->block_count = info->block_count;
        assert_int_equal(history_stream(scene->history, info->stream, &segment->stream), VARVE_OK);
        for (size_t j = 0; j < info->block_count; j++) {
            const struct varve_block_info *block = &snapshot.blocks[info->first_block + j];

            *history_add_block(device) = (struct history_block){
                .addr = block->addr,
                .size = block->bytes,
                .requested = block->requested,
                .state = block->state == VARVE_BLOCK_INACTIVE           ? HISTORY_INACTIVE
                         : block->state == VARVE_BLOCK_ACTIVE_ALLOCATED ? HISTORY_ACTIVE_ALLOCATED
                                                                        : HISTORY_ACTIVE_PENDING_FREE,
            };
        }
    }
    varve_alloc_snapshot_free(&snapshot);
}

/// The program ends: what it leaves is in the history, and the allocator is gone.
static inline void scene_end(struct scene *scene)
{
    scene_take_segments(scene);
    assert_int_equal(varve_alloc_get_device_stats(scene->alloc, &scene->stats), VARVE_OK);
    varve_alloc_close(scene->alloc);
    scene->device->ops->close(scene->device);
}

static inline void scene_close(struct scene *scene)
{
    history_free(scene->history);
    free(scene);
}

static inline int scene_try(const struct scene *scene, struct replay_result *result,
                            struct varve_message *message)
{
    struct replay_options options = {
        .conf = scene->conf, .memory_limit = scene->limit, .capacity = 1024 * MIB, .follow = true};

    return replay_run(scene->history, &options, result, message);
}

/// Replay, and require all of it to come out again.
static inline void scene_expect_equal(const struct scene *scene)
{
    struct replay_result result;
    struct varve_message message = {""};

    if (scene_try(scene, &result, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    if (result.mismatches != 0) {
        fail_msg("event %zu: expected %s; got %s", result.first.event, result.first.expected,
                 result.first.got);
    }
    if (!result.segments_equal) {
        fail_msg("%s", result.difference);
    }
    assert_memory_equal(&result.stats, &scene->stats, sizeof(result.stats));
}

/// How many events of an action the scene has.
static inline size_t scene_count(const struct scene *scene, enum history_action action)
{
    const struct history_device *device = &scene->history->devices[0];
    size_t count = 0;

    for (size_t i = 0; i < device->event_count; i++) {
        count += device->events[i].action == action ? 1 : 0;
    }
    return count;
}

#endif
