/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain that a request goes through when its pool has nothing, stage by stage on made-up addresses: what
 * each stage is allowed to do, what it records, and what comes next. The numbers are small enough to follow:
 * sizes of 20 MiB and more are blocks with a segment of their own.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* 40 MiB used, 22 (a) and 24 MiB free, a free small segment; a is above the mean age. */
#define CHAIN                                                                                 \
    {                                                                                         \
        .limit = 100 * MIB, .config = "max_split_size_mb:20,garbage_collection_threshold:0.8" \
    }
#define CHAIN_WORDS "40M a=22M c=512 -a b=24M -b -c reserved=88M | "
/* A segment of 9 + 9 + 2 MiB whose first block becomes free only when all streams are waited for. */
#define PENDING_WORDS "a=9M 9M a~7 -a | "

static const struct rig_case chain[] = {
    {"the first block, and a hit",
     {.sim.capacity_bytes = 100 * MIB},
     "a=100 <segment_alloc new_segment 2M; split 512 left 2096640; alloc new_segment 512> "
     "-a <free_requested 512; free_completed 512; merge next 2M absorbed 2096640> "
     "512>a <split 512 left 2096640; alloc cache 512> allocs=1"},
    {"the limit may be reached, and where it is in the way the device is not asked",
     {.limit = 42 * MIB},
     "20M a=20M 512 x2M asked=3 -a limit=42M-1 x20M+1"},
    {"one byte less than total + segment is refused, also where a wrapped sum would fit",
     {.limit = 40 * MIB - 1},
     "20M x20M x1152921504606846975 limit=40M 20M limit=0 20M"},
    {"the whole chain serves at its end; what was too little is gone", CHAIN,
     CHAIN_WORDS
     "60M <segment_free gc 22M; oom_retry gc 60M freed 22M; segment_free release_available 24M; "
     "oom_retry release_available 60M freed 24M; segment_free retry 2M; segment_alloc after_retry 60M; "
     "oom_retry release_cached 60M freed 2M served; alloc after_retry 60M> retries=1 ooms=0 syncs=1 frees=3"},
    {"the whole chain fails, and its retry counts", CHAIN,
     CHAIN_WORDS "x61M <segment_free gc 22M; oom_retry gc 62M freed 22M; segment_free release_available 24M; "
                 "oom_retry release_available 62M freed 24M; segment_free retry 2M; "
                 "oom_retry release_cached 62M freed 2M; oom 61M> retries=1 ooms=1"},
    {"the chain ends after gc", CHAIN,
     CHAIN_WORDS "30M <segment_free gc 22M; segment_alloc after_gc 30M; oom_retry gc 30M freed 22M served; "
                 "alloc after_gc 30M> retries=0"},
    {"the chain ends after the release of an oversize block, for which the request is too small",
     {.limit = 100 * MIB, .config = "max_split_size_mb:20"},
     "40M a=60M -a | 30M <segment_free release_available 60M; segment_alloc after_release 30M; "
     "oom_retry release_available 30M freed 60M served; alloc after_release 30M> retries=0"},
    {"what the last stage has freed is not searched, but the next request has it",
     {.limit = 20 * MIB, .sim.events_are_scripted = true},
     PENDING_WORDS "x9M <free_completed 9M; oom_retry release_cached 20M freed 0M; oom 9M> "
                   "9M <alloc cache 9M> retries=1"},
    {"it is searched on demand",
     {.limit = 20 * MIB, .sim.events_are_scripted = true, .has_research = true},
     PENDING_WORDS "9M <free_completed 9M; oom_retry release_cached 20M freed 0M served; alloc after_retry 9M> ooms=0"},
    {"the device is out of memory",
     {.sim.capacity_bytes = 50 * MIB},
     "a=30M -a | 40M <segment_free retry 30M; segment_alloc after_retry 40M; "
     "oom_retry release_cached 40M freed 30M served; alloc after_retry 40M>"},
    {"anything but a lack of memory ends the request at once, and nothing is given back",
     {.sim.capacity_bytes = 100 * MIB},
     "a=30M -a | fail:alloc:1 X40M says{was to fail} <> a{-30M} reserved=30M ooms=0 retries=0 40M"},
    {"the first attempt lacks memory, the second one's error is fatal",
     {.sim.capacity_bytes = 100 * MIB},
     "lack:alloc:1 fail:alloc:2 X40M <oom_retry release_cached 40M freed 0M> retries=1 ooms=0"},
    {"a block and its segment may not exceed the limit of allocated bytes, though they are larger than the request, "
     "and what the device gave for it serves a later request",
     {.limit = 0},
     "most=11M+512K x11M+512 allocated=0 reserved=12M most=12M 11M+512 allocated=12M asked=1"},
};
TEST_PLAYS(test_chain, chain)

/* ---- what is in records ---- */

/* Numbers of the device's order have no gaps, and an allocation's id comes back with its free. */
TEST_WITH(test_numbers_of_records, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.sim.index = 3});
    play(rig, "a=100 b=30M@77 -a");
    for (size_t i = 1; i < rig->count; i++) {
        assert_int_equal(varve_record_dev_seq(&rig->records[i]), varve_record_dev_seq(&rig->records[i - 1]) + 1);
        assert_int_equal(rig->records[i].device, 3);
    }
    const struct varve_record *first = nth_record(rig, VARVE_KIND_ALLOC, 0);
    const struct varve_record *second = nth_record(rig, VARVE_KIND_ALLOC, 1);
    assert_true(varve_record_id(first) == 1 && varve_record_id(second) == 2);
    assert_int_equal(second->addr, rig->named[1]);
    assert_int_equal(second->requested, 30 * MIB);
    assert_int_equal(first->arg >> 32, 2 * MIB / 512);
    assert_true(first->pool == 1 && second->pool == 0);
    assert_true(varve_record_stream(first) == 0 && varve_record_stream(second) == 1);
    assert_int_equal(varve_record_id(nth_record(rig, VARVE_KIND_FREE_REQUESTED, 0)), 1);
    assert_int_equal(varve_record_id(nth_record(rig, VARVE_KIND_FREE_COMPLETED, 0)), 1);
}

