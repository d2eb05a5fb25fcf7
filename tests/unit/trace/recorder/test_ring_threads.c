/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings while their producers run: threads that emit as fast as they can against a consumer that takes, naps
 * and releases at random, under each policy; and the ends of threads: the ring is retired, what its
 * destructors still emit is late. Made for the thread sanitizer: the consumer looks through the producers'
 * own mappings.
 * Costs: 1 s
 */
#include "support/recorder.h"
#include "trace/collector/ring_reader.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/record.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

#define PRODUCERS 3U
#define LATE_THREADS 8U

struct producer_job {
    pthread_t thread;
    uint64_t count; /* events to emit: addresses 1, 2, … */
    struct ring_header *ring;
    uint32_t is_ready, may_end; /* atomic */
    uint64_t random;
};

struct stream {
    struct consumer consumer;
    uint64_t next; /* address of the next record */
    uint64_t lost;
    uint64_t ticks;
    bool has_started;
};

struct concurrent {
    uint32_t overflow;
    uint64_t count;
};

static void wait_for(const uint32_t *flag)
{
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) {
        sched_yield();
    }
}

static void nap(long ns)
{
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

/* Bursts with short pauses, so that rings are full and empty in turns. The thread stays: the consumer looks
 * through its mapping. */
static void *produce(void *context)
{
    struct producer_job *job = context;
    for (uint64_t i = 1; i <= job->count; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, i, i);
        if (i == 1) {
            job->ring = own_ring();
            __atomic_store_n(&job->is_ready, 1, __ATOMIC_RELEASE);
        }
        if (random_next(&job->random) % 4000 == 0) {
            nap(300000);
        }
    }
    wait_for(&job->may_end);
    return NULL;
}

/* A gap must be reported by the record in front of it: how many, and how many bytes. */
static void take_lost(struct stream *stream, const struct varve_record *record)
{
    uint64_t first = stream->next;
    uint64_t end = first + record->arg;
    CHECK(record->arg > 0, "a loss of nothing at %llu", (unsigned long long)first);
    CHECK(record->size == (first + end - 1) * record->arg / 2, "bytes lost from %llu on: %llu",
          (unsigned long long)first, (unsigned long long)record->size);
    stream->next = end;
    stream->lost += record->arg;
}

static void take_one(struct stream *stream, const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);
    CHECK(record->ticks >= stream->ticks, "time goes back at %llu", (unsigned long long)stream->next);
    stream->ticks = record->ticks;
    if (!stream->has_started) {
        stream->has_started = kind == VARVE_KIND_THREAD_START;
        CHECK(kind == VARVE_KIND_THREAD_START || kind == VARVE_KIND_PROCESS_START, "kind %u first", kind);
    } else if (kind == VARVE_KIND_LOST) {
        take_lost(stream, record);
    } else {
        CHECK(kind == VARVE_KIND_HEAP_ALLOC && record->addr == stream->next && record->size == stream->next,
              "kind %u addr %llu size %llu instead of %llu", kind, (unsigned long long)record->addr,
              (unsigned long long)record->size, (unsigned long long)stream->next);
        stream->next++;
    }
}

static void consume_some(struct session *session, struct stream *stream, uint64_t *random)
{
    uint64_t most = random_next(random) % 3000;
    ring_reader_refresh(stream->consumer.reader);
    struct varve_record record;
    while (most-- > 0 && consumer_next(&stream->consumer, session, &record)) {
        take_one(stream, &record);
    }
    if (random_next(random) % 3 != 0) {
        ring_reader_release(stream->consumer.reader);
    }
}

/* True if its last event was taken, or can't come any more since it was the last one and got lost. */
static bool is_complete(const struct stream *stream, const struct producer_job *job)
{
    uint64_t lost = __atomic_load_n(&job->ring->lost, __ATOMIC_ACQUIRE);
    return stream->next - 1 + (lost - stream->lost) >= job->count;
}

