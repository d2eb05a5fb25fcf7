/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring against a naive model, a list: random steps of emitting, looking, taking and releasing, with rings
 * so small that they overflow all the time, under each policy. Whatever the steps: records come back whole
 * and in their order, none twice, none missing but those that the policy drops, and these are counted and
 * reported where they are missing. After each step the ring's own invariants hold.
 * Costs: 1 s
 */
#include <errno.h>

#include "support/recorder.h"
#include "trace/collector/ring_reader.h"
#include "trace/event_list.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/record.h"

#define STEPS 400

struct expected {
    unsigned kind;
    uint64_t addr, size, arg;
};

struct model {
    struct expected *list; /* all that the consumer shall see, in order */
    size_t count, room;
    size_t taken, taken_released;
    uint64_t ring_head, ring_tail, capacity; /* `drop` only: what is in the ring */
    uint64_t lost_open, lost_open_bytes;
    uint64_t lost, lost_bytes, lost_by_kind[VARVE_KIND_LIMIT];
};

struct run {
    struct session *session;
    struct consumer consumer;
    struct model model;
    uint64_t random;
    uint64_t emitted; /* gives each record an address of its own */
    uint64_t ticks;
    uint32_t overflow;
};

struct settings {
    uint32_t overflow;
    uint32_t capacity;
    uint64_t seed;
    unsigned burst; /* at most so many events in a row, now and then */
};

/* ---- the model ---- */

static void model_store(struct model *model, unsigned kind, uint64_t addr, uint64_t size, uint64_t arg)
{
    if (model->count == model->room) {
        model->room = model->room == 0 ? 1024 : model->room * 2;
        model->list = realloc(model->list, model->room * sizeof(*model->list));
        CHECK(model->list != NULL, "no memory");
    }
    model->list[model->count++] = (struct expected){kind, addr, size, arg};
    model->ring_head++;
}

static void model_emit(struct model *model, bool drops, unsigned kind, uint64_t addr, uint64_t size)
{
    uint64_t used = model->ring_head - model->ring_tail;
    if (drops && model->lost_open > 0 && used < model->capacity) {
        model_store(model, VARVE_KIND_LOST, 0, model->lost_open_bytes, model->lost_open);
        model->lost_open = model->lost_open_bytes = 0;
        used++;
    }
    if (drops && used == model->capacity) {
        model->lost_open++;
        model->lost_open_bytes += size;
        model->lost++;
        model->lost_bytes += size;
        model->lost_by_kind[kind]++;
        return;
    }
    model_store(model, kind, addr, size, 0);
}

/* ---- steps ---- */

static void step_emit(struct run *run, unsigned burst)
{
    static const enum varve_kind kinds[] = {VARVE_KIND_HEAP_ALLOC, VARVE_KIND_HEAP_FREE, VARVE_KIND_MMAP};
    for (unsigned i = 0; i < burst; i++) {
        enum varve_kind kind = kinds[random_next(&run->random) % 3];
        uint64_t size = random_next(&run->random) >> (random_next(&run->random) % 56 + 8);
        run->emitted++;
        emit(kind, run->emitted, size);
        model_emit(&run->model, run->overflow == SESSION_OVERFLOW_DROP, kind, run->emitted, size);
    }
}

static void step_take(struct run *run, uint64_t most)
{
    struct varve_record record;
    while (most-- > 0 && consumer_next(&run->consumer, run->session, &record)) {
        size_t at = run->model.taken++;
        const struct expected *expected = &run->model.list[at];
        CHECK(at < run->model.count, "record %zu was never emitted", at);
        CHECK(varve_record_kind(&record) == expected->kind && record.addr == expected->addr &&
                  record.size == expected->size && record.arg == expected->arg,
              "record %zu: kind %u addr %llu size %llu arg %llu, not %u %llu %llu %llu", at, varve_record_kind(&record),
              (unsigned long long)record.addr, (unsigned long long)record.size, (unsigned long long)record.arg,
              expected->kind, (unsigned long long)expected->addr, (unsigned long long)expected->size,
              (unsigned long long)expected->arg);
        CHECK(varve_record_flags(&record) == 0, "record %zu: flags %u", at, varve_record_flags(&record));
        CHECK(record.ticks >= run->ticks, "record %zu: time goes back by %llu ticks", at,
              (unsigned long long)(run->ticks - record.ticks));
        run->ticks = record.ticks;
    }
}

