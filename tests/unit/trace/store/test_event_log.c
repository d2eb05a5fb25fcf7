/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of events: what was flushed comes back, whatever its threads, numbers and members are; what was not is gone;
 * of a damaged file a part, and no more.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "base/error.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/store/event_log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS 30000U
#define LOG "log-events"

struct made {
    struct event events[EVENTS];
    bool is_plain[EVENTS];
    uint64_t count;  /* of these, in the log */
    uint64_t next;   /* that is expected */
    uint64_t refuse; /* calls until `take_rest` refuses once; 0: never */
};

/* Runs of few threads, of which one has other pids now and then, and gaps in the numbers of rings. */
static void event_make(struct made *made, uint64_t i, uint64_t *random, uint64_t threads)
{
    struct event *event = &made->events[i];
    const uint64_t thread =
        random_below(random, 3) != 0 && i > 0 ? made->events[i - 1].thread_id : 1 + random_below(random, threads);
    *event = (struct event){
        .seq = i + 1,
        .ts_ns = (int64_t)(100 * i + random_below(random, 100)),
        .thread_id = (uint32_t)thread,
        .process_id = 1 + (uint32_t)(thread % 3),
        .pid = 100 + (int32_t)(thread % 3) + (random_below(random, 500) == 0),
        .tid = 200 + (int32_t)thread,
        .is_stored = true,
        .callsite = (uint32_t)random_below(random, 1000),
        .addr = 0x7f0000000000 + 16 * random_below(random, 100000),
        .size = random_below(random, 5000),
    };
    const uint64_t gap = random_below(random, 50) == 0 ? random_next(random) >> 20 : 0;
    event->ring_seq = random_below(random, 40) == 0 ? 0 : i / threads + gap;
    made->is_plain[i] = random_below(random, 3) != 0;
    event->kind = random_below(random, 2) != 0 ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE;
    event->cause = event->kind == VARVE_KIND_HEAP_ALLOC ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_FREE;
    if (made->is_plain[i]) {
        event->size = event->kind == VARVE_KIND_HEAP_FREE ? 0 : event->size;
        return;
    }
    event->kind = (uint8_t)(1 + random_below(random, 60));
    event->flags = (uint8_t)random_below(random, 16);
    event->device = (uint8_t)random_below(random, 4);
    event->pool = (uint16_t)random_next(random);
    event->stream = (uint16_t)random_next(random);
    event->dev_seq = random_next(random) >> (16 + random_below(random, 48));
    event->id = random_next(random) >> (16 + random_below(random, 48));
    event->requested = random_next(random) >> random_below(random, 64);
    event->arg = random_next(random) >> random_below(random, 64);
    if (random_below(random, 4) == 0) {
        event->ladder_change.bytes[random_below(random, LADDER_RUNGS)] = random_next(random);
    }
}

static void events_make(struct made *made, uint64_t *random, uint64_t threads)
{
    *made = (struct made){.count = 0};
    for (uint64_t i = 0; i < EVENTS; i++) {
        event_make(made, i, random, threads);
    }
}

static void append(struct event_log *log, struct made *made, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++, made->count++) {
        assert_int_equal(event_log_append(log, &made->events[made->count], made->is_plain[made->count]), VARVE_OK);
    }
}

static int take_each(void *context, struct event *event, bool is_plain)
{
    struct made *made = context;
    assert_true(made->next < made->count);
    assert_int_equal(is_plain, made->is_plain[made->next]);
    assert_memory_equal(event, &made->events[made->next], sizeof(*event));
    made->next++;
    return VARVE_OK;
}

static bool take_rest(void *context, struct event *event)
{
    struct made *made = context;
    while (made->is_plain[made->next]) {
        made->next++;
    }
    assert_memory_equal(event, &made->events[made->next], sizeof(*event));
    if (made->refuse > 0 && --made->refuse == 0) {
        return false;
    }
    made->next++;
    return true;
}

static uint64_t rest_of(const struct made *made, uint64_t from, uint64_t to)
{
    uint64_t rest = 0;
    for (uint64_t i = from; i < to; i++) {
        rest += !made->is_plain[i];
    }
    return rest;
}

static struct made made;