static void consume_all(struct session *session, struct producer_job *jobs, struct stream *streams)
{
    uint64_t random = 99;
    unsigned complete = 0;
    for (unsigned i = 0; i < PRODUCERS; i++) {
        wait_for(&jobs[i].is_ready);
        consumer_open(&streams[i].consumer, session, 1, jobs[i].ring->ring_index);
        consumer_share(&streams[i].consumer, jobs[i].ring);
    }
    while (complete < PRODUCERS) {
        complete = 0;
        for (unsigned i = 0; i < PRODUCERS; i++) {
            consume_some(session, &streams[i], &random);
            complete += is_complete(&streams[i], &jobs[i]) ? 1 : 0;
        }
        if (random_next(&random) % 8 == 0) {
            nap(200000);
        }
    }
}

static void scenario_concurrent(struct session *session, void *context)
{
    const struct concurrent *concurrent = context;
    struct producer_job jobs[PRODUCERS] = {0};
    struct stream streams[PRODUCERS] = {0};
    for (unsigned i = 0; i < PRODUCERS; i++) {
        jobs[i].count = concurrent->count;
        jobs[i].random = 17 + i;
        streams[i].next = 1;
        CHECK(pthread_create(&jobs[i].thread, NULL, produce, &jobs[i]) == 0, "no thread");
    }
    consume_all(session, jobs, streams);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        const struct ring_header *ring = streams[i].consumer.own;
        __atomic_store_n(&jobs[i].may_end, 1, __ATOMIC_RELEASE);
        pthread_join(jobs[i].thread, NULL);
        check_conserved(ring, "at the end");
        CHECK(ring->state == RING_STATE_RETIRED, "ring %u is not retired", ring->ring_index);
        CHECK(ring->head + ring->spill_head + ring->lost >= concurrent->count + 1, "too few events");
        verdict->figures[0] += ring->head;
        verdict->figures[1] += ring->spill_head;
        verdict->figures[2] += ring->lost;
        consumer_close(&streams[i].consumer);
    }
}

static void run_concurrent(uint32_t overflow)
{
    struct concurrent concurrent = {overflow, IS_TSAN ? 30000 : 150000};
    struct session_control settings = session_settings(overflow, 1024);
    settings.block_timeout_ns = overflow == SESSION_OVERFLOW_BLOCK ? UINT64_C(60000000000) : 1000000;
    struct session session;
    session_begin(&session, &settings);
    run_scenario(&session, scenario_concurrent, &concurrent, "three producers, one consumer");
    session_end(&session);
}

TEST(test_spill_keeps_up)
{
    run_concurrent(SESSION_OVERFLOW_SPILL);
    assert_true(verdict->figures[1] > 0);
    assert_int_equal(verdict->figures[2], 0);
}

TEST(test_block_waits_for_the_consumer)
{
    run_concurrent(SESSION_OVERFLOW_BLOCK);
    assert_int_equal(verdict->figures[1], 0); /* it was worth the wait each time */
    assert_int_equal(verdict->figures[2], 0);
}

TEST(test_drop_emits_each_gap)
{
    run_concurrent(SESSION_OVERFLOW_DROP);
    assert_true(verdict->figures[2] > 0);
    assert_int_equal(verdict->figures[1], 0);
}

/* ---- ends of threads ---- */

static void *emit_few(void *context)
{
    uint64_t base = (uint64_t)(uintptr_t)context;
    for (uint64_t i = 0; i < 10; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, base * 100 + i, 1);
    }
    return NULL;
}

/* One after the other: each has a ring and a number of its own, also where the thread's memory is reused. */
static void scenario_thread_ends(struct session *session, void *context)
{
    (void)context;
    emit(VARVE_KIND_HEAP_ALLOC, 1, 1); /* ring 1 */
    for (uint32_t i = 2; i < 12; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, emit_few, (void *)(uintptr_t)i) == 0, "no thread");
        pthread_join(thread, NULL);
        struct consumer consumer;
        consumer_open(&consumer, session, 1, i);
        check_conserved(consumer.reader->ring, "after the thread's end");
        ring_reader_refresh(consumer.reader);
        CHECK(consumer.reader->is_retired && !consumer.reader->is_in_flight, "ring %u is not retired", i);
        struct varve_record record;
        CHECK(consumer_next(&consumer, session, &record), "ring %u is empty", i);
        CHECK(varve_record_kind(&record) == VARVE_KIND_THREAD_START, "kind %u", varve_record_kind(&record));
        for (uint64_t at = 0; at < 10; at++) {
            CHECK(consumer_next(&consumer, session, &record) && record.addr == i * 100 + at, "ring %u record %llu", i,
                  (unsigned long long)at);
        }
        CHECK(!consumer_next(&consumer, session, &record), "ring %u holds too much", i);
        consumer_close(&consumer);
    }
    check_conserved(own_ring(), "the first thread's");
    CHECK(own_ring()->state == RING_STATE_OPEN, "the first thread lives");
}

