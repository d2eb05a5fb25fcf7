/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a workload and the provider library owe each other besides records. The detour ends when nobody wants
 * records and is back when a trace begins, whatever the program's threads are doing; what the library's own threads do is not the program's; a library that cannot be had changes
 * nothing; and at its exit a program goes on without. In each case what is not told is left to the collector,
 * and nothing is told twice.
 */
#include "support/lttng/second_sink.h"

#include <pthread.h>

#define THREADS 4U
#define MISSES 5000U /* records that nobody wants: enough for the detour to end */

/* ---- on and off ---- */

static void scenario_switched(struct session *session, void *context)
{
    struct mirror_log *log = context;

    (void)session;
    log->threads_at_open = 1; /* now, and not in the collector */
    second_sink_open();
    mirror_emit(1, 100);
    CHECK(mirror_detour_is_on(), "the detour did not begin");
    for (uint64_t turn = 1; turn <= 3; turn++) {
        uint64_t base = turn * 100000;

        mirror_enable(log, 0);
        mirror_emit(base, base + MISSES);
        CHECK(mirror_detour_is_on() == (log->reports_starts == 0), "the detour, turn %u", (unsigned)turn);
        mirror_emit(base + 20000, base + 20099);
        mirror_enable(log, 1);
        if (log->reports_starts != 0) {
            CHECK(!mirror_detour_is_on() && mirror_start(log), "`started` does not come to an end");
            mirror_emit(base + 30000, base + 30000); /* the handshake, as it is seen from here */
        }
        CHECK(mirror_detour_is_on(), "the detour does not come back, turn %u", (unsigned)turn);
        mirror_emit(base + 40000, base + 40099);
    }
}

static void run_switched(bool reports_starts)
{
    struct mirror_run run;

    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    run.log->reports_starts = reports_starts;
    mirror_record(&run, scenario_switched, "switched");
    assert_int_equal(mirror_count(run.log, true, 1, 1), 2 + 100 + 3 * (100 + reports_starts));
    assert_int_equal(mirror_count(run.log, false, 1, 1), 3 * (MISSES + 1 + 100));
    mirror_end(&run);
}

static void test_switched_off_and_on(void **state)
{
    (void)state;
    run_switched(true);
}

/* Nobody would say that a trace has begun: every record is looked at. */
static void test_detour_stays_without_notice(void **state)
{
    (void)state;
    run_switched(false);
}

/* Records that nobody wants do not end the detour while somebody wants others. */
static void scenario_one_kind(struct session *session, void *context)
{
    struct mirror_log *log = context;

    (void)session;
    second_sink_open();
    mirror_emit(1, 1);
    mirror_enable(log, 0);
    log->enabled[VARVE_KIND_MARK_BEGIN] = 1;
    for (uint64_t at = 2; at <= 2 * MISSES; at++) {
        mirror_emit(at, at);
        CHECK(mirror_detour_is_on(), "the detour ended after %llu", (unsigned long long)at);
    }
    emit(VARVE_KIND_MARK_BEGIN, 0, 0);
}

static void test_one_kind_is_wanted(void **state)
{
    struct mirror_run run;

    (void)state;
    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    mirror_record(&run, scenario_one_kind, "one kind");
    assert_int_equal(mirror_count(run.log, true, 1, 1), 2 + 1 + 1);
    mirror_end(&run);
}

/* Events are enabled in a trace that runs: nobody says so, but it is seen before the next lap is over. A fork
 * child looks in vain. */
static void scenario_enabled_later(struct session *session, void *context)
{
    struct mirror_log *log = context;
    pid_t child;

    (void)session;
    second_sink_open();
    mirror_enable(log, 0);
    mirror_emit(1, MISSES);
    CHECK(!mirror_detour_is_on(), "the detour did not end");
    mirror_enable(log, 1);
    child = fork();
    if (child == 0) {
        mirror_emit(1, RING_STAGING_RECORDS + 200);
        CHECK(!mirror_detour_is_on(), "a child takes the detour");
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child, "waitpid");
    mirror_emit(10000, 10000 + RING_STAGING_RECORDS + 64);
    CHECK(mirror_detour_is_on(), "not seen");
    mirror_emit(20000, 20000);
}

