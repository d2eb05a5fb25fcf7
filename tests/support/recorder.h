/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A recording session around this very program: a recording directory as the collector makes it, the recorder
 * linked in and a ring reader beside it. The recorder looks its session up once per process and keeps it, so
 * each scenario runs in a child of the test; what goes wrong there is handed back as a text and fails the
 * test.
 */
#ifndef VARVE_TESTS_SUPPORT_RECORDER_H
#define VARVE_TESTS_SUPPORT_RECORDER_H

#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include "trace/collector/collector_clock.h"
#include "support/random.h"
#include "trace/collector/collector.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/record.h"
#include "trace/recorder/emit_slow.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/ring.h"
#include "trace/recorder/session.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/emit.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define IS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define IS_TSAN 1
#endif
#endif
#ifndef IS_TSAN
#define IS_TSAN 0
#endif
#ifdef __SANITIZE_ADDRESS__
#define IS_ASAN 1
#else
#define IS_ASAN 0
#endif

struct session {
    char folder[64];
    struct session_directory directory;
    struct varve_message message;
};

/* Shared with the children of the test. */
struct verdict {
    char reason[1024];
    uint64_t figures[8]; /* whatever a scenario wants to hand back */
};

static struct verdict *verdict;

static inline void verdict_open(void)
{
    if (verdict == NULL) {
        verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(verdict != MAP_FAILED);
    }
    memset(verdict, 0, sizeof(*verdict));
}

/* In a child, and in threads of it: cmocka's assertions would leave by longjmp. The first reason counts. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            if (verdict->reason[0] == '\0') {                                                                          \
                int check_at =                                                                                         \
                    snprintf(verdict->reason, sizeof(verdict->reason), "%s:%d: %s: ", __func__, __LINE__, #condition); \
                snprintf(verdict->reason + check_at, sizeof(verdict->reason) - (size_t)check_at, __VA_ARGS__);         \
            }                                                                                                          \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)

/* Of two numbers. */
#define CHECK_EQUAL(is, should_be)                                                             \
    CHECK((uint64_t)(is) == (uint64_t)(should_be), "%llu, not %llu", (unsigned long long)(is), \
          (unsigned long long)(should_be))

/* How often this thread has left its CPU of its own accord: as often as it has napped, and for a file now and
 * then. A wait for room in a ring is thousands of naps. */
#define SUPPORT_NAPS_MAX 50U
static inline uint64_t support_naps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nvcsw;
}

/* The heart beats for an hour to come: nobody plays the collector's housekeeping here. */
static inline struct session_control session_settings(uint32_t overflow, uint32_t capacity)
{
    struct session_control settings;
    memset(&settings, 0, sizeof(settings));
    settings.overflow = overflow;
    settings.ring_capacity = capacity;
    settings.clock_kind = collect_clock_choose();
    settings.records = VARVE_RECORDS_HEAP;
    settings.block_timeout_ns = 1000000;
    settings.trace_id = monotonic_ns() ^ ((uint64_t)getpid() << 40);
    settings.heartbeat_ns = monotonic_ns() + UINT64_C(3600000000000);
    return settings;
}

static inline void session_begin(struct session *session, const struct session_control *settings)
{
    const char *base = getenv("TMPDIR");
    memset(session, 0, sizeof(*session));
    snprintf(session->folder, sizeof(session->folder), "%.40s/varve-unit-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(session->folder));
    char database[96];
    snprintf(database, sizeof(database), "%s/trace.db", session->folder);
    if (session_directory_create(&session->directory, database, settings, &session->message) != VARVE_OK) {
        fail_msg("%s", session->message.text);
    }
}

static inline void session_end(struct session *session)
{
    session_directory_remove(&session->directory);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", session->folder);
    assert_int_equal(system(command), 0);
}

/* Fails the test with the reason that the child left, or with how it ended. */
static inline void child_judge(int wait_status, const char *what)
{
    if (verdict->reason[0] != '\0') {
        fail_msg("%s: %s", what, verdict->reason);
    }
    if (WIFSIGNALED(wait_status)) {
        fail_msg("%s: killed by signal %d", what, WTERMSIG(wait_status));
    }
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0) {
        fail_msg("%s: exit status %d", what, WEXITSTATUS(wait_status));
    }
}

