/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second sink inside a workload. Each scenario records with the fake library open, and a collector follows it; at
 * the end every event of the database must have been emitted exactly once, with the number and the fields that the
 * database has, by the workload before the record was published, or else by the collector. What differs between
 * scenarios is who had to emit. Besides records: the detour ends when nobody wants them and is back when a trace
 * begins; what the library's own threads do is not the program's; a library that cannot be had changes nothing; and at
 * its exit a program goes on without. Signals and kills at chosen moments: test_second_sink_steps.c.
 * Costs: 4 s
 */
#include "base/monotonic.h"
#include "support/lttng/second_sink.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>

#define THREADS 4U
#define MISSES 5000U /* records that nobody wants: enough for the detour to end */

/* Records that a workload, else the collector, emits of a ring. */
struct expected {
    bool by_workload;
    uint32_t process, ring;
    unsigned count;
    bool or_more;
};

struct sink_case {
    const char *name;
    void (*act)(void);
    uint32_t overflow, capacity;
    struct expected expected[3]; /* ends with a process 0 */
    unsigned total;              /* records that are emitted, 0: any number */
    void (*expect)(void);        /* what a table does not say; or NULL */
    bool has_handlers, without_sink, is_version_other;
    const char *path; /* of the library, NULL: the fake */
};

/* What is played now, also in the workload. */
static const struct sink_case *playing;
static struct sink_run run;
static struct sink_log *present;

static void expect_count(bool by_workload, uint32_t process, uint32_t ring, unsigned count, bool or_more)
{
    unsigned found = sink_count(run.log, by_workload, process, ring);
    if (or_more ? found < count : found != count) {
        fail_msg("%s: %u records of p%u.r%u by the %s, not %u", playing->name, found, process, ring,
                 by_workload ? "workload" : "collector", count);
    }
}

/* ---- every field of every kind ---- */

static uint64_t events_so_far;

/* What is being emitted now is not in the ring, and all that was emitted before is. */
static void expect_unpublished(const struct sink_event *reported)
{
    const struct ring_header *ring = own_ring(); /* NULL: it begins */
    CHECK_EQUAL(reported->ring_seq, events_so_far + 1);
    CHECK(ring == NULL || ring->head + ring->spill_head == events_so_far, "%llu are published, %llu were reported",
          (unsigned long long)(ring->head + ring->spill_head), (unsigned long long)events_so_far);
    CHECK((varve_record_flags(&reported->record) & VARVE_FLAG_SECOND_SINK) != 0, "without its mark");
    events_so_far++;
}

static void play_fields(void)
{
    uint64_t random = 7;
    present->inside = (uintptr_t)expect_unpublished;
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
    CHECK_EQUAL(events_so_far, own_ring()->head);
    check_conserved(own_ring(), "at the end");
}

/* ---- full rings ---- */

/* All is read just when the staging slots are full: the ring is used again then, as it is empty. */
static uint64_t come_back(uint64_t at)
{
    const struct ring_header *ring = own_ring();
    while (ring->spill_head > 0 && ring->spill_head - ring->spill_flushed < RING_STAGING_RECORDS) {
        sink_emit(at, at);
        at++;
    }
    sink_drain(present);
    return at;
}

