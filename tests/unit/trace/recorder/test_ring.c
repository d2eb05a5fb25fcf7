/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring under random steps of emitting, looking, taking and releasing, so small that it overflows all the time, under
 * each policy. Whatever the steps: records come back whole and in their order, none twice, none missing but those that
 * the policy drops from a full ring, and these are counted and reported where they are missing. After each step the
 * ring's own invariants hold.
 * Costs: 1 s
 */
#include <errno.h>

#include "support/recorder.h"

#define STEPS 400

struct run {
    struct session *session;
    struct stream stream, released; /* as it was at the last release */
    uint64_t random, emitted;
    uint32_t overflow, capacity;
    unsigned burst; /* at most so many events in a row, now and then */
};

/* ---- steps ---- */

static void step_emit(struct run *run, uint64_t burst)
{
    const struct ring_header *ring = own_ring();
    for (uint64_t end = run->emitted + burst; run->emitted < end;) {
        uint64_t lost = ring != NULL ? ring->lost : 0;
        run->emitted++;
        emit_numbered(run->emitted, run->emitted);
        ring = own_ring();
        CHECK(ring->lost == lost ||
                  (run->overflow == SESSION_OVERFLOW_DROP && ring->head - ring->tail == run->capacity),
              "event %llu is dropped, though there is room", (unsigned long long)run->emitted);
    }
}

static void step_release(struct run *run)
{
    ring_reader_commit(run->stream.consumer.reader);
    ring_reader_release(run->stream.consumer.reader);
    run->released = run->stream;
}

static void step(struct run *run, uint64_t draw)
{
    uint64_t *growth = &run->session->directory.control->growth_bytes_max;
    uint64_t amount = draw >> 32;
    switch (draw % 16) {
    case 0:
        step_emit(run, amount % run->burst);
        break;
    case 1:
    case 2:
        step_emit(run, amount % run->capacity);
        break;
    case 3:
    case 4:
    case 5:
        step_emit(run, amount % 4);
        break;
    case 6:
    case 7:
    case 8:
        ring_reader_refresh(run->stream.consumer.reader);
        break;
    case 9:
    case 10:
        stream_take(&run->stream, amount % 40);
        break;
    case 11:
        stream_take(&run->stream, amount % 6000);
        break;
    case 12: /* memory comes and goes: none, a few blocks, all that is wanted */
        *growth = amount % 3 * 60000 + 1;
        break;
    case 13:
        *growth = 0;
        step_release(run);
        break;
    case 14:
        stream_take_all(&run->stream);
        run->released = run->stream;
        break;
    default: /* the collector dies and another one goes on where the last commit ended */
        if (draw >> 62 == 0) {
            stream_take_over(&run->stream, &run->released);
        }
        break;
    }
}

static void scenario_random(struct session *session, void *context)
{
    struct run *run = context;
    run->session = session;
    step_emit(run, 1);
    stream_open(&run->stream, session, 1, 1, 1);
    run->released = run->stream;
    const struct ring_header *ring = run->stream.consumer.reader->ring;
    for (int i = 0; i < STEPS; i++) {
        step(run, random_next(&run->random));
        ring = run->stream.consumer.reader->ring;
        check_conserved(ring, "after a step");
        CHECK(ring->lost >= run->stream.lost, "more is reported than lost");
    }
    stream_take_all(&run->stream);
    step_emit(run, 1); /* what was dropped at the end is reported by now */
    stream_take_all(&run->stream);
    verdict->figures[0] = ring->head;
    verdict->figures[1] = ring->spill_head;
    verdict->figures[2] = ring->lost;
    verdict->figures[3] = ring->spill_flushed;
    stream_close(&run->stream, run->emitted);
}