/* In the child: from here on this process records into the session. A crash kills it, unlike the test. */
static inline void recorder_begin(const struct session *session)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
        signal(crashes[i], SIG_DFL);
    }
    setenv(SESSION_ENVIRONMENT, session->directory.path, 1);
    CHECK(recorder_prepare(), "the recorder found no session in %.200s", session->directory.path);
}

typedef void (*scenario)(struct session *session, void *context);

static inline void run_scenario(struct session *session, scenario run, void *context, const char *what)
{
    int wait_status = 0;
    verdict_open();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        recorder_begin(session);
        run(session, context);
        exit(0);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    child_judge(wait_status, what);
}

/* A scenario in a session of its own. */
static inline void run_in_session_of(const struct session_control *settings, scenario run, void *context,
                                     const char *what)
{
    struct session session;
    session_begin(&session, settings);
    run_scenario(&session, run, context, what);
    session_end(&session);
}

static inline void run_in_session(uint32_t overflow, uint32_t capacity, scenario run, void *context, const char *what)
{
    const struct session_control settings = session_settings(overflow, capacity);
    run_in_session_of(&settings, run, context, what);
}

/* ---- records ---- */

static inline struct varve_record record_make(enum varve_kind kind, uint64_t addr, uint64_t size)
{
    struct varve_record record;
    memset(&record, 0, sizeof(record));
    record.addr = addr;
    record.size = size;
    record.dev_seq_kind_flags = varve_record_tag(0, kind, 0);
    return record;
}

static inline void emit(enum varve_kind kind, uint64_t addr, uint64_t size)
{
    const struct varve_record record = record_make(kind, addr, size);
    varve_emit(&record);
}

/* ---- threads and children of a scenario ---- */

/* So many threads, to their ends; each gets a number, `first` and so on by `stride`. */
static inline void run_threads(unsigned count, void *(*main)(void *), uintptr_t first, uintptr_t stride)
{
    pthread_t threads[16];
    for (unsigned i = 0; i < count; i++) {
        CHECK(pthread_create(&threads[i], NULL, main, (void *)(first + i * stride)) == 0, "no thread");
    }
    for (unsigned i = 0; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0, "no join");
    }
}

/* Destructors of thread-specific data that free memory until the very last round, after the ring was retired; the value
 * counts down. The thread sanitizer leaves a thread at the beginning of that round. */
#define LATE_ROUNDS ((uintptr_t)(PTHREAD_DESTRUCTOR_ITERATIONS - IS_TSAN))

static pthread_key_t late_key;

static inline void late_destruct(void *value)
{
    uintptr_t left = (uintptr_t)value;
    emit(VARVE_KIND_HEAP_FREE, left, 3);
    pthread_setspecific(late_key, (void *)(left - 1)); /* NULL: not called any more */
}

/* Its turn comes after the recorder's own, which is there after the first event. */
static inline void late_key_make(void)
{
    CHECK(pthread_key_create(&late_key, late_destruct) == 0, "no key");
}

static inline void late_end(void)
{
    pthread_setspecific(late_key, (void *)LATE_ROUNDS);
}

static inline pid_t bare_fork(void)
{
    return (pid_t)syscall(SYS_fork);
}

static inline void child_await(pid_t child, const char *what)
{
    int wait_status = 0;
    CHECK(child > 0 && waitpid(child, &wait_status, 0) == child, "%s: no child", what);
    CHECK(verdict->reason[0] == '\0', "%s", what);
    CHECK(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0, "%s: wait status %#x", what, (unsigned)wait_status);
}

/* ---- the consumer's side ---- */

struct consumer {
    struct traced_process process;
    struct ring_reader *reader;
    struct ring_header *own; /* the reader's own mapping, while it looks through the producer's */
};

