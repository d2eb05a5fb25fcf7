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

static pid_t bare_fork(void)
{
    return (pid_t)syscall(SYS_fork);
}

static void await(pid_t child, const char *what)
{
    int wait_status = 0;
    CHECK(child > 0, "%s: no child", what);
    CHECK(waitpid(child, &wait_status, 0) == child, "%s: waitpid", what);
    CHECK(verdict->reason[0] == '\0', "%s", what);
    CHECK(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0, "%s: wait status %#x", what, (unsigned)wait_status);
}

/* A ring of a process: start records, then addresses first … last. */
static void check_series(struct session *session, uint32_t process_id, uint32_t parent_id, uint64_t first,
                         uint64_t last)
{
    struct consumer consumer;
    consumer_open(&consumer, session, process_id, 1);
    check_conserved(consumer.reader->ring, "series");
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    CHECK(consumer_next(&consumer, session, &record) && varve_record_kind(&record) == VARVE_KIND_PROCESS_START &&
              record.arg == parent_id,
          "process %u does not begin with its parent %u", process_id, parent_id);
    CHECK(consumer_next(&consumer, session, &record) && varve_record_kind(&record) == VARVE_KIND_THREAD_START,
          "process %u: no thread_start", process_id);
    for (uint64_t at = first; at <= last; at++) {
        CHECK(consumer_next(&consumer, session, &record) && record.addr == at, "process %u: event %llu is missing",
              process_id, (unsigned long long)at);
    }
    CHECK(!consumer_next(&consumer, session, &record), "process %u: event %llu too much", process_id,
          (unsigned long long)record.addr);
    consumer_close(&consumer);
}

static void emit_series(uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at <= last; at++) {
        emit(VARVE_KIND_HEAP_ALLOC, at, 1);
    }
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
    emit_series(1, family->before);
    struct consumer parent;
    consumer_open(&parent, session, 1, 1);
    memcpy(before, parent.reader->ring, bytes);
    pid_t child = family->fork();
    if (child == 0) {
        emit_series(1001, 1100);
        pid_t grandchild = family->fork();
        if (grandchild == 0) {
            emit_series(2001, 2002);
            _exit(0);
        }
        emit_series(1101, 1200);
        await(grandchild, "grandchild");
        _exit(0);
    }
    await(child, family->name);
    CHECK(memcmp(before, parent.reader->ring, bytes) == 0, "%s: the parent's ring was written to", family->name);
    emit_series(family->before + 1, family->before + 10);
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

/* A child that never emits leaves nothing behind. */
static void scenario_silent(struct session *session, void *context)
{
    (void)context;
    emit_series(1, 1);
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    await(child, "silent child");
    CHECK(session->directory.counts->process_count == 1, "%u processes", session->directory.counts->process_count);
    struct consumer consumer;
    CHECK(!consumer_try_open(&consumer, session, 2, 1), "the silent child has a ring");
}

TEST(test_silent_child)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_silent, NULL, "silent child");
}

/* A process that has not emitted yet: parent and child are two processes without a parent in the recording.
 */
static void scenario_early(struct session *session, void *context)
{
    (void)context;
    pid_t child = fork();
    if (child == 0) {
        emit_series(1, 5);
        _exit(0);
    }
    await(child, "early child");
    emit_series(11, 15);
    check_series(session, 1, 0, 1, 5);
    check_series(session, 2, 0, 11, 15);
}

TEST(test_fork_before_the_first_event)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_early, NULL, "early child");
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
    return (void *)(uintptr_t)count;
}

static void scenario_storm(struct session *session, void *context)
{
    (void)context;
    emit_series(1, 1);
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, emit_until_stopped, NULL) == 0, "no thread");
    }
    for (unsigned i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            emit_series(100, 150); /* they fit the ring */
            _exit(0);
        }
        await(child, "child of the storm");
        check_series(session, 2 + i, 1, 100, 150);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    void *count;
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], &count);
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
            emit(VARVE_KIND_HEAP_FREE, 7, 7);
        }
        return;
    }
    forked_at[children++] = current;
    await(child, present->name);
    step_handler_done();
}

/* In the child: what the interrupted event has become, the handler's own, then the rest of the program. */
static void check_child(struct session *session, uint32_t process_id, uint64_t from, uint64_t total)
{
    bool has_freed = !present->emits;
    struct consumer consumer;
    uint64_t next = 0;
    consumer_open(&consumer, session, process_id, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        if (varve_record_kind(&record) == VARVE_KIND_HEAP_FREE) {
            CHECK(!has_freed, "process %u: the handler's event comes twice", process_id);
            has_freed = true;
        } else if (varve_record_kind(&record) == VARVE_KIND_HEAP_ALLOC) {
            next = next == 0 && record.addr == from + 1 ? from + 1 : next == 0 ? from : next;
            CHECK(record.addr == next, "process %u, forked at %llu: event %llu instead of %llu", process_id,
                  (unsigned long long)from, (unsigned long long)record.addr, (unsigned long long)next);
            next++;
        }
    }
    CHECK(next == total + 1, "process %u, forked at %llu: %llu is missing", process_id, (unsigned long long)from,
          (unsigned long long)next);
    CHECK(has_freed, "process %u: the handler's event is missing", process_id);
    consumer_close(&consumer);
}

static void scenario_handler(struct session *session, void *context)
{
    present = context;
    uint64_t total = present->before + present->stepped + 3;
    step_handle(SIGUSR1, on_signal);
    emit_series(1, present->before);
    current = present->before + 1;
    step_begin();
    while (current <= present->before + present->stepped) {
        emit(VARVE_KIND_HEAP_ALLOC, current, 1);
        current++;
    }
    step_end();
    emit_series(current, total);
    if (is_child) {
        _exit(0);
    }
    CHECK(own_ring() != NULL, "no ring");
    if (present->overflow == SESSION_OVERFLOW_DROP) {
        CHECK(own_ring()->lost > 0, "nothing was lost in a full ring");
        check_conserved(own_ring(), "the parent's");
    } else {
        CHECK(own_ring()->lost == 0, "%llu lost events", (unsigned long long)own_ring()->lost);
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

static void run_handler(struct settings settings)
{
    const struct session_control control = session_settings(settings.overflow, 64);
    struct stepping stepping = {.choose = choose_by_gap, .context = &settings};
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer takes its own locks in a fork");
    }
    struct session session;
    session_begin(&session, &control);
    int wait_status = step_scenario(&session, scenario_handler, &settings, &stepping);
    child_judge(wait_status, settings.name);
    assert_true(verdict->figures[0] >= 10);
    session_end(&session);
}

TEST(test_handler_forks_in_the_ring)
{
    run_handler((struct settings){.name = "ring", .before = 3, .stepped = 1, .gap = 1});
    run_handler((struct settings){.name = "ring, child emits", .before = 3, .stepped = 1, .gap = 1, .emits = true});
}

TEST(test_handler_forks_going_over_to_the_spill)
{
    run_handler((struct settings){.name = "ring full", .before = 62, .stepped = 1, .gap = 7});
    run_handler(
        (struct settings){.name = "ring full, child emits", .before = 62, .stepped = 1, .gap = 7, .emits = true});
}

TEST(test_handler_forks_while_blocking)
{
    run_handler(
        (struct settings){.name = "block", .overflow = SESSION_OVERFLOW_BLOCK, .before = 62, .stepped = 1, .gap = 11});
}

TEST(test_handler_forks_while_dropping)
{
    run_handler((struct settings){
        .name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 63, .stepped = 1, .gap = 11, .emits = true});
}