/* The field for the size of the free block has 32 bits, for units of 512 bytes: it holds 2 TiB less one unit,
 * and its largest value means that or more. */
TEST_WITH(test_sizes_beyond_the_field, rig_setup, rig_teardown)
{
    const uint64_t tib = MIB << 20;
    const uint64_t bytes[] = {2 * tib - 2 * MIB, 2 * tib, 2 * tib + 2 * MIB, 64 * tib};
    const uint64_t units[] = {(2 * tib - 2 * MIB) / 512, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.sim.total_bytes = 256 * tib});
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        forget(rig);
        give(rig, take(rig, bytes[i]));
        empty_cache(rig);
        const struct varve_record *record = nth_record(rig, VARVE_KIND_ALLOC, 0);
        assert_int_equal(record->size, bytes[i]);
        assert_int_equal(record->arg >> 32, units[i]);
        assert_int_equal(record->arg & UINT32_MAX, i + 1); /* the segment's number */
    }
}

/* ---- callbacks ---- */

static const struct rig_case callbacks[] = {
    {"on every miss of the pool; all of them, whatever the first one says; what it freed serves, and a hit asks nobody",
     {.limit = 40 * MIB},
     "miss=1 miss=1 a=40M | called=2 gives=a 30M>a <free_requested 40M; free_completed 40M; "
     "oom_retry callbacks 30M freed 40M served; split 30M left 10M; alloc after_callbacks 30M> "
     "called=4 wanted=30M excess=0 is_small=0 10M asked=1 called=4"},
    {"without a word that it freed something there is no second search, although the block is there",
     {.sim.capacity_bytes = 100 * MIB},
     "a=40M | miss=0 gives=a 40M!a <free_requested 40M; free_completed 40M; oom_retry callbacks 40M freed 40M; "
     "segment_alloc new_segment 40M; alloc new_segment 40M>"},
    {"one that frees nothing: it comes before all other stages, and says so in a record", CHAIN,
     CHAIN_WORDS "miss=1 30M <oom_retry callbacks 30M freed 0M; segment_free gc 22M; segment_alloc after_gc 30M; "
                 "oom_retry gc 30M freed 22M served; alloc after_gc 30M>"},
    /* 4, 2 and 1, so that only the oldest is above the mean, which it would not be alone with 3, 2 and 1 */
    {"a search after callbacks counts for the ages of garbage as well",
     {.limit = 400 * MIB, .config = "garbage_collection_threshold:0.5"},
     "a=30M b=32M c=34M -a miss=1 40M unmiss -b 44M -c limit=358M | 60M <segment_free gc 30M; "
     "segment_alloc after_gc 60M; oom_retry gc 60M freed 30M served; alloc after_gc 60M>"},
    {"the limit of allocated bytes",
     {.sim.capacity_bytes = 400 * MIB},
     "a=40M b=30M most=90M 20M x512 says{the limit of allocated bytes is reached} miss=1 gives=b 30M>b called=1 "
     "excess=30M wanted=30M answer=0 x512 -a 512 allocated=50M+512 most=0 200M"},
    {"callbacks that free one block at a time are called until the request fits, and once for the pool, which has no "
     "block of that size",
     {.limit = 0},
     "a=10M b=10M most=20M miss=1 gives=ab 14M allocated=14M called=3"},
    {"the last resort, once all else has failed: until what it has freed serves, from the pool or by way of the device",
     {.limit = 60 * MIB},
     "a=20M b=20M resort 20M | called=0 gives=ab 40M <oom_retry release_cached 40M freed 0M; free_requested 20M; "
     "free_completed 20M; segment_free retry 20M; oom_retry release_cached 40M freed 20M; "
     "oom_retry last_resort 40M freed 20M; free_requested 20M; free_completed 20M; segment_free retry 20M; "
     "segment_alloc after_retry 40M; oom_retry release_cached 40M freed 20M served; "
     "oom_retry last_resort 40M freed 20M served; alloc after_retry 40M> called=2"},
    {"it gives up: so does the request, with the accounting",
     {.limit = 60 * MIB},
     "20M a=20M gives=a resort x60M allocated=20M called=2 says{after the callbacks for the last resort} unmiss x60M "
     "called=2"},
};
TEST_PLAYS(test_callbacks, callbacks)

static uint64_t count_call(void *context, const struct varve_alloc_miss *miss)
{
    (void)miss;
    return ++*(unsigned *)context > 0;
}

static void observe_nothing(void *context, const struct varve_alloc_oom *oom)
{
    (void)context;
    (void)oom;
}

TEST_WITH(test_callbacks_are_limited, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    int error = VARVE_OK;
    unsigned count = 0, calls = 0;
    rig_open(rig, &(struct rig_options){.limit = 0});
    while (error == VARVE_OK && count < 1000) {
        error = varve_alloc_add_miss_callback(rig->alloc, count_call, &calls);
        count += error == VARVE_OK;
    }
    assert_int_equal(error, VARVE_ERROR_FULL);
    assert_true(count >= 1);
    take(rig, 100);
    assert_int_equal(calls, count);
    for (unsigned i = 0; i < count; i++) { /* as many observers */
        assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, observe_nothing, NULL), VARVE_OK);
    }
    assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, observe_nothing, NULL), VARVE_ERROR_FULL);
}