static inline bool consumer_try_open(struct consumer *consumer, const struct session *session, uint32_t process_id,
                                     uint32_t index)
{
    memset(consumer, 0, sizeof(*consumer));
    consumer->process.id = process_id;
    return ring_reader_open(&consumer->reader, &session->directory, &consumer->process, index) == VARVE_OK;
}

static inline void consumer_open(struct consumer *consumer, const struct session *session, uint32_t process_id,
                                 uint32_t index)
{
    CHECK(consumer_try_open(consumer, session, process_id, index), "no ring p%u.r%u", process_id, index);
}

/* Look through the mapping of the producer, a thread of this process: only so the thread sanitizer sees that
 * the two sides share memory. */
static inline void consumer_share(struct consumer *consumer, struct ring_header *ring)
{
    consumer->own = consumer->reader->ring;
    consumer->reader->ring = ring;
}

static inline void consumer_close(struct consumer *consumer)
{
    if (consumer->own != NULL) {
        consumer->reader->ring = consumer->own;
    }
    ring_reader_close(consumer->reader);
}

/* The next record, copied, or false. */
static inline bool consumer_next(struct consumer *consumer, const struct session *session, struct varve_record *record)
{
    const struct varve_record *next = ring_reader_peek(consumer->reader, &session->directory);
    if (next == NULL) {
        return false;
    }
    *record = *next;
    ring_reader_pop(consumer->reader);
    return true;
}

/* The ring of the calling thread. */
static inline struct ring_header *own_ring(void)
{
    /* the idle producer, which threads begin with, is no recorder_thread */
    return varve_producer_current->records != NULL ? ((struct recorder_thread *)varve_producer_current)->ring : NULL;
}

/* The equation that every ring keeps while its producer is at rest. */
static inline void check_conserved(const struct ring_header *ring, const char *when)
{
    struct varve_message message = {""};
    CHECK(ring_check(ring, true, &message) == VARVE_OK, "%s: %s", when, message.text);
    CHECK(ring->emitted == ring->head + ring->spill_head + ring->lost,
          "%s: emitted %llu, ring %llu, spill %llu, lost %llu", when, (unsigned long long)ring->emitted,
          (unsigned long long)ring->head, (unsigned long long)ring->spill_head, (unsigned long long)ring->lost);
    CHECK(ring->nested_count == 0, "%s: %u nested records wait", when, ring->nested_count);
}

/* ---- numbered events: kind and size follow from the number, so that a gap's losses are known ---- */

static inline struct varve_record numbered(uint64_t number)
{
    static const enum varve_kind kinds[] = {VARVE_KIND_HEAP_ALLOC, VARVE_KIND_HEAP_FREE, VARVE_KIND_MMAP};
    uint64_t seed = number, size = random_next(&seed);
    struct varve_record record = record_make(kinds[size % 3], number, size >> (8 + size / 3 % 56));
    return record;
}

static inline void emit_numbered(uint64_t first, uint64_t last)
{
    for (uint64_t number = first; number <= last; number++) {
        const struct varve_record record = numbered(number);
        varve_emit(&record);
    }
}

/* What comes out of a ring into which a thread emits numbered events. */
struct stream {
    struct consumer consumer;
    const struct session *session;
    uint64_t next;           /* number of the next event */
    uint64_t parent, starts; /* by `process_start`; records of either kind */
    uint64_t ticks;
    uint64_t lost, lost_bytes, lost_by_kind[VARVE_KIND_LIMIT]; /* by the `lost` records */
};

static inline void stream_open(struct stream *stream, const struct session *session, uint32_t process_id,
                               uint32_t index, uint64_t first)
{
    memset(stream, 0, sizeof(*stream));
    stream->session = session;
    stream->next = first;
    consumer_open(&stream->consumer, session, process_id, index);
}

