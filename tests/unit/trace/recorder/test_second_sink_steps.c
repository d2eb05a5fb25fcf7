/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal, or SIGKILL, between any two instructions while the second sink gets a record. Handlers that
 * emit there find their records in ring and sink under the same numbers, each once. What a killed process had
 * in hand, one record at most, may be known to the sink alone.
 * Costs: 10 s, full 20 s
 */
#include "support/lttng/second_sink.h"
#include "support/step.h"

#define MOST 20000U
#define RUNS_PER_CASE ((unsigned)test_rounds(6, 20))

enum figure {
    FIGURE_PROGRAM, /* events of the program that varve_emit has returned from */
    FIGURE_HANDLED, /* of handlers: varve_emit was called */
    FIGURE_LOST,
    FIGURE_EMITTED,
    FIGURE_EVENTS = 6, /* support/lttng/second_sink.h: in the database … */
    FIGURE_MORE = 7,   /* … and emitted besides */
};

struct settings {
    const char *name;
    uint32_t overflow, capacity;
    uint64_t before, stepped;
    uint64_t gap;       /* a signal after so many steps, 0: none */
    uint64_t signal_at; /* or one at this step */
    uint64_t kill_at;   /* 0: never; so many steps are not always needed, since the collector makes room */
    uint64_t random;
    uint64_t most; /* signals, where handlers are stepped as well: else they might never get ahead */
    bool nests;
};

static struct sink_log *present;

static void on_signal(int number)
{
    (void)number;
    emit(VARVE_KIND_HEAP_FREE, __atomic_add_fetch(&verdict->figures[FIGURE_HANDLED], 1, __ATOMIC_RELAXED), 3);
    step_handler_done();
}

static void scenario_stepped(struct session *session, void *context)
{
    const struct settings *settings = context;
    (void)session;
    step_handle(SIGUSR1, on_signal);
    step_handle(SIGUSR2, on_signal);
    second_sink_open();
    for (uint64_t i = 1; i <= settings->before + settings->stepped; i++) {
        if (i == settings->before + 1) {
            step_begin();
        }
        emit(VARVE_KIND_HEAP_ALLOC, i, 8);
        verdict->figures[FIGURE_PROGRAM] = i;
    }
    step_end();
    check_conserved(own_ring(), settings->name);
    verdict->figures[FIGURE_LOST] = own_ring()->lost;
    verdict->figures[FIGURE_EMITTED] = own_ring()->emitted;
}

static int choose(void *context, uint64_t step)
{
    struct settings *settings = context;
    if (settings->kill_at != 0 && step == settings->kill_at) {
        return SIGKILL;
    }
    if (settings->signal_at != 0 && step == settings->signal_at) {
        return SIGUSR1;
    }
    if (settings->gap == 0 || (!settings->nests && step % settings->gap != 0)) {
        return 0;
    }
    if (!settings->nests) {
        return SIGUSR1;
    }
    if (settings->most == 0 || random_next(&settings->random) % settings->gap != 0) {
        return 0;
    }
    settings->most--;
    return random_next(&settings->random) % 2 == 0 ? SIGUSR1 : SIGUSR2;
}

/* The program's records were emitted in its own order, no record of a handler twice. */
static void check_order(const struct sink_log *log, const char *what)
{
    static uint8_t seen[MOST];
    uint64_t program = 0;
    memset(seen, 0, sizeof(seen));
    for (uint32_t i = 0; i < log->record_count; i++) {
        const struct varve_record *record = &log->records[i].record;
        if (varve_record_kind(record) == VARVE_KIND_HEAP_ALLOC) {
            if (record->addr <= program) {
                fail_msg("%s: %llu after %llu", what, (unsigned long long)record->addr, (unsigned long long)program);
            }
            program = record->addr;
        } else if (varve_record_kind(record) == VARVE_KIND_HEAP_FREE) {
            assert_true(record->addr < MOST);
            if (seen[record->addr]++ != 0) {
                fail_msg("%s: the handlers' %llu twice", what, (unsigned long long)record->addr);
            }
        }
    }
}

