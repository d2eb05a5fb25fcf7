/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal handlers that emit: at every instruction of an event of the same thread, inside each other, in such
 * numbers that they find no place, and from a timer. No event may get lost uncounted, come twice or change
 * its order within the program or within the handler.
 * Costs: 5 s
 */
#include "base/monotonic.h"
#include "support/stepped.h"

#include <sys/time.h>

/* ---- at every instruction ---- */

static void run_stepped(struct settings settings)
{
    const struct session_control control = session_settings(settings.overflow, 64);
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer delivers signals at its own moments");
    }
    struct session session;
    session_begin(&session, &control);
    struct stepping stepping = play_stepped(&session, &settings);
    assert_true(settings.signal_at != 0 || stepping.sent > 5);
    /* while they are blocked, equal signals become one */
    assert_in_range(verdict->figures[FIGURE_HANDLED], 1, stepping.sent);
    find_in_ring(&session, settings.name, false);
    session_end(&session);
}

TEST(test_signal_at_each_instruction)
{
    static const struct settings cases[] = {
        {.name = "ring, each", .before = 3, .stepped = 4, .gap = 1},
        {.name = "ring, some", .before = 3, .stepped = 30, .gap = 13},
        {.name = "ring, few", .before = 3, .stepped = 30, .gap = 67},
        /* the ring of 64 is full: into the spill, within the spill, and over the end of the staging slots */
        {.name = "into the spill", .before = 58, .stepped = 8, .gap = 43},
        {.name = "into the spill, each", .before = 61, .stepped = 1, .gap = 1},
        {.name = "spilling", .before = 100, .stepped = 20, .gap = 7},
        {.name = "block", .overflow = SESSION_OVERFLOW_BLOCK, .before = 60, .stepped = 4, .gap = 17},
        {.name = "staging", .before = 62 + RING_STAGING_RECORDS - 8, .stepped = 12, .gap = 23},
        {.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 55, .stepped = 12, .gap = 11},
        {.name = "drop, each", .overflow = SESSION_OVERFLOW_DROP, .before = 70, .stepped = 2, .gap = 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_stepped(cases[i]);
        assert_true(cases[i].before < 1000 || verdict->figures[FIGURE_SPILLED] > RING_STAGING_RECORDS);
        assert_true(cases[i].before != 70 || verdict->figures[FIGURE_LOST] > 0);
    }
}

/* The first event of a process: its thread must not get two rings. */
TEST(test_signal_in_the_first_event)
{
    for (uint64_t at = 1; at < 320; at += 5) {
        run_stepped((struct settings){.name = "first event", .stepped = 1, .signal_at = at});
    }
}

TEST(test_handlers_interrupt_each_other)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_stepped((struct settings){.name = "nests",
                                      .before = 3,
                                      .stepped = 8,
                                      .gap = 20 + seed * 10,
                                      .random = seed * 77,
                                      .most = 300,
                                      .nests = true});
    }
}

/* ---- without ptrace ---- */

static void run_freely(uint32_t overflow, uint32_t capacity, scenario run, const char *what)
{
    const struct session_control control = session_settings(overflow, capacity);
    struct session session;
    session_begin(&session, &control);
    run_scenario(&session, run, NULL, what);
    find_in_ring(&session, what, false);
    session_end(&session);
}

static void emit_next(void)
{
    uint64_t number = verdict->figures[FIGURE_PROGRAM] + 1;
    emit_numbered(number, number);
    verdict->figures[FIGURE_PROGRAM] = number;
}

/* In the middle of an append by hand: `busy` is what says so. */
static void scenario_flood(struct session *session, void *context)
{
    (void)session, (void)context;
    step_handle(SIGUSR1, on_signal);
    emit_next();
    for (unsigned i = 2; i <= 4; i++) {
        varve_producer_current->busy = 1;
        for (unsigned n = 0; n < RING_NESTED_SLOTS + 10 * i; n++) {
            raise(SIGUSR1);
        }
        varve_producer_current->busy = 0;
        emit_next();
    }
    CHECK_EQUAL(own_ring()->lost, 20 + 30 + 40);
}

/* More than there are slots for: the rest is counted as lost, and reported. */
TEST(test_flood_of_nested_events)
{
    run_freely(SESSION_OVERFLOW_SPILL, 8192, scenario_flood, "flood");
}

static void scenario_timer(struct session *session, void *context)
{
    const struct itimerval every = {{0, 150}, {0, 150}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    uint64_t end = monotonic_ns() + UINT64_C(300000000);
    (void)session, (void)context;
    step_handle(SIGALRM, on_signal);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0, "no timer");
    while (monotonic_ns() < end || verdict->figures[FIGURE_HANDLED] < 20) {
        emit_next();
    }
    setitimer(ITIMER_REAL, &never, NULL);
    verdict->figures[FIGURE_LOST] = own_ring()->lost;
    verdict->figures[FIGURE_SPILLED] = own_ring()->spill_head;
}

TEST(test_timer)
{
    run_freely(SESSION_OVERFLOW_SPILL, 1024, scenario_timer, "timer, spill");
    assert_true(verdict->figures[FIGURE_SPILLED] > 0);
    run_freely(SESSION_OVERFLOW_DROP, 1024, scenario_timer, "timer, drop");
    assert_true(verdict->figures[FIGURE_LOST] > 0);
}
