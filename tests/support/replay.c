/* SPDX-License-Identifier: Apache-2.0 */
/* See replay.h. */
#include <cmocka.h>

#include "support/random.h"
#include "support/replay.h"

#include <ctype.h>

/* The event's pool, as a number in the history's table. */
static uint8_t pool_number(struct scene *scene, unsigned number)
{
    struct history *history = scene->history;
    size_t i = 0;
    number /= 2; /* small and large */
    assert_true(number < SCENE_POOLS);
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

static void record(void *context, const struct varve_record *record)
{
    struct scene *scene = context;
    unsigned action = history_action_of_kind(varve_record_kind(record));
    unsigned number = varve_record_stream(record);
    if (action == HISTORY_ACTION_LIMIT) {
        return;
    }
    assert_true(number < SCENE_STREAMS);
    if (number > 0 && scene->handles[number] == 0) {
        scene->handles[number] = scene->stream;
    }
    struct history_event *event = history_add_event(scene_device(scene));

    event->action = (uint8_t)action;
    event->addr = record->addr;
    event->size = event->action <= HISTORY_FREE_COMPLETED ? record->requested : record->size;
    event->time_us = 1000 + ++scene->time_us;
    event->pool = scene->names_pools ? pool_number(scene, record->pool) : 0;
    assert_int_equal(history_stream(scene->history, scene->handles[number], &event->stream), VARVE_OK);
}

struct scene *scene_open(const char *conf, uint64_t limit, uint64_t capacity)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    struct varve_sim_options sim = {.capacity_bytes = capacity, .total_bytes = 1024 * MIB, .events_are_scripted = true};
    assert_non_null(scene);
    scene->history = history_new();
    history_device(scene->history, 0);
    scene->conf = conf;
    scene->limit = limit;
    scene->recorder = (struct varve_alloc_recorder){.record = record, .context = scene};
    assert_int_equal(varve_sim_open(&sim, &scene->device, NULL), VARVE_OK);
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(varve_alloc_config_parse(conf, &options.config, NULL), VARVE_OK);
    options.device = scene->device;
    options.memory_limit = limit;
    options.recorder = &scene->recorder;
    assert_int_equal(varve_alloc_open(&options, &scene->alloc, NULL), VARVE_OK);
    return scene;
}

uint64_t scene_alloc(struct scene *scene, uint64_t bytes, uint64_t stream)
{
    uint64_t addr = 0;
    scene->stream = stream;
    int result = varve_alloc_raw_alloc_with_stream(scene->alloc, bytes, stream, &addr, NULL);

    assert_true(result == VARVE_OK || result == VARVE_ERROR_NO_MEMORY);
    return result == VARVE_OK ? addr : 0;
}

uint64_t scene_pool_alloc(struct scene *scene, uint64_t pool, uint64_t bytes, uint64_t stream)
{
    struct varve_pool_id id = {pool, 0};
    assert_int_equal(varve_alloc_begin_allocate_to_pool(scene->alloc, id, NULL, NULL), VARVE_OK);
    scene->pool = pool;
    uint64_t addr = scene_alloc(scene, bytes, stream);

    scene->pool = 0;
    assert_int_equal(varve_alloc_end_allocate_to_pool(scene->alloc, id), VARVE_OK);
    return addr;
}

void scene_free(struct scene *scene, uint64_t addr)
{
    assert_int_equal(varve_alloc_raw_delete(scene->alloc, addr, NULL), VARVE_OK);
}

void scene_free_used(struct scene *scene, uint64_t addr, uint64_t user)
{
    if (user != 0) {
        assert_int_equal(varve_alloc_record_stream(scene->alloc, addr, user, NULL), VARVE_OK);
    }
    scene_free(scene, addr);
}

void scene_finish_stream(struct scene *scene, uint64_t stream)
{
    assert_int_equal(varve_sim_stream_complete(scene->device, stream), VARVE_OK);
}

void scene_empty_cache(struct scene *scene)
{
    assert_int_equal(varve_alloc_empty_cache(scene->alloc), VARVE_OK);
}

void scene_release_pool(struct scene *scene, uint64_t pool)
{
    assert_int_equal(varve_alloc_release_pool(scene->alloc, (struct varve_pool_id){pool, 0}), VARVE_OK);
}