/* Returns the number of steps. */
static uint64_t run_stepped(struct settings settings)
{
    struct stepping stepping = {.choose = choose, .context = &settings};
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer delivers signals at its own moments");
    }
    stepping.step_handlers = settings.nests || settings.kill_at != 0 || settings.signal_at != 0;
    struct sink_run run;
    sink_begin(&run, settings.overflow, settings.capacity != 0 ? settings.capacity : 64);
    run.is_killed = settings.kill_at != 0;
    run.has_handlers = true;
    sink_follow(&run);
    int wait_status = step_scenario(&run.session, scenario_stepped, &settings, &stepping);
    char what[128];
    snprintf(what, sizeof(what), "%s, overflow %u, gap %llu, signal at %llu, killed at %llu, %llu steps", settings.name,
             settings.overflow, (unsigned long long)settings.gap, (unsigned long long)settings.signal_at,
             (unsigned long long)settings.kill_at, (unsigned long long)stepping.steps);
    if (!run.is_killed) {
        child_judge(wait_status, what);
    } else if (wait_status != SIGKILL && (wait_status != 0 || stepping.steps >= settings.kill_at)) {
        fail_msg("%s: wait status %#x", what, (unsigned)wait_status);
    }
    sink_finish(&run, what);
    if (run.is_killed) {
        assert_true(verdict->figures[FIGURE_MORE] <= 1);
        assert_true(verdict->figures[FIGURE_EVENTS] >= verdict->figures[FIGURE_PROGRAM] + 2 ||
                    settings.overflow == SESSION_OVERFLOW_DROP);
    } else {
        assert_int_equal(sink_count(run.log, false, SINK_ANY, SINK_ANY), 0);
        assert_int_equal(verdict->figures[FIGURE_EVENTS],
                         verdict->figures[FIGURE_EMITTED] - verdict->figures[FIGURE_LOST]);
        check_order(run.log, what);
    }
    sink_end(&run);
    return stepping.steps;
}

/* ---- signals ---- */

TEST(test_signal_at_each_instruction)
{
    run_stepped((struct settings){.name = "ring", .before = 3, .stepped = 3, .gap = 1});
    run_stepped((struct settings){.name = "ring", .before = 3, .stepped = 30, .gap = 67});
    run_stepped((struct settings){.name = "first reported", .before = 0, .stepped = 1, .gap = 41});
    run_stepped((struct settings){.name = "full", .before = 60, .stepped = 4, .gap = 3});
    run_stepped((struct settings){.name = "spill", .before = 100, .stepped = 10, .gap = 7});
    run_stepped((struct settings){.name = "staging", .before = 62 + RING_STAGING_RECORDS - 4, .stepped = 6, .gap = 23});
}

TEST(test_signal_while_dropping)
{
    run_stepped(
        (struct settings){.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 55, .stepped = 12, .gap = 11});
    run_stepped(
        (struct settings){.name = "block", .overflow = SESSION_OVERFLOW_BLOCK, .before = 58, .stepped = 8, .gap = 17});
}

TEST(test_handlers_interrupt_each_other)
{
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
    emit(VARVE_KIND_HEAP_ALLOC, 1, 1);
    step_end();
    CHECK(sink_detour_is_on() == (settings->signal_at != 0), "the detour");
}

static uint64_t run_begins(uint64_t signal_at)
{
    struct settings settings = {.signal_at = signal_at};
    struct stepping stepping = {.choose = choose, .context = &settings};
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

/* At moments spread over the whole case. */
static void run_killed(struct settings settings)
{
    uint64_t random = settings.before * 31 + settings.signal_at + 1;
    uint64_t steps = run_stepped(settings), stride = steps / RUNS_PER_CASE + 1;
    for (uint64_t at = 1; at < steps; at += stride) {
        settings.kill_at = at + random_next(&random) % stride;
        if (settings.kill_at < steps) {
            run_stepped(settings);
        }
    }
}

TEST(test_killed)
{
    run_killed((struct settings){.name = "ring", .before = 3, .stepped = 2});
    run_killed((struct settings){.name = "full", .before = 61, .stepped = 2});
    run_killed((struct settings){.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 61, .stepped = 3});
}

TEST(test_killed_with_nested_records)
{
    for (uint64_t at = 60; at < 500; at += 150) {
        run_killed((struct settings){.name = "nested", .before = 3, .stepped = 1, .signal_at = at});
    }
}
