/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that failed: every figure of its accounting, the words of its message, the advice, and the
 * observers, which run without the lock: another thread may allocate while one of them runs.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

#include <pthread.h>

struct duplicate {
    struct rig *rig;
    unsigned calls;
    struct varve_alloc_oom oom;
};

static void duplicate_call(void *context, const struct varve_alloc_oom *oom)
{
    struct duplicate *duplicate = context;
    duplicate->calls++;
    duplicate->oom = *oom;
}

static bool is_stream_9(void *context, uint64_t stream)
{
    (void)context;
    return stream == 9;
}

/* 60 MiB: stream 0 has 8 of 20 used, stream 5 has 2 of 20, a private pool has 20 free. */
static uint64_t broken_prepare(struct rig *rig, const char *config, struct duplicate *duplicate)
{
    const struct varve_pool_id pool = {0, 1};
    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 200 * MIB, .limit = 60 * MIB, .config = config});
    *duplicate = (struct duplicate){.rig = rig};
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, is_stream_9, NULL), VARVE_OK);
    uint64_t c = take_on(rig, 20 * MIB, 9);
    give(rig, c);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    uint64_t a = take(rig, 8 * MIB);
    uint64_t b = take(rig, 8 * MIB);
    give(rig, a);
    take_on(rig, 2 * MIB, 5);
    assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, duplicate_call, duplicate), VARVE_OK);
    forget(rig);
    return b;
}

TEST_WITH(test_accounting, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct duplicate duplicate;
    uint64_t blocker = broken_prepare(rig, NULL, &duplicate);
    const struct varve_alloc_oom *oom = &duplicate.oom;
    refused(rig, 17 * MIB - 1, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(duplicate.calls, 1);
    assert_int_equal(oom->requested, 17 * MIB - 1);
    assert_int_equal(oom->rounded, 17 * MIB);
    assert_int_equal(oom->segment_bytes, 18 * MIB);
    assert_int_equal(oom->stream, 0);
    assert_int_equal(oom->allocated, 10 * MIB);
    assert_int_equal(oom->active, 10 * MIB);
    assert_int_equal(oom->reserved, 60 * MIB);
    assert_int_equal(oom->pending, 0);
    assert_int_equal(oom->private_free, 20 * MIB);
    assert_int_equal(oom->device_free, 140 * MIB);
    assert_int_equal(oom->device_total, 200 * MIB);
    assert_int_equal(oom->limit, 60 * MIB);
    assert_int_equal(oom->largest_free, 8 * MIB);
    assert_int_equal(oom->largest_free_any, 20 * MIB);
    assert_int_equal(oom->largest_hole_addr, blocker - 8 * MIB);
    assert_int_equal(oom->largest_hole_free, 12 * MIB);
    assert_int_equal(oom->largest_hole_bytes, 20 * MIB);
    assert_int_equal(oom->blocker_addr, blocker);
    assert_int_equal(oom->blocker_bytes, 8 * MIB);
    assert_int_equal(oom->stage, VARVE_ALLOC_STAGE_RELEASE_CACHED);
    const struct varve_record *record = nth_record(rig, VARVE_KIND_OOM, 0);
    assert_int_equal(record->size, 17 * MIB);
    assert_int_equal(record->requested, 10 * MIB);
    assert_int_equal(record->arg, 60 * MIB);
    assert_int_equal(record->addr, 8 * MIB);
    assert_int_equal(varve_record_flags(record), VARVE_FLAG_FAILED);
}

/* What a user reads: the request, where the memory is, and an end that was not cut off. */
TEST_WITH(test_message, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct duplicate duplicate;
    const char *text = rig->message.text;
    uint64_t blocker = broken_prepare(rig, NULL, &duplicate);
    refused(rig, 17 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(text, "out of memory"));
    assert_non_null(strstr(text, "17825792"));
    assert_non_null(strstr(text, "18874368"));
    assert_non_null(strstr(text, "the release of all unused segments"));
    char hole[64];
    snprintf(hole, sizeof(hole), "%#" PRIx64, blocker - 8 * MIB);
    assert_non_null(strstr(text, hole));
    assert_non_null(duplicate.oom.advice);
    assert_string_equal(text + strlen(text) - strlen(duplicate.oom.advice), duplicate.oom.advice);
    /* and without a place for it */
    assert_int_equal(varve_alloc_raw_alloc(rig->alloc, 17 * MIB, &blocker, NULL), VARVE_ERROR_NO_MEMORY);
}

TEST_WITH(test_advice, rig_setup, rig_teardown)
{
    static const struct {
        uint64_t mib;
        const char *advice; /* NULL: none */
    } cases[] = {
        {18, "another stream"},
        {21, "expandable_segments"}, /* 50 are free, in pieces of 20 at most */
        {100, "limit"},
        {150, NULL}, /* the device has not that much either */
    };
    struct rig *rig = *state;
    struct duplicate duplicate;
    broken_prepare(rig, NULL, &duplicate);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refused(rig, cases[i].mib * MIB, VARVE_ERROR_NO_MEMORY);
        assert_int_equal(duplicate.oom.advice == NULL, cases[i].advice == NULL);
        assert_true(cases[i].advice == NULL || strstr(duplicate.oom.advice, cases[i].advice) != NULL);
    }
}

