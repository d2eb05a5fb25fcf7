/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGKILL between any two instructions of an event: what varve_emit has returned from is in the ring (or its
 * spill, or the slots of nested events), once, whole and in order, and at most one event more was being
 * written. The ring is read as after a crash, from its file, when the process is gone.
 * Costs: 7 s
 */
#include "support/stepped.h"

#define RUNS_PER_CASE (IS_ASAN ? 12U : 40U)

struct outcome {
    uint64_t steps, nested;
};

static struct outcome run_once(struct settings settings)
{
    const struct session_control control = session_settings(settings.overflow, 64);
    if (IS_TSAN) {
        skip("single steps through the sanitizer's run time take minutes");
    }
    struct session session;
    session_begin(&session, &control);
    struct outcome outcome = {.steps = play_stepped(&session, &settings).steps};
    outcome.nested = find_in_ring(&session, settings.name, settings.kill_at != 0);
    session_end(&session);
    return outcome;
}

static uint64_t steps_of(struct settings settings)
{
    uint64_t steps = run_once(settings).steps;
    assert_true(settings.kill_at != 0 || steps > settings.stepped * 20);
    return steps;
}

TEST(test_killed)
{
    static const struct settings cases[] = {
        {.name = "ring", .before = 3, .stepped = 2},
        {.name = "ring full", .before = 61, .stepped = 2},
        {.name = "spilling", .before = 90, .stepped = 1},
        {.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 61, .stepped = 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_killed(cases[i], RUNS_PER_CASE, steps_of);
    }
}

/* A handler's event put aside, and moved to the ring afterwards. Where in an event that happens depends on
 * the compiler: tried out. */
TEST(test_killed_with_nested_events)
{
    struct settings settings = {.name = "nested", .before = 3, .stepped = 1, .steps_handlers = true};
    uint64_t steps = run_once(settings).steps;
    do {
        settings.signal_at += steps / 37 + 1;
        if (settings.signal_at >= steps) {
            fail_msg("no moment for a nested event");
        }
    } while (run_once(settings).nested == 0);
    run_killed(settings, RUNS_PER_CASE, steps_of);
}

/* In the middle of packing and writing a block of the spill file: hundreds of thousands of steps, a few of
 * them. */
TEST(test_killed_while_flushing)
{
    struct settings settings = {.name = "flush", .before = 62 + RING_STAGING_RECORDS, .stepped = 1};
    for (settings.kill_at = 150; settings.kill_at < 20000; settings.kill_at = settings.kill_at * 3 + 7) {
        run_once(settings);
    }
}
