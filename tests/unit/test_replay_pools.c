/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools of a history that does not name them: those whose segments are there at the end have names,
 * the others follow from what best fit passed over, and from the periods in which segments were used.
 */
#include "unit/replay_support.h"

#define CAPTURE_STREAM 50

static void release_pool(struct scene *scene, uint64_t pool)
{
    struct varve_pool_id id = {pool, 0};

    assert_int_equal(varve_alloc_release_pool(scene->alloc, id), VARVE_OK);
}

/* Scenes begin a pool anew for each request, which takes a reference each time. */
static void drop_references(struct scene *scene, uint64_t pool, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        release_pool(scene, pool);
    }
}

static void derive(const struct scene *scene, struct replay_pools *pools)
{
    struct varve_sim_options sim = {0};
    struct varve_alloc_options options;
    struct varve_alloc_snapshot start = {0};
    struct varve_device *device;
    struct varve_alloc *rounding;

    assert_int_equal(varve_sim_open(&sim, &device, NULL), VARVE_OK);
    varve_alloc_options_init(&options);
    options.device = device;
    assert_int_equal(varve_alloc_open(&options, &rounding, NULL), VARVE_OK);
    *pools = (struct replay_pools){0};
    assert_int_equal(
        replay_pools_derive(scene->history, &scene->history->devices[0], &start, rounding, pools, NULL),
        VARVE_OK);
    varve_alloc_close(rounding);
    device->ops->close(device);
}

static uint16_t pool_of_address(const struct scene *scene, const struct replay_pools *pools, uint64_t addr)
{
    const struct history_device *device = &scene->history->devices[0];

    for (size_t i = 0; i < device->event_count; i++) {
        if (device->events[i].action == HISTORY_ALLOC && device->events[i].addr == addr) {
            return pools->of_event[i];
        }
    }
    fail_msg("no such block");
    return 0;
}

/* A capture on its own stream while free blocks of the default pool would fit. */
static void test_pool_that_is_there_at_the_end(void **state)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t before = scene_alloc(scene, 300 * KIB, CAPTURE_STREAM);
    uint64_t inside;
    uint64_t after;
    struct replay_pools pools;

    (void)state;
    scene_free(scene, before);
    inside = scene_pool_alloc(scene, 7, 300 * KIB, CAPTURE_STREAM);
    scene_pool_alloc(scene, 7, 5 * MIB, CAPTURE_STREAM);
    after = scene_alloc(scene, 200 * KIB, CAPTURE_STREAM);
    scene_end(scene);
    assert_int_equal(after, before);
    derive(scene, &pools);
    assert_int_equal(pools.count, 2);
    assert_int_equal(pools.pools[1].id.capture, 7);
    assert_int_equal(pool_of_address(scene, &pools, before), 0);
    assert_int_equal(pool_of_address(scene, &pools, inside), 1);
    replay_pools_free(&pools);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Two graphs on one stream; the first one's pool is gone at the end, in the order that the history shows. */
static void test_pool_that_is_gone_at_the_end(void **state)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t generator = scene_alloc(scene, 100, CAPTURE_STREAM);
    uint64_t first[3];
    uint64_t second[3];

    (void)state;
    scene_free(scene, scene_alloc(scene, 6 * MIB, CAPTURE_STREAM));
    for (size_t i = 0; i < 3; i++) {
        first[i] = scene_pool_alloc(scene, 1, i == 0 ? 900 : 6 * MIB, CAPTURE_STREAM);
    }
    for (size_t i = 0; i < 3; i++) {
        scene_free(scene, first[i]);
    }
    scene_alloc(scene, 200, CAPTURE_STREAM);
    for (size_t i = 0; i < 3; i++) {
        second[i] = scene_pool_alloc(scene, 2, i == 0 ? 900 : 6 * MIB, CAPTURE_STREAM);
        assert_true(second[i] != first[i] && second[i] != generator);
    }
    drop_references(scene, 1, 3);
    scene_empty_cache(scene);
    scene_free(scene, generator);
    scene_alloc(scene, 3 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Nothing at the end tells of pools: the replay finds that it cannot be without. */
static void test_all_pools_are_gone_at_the_end(void **state)
{
    struct scene *scene = scene_open("", 0, 0);
    struct replay_result result;
    uint64_t inside;

    (void)state;
    scene_free(scene, scene_alloc(scene, 6 * MIB, CAPTURE_STREAM));
    inside = scene_pool_alloc(scene, 1, 6 * MIB, CAPTURE_STREAM);
    scene_free(scene, inside);
    scene_alloc(scene, 6 * MIB, CAPTURE_STREAM);
    drop_references(scene, 1, 1);
    scene_empty_cache(scene);
    scene_end(scene);
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    assert_true(result.derived_pools);
    scene_close(scene);
}

static void test_pools_are_released_in_the_order_of_the_history(void **state)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t blocks[3];

    (void)state;
    scene_alloc(scene, 3 * MIB, CAPTURE_STREAM);
    for (uint64_t pool = 0; pool < 3; pool++) {
        scene_pool_alloc(scene, 1 + pool, 100, CAPTURE_STREAM + pool);
        blocks[pool] = scene_pool_alloc(scene, 1 + pool, 15 * MIB, CAPTURE_STREAM + pool);
        scene_pool_alloc(scene, 1 + pool, 100, CAPTURE_STREAM + pool);
    }
    for (size_t pool = 0; pool < 3; pool++) {
        scene_free(scene, blocks[pool]);
    }
    drop_references(scene, 3, 3);
    drop_references(scene, 1, 3);
    scene_empty_cache(scene);
    scene_alloc(scene, 100, 0);
    drop_references(scene, 2, 3);
    scene_empty_cache(scene);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

static void test_expandable_pools_are_refused(void **state)
{
    struct scene *scene = scene_open("expandable_segments:True", 0, 0);
    struct varve_message message = {""};
    struct replay_result result;

    (void)state;
    scene_pool_alloc(scene, 1, 5 * MIB, CAPTURE_STREAM);
    scene_end(scene);
    assert_int_equal(scene_try(scene, &result, &message), VARVE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(message.text, "expandable"));
    scene_close(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_that_is_there_at_the_end),
        cmocka_unit_test(test_pool_that_is_gone_at_the_end),
        cmocka_unit_test(test_all_pools_are_gone_at_the_end),
        cmocka_unit_test(test_pools_are_released_in_the_order_of_the_history),
        cmocka_unit_test(test_expandable_pools_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