void scene_end_pool(struct scene *scene, uint64_t pool)
{
    struct varve_pool_id id = {pool, 0};
    while (varve_alloc_pool_use_count(scene->alloc, id) > 0) {
        scene_release_pool(scene, pool);
    }
    assert_int_equal(varve_alloc_empty_pool(scene->alloc, id), VARVE_OK);
}

void scene_move_pool(struct scene *scene, uint64_t pool)
{
    assert_int_equal(varve_alloc_create_or_incref_pool(scene->alloc, (struct varve_pool_id){pool, 0}), VARVE_OK);
    scene_release_pool(scene, pool);
}

static bool takes_no_stream(void *context, uint64_t stream)
{
    (void)context;
    (void)stream;
    return false;
}

void scene_capture_elsewhere(struct scene *scene, uint64_t pool, bool begins)
{
    struct varve_pool_id id = {pool, 0};
    assert_int_equal(begins ? varve_alloc_begin_allocate_to_pool(scene->alloc, id, takes_no_stream, NULL)
                            : varve_alloc_end_allocate_to_pool(scene->alloc, id),
                     VARVE_OK);
}

/* ---- calls in words ---- */

static uint64_t take_number(const char **at)
{
    char *end;
    uint64_t number = strtoull(*at, &end, 10);
    assert_true(end != *at);
    *at = end;
    return number;
}

/* 11M+700K */
static uint64_t take_size(const char **at)
{
    uint64_t sum = 0;
    do {
        uint64_t number = take_number(at);
        number *= **at == 'M' ? MIB : **at == 'K' ? KIB : 1;
        *at += **at == 'M' || **at == 'K';
        sum += number;
    } while (**at == '+' && *++*at != '\0');
    return sum;
}

static uint64_t take_behind(const char **at, char sign)
{
    if (**at != sign) {
        return 0;
    }
    ++*at;
    return take_number(at);
}

static uint64_t play_request(struct scene *scene, const char **at)
{
    uint64_t bytes = take_size(at), stream = take_behind(at, '@'), pool = take_behind(at, '#');
    return pool != 0 ? scene_pool_alloc(scene, pool, bytes, stream) : scene_alloc(scene, bytes, stream);
}

static void play_word(struct scene *scene, const char **at)
{
    char sign = *(*at)++;
    if (islower(sign)) {
        assert_int_equal(*(*at)++, '=');
        scene->blocks[sign - 'a'] = play_request(scene, at);
        assert_true(scene->blocks[sign - 'a'] != 0);
    } else if (sign == '+' || sign == '!') {
        assert_int_equal(play_request(scene, at) == 0, sign == '!');
    } else if (sign == '-') {
        uint64_t addr = scene->blocks[*(*at)++ - 'a'];
        scene_free_used(scene, addr, take_behind(at, '~'));
    } else if (sign == '/') {
        scene_finish_stream(scene, take_number(at));
    } else if (sign == 'R') {
        uint64_t pool = take_number(at);
        for (uint64_t count = take_behind(at, '*'); count > 0; count--) {
            scene_release_pool(scene, pool);
        }
    } else if (sign == 'P') {
        scene_end_pool(scene, take_number(at));
    } else if (sign == 'O') {
        scene_move_pool(scene, take_number(at));
    } else if (sign == '[' || sign == ']') {
        scene_capture_elsewhere(scene, take_number(at), sign == '[');
    } else if (sign == 'E') {
        scene_empty_cache(scene);
    } else {
        assert_int_equal(sign, '|');
        scene->mark = scene_device(scene)->event_count;
    }
    if (**at != '\0' && **at != ' ') {
        fail_msg("no call: %s", *at);
    }
}

void scene_play(struct scene *scene, const char *calls)
{
    while (*(calls += strspn(calls, " ")) != '\0') {
        play_word(scene, &calls);
    }
}

struct scene *scene_of(const char *conf, uint64_t limit, const char *calls)
{
    struct scene *scene = scene_open(conf, limit, 0);
    scene_play(scene, calls);
    scene_end(scene);
    return scene;
}

static uint64_t random_size(uint64_t *seed)
{
    static const uint64_t most[] = {4 * KIB, 2 * MIB, 16 * MIB, 50 * MIB};
    return 1 + random_next(seed) % most[random_next(seed) % 4];
}

