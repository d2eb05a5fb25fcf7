/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second sink inside a workload. Each scenario records with the fake library open, and a collector
 * follows it; at the end every event of the database must have been emitted exactly once, with the number and
 * the fields that the database has, by the workload before the record was published, or else by the
 * collector. What differs between scenarios is who had to emit. Signals and kills at chosen moments:
 * test_recorder_second_sink_steps.c.
 * Costs: 2 s
 */
#include "support/lttng/second_sink.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>

#define THREADS 4U

/* ---- every field of every kind ---- */

static uint64_t events_so_far;

/* What is being emitted now is not in the ring, and all that was emitted before is. */
static void expect_unpublished(const struct sink_event *reported)
{
    const struct ring_header *ring = own_ring(); /* NULL: it begins */
    CHECK(reported->ring_seq == events_so_far + 1, "%llu is reported after %llu",
          (unsigned long long)reported->ring_seq, (unsigned long long)events_so_far);
    CHECK(ring == NULL || ring->head + ring->spill_head == events_so_far, "%llu are published, %llu were reported",
          (unsigned long long)(ring->head + ring->spill_head), (unsigned long long)events_so_far);
    CHECK((varve_record_flags(&reported->record) & VARVE_FLAG_SECOND_SINK) != 0, "without its mark");
    events_so_far++;
}

static void scenario_fields(struct session *session, void *context)
{
    struct sink_log *log = context;
    uint64_t random = 7;
    (void)session;
    log->inside = (uintptr_t)expect_unpublished;
    second_sink_open();
    for (unsigned kind = 1; kind < VARVE_KIND_PROCESS_START; kind++) {
        struct varve_record record = record_make(kind, random_next(&random) >> 16, 4096);
        record.requested = random_next(&random) >> 40;
        record.arg = random_next(&random) >> 8;
        record.id_stream = random_next(&random);
        record.dev_seq_kind_flags = varve_record_tag(kind, kind, kind % 2 == 0 ? VARVE_FLAG_FAILED : 0);
        record.pool = (uint16_t)random_next(&random);
        record.device = (uint8_t)(kind % 3);
        record.cause = (uint8_t)kind;
        varve_emit(&record);
    }
    CHECK(sink_detour_is_on(), "the detour ended");
    CHECK(events_so_far == own_ring()->head, "%llu reported", (unsigned long long)events_so_far);
    check_conserved(own_ring(), "at the end");
}

TEST(test_fields)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 1024);
    sink_record(&run, scenario_fields, "fields");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + VARVE_KIND_PROCESS_START - 1);
    assert_int_equal(sink_count(run.log, false, SINK_ANY, SINK_ANY), 0);
    sink_end(&run);
}

/* ---- full rings ---- */

/* All is read just when the staging slots are full: the ring is used again then, as it is empty. */
static uint64_t come_back(struct sink_log *log, uint64_t at)
{
    const struct ring_header *ring = own_ring();
    while (ring->spill_head > 0 && ring->spill_head - ring->spill_flushed < RING_STAGING_RECORDS) {
        sink_emit(at, at);
        at++;
    }
    sink_drain(log);
    return at;
}

/* Bursts that do not fit, of which the second sink wants only a part, and times at which all is read. */
static void scenario_bursts(struct session *session, void *context)
{
    struct sink_log *log = context;
    uint64_t random = 99, at = 1;
    (void)session;
    sink_emit(at, at + 9); /* before the library is open */
    at += 10;
    second_sink_open();
    for (unsigned burst = 0; burst < 12; burst++) {
        uint64_t count = burst == 5 ? 3 * RING_STAGING_RECORDS : random_next(&random) % 300;
        log->enabled[VARVE_KIND_HEAP_FREE] = burst % 3 != 1;
        log->enabled[VARVE_KIND_LOST] = burst % 4 != 3;
        sink_emit(at, at + count);
        at += count + 1;
        if (burst % 2 == 1) {
            sink_drain(log);
        } else if (burst % 4 == 0) {
            at = come_back(log, at);
        }
    }
    sink_emit(at, at + 200); /* what drops now no record speaks of */
    check_conserved(own_ring(), "at the end");
    verdict->figures[0] = own_ring()->spill_head;
    verdict->figures[1] = own_ring()->lost;
    verdict->figures[2] = own_ring()->head;
}

static void run_bursts(uint32_t overflow)
{
    struct sink_run run;
    sink_begin(&run, overflow, overflow == SESSION_OVERFLOW_DROP ? 256 : 64);
    sink_record(&run, scenario_bursts, "bursts");
    assert_true(sink_count(run.log, true, 1, 1) > 100);
    assert_true(sink_count(run.log, false, 1, 1) > 50);
    sink_end(&run);
}