TEST(test_random_steps)
{
    /* What has to be seen under each policy, in all runs together: a test that never overflowed has tested nothing. */
    static const struct {
        uint32_t overflow;
        unsigned burst;
        uint64_t through_ring, through_spill, lost, through_file; /* more than so many; 0: none, but for the file */
    } policies[] = {
        {SESSION_OVERFLOW_SPILL, 6000, 2000, 10000, 0, 10000},
        /* nobody takes while this thread waits, so each full ring costs the time-out and then spills */
        {SESSION_OVERFLOW_BLOCK, 3000, 1000, 5000, 0, 0},
        {SESSION_OVERFLOW_DROP, 3000, 1000, 0, 5000, 0},
    };
    static const uint32_t capacities[] = {64, 128, 1024, 2048};
    uint64_t first = test_first_seed(1);
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        uint64_t sums[4] = {0};
        for (uint64_t seed = first; seed < first + (IS_TSAN ? 4 : 12); seed++) {
            struct run run = {.overflow = policies[i].overflow,
                              .capacity = capacities[seed % 4],
                              .random = seed * 7919,
                              .burst = policies[i].burst};
            char what[96];
            snprintf(what, sizeof(what), "overflow %u, seed %llu, %u records", run.overflow, (unsigned long long)seed,
                     run.capacity);
            run_in_session(run.overflow, run.capacity, scenario_random, &run, what);
            for (size_t j = 0; j < 4; j++) {
                sums[j] += verdict->figures[j];
            }
        }
        assert_true(sums[0] > policies[i].through_ring && sums[3] >= policies[i].through_file);
        assert_true(policies[i].through_spill > 0 ? sums[1] > policies[i].through_spill : sums[1] == 0);
        assert_true(policies[i].lost > 0 ? sums[2] > policies[i].lost : sums[2] == 0);
    }
}

static struct varve_record with_all_fields(unsigned pass)
{
    struct varve_record record;
    memset(&record, (int)(pass * 37 % 255) + 1, sizeof(record));
    record.ticks = 0;
    record.addr = pass;
    record.dev_seq_kind_flags = varve_record_tag(UINT64_C(0xa1b2c3d4e5f6) ^ pass, VARVE_KIND_DEV_ALLOC, 1);
    return record;
}

/* All fields of a record, not only those that numbered events have. */
static void scenario_fields(struct session *session, void *context)
{
    (void)context;
    for (unsigned pass = 0; pass < 3000; pass++) { /* through the ring and through the spill */
        const struct varve_record record = with_all_fields(pass);
        varve_emit(&record);
    }
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    struct varve_record back, started;
    CHECK(consumer_next(&consumer, session, &started) && consumer_next(&consumer, session, &started), "start");
    for (unsigned pass = 0; pass < 3000; pass++) {
        struct varve_record record = with_all_fields(pass);
        CHECK(consumer_next(&consumer, session, &back), "record %u is missing", pass);
        CHECK(back.ticks > 0, "record %u has no time", pass);
        record.ticks = back.ticks;
        CHECK(memcmp(&record, &back, sizeof(record)) == 0, "record %u differs", pass);
    }
    CHECK(ring_reader_peek(consumer.reader, &session->directory) == NULL, "one record too many");
    consumer_close(&consumer);
}

TEST(test_every_field_comes_back)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 64, scenario_fields, NULL, "fields");
}

/* The header's constant part: what a collector and a reader of crashed runs rest on. */
static void scenario_header(struct session *session, void *context)
{
    (void)context;
    emit(VARVE_KIND_HEAP_ALLOC, 1, 1);
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    const struct ring_header *ring = consumer.reader->ring;
    CHECK(ring->magic == RING_MAGIC && ring->version == VARVE_TRANSPORT_VERSION, "magic or version");
    CHECK(ring->process_id == 1 && ring->ring_index == 1, "p%u.r%u", ring->process_id, ring->ring_index);
    CHECK(ring->tid == (uint32_t)getpid(), "tid %u", ring->tid);
    CHECK(ring->capacity == 256 && ring->staging_capacity == RING_STAGING_RECORDS, "capacity %u", ring->capacity);
    CHECK(ring->state == RING_STATE_OPEN, "state %u", ring->state);
    CHECK(ring->created_ticks > 0, "no time of creation");
    CHECK(strstr(ring->thread_name, program_invocation_short_name) != NULL, "thread name %.16s", ring->thread_name);
    CHECK(session->directory.counts->process_count == 1, "%u processes", session->directory.counts->process_count);
    consumer_close(&consumer);
}

TEST(test_header_says_whose_it_is)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 256, scenario_header, NULL, "header");
}
