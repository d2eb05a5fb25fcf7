/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal, or SIGKILL, between any two instructions while the second sink gets a record. Handlers that
 * emit there find their records in ring and sink under the same numbers, each once. What a killed process had
 * in hand, one record at most, may be known to the sink alone.
 * Costs: 9 s, full 20 s
 */
#include "support/lttng/second_sink.h"
#include "support/stepped.h"

#define RUNS_PER_CASE ((unsigned)test_rounds(4, 20))

/* Of support/lttng/second_sink.h. */
enum sink_figure {
    FIGURE_EVENTS = 6, /* in the database … */
    FIGURE_MORE = 7,   /* … and emitted besides */
};

static struct sink_log *present;

/* Returns the number of steps, which are not always as many: the collector makes room. */
static uint64_t run_stepped(struct settings settings)
{
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer delivers signals at its own moments");
    }
    settings.has_sink = true;
    struct sink_run run;
    sink_begin(&run, settings.overflow, 64);
    run.is_killed = settings.kill_at != 0;
    run.has_handlers = true;
    sink_follow(&run);
    struct stepping stepping = play_stepped(&run.session, &settings);
    sink_finish(&run, settings.name);
    if (run.is_killed) {
        assert_true(verdict->figures[FIGURE_MORE] <= 1);
        assert_true(verdict->figures[FIGURE_EVENTS] >= verdict->figures[FIGURE_PROGRAM] + 2 ||
                    settings.overflow == SESSION_OVERFLOW_DROP);
    } else {
        static struct found found;
        assert_int_equal(sink_count(run.log, false, SINK_ANY, SINK_ANY), 0);
        assert_int_equal(verdict->figures[FIGURE_EVENTS],
                         verdict->figures[FIGURE_EMITTED] - verdict->figures[FIGURE_LOST]);
        memset(&found, 0, sizeof(found));
        found.what = settings.name;
        for (uint32_t i = 0; i < run.log->record_count; i++) {
            find(&found, &run.log->records[i].record);
        }
    }
    sink_end(&run);
    return stepping.steps;
}

/* ---- signals ---- */

TEST(test_signal_at_each_instruction)
{
    static const struct settings cases[] = {
        {.name = "ring, each", .before = 3, .stepped = 3, .gap = 1},
        {.name = "ring, few", .before = 3, .stepped = 30, .gap = 67},
        {.name = "first reported", .before = 0, .stepped = 1, .gap = 41},
        {.name = "full", .before = 60, .stepped = 4, .gap = 3},
        {.name = "spill", .before = 100, .stepped = 10, .gap = 7},
        {.name = "staging", .before = 62 + RING_STAGING_RECORDS - 4, .stepped = 6, .gap = 23},
        {.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 55, .stepped = 12, .gap = 11},
        {.name = "block", .overflow = SESSION_OVERFLOW_BLOCK, .before = 58, .stepped = 8, .gap = 17},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_stepped(cases[i]);
    }
    for (uint64_t seed = 1; seed <= 3; seed++) {
        run_stepped((struct settings){.name = "nests",
                                      .before = 3,
                                      .stepped = 8,
                                      .gap = 20 + seed * 15,
                                      .random = seed * 77,
                                      .most = 200,
                                      .nests = true});
    }
}

/* ---- a trace begins ---- */

static void on_begin(int number)
{
    struct sink_log *log = present;
    (void)number;
    sink_enable(log, 1);
    CHECK(sink_start(log), "`started` does not come to an end");
    step_handler_done();
}

/* Just when the thread looks whether anybody wants records, finds nobody, and ends the detour. */
static void scenario_begins(struct session *session, void *context)
{
    const struct settings *settings = context;
    uint64_t misses = 0;
    (void)session;
    step_handle(SIGUSR1, on_begin);
    present->threads_at_open = 1;
    second_sink_open();
    sink_emit(1, 1);
    sink_enable(present, 0);
    for (; sink_detour_is_on(); misses++) {
        sink_emit(2, 2);
    }
    sink_enable(present, 1);
    CHECK(sink_start(present), "`started` does not come to an end");
    sink_enable(present, 0);
    sink_emit(1, misses - 1);
    CHECK(sink_detour_is_on(), "after %llu records", (unsigned long long)misses - 1);
    step_begin();
    emit_numbered(1, 1);
    step_end();
    CHECK(sink_detour_is_on() == (settings->signal_at != 0), "the detour");
}

static uint64_t run_begins(uint64_t signal_at)
{
    struct settings settings = {.signal_at = signal_at};
    struct stepping stepping = {.choose = choose_signal, .context = &settings};
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 16384); /* nobody reads it */
    present = run.log;
    int wait_status = step_scenario(&run.session, scenario_begins, &settings, &stepping);
    char what[64];
    snprintf(what, sizeof(what), "a trace begins at step %llu", (unsigned long long)signal_at);
    child_judge(wait_status, what);
    sink_end(&run);
    return stepping.steps;
}

TEST(test_trace_begins_when_the_detour_ends)
{
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer delivers signals at its own moments");
    }
    uint64_t steps = run_begins(0);
    assert_true(steps > 300);
    for (uint64_t at = steps - 160; at + 20 < steps; at++) { /* the last ones are past it */
        run_begins(at);
    }
}

/* ---- kills ---- */

TEST(test_killed)
{
    static const struct settings cases[] = {
        {.name = "ring", .before = 3, .stepped = 2},
        {.name = "full", .before = 61, .stepped = 2},
        {.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 61, .stepped = 3},
        {.name = "nested", .before = 3, .stepped = 1, .signal_at = 60, .steps_handlers = true},
        {.name = "nested", .before = 3, .stepped = 1, .signal_at = 210, .steps_handlers = true},
        {.name = "nested", .before = 3, .stepped = 1, .signal_at = 360, .steps_handlers = true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_killed(cases[i], RUNS_PER_CASE, run_stepped);
    }
}