/* In a capture nobody is waited for, so what is pending stays so. */
TEST_WITH(test_advice_pending, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct duplicate duplicate = {.rig = rig};
    const struct varve_pool_id pool = {0, 1};
    rig_open(rig, &(struct rig_options){.limit = 30 * MIB, .sim.events_are_scripted = true});
    varve_alloc_add_oom_observer(rig->alloc, duplicate_call, &duplicate);
    uint64_t a = take(rig, 30 * MIB);
    use_on(rig, a, 7);
    give(rig, a);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, NULL, NULL), VARVE_OK);
    refused(rig, 30 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(duplicate.oom.pending, 30 * MIB);
    assert_int_equal(duplicate.oom.allocated, 0);
    assert_int_equal(duplicate.oom.active, 30 * MIB);
    assert_int_equal(duplicate.oom.stage, VARVE_ALLOC_STAGE_NEW_SEGMENT);
    assert_non_null(strstr(duplicate.oom.advice, "wait for other streams"));
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
}

/* ---- observers ---- */

static void *other_thread(void *context)
{
    struct rig *rig = context;
    uint64_t addr;
    if (varve_alloc_raw_alloc(rig->alloc, 512, &addr, NULL) != VARVE_OK) {
        return rig;
    }
    return varve_alloc_raw_delete(rig->alloc, addr, NULL) != VARVE_OK ? rig : NULL;
}

/* With the lock held this would never end. */
static void helper_call(void *context, const struct varve_alloc_oom *oom)
{
    struct duplicate *duplicate = context;
    void *result = duplicate;
    (void)oom;
    pthread_t thread;
    if (pthread_create(&thread, NULL, other_thread, duplicate->rig) == 0) {
        pthread_join(thread, &result);
    }
    duplicate->calls += result == NULL;
}

TEST_WITH(test_observers_have_no_lock, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct duplicate first = {.rig = rig}, second = {.rig = rig};
    rig_open(rig, &(struct rig_options){.limit = 2 * MIB});
    assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, helper_call, &first), VARVE_OK);
    assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, duplicate_call, &second), VARVE_OK);
    uint64_t addr = take(rig, 512);
    give(rig, addr);
    assert_int_equal(first.calls + second.calls, 0);
    take(rig, 1024);
    refused(rig, 2 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(first.calls, 1);
    assert_int_equal(second.calls, 1);
}

/* A device that lacks memory for its resource table while events are asked for: no request has failed for lack of
 * memory, nobody gets it. */
TEST_WITH(test_trouble_with_events_is_no_oom, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct duplicate duplicate = {.rig = rig};
    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    varve_alloc_add_oom_observer(rig->alloc, duplicate_call, &duplicate);
    uint64_t a = take(rig, 512);
    use_on(rig, a, 7);
    give(rig, a);
    varve_sim_fail(rig->device, VARVE_DEVICE_EVENT_QUERY, 1, 1, VARVE_ERROR_NO_MEMORY);
    varve_sim_fail(rig->device, VARVE_DEVICE_EVENT_QUERY, 2, 1, VARVE_ERROR_IO);
    refused(rig, 512, VARVE_ERROR_NO_MEMORY);
    refused(rig, 512, VARVE_ERROR_IO);
    assert_int_equal(duplicate.calls, 0);
    assert_int_equal(stats_of(rig).num_ooms, 0);
    assert_int_not_equal(take(rig, 512), a);
    varve_sim_stream_complete(rig->device, 7);
    assert_int_equal(take(rig, 512), a);
}