static void test_enabled_without_notice(void **state)
{
    struct mirror_run run;

    (void)state;
    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    mirror_record(&run, scenario_enabled_later, "enabled later");
    assert_true(mirror_count(run.log, true, 1, 1) > 0);
    assert_int_equal(mirror_count(run.log, true, 2, 1), 0);
    mirror_end(&run);
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
    struct mirror_log *log = context;
    pthread_t threads[THREADS];

    (void)session;
    log->threads_at_open = 1;
    second_sink_open();
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, emit_until_stopped, NULL) == 0, "no thread");
    }
    for (unsigned turn = 0; turn < 8; turn++) {
        uint64_t end = support_monotonic_ns() + UINT64_C(20000000000);

        mirror_enable(log, 0);
        while (turn % 2 == 0 && mirror_detour_is_on()) {
            CHECK(support_monotonic_ns() < end, "the detour does not end");
            usleep(100);
        }
        mirror_enable(log, 1);
        CHECK(mirror_start(log), "`started` does not come to an end");
        CHECK(mirror_wait(&varve_emit_is_mirrored, 1), "the detour does not come back");
        usleep(1000);
    }
    ATOMIC_SET(must_stop, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(mirror_detour_is_on(), "off at the end");
}

static void test_switched_among_threads(void **state)
{
    struct mirror_run run;

    (void)state;
    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 1024);
    mirror_record(&run, scenario_contended, "contended");
    assert_true(mirror_count(run.log, true, 1, MIRROR_ANY) > 0);
    assert_true(mirror_count(run.log, false, 1, MIRROR_ANY) > 0);
    mirror_end(&run);
}

/* ---- the library's own threads ---- */

static void *emit_few(void *context)
{
    (void)context;
    mirror_emit(100, 120);
    return NULL;
}

/* They start while the library is loaded or opened, emit at once and later, and say that a trace begins
 * before anybody could know them. Only the program's two threads have rings. */