static void step_release(struct run *run)
{
    ring_reader_release(run->consumer.reader);
    run->model.taken_released = run->model.taken;
    run->model.ring_tail = run->consumer.reader->read;
}

/* The collector dies and another one goes on where the last commit ended. */
static void step_reopen(struct run *run)
{
    consumer_close(&run->consumer);
    consumer_open(&run->consumer, run->session, 1, 1);
    struct ring_reader *reader = run->consumer.reader;
    reader->read = reader->ring->tail;
    reader->spill_read = reader->ring->spill_tail;
    reader->stored = reader->read + reader->spill_read;
    run->model.taken = run->model.taken_released;
    run->ticks = 0;
    ring_reader_refresh(reader);
}

static void check_losses(const struct run *run)
{
    const struct ring_header *ring = run->consumer.reader->ring;
    const struct model *model = &run->model;
    CHECK(ring->lost == model->lost && ring->lost_bytes == model->lost_bytes, "lost %llu (%llu bytes), not %llu (%llu)",
          (unsigned long long)ring->lost, (unsigned long long)ring->lost_bytes, (unsigned long long)model->lost,
          (unsigned long long)model->lost_bytes);
    for (unsigned kind = 0; kind < VARVE_KIND_LIMIT; kind++) {
        CHECK(ring->lost_by_kind[kind] == model->lost_by_kind[kind], "kind %u: lost %llu, not %llu", kind,
              (unsigned long long)ring->lost_by_kind[kind], (unsigned long long)model->lost_by_kind[kind]);
    }
}

static void run_steps(struct run *run, const struct settings *settings)
{
    for (int step = 0; step < STEPS; step++) {
        uint64_t draw = random_next(&run->random);
        switch (draw % 16) {
        case 0:
            step_emit(run, (unsigned)(draw >> 32) % settings->burst);
            break;
        case 1:
        case 2:
            step_emit(run, (unsigned)(draw >> 32) % settings->capacity);
            break;
        case 3:
        case 4:
        case 5:
            step_emit(run, (unsigned)(draw >> 32) % 4);
            break;
        case 6:
        case 7:
        case 8:
            ring_reader_refresh(run->consumer.reader);
            break;
        case 9:
        case 10:
            step_take(run, (draw >> 32) % 40);
            break;
        case 11:
            step_take(run, (draw >> 32) % 6000);
            break;
        case 12: /* memory comes and goes: none, a few blocks, all that is wanted */
            run->session->directory.control->growth_bytes_max = (uint64_t)(draw >> 32) % 3 * 60000 + 1;
            break;
        case 13:
            run->session->directory.control->growth_bytes_max = 0;
            step_release(run);
            break;
        case 14:
            ring_reader_refresh(run->consumer.reader);
            step_take(run, UINT64_MAX);
            step_release(run);
            break;
        case 15:
            if (draw >> 62 == 0) {
                step_reopen(run);
            }
            break;
        default:
            step_release(run);
            break;
        }
        check_conserved(run->consumer.reader->ring, "after a step");
        check_losses(run);
    }
}

