/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that failed: every figure of its accounting, the words of its message, the advice, and the
 * observers, which run without the lock: another thread may allocate while one of them runs.
 * Runs threads: one, while an observer runs.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* 60 MiB: stream 0 has 8 of 20 used (b), stream 5 has 2 of 20, a private pool has 20 free. */
#define BROKEN                                             \
    {                                                      \
        .sim.capacity_bytes = 200 * MIB, .limit = 60 * MIB \
    }
#define BROKEN_WORDS "[1@9 c=20M@9 -c ]1 a=8M b=8M -a 2M@5 observe | "

static const struct rig_case accounting[] = {
    {"every figure; what a user reads: the request, its segment, the last stage", BROKEN,
     BROKEN_WORDS
     "x17825791 observed=1 oom_requested=17825791 oom_rounded=17M oom_segment_bytes=18M oom_stream=0 oom_allocated=10M "
     "oom_active=10M oom_reserved=60M oom_pending=0 oom_private_free=20M oom_device_free=140M oom_device_total=200M "
     "oom_limit=60M oom_largest_free=8M oom_largest_free_any=20M oom_largest_hole_free=12M oom_largest_hole_bytes=20M "
     "oom_blocker_bytes=8M says{out of memory} says{17825791} says{18874368} "
     "says{the release of all unused segments}"},
    {"advice: 50 MiB are free, in pieces of 20 at most", BROKEN,
     BROKEN_WORDS "x18M says{another stream} x21M says{expandable_segments} x100M says{limit} observed=3"},
    {"in a capture nobody is waited for, so what is pending stays so",
     {.limit = 30 * MIB, .sim.events_are_scripted = true},
     "observe a=30M a~7 -a [1 x30M oom_pending=30M oom_allocated=0 oom_active=30M says{after a new segment} "
     "says{wait for other streams} ]1"},
    /* a device that lacks memory for its resource table while events are asked for: no request has failed for that */
    {"trouble with events is no lack of memory: nobody gets it",
     {.sim.events_are_scripted = true},
     "observe a=512 a~7 -a lack:query:1 fail:query:2 x512 X512 observed=0 ooms=0 512!a done@7 512>a"},
};
TEST_PLAYS(test_accounting, accounting)

/* The addresses, the record, and a message that was not cut off. */
TEST_WITH(test_message, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options)BROKEN);
    play(rig, BROKEN_WORDS "x17M");
    uint64_t blocker = rig->named[1], addr;
    assert_int_equal(rig->oom.largest_hole_addr, blocker - 8 * MIB);
    assert_int_equal(rig->oom.blocker_addr, blocker);
    assert_int_equal(rig->oom.stage, VARVE_ALLOC_STAGE_RELEASE_CACHED);
    char hole[64];
    const char *text = rig->message.text;
    snprintf(hole, sizeof(hole), "%#" PRIx64, blocker - 8 * MIB);
    assert_non_null(strstr(text, hole));
    assert_non_null(rig->oom.advice);
    assert_string_equal(text + strlen(text) - strlen(rig->oom.advice), rig->oom.advice);
    const struct varve_record *record = nth_record(rig, VARVE_KIND_OOM, 0);
    assert_int_equal(record->size, 17 * MIB);
    assert_int_equal(record->requested, 10 * MIB);
    assert_int_equal(record->arg, 60 * MIB);
    assert_int_equal(record->addr, 8 * MIB);
    assert_int_equal(varve_record_flags(record), VARVE_FLAG_FAILED);
    /* without a place for it; and what the device has not either, there is no advice for */
    assert_int_equal(varve_alloc_raw_alloc(rig->alloc, 17 * MIB, &addr, NULL), VARVE_ERROR_NO_MEMORY);
    play(rig, "x150M");
    assert_null(rig->oom.advice);
}

/* ---- observers ---- */

static unsigned served;

static void helper_call(void *context, const struct varve_alloc_oom *oom)
{
    (void)oom;
    served += rig_serves_another_thread(context);
}

TEST_WITH(test_observers_have_no_lock, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    served = 0;
    rig_open(rig, &(struct rig_options){.limit = 2 * MIB});
    assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, helper_call, rig), VARVE_OK);
    play(rig, "observe a=512 -a observed=0 1024 x2M observed=1");
    assert_int_equal(served, 1);
}
