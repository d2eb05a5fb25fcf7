/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork: a child attaches anew at its first event, with a number and rings of its own, and never writes into
 * its parent's, however it was made (fork, or the bare system call), whatever its parent was doing: spilling,
 * with other threads in the middle of events, or itself inside an event that a handler which forks has
 * interrupted. That event goes on in the child as well when the handler returns there.
 * Costs: 1 s
 */
#include "support/step.h"

#include <pthread.h>

#define CHILDREN_MOST 800U

/* A ring of a process: start records, then events first … last. */
static void check_series(struct session *session, uint32_t process_id, uint32_t parent_id, uint64_t first,
                         uint64_t last)
{
    struct stream stream;
    stream_open(&stream, session, process_id, 1, first);
    stream_take_all(&stream);
    CHECK(stream.starts == 2 && stream.parent == parent_id, "process %u does not begin with its parent %u", process_id,
          parent_id);
    stream_close(&stream, last);
}

/* ---- children of a process at rest ---- */

struct family {
    pid_t (*fork)(void);
    uint64_t before; /* events of the parent before it forks */
    const char *name;
};

static void scenario_family(struct session *session, void *context)
{
    const struct family *family = context;
    size_t bytes = ring_file_bytes(64);
    uint8_t *before = malloc(bytes);
    CHECK(before != NULL, "no memory");
    emit_numbered(1, family->before);
    struct consumer parent;
    consumer_open(&parent, session, 1, 1);
    memcpy(before, parent.reader->ring, bytes);
    pid_t child = family->fork();
    if (child == 0) {
        emit_numbered(1001, 1100);
        pid_t grandchild = family->fork();
        if (grandchild == 0) {
            emit_numbered(2001, 2002);
            _exit(0);
        }
        emit_numbered(1101, 1200);
        child_await(grandchild, "grandchild");
        _exit(0);
    }
    child_await(child, family->name);
    CHECK(memcmp(before, parent.reader->ring, bytes) == 0, "%s: the parent's ring was written to", family->name);
    emit_numbered(family->before + 1, family->before + 10);
    consumer_close(&parent);
    check_series(session, 1, 0, 1, family->before + 10);
    check_series(session, 2, 1, 1001, 1200);
    check_series(session, 3, 2, 2001, 2002);
    CHECK(session->directory.counts->process_count == 3, "%u processes", session->directory.counts->process_count);
    free(before);
}

TEST(test_children_attach_anew)
{
    const struct family families[] = {{fork, 10, "fork"},
                                      {bare_fork, 10, "the bare system call"},
                                      {fork, 200, "fork while spilling"},
                                      {fork, 5000, "fork with a spill file"},
                                      {bare_fork, 5000, "the bare system call with a spill file"}};
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (IS_TSAN && families[i].fork == bare_fork) {
            skip_part("the sanitizer's run time does not survive %s", families[i].name);
            continue;
        }
        run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_family, (void *)(uintptr_t)&families[i], families[i].name);
    }
}

/* A process that has not emitted yet: parent and child are two processes without a parent in the recording; a child
 * that never emits leaves nothing behind. */
static void scenario_early_and_silent(struct session *session, void *context)
{
    (void)context;
    for (unsigned i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            emit_numbered(1, i == 0 ? 5 : 0);
            _exit(0);
        }
        child_await(child, i == 0 ? "early child" : "silent child");
        emit_numbered(11 + 5 * i, 15 + 5 * i);
    }
    CHECK(session->directory.counts->process_count == 2, "%u processes", session->directory.counts->process_count);
    struct consumer consumer;
    CHECK(!consumer_try_open(&consumer, session, 3, 1), "the silent child has a ring");
    check_series(session, 1, 0, 1, 5);
    check_series(session, 2, 0, 11, 20);
}

TEST(test_early_and_silent_children)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_early_and_silent, NULL, "early and silent");
}

/* ---- while other threads are in the middle of events ---- */

static uint32_t stop; /* atomic */

static void *emit_until_stopped(void *context)
{
    uint64_t count = 0;
    (void)context;
    while (__atomic_load_n(&stop, __ATOMIC_RELAXED) == 0) {
        emit(VARVE_KIND_HEAP_ALLOC, ++count, 1);
    }
    return NULL;
}

static void scenario_storm(struct session *session, void *context)
{
    (void)context;
    emit_numbered(1, 1);
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, emit_until_stopped, NULL) == 0, "no thread");
    }
    for (unsigned i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            emit_numbered(100, 150); /* they fit the ring */
            _exit(0);
        }
        child_await(child, "child of the storm");
        check_series(session, 2 + i, 1, 100, 150);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < 3; i++) { /* in whatever order they had attached */
        struct consumer consumer;
        consumer_open(&consumer, session, 1, 2 + i);
        check_conserved(consumer.reader->ring, "thread of the storm");
        consumer_close(&consumer);
    }
    check_series(session, 1, 0, 1, 1);
}