TEST(test_bursts_spill)
{
    run_bursts(SESSION_OVERFLOW_SPILL);
    assert_true(verdict->figures[0] > 3 * RING_STAGING_RECORDS);
    assert_true(verdict->figures[2] > 64); /* it has come back to the ring */
}

TEST(test_bursts_block)
{
    run_bursts(SESSION_OVERFLOW_BLOCK);
    assert_int_equal(verdict->figures[1], 0);
}

TEST(test_bursts_drop)
{
    run_bursts(SESSION_OVERFLOW_DROP);
    assert_true(verdict->figures[1] > 1000);
    assert_int_equal(verdict->figures[0], 0);
}

/* ---- handlers ---- */

static uint64_t handled;
static unsigned raised_per_record;

static void on_signal(int number)
{
    (void)number;
    emit(VARVE_KIND_HEAP_FREE, ++handled, 3);
}

static void interrupt(const struct sink_event *reported)
{
    for (unsigned i = 0; i < raised_per_record && varve_record_kind(&reported->record) == VARVE_KIND_HEAP_ALLOC; i++) {
        raise(SIGUSR1);
    }
}

/* Handlers that emit while the library is being handed a record: 1 each, or far more than there are slots. */
static void scenario_interrupted(struct session *session, void *context)
{
    struct sink_log *log = context;
    struct sigaction action = {.sa_handler = on_signal};
    (void)session;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    second_sink_open();
    emit(VARVE_KIND_MARK_BEGIN, 0, 0);
    log->inside = (uintptr_t)interrupt;
    for (uint64_t i = 1; i <= 100; i++) {
        raised_per_record = i % 25 == 0 ? RING_NESTED_SLOTS + 30 : 1;
        emit(VARVE_KIND_HEAP_ALLOC, 0x1000 * i, 16);
    }
    check_conserved(own_ring(), "at the end");
    verdict->figures[0] = own_ring()->lost;
    verdict->figures[1] = handled;
}

TEST(test_interrupted_tellings)
{
    unsigned nested = 0;
    if (IS_TSAN) {
        skip("the sanitizer delivers signals at its own moments");
    }
    struct sink_run run;
    for (uint32_t overflow = SESSION_OVERFLOW_SPILL; overflow <= SESSION_OVERFLOW_DROP; overflow++) {
        sink_begin(&run, overflow, overflow == SESSION_OVERFLOW_DROP ? 512 : 64);
        run.has_handlers = true;
        sink_record(&run, scenario_interrupted, "interrupted emissions");
        for (uint32_t i = 0; i < run.log->record_count; i++) {
            nested += (varve_record_flags(&run.log->records[i].record) & VARVE_FLAG_NESTED) != 0;
        }
        assert_true(nested >= 96);
        assert_true(verdict->figures[0] >= 30); /* the slots were not enough */
        assert_int_equal(sink_count(run.log, false, SINK_ANY, SINK_ANY), 0);
        sink_end(&run);
    }
}

/* A handler that forks while the library is being handed a record: the child comes back from there, too. */
static bool is_child;

static void on_fork_signal(int number)
{
    (void)number;
    is_child = fork() == 0;
}

static void fork_once(const struct sink_event *reported)
{
    if (varve_record_kind(&reported->record) == VARVE_KIND_HEAP_ALLOC && reported->record.addr == 0x1000 * 5) {
        raise(SIGUSR1);
    }
}

static void scenario_forked_inside(struct session *session, void *context)
{
    struct sink_log *log = context;
    struct sigaction action = {.sa_handler = on_fork_signal};
    (void)session;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    second_sink_open();
    log->inside = (uintptr_t)fork_once;
    sink_emit(1, 100);
    if (is_child) {
        CHECK(!sink_detour_is_on(), "a child takes the detour");
        _exit(0);
    }
    CHECK(wait(NULL) > 0, "no child");
    check_conserved(own_ring(), "at the end");
}

TEST(test_handler_forks_inside)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_forked_inside, "forked inside");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 100);
    assert_int_equal(sink_count(run.log, false, 2, 1), 2 + 95); /* the fifth was its parent's */
    assert_int_equal(run.log->record_count, 102 + 97);
    sink_end(&run);
}

/* ---- threads ---- */

static pthread_key_t stubborn_key;