struct scene *scene_random(const struct scene_life *life, uint64_t *seed)
{
    struct scene *scene = scene_open(life->conf, life->limit, 0);
    uint64_t blocks[64] = {0};
    assert_true(life->blocks <= 64);
    for (unsigned i = 0; i < life->steps; i++) {
        uint64_t *block = &blocks[random_next(seed) % life->blocks];
        uint64_t choice = random_next(seed) % 40;
        if (choice == 0 && life->empties_cache) {
            scene_empty_cache(scene);
        } else if (choice < 4 && life->users > 0) {
            scene_finish_stream(scene, 900 + random_next(seed) % life->users);
        } else if (*block == 0) {
            *block = scene_alloc(scene, random_size(seed), random_next(seed) % life->streams);
        } else {
            bool waits = life->users > 0 && random_next(seed) % 3 == 0;
            scene_free_used(scene, *block, waits ? 900 + random_next(seed) % life->users : 0);
            *block = 0;
        }
    }
    scene_end(scene);
    return scene;
}

/* ---- the end, and replays ---- */

void scene_cut(struct scene *scene, size_t count)
{
    struct history_device *device = scene_device(scene);
    assert_true(count <= device->event_count);
    device->event_count -= count;
    memmove(device->events, device->events + count, device->event_count * sizeof(*device->events));
}

static void take_blocks(struct scene *scene, const struct varve_block_info *blocks, size_t count)
{
    static const enum history_state states[] = {[VARVE_BLOCK_INACTIVE] = HISTORY_INACTIVE,
                                                [VARVE_BLOCK_ACTIVE_ALLOCATED] = HISTORY_ACTIVE_ALLOCATED,
                                                [VARVE_BLOCK_ACTIVE_PENDING_FREE] = HISTORY_ACTIVE_PENDING_FREE};
    for (size_t i = 0; i < count; i++) {
        *history_add_block(scene_device(scene)) = (struct history_block){.addr = blocks[i].addr,
                                                                         .size = blocks[i].bytes,
                                                                         .requested = blocks[i].requested,
                                                                         .state = states[blocks[i].state]};
    }
}

void scene_end(struct scene *scene)
{
    struct varve_alloc_snapshot snapshot;
    assert_int_equal(varve_alloc_snapshot(scene->alloc, &snapshot), VARVE_OK);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *info = &snapshot.segments[i];
        struct history_segment *segment = history_add_segment(scene_device(scene));
        *segment = (struct history_segment){.addr = info->addr,
                                            .size = info->bytes,
                                            .allocated = info->allocated_bytes,
                                            .active = info->active_bytes,
                                            .requested = info->requested_bytes,
                                            .pool_id = {info->pool.capture, info->pool.user},
                                            .is_small = info->is_small,
                                            .is_expandable = info->is_expandable,
                                            .first_block = scene_device(scene)->block_count,
                                            .block_count = info->block_count};
        assert_int_equal(history_stream(scene->history, info->stream, &segment->stream), VARVE_OK);
        take_blocks(scene, &snapshot.blocks[info->first_block], info->block_count);
    }
    varve_alloc_snapshot_free(&snapshot);
    assert_int_equal(varve_alloc_get_device_stats(scene->alloc, &scene->stats), VARVE_OK);
    varve_alloc_close(scene->alloc);
    scene->device->ops->close(scene->device);
}

void scene_close(struct scene *scene)
{
    history_free(scene->history);
    free(scene);
}

int scene_try(const struct scene *scene, struct replay_result *result, struct varve_message *message)
{
    struct replay_options options = {
        .conf = scene->conf, .memory_limit = scene->limit, .capacity = 1024 * MIB, .follow = true};
    return replay_run(scene->history, &options, result, message);
}

struct replay_result scene_expect_decisions(const struct scene *scene, uint64_t seed)
{
    struct replay_result result;
    struct varve_message message = {""};
    if (scene_try(scene, &result, &message) != VARVE_OK) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, message.text);
    }
    if (result.mismatches != 0 || !result.segments_equal) {
        fail_msg("seed %llu, event %zu: expected %s; got %s; %s", (unsigned long long)seed, result.first.event,
                 result.first.expected, result.first.got, result.difference);
    }
    return result;
}

void scene_expect_equal(struct scene *scene)
{
    struct replay_result result = scene_expect_decisions(scene, 0);
    assert_memory_equal(&result.stats, &scene->stats, sizeof(result.stats));
    scene_close(scene);
}

size_t scene_count(const struct scene *scene, enum history_action action)
{
    size_t count = 0;
    for (size_t i = 0; i < scene_device(scene)->event_count; i++) {
        count += scene_device(scene)->events[i].action == action;
    }
    return count;
}