TEST(test_fork_beside_busy_threads)
{
    run_in_session(SESSION_OVERFLOW_DROP, 64, scenario_storm, NULL, "storm");
}

/* ---- in a handler, at any instruction of an event ---- */

struct settings {
    const char *name;
    uint32_t overflow;
    uint64_t before, stepped, gap;
    bool emits; /* the handler emits in the child */
};

static const struct settings *present;
static uint64_t current; /* the event that the program is about to emit */
static uint64_t forked_at[CHILDREN_MOST];
static uint32_t children; /* processes 2, 3, … */
static bool is_child;

static void on_signal(int number)
{
    (void)number;
    CHECK(children < CHILDREN_MOST, "too many children");
    if (step_is_ending) {
        step_handler_done();
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        step_is_traced = 0;
        is_child = true;
        if (present->emits) {
            emit(VARVE_KIND_MUNMAP, 7, 7);
        }
        return;
    }
    forked_at[children++] = current;
    child_await(child, present->name);
    step_handler_done();
}

/* In the child: what the interrupted event has become, the handler's own, then the rest of the program. */
static void check_child(struct session *session, uint32_t process_id, uint64_t from, uint64_t total)
{
    unsigned freed = 0;
    struct stream stream;
    stream_open(&stream, session, process_id, 1, from);
    ring_reader_refresh(stream.consumer.reader);
    struct varve_record record;
    while (consumer_next(&stream.consumer, session, &record)) {
        unsigned kind = varve_record_kind(&record);
        if (kind == VARVE_KIND_MUNMAP) {
            freed++;
        } else if (kind != VARVE_KIND_PROCESS_START && kind != VARVE_KIND_THREAD_START) {
            stream.next += stream.next == from && record.addr == from + 1; /* the parent had it already */
            stream_see(&stream, &record);
        }
    }
    CHECK(freed == present->emits, "process %u: the handler's event comes %u times", process_id, freed);
    CHECK(stream.next == total + 1, "process %u, forked at %llu: %llu is missing", process_id, (unsigned long long)from,
          (unsigned long long)stream.next);
    consumer_close(&stream.consumer);
}

static void scenario_handler(struct session *session, void *context)
{
    present = context;
    uint64_t total = present->before + present->stepped + 3;
    step_handle(SIGUSR1, on_signal);
    emit_numbered(1, present->before);
    current = present->before + 1;
    step_begin();
    while (current <= present->before + present->stepped) {
        emit_numbered(current, current);
        current++;
    }
    step_end();
    emit_numbered(current, total);
    if (is_child) {
        _exit(0);
    }
    CHECK(own_ring() != NULL, "no ring");
    if (present->overflow == SESSION_OVERFLOW_DROP) {
        CHECK(own_ring()->lost > 0, "nothing was lost in a full ring");
        check_conserved(own_ring(), "the parent's");
    } else {
        CHECK_EQUAL(own_ring()->lost, 0);
        check_series(session, 1, 0, 1, total);
    }
    for (uint32_t i = 0; i < children; i++) {
        check_child(session, 2 + i, forked_at[i], total);
    }
    verdict->figures[0] = children;
}

static int choose_by_gap(void *context, uint64_t step)
{
    const struct settings *settings = context;
    return step % settings->gap == settings->gap / 2 ? SIGUSR1 : 0;
}

TEST(test_handler_forks)
{
    static struct settings cases[] = {
        {"ring", SESSION_OVERFLOW_SPILL, 3, 1, 1, false},
        {"ring, child emits", SESSION_OVERFLOW_SPILL, 3, 1, 1, true},
        {"ring full", SESSION_OVERFLOW_SPILL, 62, 1, 7, false},
        {"ring full, child emits", SESSION_OVERFLOW_SPILL, 62, 1, 7, true},
        {"block", SESSION_OVERFLOW_BLOCK, 62, 1, 11, false},
        {"drop", SESSION_OVERFLOW_DROP, 63, 1, 11, true},
    };
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer takes its own locks in a fork");
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct session_control control = session_settings(cases[i].overflow, 64);
        struct stepping stepping = {.choose = choose_by_gap, .context = &cases[i]};
        struct session session;
        session_begin(&session, &control);
        child_judge(step_scenario(&session, scenario_handler, &cases[i], &stepping), cases[i].name);
        assert_true(verdict->figures[0] >= 10);
        session_end(&session);
    }
}