TEST(test_ends_retire_rings)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_thread_ends, NULL, "ends of threads");
}

/* Destructors of thread-specific data that free memory until the very last round; the value counts down. The
 * thread sanitizer leaves a thread at the beginning of that round. */
#define ROUNDS ((uintptr_t)(PTHREAD_DESTRUCTOR_ITERATIONS - IS_TSAN))

static pthread_key_t stubborn_key;

static void stubborn(void *value)
{
    uintptr_t left = (uintptr_t)value;
    emit(VARVE_KIND_HEAP_FREE, left, 3);
    pthread_setspecific(stubborn_key, (void *)(left - 1)); /* NULL: not called any more */
}

static void *end_stubbornly(void *context)
{
    emit(VARVE_KIND_HEAP_ALLOC, (uint64_t)(uintptr_t)context, 3);
    pthread_setspecific(stubborn_key, (void *)ROUNDS);
    return NULL;
}

static uint64_t count_frees(struct session *session, uint32_t index, unsigned flags)
{
    struct consumer consumer;
    uint64_t ticks = 0, count = 0;
    consumer_open(&consumer, session, 1, index);
    check_conserved(consumer.reader->ring, "late");
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        CHECK(record.ticks >= ticks, "time goes back in ring %u", index);
        ticks = record.ticks;
        if (varve_record_kind(&record) == VARVE_KIND_HEAP_FREE) {
            CHECK(varve_record_flags(&record) == flags, "ring %u: flags %u", index, varve_record_flags(&record));
            count++;
        }
    }
    consumer_close(&consumer);
    return count;
}

static void scenario_late(struct session *session, void *context)
{
    uint64_t in_time = 0;
    (void)context;
    emit(VARVE_KIND_HEAP_ALLOC, 1, 1);
    CHECK(pthread_key_create(&stubborn_key, stubborn) == 0, "no key"); /* its turn comes after the recorder's */
    pthread_t threads[LATE_THREADS];
    for (uintptr_t i = 0; i < LATE_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, end_stubbornly, (void *)(i + 1)) == 0, "no thread");
    }
    for (unsigned i = 0; i < LATE_THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint32_t index = 2; index < 2 + LATE_THREADS; index++) {
        in_time += count_frees(session, index, 0);
    }
    uint64_t late = count_frees(session, 0, VARVE_FLAG_LATE);
    CHECK(late == LATE_THREADS, "%llu late events of %u threads", (unsigned long long)late, LATE_THREADS);
    CHECK(in_time == LATE_THREADS * (ROUNDS - 1), "%llu events in time", (unsigned long long)in_time);
    CHECK(recorder_process_current()->control->late_created == 1, "nobody knows of ring 0");
    CHECK(recorder_process_current()->control->ring_count == 2 + LATE_THREADS, "late events took ring numbers");
    CHECK(recorder_process_current()->control->unattached == 0, "unattached events");
}

TEST(test_late_events_have_their_ring)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_late, NULL, "late events");
}

/* A recording that is being closed takes no new threads on; those that are in it go on harmlessly. */
static void scenario_closed(struct session *session, void *context)
{
    (void)context;
    emit(VARVE_KIND_HEAP_ALLOC, 1, 1);
    __atomic_store_n(&session->directory.control->state, SESSION_STATE_CLOSED, __ATOMIC_RELEASE);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, emit_few, (void *)(uintptr_t)1) == 0, "no thread");
    pthread_join(thread, NULL);
    struct consumer consumer;
    CHECK(!consumer_try_open(&consumer, session, 1, 2), "a thread joined a closed session");
    for (uint64_t i = 0; i < 10000; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, i, 1);
    }
    check_conserved(own_ring(), "after the close");
}

TEST(test_closed_session)
{
    for (uint32_t overflow = SESSION_OVERFLOW_SPILL; overflow <= SESSION_OVERFLOW_DROP; overflow++) {
        run_in_session(overflow, 64, scenario_closed, NULL, "closed session");
    }
}