TEST(test_what_was_flushed_comes_back)
{
    static const uint64_t threads[] = {1, 2, 7, 5000};
    struct varve_message message;
    uint64_t random = test_first_seed(1);
    for (size_t round = 0; round < sizeof(threads) / sizeof(threads[0]); round++) {
        struct event_log *log;
        events_make(&made, &random, threads[round]);
        assert_int_equal(event_log_create(LOG, &log, &message), VARVE_OK);
        while (made.count < EVENTS - 6000) {
            append(log, &made, 1 + random_below(&random, 6000));
            assert_int_equal(event_log_flush(log, &message), VARVE_OK);
            made.refuse = random_below(&random, 2000);
            assert_int_equal(event_log_rest(log, take_rest, &made, &message), VARVE_OK);
            assert_int_equal(event_log_waiting(log), rest_of(&made, made.next, made.count));
        }
        const uint64_t bytes = event_log_bytes(log);
        const uint64_t flushed = made.count;
        append(log, &made, EVENTS - made.count);
        assert_int_equal(event_log_flush(log, &message), VARVE_OK);
        event_log_close(log);
        /* the last flush was not committed */
        assert_int_equal(event_log_resume(LOG, bytes, &log, &message), VARVE_OK);
        made.count = flushed;
        made.next = 0;
        assert_int_equal(event_log_each(log, take_each, &made, &message), VARVE_OK);
        assert_int_equal(made.next, flushed);
        assert_int_equal(event_log_waiting(log), rest_of(&made, 0, flushed));
        append(log, &made, EVENTS - made.count);
        assert_int_equal(event_log_flush(log, &message), VARVE_OK);
        made.next = made.refuse = 0;
        assert_int_equal(event_log_rest(log, take_rest, &made, &message), VARVE_OK);
        assert_int_equal(event_log_waiting(log), 0);
        event_log_remove(log);
        event_log_close(log);
        assert_int_not_equal(access(LOG, F_OK), 0);
    }
}

/* A heap event takes a fifth of the record that it was. */
TEST(test_bytes_of_plain_events)
{
    struct varve_message message;
    struct event_log *log;
    uint64_t random = test_first_seed(2);
    events_make(&made, &random, 1);
    assert_int_equal(event_log_create(LOG, &log, &message), VARVE_OK);
    for (uint64_t i = 0; i < EVENTS; i++) {
        made.is_plain[i] = true;
        made.events[i].ring_seq = i + 1;
    }
    for (uint64_t i = 0; i < EVENTS; i++) {
        struct event event = made.events[0];
        event.seq = event.ring_seq = i + 1;
        event.ts_ns = (int64_t)(100 * i);
        event.kind = i % 2 == 0 ? VARVE_KIND_HEAP_ALLOC : VARVE_KIND_HEAP_FREE;
        event.addr += 16 * (i % 100);
        assert_int_equal(event_log_append(log, &event, true), VARVE_OK);
    }
    assert_int_equal(event_log_flush(log, &message), VARVE_OK);
    assert_true(event_log_bytes(log) < 13 * EVENTS);
    event_log_close(log);
    unlink(LOG);
}

static int count_each(void *context, struct event *event, bool is_plain)
{
    struct made *all = context;
    (void)is_plain;
    all->next += event->seq != 0;
    return VARVE_OK;
}

/* What is read before the damage is as it was, but for the batch that it is in. */
TEST(test_damage)
{
    struct varve_message message;
    struct event_log *log;
    uint64_t random = test_first_seed(3);
    unsigned refused = 0;
    for (unsigned round = 0; round < 200; round++) {
        events_make(&made, &random, 3);
        assert_int_equal(event_log_create(LOG, &log, &message), VARVE_OK);
        append(log, &made, 9000);
        assert_int_equal(event_log_flush(log, &message), VARVE_OK);
        const uint64_t bytes = event_log_bytes(log);
        event_log_close(log);
        int file = open(LOG, O_RDWR);
        for (unsigned i = 0; i < 3; i++) {
            const uint64_t at = round % 2 == 0 ? random_below(&random, bytes) : random_below(&random, 48);
            const uint8_t byte = (uint8_t)random_next(&random);
            assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
        }
        if (round % 5 == 0) {
            assert_int_equal(ftruncate(file, (off_t)random_below(&random, bytes)), 0);
        }
        close(file);
        assert_int_equal(event_log_resume(LOG, bytes, &log, &message), VARVE_OK);
        made.next = 0;
        int error = event_log_each(log, count_each, &made, &message);
        assert_true(error == VARVE_OK || error == VARVE_ERROR_CORRUPT);
        refused += error != VARVE_OK;
        assert_true(error != VARVE_OK || made.next <= 9000);
        event_log_close(log);
        unlink(LOG);
    }
    assert_true(refused > 50);
}
