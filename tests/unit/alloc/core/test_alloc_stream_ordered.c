/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy cuda-async: every request and every free goes to the device's own pool, in the order of streams,
 * and the allocator keeps nothing but what the device can't take back yet. Private pools are cached all the
 * same. What is looked at: records, figures, calls of the device, and that nothing is lost whatever fails.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"
#include "support/random.h"

static void open_async(struct rig *rig, struct rig_options options)
{
    options.policy = "cuda-async";
    rig_open(rig, &options);
}

static const struct rig_case cases[] = {
    {"each request is one allocation of the device, each free gives it back, and nothing is kept",
     {.policy = "cuda-async"},
     "a=1000 <segment_alloc new_segment 1024; alloc new_segment 1024> "
     "b=5M@8 <segment_alloc new_segment 5M; alloc new_segment 5M> "
     "segments=2 reserved=5M+1024 allocated=5M+1024 requested=5M+1000 "
     "-a <free_requested 1024; free_completed 1024; segment_free free 1024> -b | "
     "1000 <segment_alloc new_segment 1024; alloc new_segment 1024> "
     "allocs=3 frees=2 alloc_async=3 free_async=2 asked=0"},
    {"the device's own stream waits, for the block's and two others: the events never complete here",
     {.policy = "cuda-async", .sim.events_are_scripted = true},
     "a=3M@8 a~9 a~10 a~8 | -a <free_requested 3M; free_completed 3M; segment_free free 3M> "
     "record=3 wait=3 query=0 1 query=0 reserved=512"},
    {"at the limit the pool is trimmed, in vain",
     {.policy = "cuda-async", .limit = 10 * MIB},
     "a=8M | x3M <oom_retry release_cached 3M freed 0M; oom 3M> trim=1 ooms=1 retries=1 -a 3M"},
    {"what the pool holds unused is given to those who need a segment; nothing may wait in a capture, so 20 MiB are "
     "too many there",
     {.policy = "cuda-async", .sim.capacity_bytes = 40 * MIB},
     "[1@9 ]1 a=30M -a used=30M empty used=0 a=30M -a [1@9 x3M@9 ]1 empty used=0 ;1 ;1"},
    {"private pools are cached; a free in a capture is put off if another stream has used the block",
     {.policy = "cuda-async"},
     "b=4000 c=5000 c~9 [1@9 | a=3M@9 <segment_alloc new_segment 20M; split 3M left 17M; alloc new_segment 3M> "
     "-a | 3M@9>a <split 3M left 17M; alloc cache 3M> "
     "-b <free_requested 4096; free_completed 4096; segment_free free 4096> "
     "-c <free_requested 5120> record=0 ]1 -a | "
     "3M@9 <free_completed 5120; segment_free free 5120; segment_alloc new_segment 3M; alloc new_segment 3M> "
     ";1 empty reserved=3M"},
};
TEST_PLAYS(test_stream_ordered, cases)

TEST_WITH(test_base_and_sharing, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t base = 0, bytes = 0;
    open_async(rig, (struct rig_options){.sim = {.index = 0}});
    play(rig, "a=700 a{a1024} b=5M");
    assert_int_equal(varve_alloc_get_base_allocation(rig->alloc, rig->named[0], &base, &bytes), VARVE_OK);
    assert_int_equal(base, rig->named[0]);
    assert_int_equal(bytes, 1024);
    struct varve_alloc_ipc ipc;
    assert_int_equal(varve_alloc_ipc_export(rig->alloc, rig->named[0], &ipc), VARVE_ERROR_UNSUPPORTED);
    struct varve_alloc_stats stats = stats_of(rig);
    assert_int_equal(stats.segment[VARVE_ALLOC_STAT_SMALL_POOL].current, 1);
    assert_int_equal(stats.segment[VARVE_ALLOC_STAT_LARGE_POOL].current, 1);
    assert_int_equal(stats.inactive_split_bytes[0].peak, 0);
    play(rig, "limit=6M x3M");
    assert_non_null(strstr(rig->message.text, "reserved 5243904"));
}

/* Whatever call fails: the error is reported, the block stays as pending, and the next request tries again. */
#define FAILS(call)                                                                                                \
    "a=1000 a~9 fail:" call ":1 -a!io says{is tried again} a{p1024} -a!missing allocated=0 reserved=1024 process " \
    "reserved=0 "

static const struct rig_case failures[] = {
    {"none of the waits is made twice, but the failed one",
     {.policy = "cuda-async"},
     FAILS("record") FAILS("wait") FAILS("free_async") "wait=7 fail:alloc_async:1 X1000"},
    {"what is captured by somebody else keeps its blocks, and only them: a can't be freed at the second time, b and c "
     "can",
     {.policy = "cuda-async"},
     "a=1000@8 b=2000@9 c=3000@8 busy:free_async:4 -a -b -c reserved=6144 process reserved=1024 512 reserved=512"},
};
TEST_PLAYS(test_failures, failures)

/* ---- at random: what is out is what is asked for, rounded ---- */

TEST_WITH(test_random, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addrs[64] = {0}, bytes[64] = {0}, sum = 0, seed = 7, random;
    open_async(rig, (struct rig_options){.sim = {.capacity_bytes = 24 * MIB, .reuses_addresses = true}});
    for (unsigned step = 0; step < 3000; step++) {
        random = random_next(&seed);
        unsigned i = (unsigned)(random >> 58);
        if (addrs[i] != 0) {
            if (random >> 57 & 1) {
                use_on(rig, addrs[i], 1 + (random >> 40) % 3);
            }
            give(rig, addrs[i]);
            sum -= bytes[i];
            addrs[i] = 0;
        } else {
            uint64_t asked = 1 + (random >> 20) % (2 * MIB);
            bytes[i] = (asked + 511) / 512 * 512;
            if (varve_alloc_raw_alloc_with_stream(rig->alloc, asked, random % 3, &addrs[i], NULL) == VARVE_OK) {
                sum += bytes[i];
            } else {
                assert_true(sum + bytes[i] > 22 * MIB);
            }
        }
        rig_check(rig);
        assert_int_equal(varve_alloc_memory_reserved(rig->alloc), sum);
        assert_int_equal(varve_alloc_memory_allocated(rig->alloc), sum);
        rig->count = rig->mark = 0;
    }
}