/* Bursts that do not fit, of which the second sink wants only a part, and times at which all is read. */
static void play_bursts(void)
{
    uint64_t random = 99, at = 1;
    sink_emit(at, at + 9); /* before the library is open */
    at += 10;
    second_sink_open();
    for (unsigned burst = 0; burst < 12; burst++) {
        uint64_t count = burst == 5 ? 3 * RING_STAGING_RECORDS : random_next(&random) % 300;
        present->enabled[VARVE_KIND_HEAP_FREE] = burst % 3 != 1;
        present->enabled[VARVE_KIND_LOST] = burst % 4 != 3;
        sink_emit(at, at + count);
        at += count + 1;
        if (burst % 2 == 1) {
            sink_drain(present);
        } else if (burst % 4 == 0) {
            at = come_back(at);
        }
    }
    sink_emit(at, at + 200); /* what drops now no record speaks of */
    check_conserved(own_ring(), "at the end");
    const struct ring_header *ring = own_ring();
    switch (playing->overflow) {
    case SESSION_OVERFLOW_SPILL:
        CHECK(ring->spill_head > 3 * RING_STAGING_RECORDS, "%llu spilled", (unsigned long long)ring->spill_head);
        CHECK(ring->head > 64, "it has not come back to the ring");
        break;
    case SESSION_OVERFLOW_BLOCK:
        CHECK_EQUAL(ring->lost, 0);
        break;
    default:
        CHECK(ring->lost > 1000 && ring->spill_head == 0, "%llu lost", (unsigned long long)ring->lost);
    }
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
static void play_interrupted(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    second_sink_open();
    emit(VARVE_KIND_MARK_BEGIN, 0, 0);
    present->inside = (uintptr_t)interrupt;
    for (uint64_t i = 1; i <= 100; i++) {
        raised_per_record = i % 25 == 0 ? RING_NESTED_SLOTS + 30 : 1;
        emit(VARVE_KIND_HEAP_ALLOC, 0x1000 * i, 16);
    }
    check_conserved(own_ring(), "at the end");
    CHECK(own_ring()->lost >= 30, "the slots were enough");
    unsigned nested = 0;
    for (uint32_t i = 0; i < present->record_count; i++) {
        nested += (varve_record_flags(&present->records[i].record) & VARVE_FLAG_NESTED) != 0;
    }
    CHECK(nested >= 96, "%u nested", nested);
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

static void play_forked_inside(void)
{
    struct sigaction action = {.sa_handler = on_fork_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    second_sink_open();
    present->inside = (uintptr_t)fork_once;
    sink_emit(1, 100);
    if (is_child) {
        CHECK(!sink_detour_is_on(), "a child takes the detour");
        _exit(0);
    }
    CHECK(wait(NULL) > 0, "no child");
    check_conserved(own_ring(), "at the end");
}

/* ---- threads ---- */

/* Its last event comes after its ring was retired. */
static void *end_stubbornly(void *context)
{
    uint64_t first = (uint64_t)(uintptr_t)context;
    sink_emit(first, first + 50);
    late_end();
    return NULL;
}

static void play_threads(void)
{
    sink_emit(1, 10);
    second_sink_open();
    late_key_make();
    run_threads(THREADS, end_stubbornly, 1000, 100);
    run_threads(THREADS, end_stubbornly, 2000, 100);
    sink_emit(11, 20);
    CHECK(recorder_process_current()->control->late_created == 1, "no late events");
}

/* ---- fork ---- */

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
    child_await(grandchild, "grandchild");
    sink_emit(base + 11, base + 20);
    _exit(0);
}

static void play_family(void)
{
    pid_t (*const forks[])(void) = {fork, bare_fork};
    second_sink_open();
    sink_emit(1, 100);
    for (unsigned i = 0; i < 2 - IS_TSAN; i++) { /* its run time does not survive a bare system call */
        pid_t child = forks[i]();
        if (child == 0) {
            act_as_child(forks[i], 1000 * (i + 1));
        }
        child_await(child, "child");
        CHECK(sink_detour_is_on(), "the parent's detour ended with its child's");
        sink_emit(101 + 10 * i, 110 + 10 * i);
    }
}

/* ---- on and off ---- */

static void play_switched(void)
{
    present->threads_at_open = 1; /* now, and not in the collector */
    second_sink_open();
    sink_emit(1, 100);
    CHECK(sink_detour_is_on(), "the detour did not begin");
    for (uint64_t turn = 1; turn <= 3; turn++) {
        uint64_t base = turn * 100000;
        sink_enable(present, 0);
        sink_emit(base, base + MISSES);
        CHECK(!sink_detour_is_on(), "the detour, turn %u", (unsigned)turn);
        sink_emit(base + 20000, base + 20099);
        sink_enable(present, 1);
        CHECK(!sink_detour_is_on() && sink_start(present), "`started` does not come to an end");
        sink_emit(base + 30000, base + 30000); /* the handshake, as it is seen from here */
        CHECK(sink_detour_is_on(), "the detour does not come back, turn %u", (unsigned)turn);
        sink_emit(base + 40000, base + 40099);
    }
}

/* Records that nobody wants do not end the detour while somebody wants others. */
static void play_one_kind(void)
{
    second_sink_open();
    sink_emit(1, 1);
    sink_enable(present, 0);
    present->enabled[VARVE_KIND_MARK_BEGIN] = 1;
    for (uint64_t at = 2; at <= 2 * MISSES; at++) {
        sink_emit(at, at);
        CHECK(sink_detour_is_on(), "the detour ended after %llu", (unsigned long long)at);
    }
    emit(VARVE_KIND_MARK_BEGIN, 0, 0);
}

/* Events are enabled in a trace that runs: nobody says so, but it is seen before the next lap is over. A fork
 * child looks in vain. */
static void play_enabled_later(void)
{
    second_sink_open();
    sink_enable(present, 0);
    sink_emit(1, MISSES);
    CHECK(!sink_detour_is_on(), "the detour did not end");
    sink_enable(present, 1);
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
static void play_contended(void)
{
    present->threads_at_open = 1;
    second_sink_open();
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, emit_until_stopped, NULL) == 0, "no thread");
    }
    for (unsigned turn = 0; turn < 8; turn++) {
        uint64_t end = monotonic_ns() + UINT64_C(20000000000);
        sink_enable(present, 0);
        while (turn % 2 == 0 && sink_detour_is_on()) {
            CHECK(monotonic_ns() < end, "the detour does not end");
            usleep(100);
        }
        sink_enable(present, 1);
        CHECK(sink_start(present), "`started` does not come to an end");
        CHECK(sink_wait(&varve_emit_has_sink, 1), "the detour does not come back");
        usleep(1000);
    }
    ATOMIC_SET(must_stop, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(sink_detour_is_on(), "off at the end");
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
static void play_own_threads(void)
{
    present->threads_at_load = 2;
    present->threads_at_open = 2;
    present->starts_wanted = 1;
    second_sink_open();
    sink_emit(1, 10);
    CHECK(sink_wait(&present->own_running, 4), "the library's threads do not run");
    CHECK(sink_wait(&present->late_acts, 2), "they do not act");
    ATOMIC_SET(present->emits_wanted, 50);
    CHECK(sink_wait(&present->emits_done, 50) && sink_wait(&present->starts_done, 1), "they do not obey");
    CHECK(sink_detour_is_on(), "off at the end");
    ATOMIC_SET(present->must_stop, 1);
    run_threads(1, emit_few, 0, 0);
    CHECK_EQUAL(recorder_process_current()->control->ring_count, 3);
    CHECK(recorder_process_current()->control->unattached == 0, "unattached events");
}

/* ---- without ---- */

static void play_refused(void)
{
    present->version += playing->is_version_other; /* the collector has it open */
    sink_emit(1, 50);
    second_sink_open();
    CHECK(!sink_detour_is_on(), "a detour to nowhere");
    sink_emit(51, 200);
    CHECK(!sink_detour_is_on(), "a detour to nowhere");
    CHECK(recorder_process_current()->second_sink == NULL, "a library that cannot be had is called");
    CHECK(run.session.directory.counts->process_count == 1, "processes");
}

/* ---- the end ---- */

static void emit_late(void)
{
    CHECK(!sink_detour_is_on(), "the detour is still on");
    sink_emit(1000, 1099);
    CHECK(!sink_detour_is_on(), "the detour is on again");
}

static void play_exit(void)
{
    CHECK(atexit(emit_late) == 0, "atexit"); /* registered earlier: runs later */
    second_sink_open();
    sink_emit(1, 100);
}

static void let_go(void)
{
    ATOMIC_SET(present->must_hold, 0);
    CHECK(sink_wait(&present->starts_done, 1), "`started` does not come to an end");
    CHECK(!sink_detour_is_on(), "the detour is on again");
}

/* A trace begins while the program exits: the library's thread is about to call `started`. */
static void play_started_at_exit(void)
{
    CHECK(atexit(let_go) == 0, "atexit");
    present->threads_at_open = 1;
    present->must_hold = 1;
    second_sink_open();
    sink_emit(1, 100);
    ATOMIC_SET(present->starts_wanted, 1);
    CHECK(sink_wait(&present->holding, 1), "no trace begins");
}

/* ---- all of them ---- */

static void expect_threads(void)
{
    expect_count(false, 1, 1, 2 + 10, false);
    expect_count(true, 1, 1, 10, false);
    expect_count(false, 1, 0, 1 + 2 * THREADS, false); /* with its thread_start */
    expect_count(true, 1, 0, 0, false);
    expect_count(false, 1, SINK_ANY, 12 + 1 + 2 * THREADS, false);
    for (uint32_t ring = 2; ring < 2 + 2 * THREADS; ring++) {
        expect_count(true, 1, ring, 1 + 51 + LATE_ROUNDS - 1, false);
    }
}

static void expect_family(void)
{
    const unsigned families = 2 - IS_TSAN;
    expect_count(true, 1, 1, 2 + 100 + 10 * families, false);
    expect_count(true, SINK_ANY, SINK_ANY, 2 + 100 + 10 * families, false);
    expect_count(false, 1, 1, 0, false);
    for (uint32_t family = 0; family < families; family++) {
        expect_count(false, 2 + 2 * family, 1, 2 + 21, false);
        expect_count(false, 3 + 2 * family, 1, 2 + 201, false);
    }
}

#define ANY SINK_ANY
#define WORKLOAD(process, ring, count)    \
    {                                     \
        true, process, ring, count, false \
    }
#define COLLECTOR(process, ring, count)    \
    {                                      \
        false, process, ring, count, false \
    }
#define BURSTS .expected = {{true, 1, 1, 101, true}, {false, 1, 1, 51, true}}
#define REFUSED .expected = {WORKLOAD(ANY, ANY, 0), COLLECTOR(1, 1, 2 + 200)}

static const struct sink_case cases[] = {
    {"fields", play_fields, SESSION_OVERFLOW_SPILL, 1024,
     .expected = {WORKLOAD(1, 1, 2 + VARVE_KIND_PROCESS_START - 1), COLLECTOR(ANY, ANY, 0)}},
    {"bursts, spill", play_bursts, SESSION_OVERFLOW_SPILL, 64, BURSTS},
    {"bursts, block", play_bursts, SESSION_OVERFLOW_BLOCK, 64, BURSTS},
    {"bursts, drop", play_bursts, SESSION_OVERFLOW_DROP, 256, BURSTS},
    {"interrupted, spill", play_interrupted, SESSION_OVERFLOW_SPILL, 64, .expected = {COLLECTOR(ANY, ANY, 0)},
     .has_handlers = true},
    {"interrupted, block", play_interrupted, SESSION_OVERFLOW_BLOCK, 64, .expected = {COLLECTOR(ANY, ANY, 0)},
     .has_handlers = true},
    {"interrupted, drop", play_interrupted, SESSION_OVERFLOW_DROP, 512, .expected = {COLLECTOR(ANY, ANY, 0)},
     .has_handlers = true},
    {"forked inside", play_forked_inside, SESSION_OVERFLOW_SPILL, 64,
     .expected = {WORKLOAD(1, 1, 2 + 100), COLLECTOR(2, 1, 2 + 95)}, /* the fifth was its parent's */
     .total = 102 + 97},
    {"threads and their late events", play_threads, SESSION_OVERFLOW_SPILL, 64, .expect = expect_threads},
    {"family", play_family, SESSION_OVERFLOW_SPILL, 64, .expect = expect_family},
    {"switched", play_switched, SESSION_OVERFLOW_SPILL, 64,
     .expected = {WORKLOAD(1, 1, 2 + 100 + 3 * 101), COLLECTOR(1, 1, 3 * (MISSES + 1 + 100))}},
    {"one kind is wanted", play_one_kind, SESSION_OVERFLOW_SPILL, 64, .expected = {WORKLOAD(1, 1, 2 + 1 + 1)}},
    {"enabled later", play_enabled_later, SESSION_OVERFLOW_SPILL, 64,
     .expected = {{true, 1, 1, 1, true}, WORKLOAD(2, 1, 0)}},
    {"contended", play_contended, SESSION_OVERFLOW_SPILL, 1024,
     .expected = {{true, 1, ANY, 1, true}, {false, 1, ANY, 1, true}}},
    {"own threads", play_own_threads, SESSION_OVERFLOW_SPILL, 64,
     .expected = {WORKLOAD(1, 1, 2 + 10), WORKLOAD(1, 2, 1 + 21)}, .total = 12 + 22},
    {"a session without it", play_refused, SESSION_OVERFLOW_SPILL, 64, REFUSED, .without_sink = true},
    {"another version", play_refused, SESSION_OVERFLOW_SPILL, 64, REFUSED, .is_version_other = true},
    {"no library", play_refused, SESSION_OVERFLOW_SPILL, 64, REFUSED, .path = "/nonexistent/libvarve_lttng.so"},
    {"another library", play_refused, SESSION_OVERFLOW_SPILL, 64, REFUSED,
     .path = VARVE_BUILD_DIR "/programs/lib_callback.so"},
    {"no path", play_refused, SESSION_OVERFLOW_SPILL, 64, REFUSED, .path = ""},
    {"exit", play_exit, SESSION_OVERFLOW_SPILL, 64, .expected = {WORKLOAD(1, 1, 2 + 100), COLLECTOR(1, 1, 100)}},
    {"a trace begins at exit", play_started_at_exit, SESSION_OVERFLOW_SPILL, 64, .expected = {WORKLOAD(1, 1, 2 + 100)}},
};

static void scenario_case(struct session *session, void *context)
{
    (void)session;
    present = context;
    playing->act();
}

static void run_case(const struct sink_case *of)
{
    playing = of;
    sink_begin(&run, of->overflow, of->capacity);
    struct session_control *control = run.session.directory.control;
    run.has_handlers = of->has_handlers;
    control->sink = of->without_sink ? 0 : control->sink;
    if (of->path != NULL) {
        snprintf(control->sink_path, sizeof(control->sink_path), "%s", of->path);
    }
    sink_record(&run, scenario_case, of->name);
    for (size_t i = 0; i < 3 && of->expected[i].process != 0; i++) {
        const struct expected *expected = &of->expected[i];
        expect_count(expected->by_workload, expected->process, expected->ring, expected->count, expected->or_more);
    }
    if (of->expect != NULL) {
        of->expect();
    }
    assert_true(of->total == 0 || run.log->record_count == of->total);
    assert_int_equal(run.log->refused, of->is_version_other);
    sink_end(&run);
}

TEST(test_every_record_once)
{
    if (IS_TSAN) {
        skip_part("the sanitizer delivers signals at its own moments, and its run time does not survive the bare fork");
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!IS_TSAN || !cases[i].has_handlers) {
            run_case(&cases[i]);
        }
    }
}