/* A gap must be reported by the record in front of what comes after it: how many, and how many bytes. */
static inline void stream_see_lost(struct stream *stream, const struct varve_record *record)
{
    uint64_t bytes = 0;
    CHECK(record->arg > 0 && record->addr == 0, "a loss of nothing at %llu", (unsigned long long)stream->next);
    for (uint64_t end = stream->next + record->arg; stream->next < end; stream->next++) {
        const struct varve_record gone = numbered(stream->next);
        stream->lost_by_kind[varve_record_kind(&gone)]++;
        bytes += gone.size;
    }
    CHECK(record->size == bytes, "%llu bytes lost before %llu, not %llu", (unsigned long long)record->size,
          (unsigned long long)stream->next, (unsigned long long)bytes);
    stream->lost += record->arg;
    stream->lost_bytes += bytes;
}

static inline void stream_see(struct stream *stream, const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);
    CHECK(record->ticks >= stream->ticks, "time goes back at %llu", (unsigned long long)stream->next);
    CHECK(varve_record_flags(record) == 0, "flags %u", varve_record_flags(record));
    stream->ticks = record->ticks;
    if (kind == VARVE_KIND_LOST) {
        stream_see_lost(stream, record);
    } else if (kind == VARVE_KIND_PROCESS_START || kind == VARVE_KIND_THREAD_START) {
        CHECK(stream->starts < 2, "a third start at %llu", (unsigned long long)stream->next);
        stream->parent = kind == VARVE_KIND_PROCESS_START ? record->arg : stream->parent;
        stream->starts++;
    } else {
        const struct varve_record expected = numbered(stream->next);
        CHECK(kind == varve_record_kind(&expected) && record->addr == expected.addr && record->size == expected.size &&
                  record->arg == 0,
              "kind %u addr %llu size %llu arg %llu instead of event %llu", kind, (unsigned long long)record->addr,
              (unsigned long long)record->size, (unsigned long long)record->arg, (unsigned long long)stream->next);
        stream->next++;
    }
}

/* So many records at most of those that were seen when the reader was last refreshed. */
static inline void stream_take(struct stream *stream, uint64_t most)
{
    struct varve_record record;
    while (most-- > 0 && consumer_next(&stream->consumer, stream->session, &record)) {
        stream_see(stream, &record);
    }
}

/* All that is there, with its room given back. */
static inline void stream_take_all(struct stream *stream)
{
    ring_reader_refresh(stream->consumer.reader);
    stream_take(stream, UINT64_MAX);
    ring_reader_commit(stream->consumer.reader);
    ring_reader_release(stream->consumer.reader);
}

/* Another collector goes on where the one before has released, `at`. */
static inline void stream_take_over(struct stream *stream, const struct stream *at)
{
    uint32_t process_id = stream->consumer.process.id, index = stream->consumer.reader->ring->ring_index;
    consumer_close(&stream->consumer);
    *stream = *at;
    consumer_open(&stream->consumer, stream->session, process_id, index);
    struct ring_reader *reader = stream->consumer.reader;
    reader->read = reader->ring->tail;
    reader->spill_read = reader->ring->spill_tail;
    reader->stored = reader->read + reader->spill_read;
    ring_reader_refresh(reader);
}

/* Everything up to `last` came or was reported as lost, and the ring's own figures of what was lost are the same. */
static inline void stream_close(struct stream *stream, uint64_t last)
{
    const struct ring_header *ring = stream->consumer.reader->ring;
    check_conserved(ring, "at the end");
    CHECK(stream->next == last + 1, "%llu instead of %llu is next", (unsigned long long)stream->next,
          (unsigned long long)last + 1);
    CHECK(ring->lost == stream->lost && ring->lost_bytes == stream->lost_bytes, "lost %llu (%llu bytes), reported %llu",
          (unsigned long long)ring->lost, (unsigned long long)ring->lost_bytes, (unsigned long long)stream->lost);
    CHECK(memcmp(ring->lost_by_kind, stream->lost_by_kind, sizeof(stream->lost_by_kind)) == 0, "lost by kind");
    CHECK(stream->consumer.reader->unreadable == 0, "unreadable records");
    consumer_close(&stream->consumer);
}

#endif
