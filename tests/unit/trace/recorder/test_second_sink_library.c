/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a workload and the provider library owe each other besides records. The detour ends when nobody wants
 * records and is back when a trace begins, whatever the program's threads are doing; what the library's own threads
 * do is not the program's; a library that cannot be had changes nothing; and at its exit a program goes on without.
 * In each case what is not emitted is left to the collector, and nothing is emitted twice.
 * Costs: 2 s
 */
#include "support/lttng/second_sink.h"

#include <pthread.h>

#define THREADS 4U
#define MISSES 5000U /* records that nobody wants: enough for the detour to end */

/* ---- on and off ---- */

static void scenario_switched(struct session *session, void *context)
{
    struct sink_log *log = context;
    (void)session;
    log->threads_at_open = 1; /* now, and not in the collector */
    second_sink_open();
    sink_emit(1, 100);
    CHECK(sink_detour_is_on(), "the detour did not begin");
    for (uint64_t turn = 1; turn <= 3; turn++) {
        uint64_t base = turn * 100000;
        sink_enable(log, 0);
        sink_emit(base, base + MISSES);
        CHECK(sink_detour_is_on() == (log->reports_starts == 0), "the detour, turn %u", (unsigned)turn);
        sink_emit(base + 20000, base + 20099);
        sink_enable(log, 1);
        if (log->reports_starts != 0) {
            CHECK(!sink_detour_is_on() && sink_start(log), "`started` does not come to an end");
            sink_emit(base + 30000, base + 30000); /* the handshake, as it is seen from here */
        }
        CHECK(sink_detour_is_on(), "the detour does not come back, turn %u", (unsigned)turn);
        sink_emit(base + 40000, base + 40099);
    }
}

static void run_switched(bool reports_starts)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    run.log->reports_starts = reports_starts;
    sink_record(&run, scenario_switched, "switched");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 100 + 3 * (100 + reports_starts));
    assert_int_equal(sink_count(run.log, false, 1, 1), 3 * (MISSES + 1 + 100));
    sink_end(&run);
}

TEST(test_switched_off_and_on)
{
    run_switched(true);
}

/* Nobody would say that a trace has begun: every record is looked at. */
TEST(test_detour_stays_without_notice)
{
    run_switched(false);
}

/* Records that nobody wants do not end the detour while somebody wants others. */
static void scenario_one_kind(struct session *session, void *context)
{
    struct sink_log *log = context;
    (void)session;
    second_sink_open();
    sink_emit(1, 1);
    sink_enable(log, 0);
    log->enabled[VARVE_KIND_MARK_BEGIN] = 1;
    for (uint64_t at = 2; at <= 2 * MISSES; at++) {
        sink_emit(at, at);
        CHECK(sink_detour_is_on(), "the detour ended after %llu", (unsigned long long)at);
    }
    emit(VARVE_KIND_MARK_BEGIN, 0, 0);
}

TEST(test_one_kind_is_wanted)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_one_kind, "one kind");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 1 + 1);
    sink_end(&run);
}

/* Events are enabled in a trace that runs: nobody says so, but it is seen before the next lap is over. A fork
 * child looks in vain. */
static void scenario_enabled_later(struct session *session, void *context)
{
    struct sink_log *log = context;
    (void)session;
    second_sink_open();
    sink_enable(log, 0);
    sink_emit(1, MISSES);
    CHECK(!sink_detour_is_on(), "the detour did not end");
    sink_enable(log, 1);
    pid_t child = fork();
    if (child == 0) {
        sink_emit(1, RING_STAGING_RECORDS + 200);
        CHECK(!sink_detour_is_on(), "a child takes the detour");
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child, "waitpid");
    sink_emit(10000, 10000 + RING_STAGING_RECORDS + 64);
    CHECK(sink_detour_is_on(), "not seen");
    sink_emit(20000, 20000);
}

TEST(test_enabled_without_notice)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_enabled_later, "enabled later");
    assert_true(sink_count(run.log, true, 1, 1) > 0);
    assert_int_equal(sink_count(run.log, true, 2, 1), 0);
    sink_end(&run);
}

static uint32_t must_stop; /* atomic */

static void *emit_until_stopped(void *context)
{
    (void)context;
    for (uint64_t at = 1; __atomic_load_n(&must_stop, __ATOMIC_RELAXED) == 0; at++) {
        emit(VARVE_KIND_HEAP_ALLOC, at, 16);
        if (at % 64 == 0) {
            usleep(20);
        }
    }
    return NULL;
}

/* The threads look whether anybody wants records just when somebody does again: it may not stay off. */
static void scenario_contended(struct session *session, void *context)
{
    struct sink_log *log = context;
    (void)session;
    log->threads_at_open = 1;
    second_sink_open();
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, emit_until_stopped, NULL) == 0, "no thread");
    }
    for (unsigned turn = 0; turn < 8; turn++) {
        uint64_t end = support_monotonic_ns() + UINT64_C(20000000000);
        sink_enable(log, 0);
        while (turn % 2 == 0 && sink_detour_is_on()) {
            CHECK(support_monotonic_ns() < end, "the detour does not end");
            usleep(100);
        }
        sink_enable(log, 1);
        CHECK(sink_start(log), "`started` does not come to an end");
        CHECK(sink_wait(&varve_emit_has_sink, 1), "the detour does not come back");
        usleep(1000);
    }
    ATOMIC_SET(must_stop, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(sink_detour_is_on(), "off at the end");
}

