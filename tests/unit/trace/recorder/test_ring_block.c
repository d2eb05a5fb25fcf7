/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that waits for the collector, as the overflow policy `block` says, for as long as a second: the
 * program's signal handlers run meanwhile. What they emit is put aside until the wait is over, and a child
 * that they fork goes on without waiting.
 * Costs: 1 s
 */
#include "base/monotonic.h"
#include "support/recorder.h"

#include <sys/time.h>

#define MS UINT64_C(1000000)
#define BEFORE 62U /* events that fill the ring, beside the two records of the start */

static void start_timer(long first_us, long every_us)
{
    const struct itimerval timer = {.it_value = {.tv_usec = first_us}, .it_interval = {.tv_usec = every_us}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
}

/* The event after them waits for 1 s, then spills; returns how long it took. */
static uint64_t fill_and_wait(void (*handler)(int number), long first_us, long every_us)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    emit_numbered(1, BEFORE);
    start_timer(first_us, every_us);
    uint64_t begin_ns = monotonic_ns();
    emit_numbered(BEFORE + 1, BEFORE + 1);
    return monotonic_ns() - begin_ns;
}

/* The program's events, then those of handlers, numbered as they came: how many, and how many were put aside. */
static uint64_t take_handled(struct session *session, uint64_t *nested)
{
    struct stream stream;
    stream_open(&stream, session, 1, 1, 1);
    ring_reader_refresh(stream.consumer.reader);
    uint64_t count = 0;
    struct varve_record record;
    while (consumer_next(&stream.consumer, session, &record)) {
        if (varve_record_kind(&record) == VARVE_KIND_MUNMAP) {
            count++;
            CHECK_EQUAL(record.addr, count);
            *nested += varve_record_flags(&record) == VARVE_FLAG_NESTED;
        } else {
            CHECK(count == 0, "the program's event comes after those of handlers");
            stream_see(&stream, &record);
        }
    }
    CHECK_EQUAL(stream.starts, 2);
    stream_close(&stream, BEFORE + 1);
    return count;
}

/* ---- one handler ---- */

static uint64_t handler_ran_ns;
static bool handler_forks;
static pid_t handler_child;

/* An event of its own, put aside; then, if wanted, a fork: the child is in the middle of the wait as well. */
static void on_alarm(int number)
{
    (void)number;
    if (handler_ran_ns != 0) {
        return;
    }
    handler_ran_ns = monotonic_ns();
    CHECK(varve_producer_current->busy != 0, "the ring is not marked as in use");
    emit(VARVE_KIND_MUNMAP, 1, 0);
    CHECK(own_ring()->nested_count == 1, "%u put aside", own_ring()->nested_count);
    if (handler_forks) {
        handler_child = fork();
    }
}

/* The child was waiting for room in a ring that is its parent's: it goes on at once, in one of its own. */
static void check_child_of_handler(struct session *session)
{
    CHECK(support_naps() <= SUPPORT_NAPS_MAX, "the child went on waiting: %llu naps",
          (unsigned long long)support_naps());
    CHECK(own_ring() == NULL && varve_producer_current->busy == 0, "the child is still attached");
    emit_numbered(1, 5);
    struct stream stream;
    stream_open(&stream, session, 2, 1, 1);
    stream_take_all(&stream);
    stream_close(&stream, 5);
    CHECK(own_ring() != NULL && own_ring()->lost == 0, "no ring of its own");
    _exit(0);
}

static void scenario_handler_runs(struct session *session, void *context)
{
    pid_t self = getpid();
    int wait_status = 0;
    handler_forks = *(const bool *)context;
    uint64_t begin_ns = monotonic_ns();
    uint64_t took_ns = fill_and_wait(on_alarm, 100000, 0);
    if (getpid() != self) {
        check_child_of_handler(session);
    }
    CHECK(took_ns >= 800 * MS, "the wait for the collector took %llu ms", (unsigned long long)(took_ns / MS));
    CHECK(handler_ran_ns >= begin_ns && handler_ran_ns <= monotonic_ns(), "the handler did not run");
    CHECK(!handler_forks || (waitpid(handler_child, &wait_status, 0) == handler_child && wait_status == 0),
          "the child ended with status %d", wait_status);
    uint64_t nested = 0;
    CHECK(take_handled(session, &nested) == 1 && nested == 1, "the handler's event");
}

/* ---- many ---- */

static uint64_t handled_events;

static void on_tick(int number)
{
    (void)number;
    for (unsigned i = 0; i < 10; i++) {
        emit(VARVE_KIND_MUNMAP, ++handled_events, 0);
    }
}

/* More than there is space to put aside: the rest of the handlers has to wait as well. */
static void scenario_many_handlers(struct session *session, void *context)
{
    (void)context;
    fill_and_wait(on_tick, 1000, 1000);
    start_timer(0, 0);
    CHECK(handled_events >= 100, "%llu events of handlers", (unsigned long long)handled_events);
    uint64_t nested = 0, taken = take_handled(session, &nested);
    CHECK(taken == handled_events && nested > 0, "%llu of %llu events, %llu put aside", (unsigned long long)taken,
          (unsigned long long)handled_events, (unsigned long long)nested);
}

TEST(test_handlers_run_during_the_wait)
{
    bool forks = true, stays = false;
    struct session_control settings = session_settings(SESSION_OVERFLOW_BLOCK, 64);
    settings.block_timeout_ns = 1000 * MS;
    if (IS_TSAN) {
        skip("the sanitizer delivers signals at its own moments, and none during the wait");
    }
    run_in_session_of(&settings, scenario_handler_runs, &stays, "a handler");
    run_in_session_of(&settings, scenario_handler_runs, &forks, "a handler that forks");
    run_in_session_of(&settings, scenario_many_handlers, NULL, "many handlers");
}