static void scenario_model(struct session *session, void *context)
{
    const struct settings *settings = context;
    struct run *run = calloc(1, sizeof(*run));
    CHECK(run != NULL, "no memory");
    run->session = session;
    run->random = settings->seed;
    run->overflow = settings->overflow;
    run->model.capacity = settings->capacity;
    model_store(&run->model, VARVE_KIND_PROCESS_START, 0, 0, 0);
    model_store(&run->model, VARVE_KIND_THREAD_START, 0, 0, 0);
    step_emit(run, 1);
    consumer_open(&run->consumer, session, 1, 1);
    run_steps(run, settings);
    for (int round = 0; round < 100 && run->model.taken < run->model.count; round++) {
        ring_reader_refresh(run->consumer.reader);
        step_take(run, UINT64_MAX);
        step_release(run);
    }
    CHECK(run->model.taken == run->model.count, "%zu of %zu records came", run->model.taken, run->model.count);
    CHECK(run->consumer.reader->unreadable == 0, "unreadable spill");
    verdict->figures[0] = run->consumer.reader->ring->head;
    verdict->figures[1] = run->consumer.reader->ring->spill_head;
    verdict->figures[2] = run->consumer.reader->ring->lost;
    verdict->figures[3] = run->consumer.reader->ring->spill_flushed;
    consumer_close(&run->consumer);
    free(run->model.list);
    free(run);
}

/* `figures` of all runs, added up: a test that never overflowed has tested nothing. */
static void run_model(uint32_t overflow, unsigned burst, uint64_t sums[4])
{
    static const uint32_t capacities[] = {64, 128, 1024, 2048};
    memset(sums, 0, 4 * sizeof(sums[0]));
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (IS_TSAN ? 4 : 12); seed++) {
        struct settings settings = {overflow, capacities[seed % 4], seed * 7919, burst};
        char what[64];
        snprintf(what, sizeof(what), "seed %llu, %u records", (unsigned long long)seed, settings.capacity);
        run_in_session(overflow, settings.capacity, scenario_model, &settings, what);
        for (size_t i = 0; i < 4; i++) {
            sums[i] += verdict->figures[i];
        }
    }
}

TEST(test_spill_loses_nothing)
{
    uint64_t sums[4];
    run_model(SESSION_OVERFLOW_SPILL, 6000, sums);
    assert_true(sums[0] > 2000);  /* through the ring */
    assert_true(sums[1] > 10000); /* through the spill */
    assert_true(sums[3] > 10000); /* of it, through the file */
    assert_int_equal(sums[2], 0);
}

/* Nobody takes while this thread waits, so each full ring costs the time-out and then spills. */
TEST(test_block_loses_nothing)
{
    uint64_t sums[4];
    run_model(SESSION_OVERFLOW_BLOCK, 3000, sums);
    assert_true(sums[0] > 1000);
    assert_true(sums[1] > 5000);
    assert_int_equal(sums[2], 0);
}

TEST(test_drop_counts_and_emits)
{
    uint64_t sums[4];
    run_model(SESSION_OVERFLOW_DROP, 3000, sums);
    assert_true(sums[0] > 1000);
    assert_true(sums[2] > 5000);
    assert_int_equal(sums[1], 0);
}

/* All fields of a record, not only those that the model looks at. */
static void scenario_fields(struct session *session, void *context)
{
    (void)context;
    struct varve_record record, back, started;
    for (unsigned pass = 0; pass < 3000; pass++) { /* through the ring and through the spill */
        memset(&record, (int)(pass * 37 % 255) + 1, sizeof(record));
        record.ticks = 0;
        record.addr = pass;
        record.dev_seq_kind_flags = varve_record_tag(UINT64_C(0xa1b2c3d4e5f6) ^ pass, VARVE_KIND_DEV_ALLOC, 1);
        varve_emit(&record);
    }
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    ring_reader_refresh(consumer.reader);
    CHECK(consumer_next(&consumer, session, &started) && consumer_next(&consumer, session, &started), "start");
    for (unsigned pass = 0; pass < 3000; pass++) {
        memset(&record, (int)(pass * 37 % 255) + 1, sizeof(record));
        record.addr = pass;
        record.dev_seq_kind_flags = varve_record_tag(UINT64_C(0xa1b2c3d4e5f6) ^ pass, VARVE_KIND_DEV_ALLOC, 1);
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