static void scenario_own_threads(struct session *session, void *context)
{
    struct mirror_log *log = context;
    pthread_t thread;

    (void)session;
    log->threads_at_load = 2;
    log->threads_at_open = 2;
    log->starts_wanted = 1;
    second_sink_open();
    mirror_emit(1, 10);
    CHECK(mirror_wait(&log->own_running, 4), "the library's threads do not run");
    CHECK(mirror_wait(&log->late_acts, 2), "they do not act");
    ATOMIC_SET(log->emits_wanted, 50);
    CHECK(mirror_wait(&log->emits_done, 50) && mirror_wait(&log->starts_done, 1), "they do not obey");
    CHECK(mirror_detour_is_on(), "off at the end");
    ATOMIC_SET(log->must_stop, 1);
    CHECK(pthread_create(&thread, NULL, emit_few, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    CHECK(recorder_process_current()->control->ring_count == 3, "%u rings",
          recorder_process_current()->control->ring_count - 1);
    CHECK(recorder_process_current()->control->unattached == 0, "unattached events");
}

static void test_own_threads_are_not_the_program_s(void **state)
{
    struct mirror_run run;

    (void)state;
    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    mirror_record(&run, scenario_own_threads, "own threads");
    assert_int_equal(mirror_count(run.log, true, 1, 1), 2 + 10);
    assert_int_equal(mirror_count(run.log, true, 1, 2), 1 + 21);
    assert_int_equal(run.log->record_count, 12 + 22);
    mirror_end(&run);
}

/* ---- without ---- */

static bool is_version_other; /* than the library's */

static void scenario_refused(struct session *session, void *context)
{
    struct mirror_log *log = context;

    log->version += is_version_other; /* the collector has it open */
    mirror_emit(1, 50);
    second_sink_open();
    CHECK(!mirror_detour_is_on(), "a detour to nowhere");
    mirror_emit(51, 200);
    CHECK(!mirror_detour_is_on(), "a detour to nowhere");
    CHECK(recorder_process_current()->second_sink == NULL, "a library that cannot be had is called");
    CHECK(session->directory.counts->process_count == 1, "processes");
}

static void run_refused(const char *path, uint32_t mirror, bool is_other_version)
{
    struct session_control *control;
    struct mirror_run run;

    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    control = run.session.directory.control;
    control->mirror = mirror;
    snprintf(control->mirror_path, sizeof(control->mirror_path), "%s", path);
    is_version_other = is_other_version;
    mirror_record(&run, scenario_refused, path);
    assert_int_equal(mirror_count(run.log, true, MIRROR_ANY, MIRROR_ANY), 0);
    assert_int_equal(mirror_count(run.log, false, 1, 1), 2 + 200);
    assert_int_equal(run.log->refused, is_other_version);
    mirror_end(&run);
}

static void test_refused(void **state)
{
    (void)state;
    run_refused(MIRROR_FAKE, 0, false); /* a session without it */
    run_refused(MIRROR_FAKE, SESSION_MIRROR_LTTNG, true);
    run_refused("/nonexistent/libvarve_lttng.so", SESSION_MIRROR_LTTNG, false);
    run_refused(VARVE_BUILD_DIR "/programs/lib_callback.so", SESSION_MIRROR_LTTNG, false);
    run_refused("", SESSION_MIRROR_LTTNG, false);
}

/* ---- the end ---- */

static void emit_late(void)
{
    CHECK(!mirror_detour_is_on(), "the detour is still on");
    mirror_emit(1000, 1099);
    CHECK(!mirror_detour_is_on(), "the detour is on again");
}

static void scenario_exit(struct session *session, void *context)
{
    (void)session;
    (void)context;
    CHECK(atexit(emit_late) == 0, "atexit"); /* registered earlier: runs later */
    second_sink_open();
    mirror_emit(1, 100);
}

static void test_goes_on_without_at_exit(void **state)
{
    struct mirror_run run;

    (void)state;
    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    mirror_record(&run, scenario_exit, "exit");
    assert_int_equal(mirror_count(run.log, true, 1, 1), 2 + 100);
    assert_int_equal(mirror_count(run.log, false, 1, 1), 100);
    mirror_end(&run);
}

static struct mirror_log *held;

static void let_go(void)
{
    ATOMIC_SET(held->must_hold, 0);
    CHECK(mirror_wait(&held->starts_done, 1), "`started` does not come to an end");
    CHECK(!mirror_detour_is_on(), "the detour is on again");
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
    mirror_emit(1, 100);
    ATOMIC_SET(held->starts_wanted, 1);
    CHECK(mirror_wait(&held->holding, 1), "no trace begins");
}

static void test_trace_begins_at_exit(void **state)
{
    struct mirror_run run;

    (void)state;
    mirror_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    mirror_record(&run, scenario_started_at_exit, "a trace begins at exit");
    assert_int_equal(mirror_count(run.log, true, 1, 1), 2 + 100);
    mirror_end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_switched_off_and_on),
        cmocka_unit_test(test_detour_stays_without_notice),
        cmocka_unit_test(test_one_kind_is_wanted),
        cmocka_unit_test(test_enabled_without_notice),
        cmocka_unit_test(test_switched_among_threads),
        cmocka_unit_test(test_own_threads_are_not_the_program_s),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_goes_on_without_at_exit),
        cmocka_unit_test(test_trace_begins_at_exit),
    };
    return cmocka_run_group_tests_name("second_sink_library", tests, NULL, NULL);
}
