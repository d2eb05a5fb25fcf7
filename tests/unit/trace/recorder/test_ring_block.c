/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that waits for the collector, as the overflow policy `block` says, for as long as a second: the
 * program's signal handlers run meanwhile. What they emit is put aside until the wait is over, and a child
 * that they fork goes on without waiting.
 * Costs: 1 s
 */
#include "support/recorder.h"
#include "trace/collector/ring_reader.h"
#include "trace/format/session.h"
#include "trace/record.h"

#include <sys/time.h>

#define MS UINT64_C(1000000)

static void emit_more(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, 100 + i, 8);
    }
}

static void start_timer(long first_us, long every_us)
{
    const struct itimerval timer = {.it_value = {.tv_usec = first_us}, .it_interval = {.tv_usec = every_us}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
}

/* ---- one handler ---- */

static uint64_t handler_ran_ns;
static bool handler_forks;
static pid_t handler_child;

/* An event of its own, put aside; then, if wanted, a fork: the child is in the middle of the wait as well. */
static void catch_alarm(void (*handler)(int number))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
}

static void on_alarm(int number)
{
    (void)number;
    if (handler_ran_ns != 0) {
        return;
    }
    handler_ran_ns = support_monotonic_ns();
    CHECK(varve_producer_current->busy != 0, "the ring is not marked as in use");
    emit(VARVE_KIND_HEAP_FREE, 1, 0);
    CHECK(own_ring()->nested_count == 1, "%u put aside", own_ring()->nested_count);
    if (handler_forks) {
        handler_child = fork();
    }
}

/* The child was waiting for room in a ring that is its parent's: it goes on at once, in one of its own. */
static void check_child_of_handler(struct session *session)
{
    uint64_t count = 0;
    CHECK(support_naps() <= SUPPORT_NAPS_MAX, "the child went on waiting: %llu naps",
          (unsigned long long)support_naps());
    CHECK(own_ring() == NULL && varve_producer_current->busy == 0, "the child is still attached");
    emit_more(5);
    CHECK(own_ring() != NULL && own_ring()->lost == 0, "no ring of its own");
    struct consumer consumer;
    consumer_open(&consumer, session, 2, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        count += varve_record_kind(&record) == VARVE_KIND_HEAP_ALLOC;
    }
    CHECK(count == 5, "%llu events of the child", (unsigned long long)count);
    check_conserved(consumer.reader->ring, "in the child");
    consumer_close(&consumer);
    _exit(0);
}

static void scenario_handler_runs(struct session *session, void *context)
{
    uint64_t handled = 0, count = 0;
    pid_t self = getpid();
    int wait_status = 0;
    handler_forks = *(const bool *)context;
    catch_alarm(on_alarm);
    emit_more(62);
    start_timer(100000, 0);
    uint64_t begin_ns = support_monotonic_ns();
    emit_more(1); /* waits for 1 s, then spills */
    if (getpid() != self) {
        check_child_of_handler(session);
    }
    uint64_t took_ns = support_monotonic_ns() - begin_ns;
    CHECK(took_ns >= 800 * MS, "the wait for the collector took %llu ms", (unsigned long long)(took_ns / MS));
    CHECK(handler_ran_ns >= begin_ns && handler_ran_ns <= begin_ns + took_ns, "the handler did not run");
    CHECK(!handler_forks || (waitpid(handler_child, &wait_status, 0) == handler_child && wait_status == 0),
          "the child ended with status %d", wait_status);
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        count++;
        if (varve_record_kind(&record) == VARVE_KIND_HEAP_FREE) {
            handled = count;
            CHECK(varve_record_flags(&record) == VARVE_FLAG_NESTED, "flags %u", varve_record_flags(&record));
        }
    }
    CHECK(count == 66 && handled == 66, "%llu events, that of the handler is number %llu", (unsigned long long)count,
          (unsigned long long)handled);
    check_conserved(consumer.reader->ring, "at the end");
    consumer_close(&consumer);
}

static void run_blocked(scenario run, void *context, const char *what)
{
    struct session_control settings = session_settings(SESSION_OVERFLOW_BLOCK, 64);
    settings.block_timeout_ns = 1000 * MS;
    struct session session;
    session_begin(&session, &settings);
    run_scenario(&session, run, context, what);
    session_end(&session);
}

TEST(test_handler_runs_during_the_wait)
{
    bool forks = false;
    if (IS_TSAN) {
        skip("the sanitizer delivers signals at its own moments, and none during the wait");
    }
    run_blocked(scenario_handler_runs, &forks, "a handler");
    forks = true;
    run_blocked(scenario_handler_runs, &forks, "a handler that forks");
}

/* ---- many ---- */

static uint64_t handled_events;

static void on_tick(int number)
{
    (void)number;
    for (unsigned i = 0; i < 10; i++) {
        emit(VARVE_KIND_HEAP_FREE, ++handled_events, 0);
    }
}

/* More than there is space to put aside: the rest of the handlers has to wait as well. */
static void scenario_many_handlers(struct session *session, void *context)
{
    uint64_t frees = 0;
    (void)context;
    catch_alarm(on_tick);
    emit_more(62);
    start_timer(1000, 1000);
    emit_more(1);
    start_timer(0, 0);
    CHECK(handled_events >= 100, "%llu events of handlers", (unsigned long long)handled_events);
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        if (varve_record_kind(&record) == VARVE_KIND_HEAP_FREE) {
            frees++;
            CHECK(record.addr == frees, "event %llu of the handlers is number %llu", (unsigned long long)record.addr,
                  (unsigned long long)frees);
        }
    }
    CHECK(frees == handled_events && consumer.reader->ring->lost == 0, "%llu of %llu events, %llu lost",
          (unsigned long long)frees, (unsigned long long)handled_events,
          (unsigned long long)consumer.reader->ring->lost);
    check_conserved(consumer.reader->ring, "at the end");
    consumer_close(&consumer);
}

TEST(test_many_handlers_lose_nothing)
{
    if (IS_TSAN) {
        skip("the sanitizer delivers signals at its own moments, and none during the wait");
    }
    run_blocked(scenario_many_handlers, NULL, "many handlers");
}