TEST(test_switched_among_threads)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 1024);
    sink_record(&run, scenario_contended, "contended");
    assert_true(sink_count(run.log, true, 1, SINK_ANY) > 0);
    assert_true(sink_count(run.log, false, 1, SINK_ANY) > 0);
    sink_end(&run);
}

/* ---- the library's own threads ---- */

static void *emit_few(void *context)
{
    (void)context;
    sink_emit(100, 120);
    return NULL;
}

/* They start while the library is loaded or opened, emit at once and later, and say that a trace begins
 * before anybody could know them. Only the program's two threads have rings. */
static void scenario_own_threads(struct session *session, void *context)
{
    struct sink_log *log = context;
    (void)session;
    log->threads_at_load = 2;
    log->threads_at_open = 2;
    log->starts_wanted = 1;
    second_sink_open();
    sink_emit(1, 10);
    CHECK(sink_wait(&log->own_running, 4), "the library's threads do not run");
    CHECK(sink_wait(&log->late_acts, 2), "they do not act");
    ATOMIC_SET(log->emits_wanted, 50);
    CHECK(sink_wait(&log->emits_done, 50) && sink_wait(&log->starts_done, 1), "they do not obey");
    CHECK(sink_detour_is_on(), "off at the end");
    ATOMIC_SET(log->must_stop, 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, emit_few, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    CHECK(recorder_process_current()->control->ring_count == 3, "%u rings",
          recorder_process_current()->control->ring_count - 1);
    CHECK(recorder_process_current()->control->unattached == 0, "unattached events");
}

TEST(test_own_threads_are_not_the_program_s)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_own_threads, "own threads");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 10);
    assert_int_equal(sink_count(run.log, true, 1, 2), 1 + 21);
    assert_int_equal(run.log->record_count, 12 + 22);
    sink_end(&run);
}

/* ---- without ---- */

static bool is_version_other; /* than the library's */

static void scenario_refused(struct session *session, void *context)
{
    struct sink_log *log = context;
    log->version += is_version_other; /* the collector has it open */
    sink_emit(1, 50);
    second_sink_open();
    CHECK(!sink_detour_is_on(), "a detour to nowhere");
    sink_emit(51, 200);
    CHECK(!sink_detour_is_on(), "a detour to nowhere");
    CHECK(recorder_process_current()->second_sink == NULL, "a library that cannot be had is called");
    CHECK(session->directory.counts->process_count == 1, "processes");
}

static void run_refused(const char *path, uint32_t sink, bool is_other_version)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    struct session_control *control = run.session.directory.control;
    control->sink = sink;
    snprintf(control->sink_path, sizeof(control->sink_path), "%s", path);
    is_version_other = is_other_version;
    sink_record(&run, scenario_refused, path);
    assert_int_equal(sink_count(run.log, true, SINK_ANY, SINK_ANY), 0);
    assert_int_equal(sink_count(run.log, false, 1, 1), 2 + 200);
    assert_int_equal(run.log->refused, is_other_version);
    sink_end(&run);
}

TEST(test_refused)
{
    run_refused(SINK_FAKE, 0, false); /* a session without it */
    run_refused(SINK_FAKE, SESSION_SINK_LTTNG, true);
    run_refused("/nonexistent/libvarve_lttng.so", SESSION_SINK_LTTNG, false);
    run_refused(VARVE_BUILD_DIR "/programs/lib_callback.so", SESSION_SINK_LTTNG, false);
    run_refused("", SESSION_SINK_LTTNG, false);
}

/* ---- the end ---- */

static void emit_late(void)
{
    CHECK(!sink_detour_is_on(), "the detour is still on");
    sink_emit(1000, 1099);
    CHECK(!sink_detour_is_on(), "the detour is on again");
}

static void scenario_exit(struct session *session, void *context)
{
    (void)session;
    (void)context;
    CHECK(atexit(emit_late) == 0, "atexit"); /* registered earlier: runs later */
    second_sink_open();
    sink_emit(1, 100);
}

TEST(test_goes_on_without_at_exit)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_exit, "exit");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 100);
    assert_int_equal(sink_count(run.log, false, 1, 1), 100);
    sink_end(&run);
}

static struct sink_log *held;

static void let_go(void)
{
    ATOMIC_SET(held->must_hold, 0);
    CHECK(sink_wait(&held->starts_done, 1), "`started` does not come to an end");
    CHECK(!sink_detour_is_on(), "the detour is on again");
}

/* A trace begins while the program exits: the library's thread is about to call `started`. */
static void scenario_started_at_exit(struct session *session, void *context)
{
    (void)session;
    held = context;
    CHECK(atexit(let_go) == 0, "atexit");
    held->threads_at_open = 1;
    held->must_hold = 1;
    second_sink_open();
    sink_emit(1, 100);
    ATOMIC_SET(held->starts_wanted, 1);
    CHECK(sink_wait(&held->holding, 1), "no trace begins");
}

TEST(test_trace_begins_at_exit)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_started_at_exit, "a trace begins at exit");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 100);
    sink_end(&run);
}