static void stubborn(void *value)
{
    uintptr_t left = (uintptr_t)value;
    emit(VARVE_KIND_HEAP_FREE, left, 3);
    pthread_setspecific(stubborn_key, (void *)(left - 1)); /* NULL: not called any more */
}

/* Its last event comes after its ring was retired. */
static void *end_stubbornly(void *context)
{
    uint64_t first = (uint64_t)(uintptr_t)context;
    sink_emit(first, first + 50);
    pthread_setspecific(stubborn_key, (void *)(uintptr_t)(PTHREAD_DESTRUCTOR_ITERATIONS - IS_TSAN));
    return NULL;
}

static void run_threads(uint64_t first)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, end_stubbornly, (void *)(uintptr_t)(first + 100 * i)) == 0,
              "no thread");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void scenario_threads(struct session *session, void *context)
{
    (void)session;
    (void)context;
    sink_emit(1, 10);
    second_sink_open();
    CHECK(pthread_key_create(&stubborn_key, stubborn) == 0, "no key"); /* comes after the recorder's own */
    run_threads(1000);
    run_threads(2000);
    sink_emit(11, 20);
    CHECK(recorder_process_current()->control->late_created == 1, "no late events");
}

TEST(test_threads_and_their_late_events)
{
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_threads, "threads");
    assert_int_equal(sink_count(run.log, false, 1, 1), 2 + 10);
    assert_int_equal(sink_count(run.log, true, 1, 1), 10);
    assert_int_equal(sink_count(run.log, false, 1, 0), 1 + 2 * THREADS); /* with its thread_start */
    assert_int_equal(sink_count(run.log, true, 1, 0), 0);
    assert_int_equal(sink_count(run.log, false, 1, SINK_ANY), 12 + 1 + 2 * THREADS);
    for (uint32_t ring = 2; ring < 2 + 2 * THREADS; ring++) {
        assert_int_equal(sink_count(run.log, true, 1, ring), 1 + 51 + PTHREAD_DESTRUCTOR_ITERATIONS - IS_TSAN - 1);
    }
    sink_end(&run);
}

/* ---- fork ---- */

static pid_t bare_fork(void)
{
    return (pid_t)syscall(SYS_fork);
}

static void await(pid_t child)
{
    int wait_status = 0;
    CHECK(child > 0 && waitpid(child, &wait_status, 0) == child && wait_status == 0, "wait status %#x",
          (unsigned)wait_status);
}

/* A child cannot use the library: it goes on without, and without the detour. Its own children likewise. */
static void act_as_child(pid_t (*fork_as)(void), uint64_t base)
{
    sink_emit(base, base + 10);
    CHECK(!sink_detour_is_on(), "a child takes the detour");
    pid_t grandchild = fork_as();
    if (grandchild == 0) {
        sink_emit(base + 500, base + 700); /* more than fits */
        CHECK(!sink_detour_is_on(), "a grandchild takes the detour");
        _exit(0);
    }
    await(grandchild);
    sink_emit(base + 11, base + 20);
    _exit(0);
}

static void scenario_family(struct session *session, void *context)
{
    pid_t (*const forks[])(void) = {fork, bare_fork};
    (void)session;
    (void)context;
    second_sink_open();
    sink_emit(1, 100);
    for (unsigned i = 0; i < 2 - IS_TSAN; i++) { /* its run time does not survive a bare system call */
        pid_t child = forks[i]();
        if (child == 0) {
            act_as_child(forks[i], 1000 * (i + 1));
        }
        await(child);
        CHECK(sink_detour_is_on(), "the parent's detour ended with its child's");
        sink_emit(101 + 10 * i, 110 + 10 * i);
    }
}

TEST(test_children_are_reported_by_the_collector)
{
    unsigned families = 2 - IS_TSAN;
    if (IS_TSAN) {
        skip_part("the sanitizer's run time does not survive the bare system call");
    }
    struct sink_run run;
    sink_begin(&run, SESSION_OVERFLOW_SPILL, 64);
    sink_record(&run, scenario_family, "family");
    assert_int_equal(sink_count(run.log, true, 1, 1), 2 + 100 + 10 * families);
    assert_int_equal(sink_count(run.log, true, SINK_ANY, SINK_ANY), 2 + 100 + 10 * families);
    assert_int_equal(sink_count(run.log, false, 1, 1), 0);
    for (uint32_t family = 0; family < families; family++) {
        assert_int_equal(sink_count(run.log, false, 2 + 2 * family, 1), 2 + 21);
        assert_int_equal(sink_count(run.log, false, 3 + 2 * family, 1), 2 + 201);
    }
    sink_end(&run);
}
