/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that several streams use: a freed one waits for an event of each, asked for only by later requests,
 * in the order of each stream. The events are scripted; a spy in the table of operations knows their names,
 * so that a single one can complete.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

#define EVENTS 64U

static struct {
    const struct varve_device_ops *real;
    struct varve_device_ops ops;
    uint64_t events[EVENTS], streams[EVENTS];
    unsigned count;
} spy;

static int spy_record(struct varve_device *device, uint64_t event, uint64_t stream)
{
    int error = spy.real->event_record(device, event, stream);

    if (error == VARVE_OK && spy.count < EVENTS) {
        spy.events[spy.count] = event;
        spy.streams[spy.count++] = stream;
    }
    return error;
}

static void streams_open(struct rig *rig)
{
    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    memset(&spy, 0, sizeof(spy));
    spy.real = rig->device->ops;
    spy.ops = *spy.real;
    spy.ops.event_record = spy_record;
    rig->device->ops = &spy.ops;
}

static void complete(struct rig *rig, unsigned nth)
{
    assert_true(nth < spy.count);
    assert_int_equal(varve_sim_event_complete(rig->device, spy.events[nth]), VARVE_OK);
}

TEST_WITH(test_own_stream_is_ignored, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    streams_open(rig);
    a = take_on(rig, 30 * MIB, 4);
    forget(rig);
    use_on(rig, a, 4);
    expect(rig, "");
    give(rig, a);
    assert_int_equal(spy.count, 0);
    assert_int_equal(take_on(rig, 30 * MIB, 4), a);
}

/* One event for each stream, however often it was named, in the order of streams. */
TEST_WITH(test_one_event_per_stream, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    forget(rig);
    use_on(rig, a, 8);
    use_on(rig, a, 3);
    use_on(rig, a, 8);
    expect(rig, "record_stream 30M\nrecord_stream 30M\nrecord_stream 30M\n");
    assert_int_equal(spy.count, 0); /* nothing happens before the free */
    give(rig, a);
    expect(rig, "free_requested 30M\n");
    assert_int_equal(spy.count, 2);
    assert_int_equal(spy.streams[0], 3);
    assert_int_equal(spy.streams[1], 8);
    complete(rig, 0);
    assert_int_not_equal(take(rig, 30 * MIB), a);
    complete(rig, 1);
    assert_int_equal(take(rig, 30 * MIB), a);
}

/* A pending block counts as active, not as allocated, and is nobody's neighbour. */
TEST_WITH(test_pending_block, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_alloc_stats stats;
    uint64_t a, b, base, bytes;

    streams_open(rig);
    a = take(rig, 4 * MIB - 5);
    b = take(rig, 4 * MIB);
    use_on(rig, a, 7);
    give(rig, a);
    give(rig, b);
    expect_segment(rig, a, "p4M -16M");
    stats = stats_of(rig);
    assert_int_equal(stats.allocated_bytes[0].current, 0);
    assert_int_equal(stats.allocation[0].current, 0);
    assert_int_equal(stats.active_bytes[0].current, 4 * MIB);
    assert_int_equal(stats.active[0].current, 1);
    assert_int_equal(stats.requested_bytes[0].current, 4 * MIB - 5);
    assert_int_equal(varve_alloc_get_base_allocation(rig->alloc, a, &base, &bytes), VARVE_ERROR_NOT_FOUND);
    varve_sim_stream_complete(rig->device, 7);
    expect_segment(rig, a, "p4M -16M"); /* until a request asks */
    forget(rig);
    take_on(rig, 512, 6);
    expect(rig, "free_completed 4M\n"
                "merge next 20M absorbed 16M\n"
                "segment_alloc new_segment 2M\n"
                "split 512 left 2096640\n"
                "alloc new_segment 512\n");
    assert_int_equal(stats_of(rig).requested_bytes[0].current, 512);
}

/* The first event of a stream that is not complete hides those behind it. */
TEST_WITH(test_queue_stops_at_its_front, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    c = take(rig, 34 * MIB);
    use_on(rig, a, 7);
    use_on(rig, b, 7);
    use_on(rig, c, 9);
    give(rig, a);
    give(rig, b);
    give(rig, c);
    complete(rig, 1);
    complete(rig, 2);
    forget(rig);
    assert_int_equal(take(rig, 28 * MIB), c); /* though b would fit better */
    expect(rig, "free_completed 34M\n"
                "split 28M left 6M\n"
                "alloc cache 28M\n");
    complete(rig, 0);
    forget(rig);
    assert_int_equal(take(rig, 28 * MIB), a);
    expect(rig, "free_completed 30M\n"
                "free_completed 32M\n"
                "split 28M left 2M\n"
                "alloc cache 28M\n");
}

