/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings while their producers run: threads that emit as fast as they can against a consumer that takes, naps
 * and releases at random, under each policy; and the ends of threads: the ring is retired, what its
 * destructors still emit is late. Made for the thread sanitizer: the consumer looks through the producers'
 * own mappings.
 * Costs: 1 s
 */
#include "support/recorder.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>

#define PRODUCERS 3U
#define LATE_THREADS 8U

struct producer_job {
    pthread_t thread;
    uint64_t count; /* events to emit: 1, 2, … */
    struct ring_header *ring;
    uint32_t is_ready, may_end; /* atomic */
    uint64_t random;
    struct stream stream;
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
        emit_numbered(i, i);
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

static void consume_some(struct stream *stream, uint64_t *random)
{
    ring_reader_refresh(stream->consumer.reader);
    stream_take(stream, random_next(random) % 3000);
    if (random_next(random) % 3 != 0) {
        ring_reader_commit(stream->consumer.reader);
        ring_reader_release(stream->consumer.reader);
    }
}

/* True if its last event was taken, or can't come any more since it was the last one and got lost. */
static bool is_complete(const struct producer_job *job)
{
    uint64_t lost = __atomic_load_n(&job->ring->lost, __ATOMIC_ACQUIRE);
    return job->stream.next - 1 + (lost - job->stream.lost) >= job->count;
}

static void consume_all(struct session *session, struct producer_job *jobs)
{
    uint64_t random = 99;
    unsigned complete = 0;
    for (unsigned i = 0; i < PRODUCERS; i++) {
        wait_for(&jobs[i].is_ready);
        stream_open(&jobs[i].stream, session, 1, jobs[i].ring->ring_index, 1);
        consumer_share(&jobs[i].stream.consumer, jobs[i].ring);
    }
    while (complete < PRODUCERS) {
        complete = 0;
        for (unsigned i = 0; i < PRODUCERS; i++) {
            consume_some(&jobs[i].stream, &random);
            complete += is_complete(&jobs[i]) ? 1 : 0;
        }
        if (random_next(&random) % 8 == 0) {
            nap(200000);
        }
    }
}

static void scenario_concurrent(struct session *session, void *context)
{
    struct producer_job jobs[PRODUCERS] = {0};
    const uint64_t count = IS_TSAN ? 30000 : 150000;
    (void)context;
    for (unsigned i = 0; i < PRODUCERS; i++) {
        jobs[i].count = count;
        jobs[i].random = 17 + i;
        CHECK(pthread_create(&jobs[i].thread, NULL, produce, &jobs[i]) == 0, "no thread");
    }
    consume_all(session, jobs);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        const struct ring_header *ring = jobs[i].stream.consumer.own;
        __atomic_store_n(&jobs[i].may_end, 1, __ATOMIC_RELEASE);
        pthread_join(jobs[i].thread, NULL);
        check_conserved(ring, "at the end");
        CHECK(ring->state == RING_STATE_RETIRED, "ring %u is not retired", ring->ring_index);
        CHECK(ring->head + ring->spill_head + ring->lost >= count + 1, "too few events");
        verdict->figures[0] += ring->spill_head;
        verdict->figures[1] += ring->lost;
        consumer_close(&jobs[i].stream.consumer);
    }
}

TEST(test_consumer_beside_producers)
{
    static const struct {
        const char *name;
        uint32_t overflow;
        uint64_t timeout_ns;
        bool spills, loses;
    } policies[] = {{"spill keeps up", SESSION_OVERFLOW_SPILL, 1000000, true, false},
                    /* it is worth the wait each time */
                    {"block waits for the consumer", SESSION_OVERFLOW_BLOCK, UINT64_C(60000000000), false, false},
                    {"drop reports each gap", SESSION_OVERFLOW_DROP, 1000000, false, true}};
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        struct session_control settings = session_settings(policies[i].overflow, 1024);
        settings.block_timeout_ns = policies[i].timeout_ns;
        run_in_session_of(&settings, scenario_concurrent, NULL, policies[i].name);
        assert_int_equal(verdict->figures[0] > 0, policies[i].spills);
        assert_int_equal(verdict->figures[1] > 0, policies[i].loses);
    }
}

/* ---- ends of threads ---- */

static void *emit_few(void *context)
{
    uint64_t base = (uint64_t)(uintptr_t)context * 100;
    emit_numbered(base, base + 9);
    return NULL;
}

/* One after the other: each has a ring and a number of its own, also where the thread's memory is reused. */
static void scenario_thread_ends(struct session *session, void *context)
{
    (void)context;
    emit(VARVE_KIND_HEAP_ALLOC, 1, 1); /* ring 1 */
    for (uint32_t i = 2; i < 12; i++) {
        run_threads(1, emit_few, i, 0);
        struct stream stream;
        stream_open(&stream, session, 1, i, (uint64_t)i * 100);
        stream_take_all(&stream);
        const struct ring_reader *reader = stream.consumer.reader;
        CHECK(reader->is_retired && !reader->is_in_flight && stream.starts == 1, "ring %u is not retired", i);
        stream_close(&stream, (uint64_t)i * 100 + 9);
    }
    check_conserved(own_ring(), "the first thread's");
    CHECK(own_ring()->state == RING_STATE_OPEN, "the first thread lives");
}

TEST(test_ends_retire_rings)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_thread_ends, NULL, "ends of threads");
}

static void *end_stubbornly(void *context)
{
    emit(VARVE_KIND_HEAP_ALLOC, (uint64_t)(uintptr_t)context, 3);
    late_end();
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
    late_key_make();
    run_threads(LATE_THREADS, end_stubbornly, 1, 1);
    for (uint32_t index = 2; index < 2 + LATE_THREADS; index++) {
        in_time += count_frees(session, index, 0);
    }
    uint64_t late = count_frees(session, 0, VARVE_FLAG_LATE);
    CHECK_EQUAL(late, LATE_THREADS);
    CHECK_EQUAL(in_time, LATE_THREADS * (LATE_ROUNDS - 1));
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
    run_threads(1, emit_few, 1, 0);
    struct consumer consumer;
    CHECK(!consumer_try_open(&consumer, session, 1, 2), "a thread joined a closed session");
    emit_numbered(1, 10000);
    check_conserved(own_ring(), "after the close");
}

TEST(test_closed_session)
{
    for (uint32_t overflow = SESSION_OVERFLOW_SPILL; overflow <= SESSION_OVERFLOW_DROP; overflow++) {
        run_in_session(overflow, 64, scenario_closed, NULL, "closed session");
    }
}