/* Events are used again; a long row of pending frees keeps its order. */
TEST_WITH(test_many_pending, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr[50];

    streams_open(rig);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 50; i++) {
            addr[i] = take(rig, 2 * MIB);
            use_on(rig, addr[i], 1 + (uint64_t)(i % 3));
        }
        for (int i = 0; i < 50; i++) {
            give(rig, addr[i]);
        }
        assert_int_equal(stats_of(rig).active[0].current, 50);
        for (uint64_t stream = 1; stream <= 3; stream++) {
            varve_sim_stream_complete(rig->device, stream);
        }
        forget(rig);
        give(rig, take_on(rig, 512, 99));
        for (size_t i = 0; i < 50; i++) { /* of stream after stream, each in the order of its frees */
            size_t stream = i < 17 ? 0 : i < 34 ? 1 : 2;
            size_t place = i - (size_t[]){0, 17, 34}[stream];
            assert_int_equal(nth_record(rig, VARVE_KIND_FREE_COMPLETED, i)->addr, addr[stream + 3 * place]);
        }
        assert_int_equal(stats_of(rig).active[0].current, 0);
    }
}

/* ---- a device in trouble ---- */

TEST_WITH(test_event_query_fails, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    use_on(rig, a, 7);
    give(rig, a);
    varve_sim_stream_complete(rig->device, 7);
    varve_sim_fail(rig->device, VARVE_DEVICE_EVENT_QUERY, 1, 1, VARVE_ERROR_IO);
    forget(rig);
    refused(rig, 30 * MIB, VARVE_ERROR_IO);
    expect(rig, "");
    assert_int_equal(take(rig, 30 * MIB), a);
}

/* The free returns that it failed, and the block is never handed out while a stream may use it. */
static void event_record_fails(struct rig *rig, unsigned nth)
{
    uint64_t a;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    use_on(rig, a, 7);
    use_on(rig, a, 8);
    varve_sim_fail(rig->device, VARVE_DEVICE_EVENT_RECORD, nth, 1, VARVE_ERROR_IO);
    rig->message.text[0] = '\0';
    assert_int_equal(varve_alloc_raw_delete(rig->alloc, a, &rig->message), VARVE_ERROR_IO);
    rig_check(rig);
    assert_string_not_equal(rig->message.text, "");
    varve_sim_stream_complete(rig->device, 7);
    assert_int_not_equal(take(rig, 30 * MIB), a); /* stream 8 has not been asked, or not answered */
    assert_int_not_equal(take(rig, 30 * MIB), a);
    assert_int_equal(varve_alloc_raw_delete(rig->alloc, a, &rig->message), VARVE_ERROR_NOT_FOUND);
    rig_close(rig);
}

TEST_WITH(test_first_event_record_fails, rig_setup, rig_teardown)
{
    event_record_fails(*state, 1);
}

TEST_WITH(test_second_event_record_fails, rig_setup, rig_teardown)
{
    event_record_fails(*state, 2);
}

/* ---- frees during a capture ---- */

static const struct varve_pool_id pool = {0, 1};

static void capture_begin(struct rig *rig)
{
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, NULL, NULL), VARVE_OK);
}

static void capture_end(struct rig *rig)
{
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    rig_check(rig);
}

/* No event is recorded in a capture, and none is asked for. */
TEST_WITH(test_frees_wait_for_the_captures_end, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    use_on(rig, a, 7);
    use_on(rig, b, 7);
    give(rig, a);
    capture_begin(rig);
    give(rig, b);
    assert_int_equal(spy.count, 1);
    varve_sim_stream_complete(rig->device, 7);
    forget(rig);
    take(rig, 28 * MIB);
    expect(rig, "segment_alloc new_segment 28M\nalloc new_segment 28M\n");
    capture_end(rig);
    assert_int_equal(spy.count, 1);
    forget(rig);
    assert_int_equal(take(rig, 28 * MIB), a);
    assert_int_equal(spy.count, 2); /* now b's; it is pending */
    expect(rig, "free_completed 30M\nsplit 28M left 2M\nalloc cache 28M\n");
    varve_sim_stream_complete(rig->device, 7);
    assert_int_equal(take(rig, 28 * MIB), b);
}

/* Streams that a capture added belong to its graph: nobody waits for them. */
TEST_WITH(test_streams_of_a_capture_are_dropped, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    use_on(rig, b, 7);
    capture_begin(rig);
    use_on(rig, a, 8);
    use_on(rig, b, 8);
    give(rig, a);
    give(rig, b);
    capture_end(rig);
    assert_int_equal(take(rig, 30 * MIB), a);
    assert_int_equal(spy.count, 1);
    assert_int_equal(spy.streams[0], 7);
    assert_int_not_equal(take(rig, 32 * MIB), b);
    varve_sim_stream_complete(rig->device, 7);
    assert_int_equal(take(rig, 32 * MIB), b);
}

/* empty_cache deals with them too. */
TEST_WITH(test_deferred_frees_and_empty_cache, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    streams_open(rig);
    a = take(rig, 30 * MIB);
    use_on(rig, a, 7);
    capture_begin(rig);
    give(rig, a);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 30 * MIB);
    capture_end(rig);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
}
