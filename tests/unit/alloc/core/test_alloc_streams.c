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

static struct rig *streams_open(void **state)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    memset(&spy, 0, sizeof(spy));
    spy.real = rig->device->ops;
    spy.ops = *spy.real;
    spy.ops.event_record = spy_record;
    rig->device->ops = &spy.ops;
    return rig;
}

static void complete(struct rig *rig, unsigned nth)
{
    assert_true(nth < spy.count);
    assert_int_equal(varve_sim_event_complete(rig->device, spy.events[nth]), VARVE_OK);
}

#define SCRIPTED                        \
    {                                   \
        .sim.events_are_scripted = true \
    }

static const struct rig_case streams[] = {
    {"the block's own stream is ignored", SCRIPTED, "a=30M@4 | a~4 <> -a record=0 30M@4>a"},
    {"a pending block counts as active, not as allocated, is nobody's neighbour, and stays so until a request asks",
     SCRIPTED,
     "a=4M-5 b=4M a~7 -a -b a{p4M -16M} allocated=0 allocations=0 active_bytes=4M active=1 requested=4M-5 "
     "done@7 a{p4M -16M} | 512@6 <free_completed 4M; merge next 20M absorbed 16M; segment_alloc new_segment 2M; "
     "split 512 left 2096640; alloc new_segment 512> requested=512"},
    {"a query fails, and so does the request, with nothing changed", SCRIPTED,
     "a=30M a~7 -a done@7 fail:query:1 | X30M <> 30M>a"},
    {"no event is recorded in a capture, and none is asked for; b's comes after it", SCRIPTED,
     "a=30M b=32M a~7 b~7 -a [1 -b record=1 done@7 | 28M <segment_alloc new_segment 28M; alloc new_segment 28M> "
     "]1 record=1 | 28M>a record=2 <free_completed 30M; split 28M left 2M; alloc cache 28M> done@7 28M>b"},
    {"streams that a capture added belong to its graph: nobody waits for them", SCRIPTED,
     "a=30M b=32M b~7 [1 a~8 b~8 -a -b ]1 30M>a record=1 32M!b done@7 32M>b"},
    {"so does one that was named before as well", SCRIPTED, "a=30M a~7 [1 a~7 -a ]1 30M>a record=0"},
    {"the free says that it failed, and the block is never handed out while stream 8 has not been asked", SCRIPTED,
     "a=30M a~7 a~8 fail:record:1 -a!io done@7 30M!a 30M!a -a!missing"},
    {"or has not answered", SCRIPTED, "a=30M a~7 a~8 fail:record:2 -a!io done@7 30M!a 30M!a -a!missing"},
    {"empty_cache deals with frees of a capture too", SCRIPTED,
     "a=30M a~7 [1 -a empty reserved=30M ]1 empty reserved=0"},
};
TEST_PLAYS(test_streams, streams)

/* One event for each stream, however often it was named, in the order of streams; nothing happens before the free. */
TEST_WITH(test_one_event_per_stream, rig_setup, rig_teardown)
{
    struct rig *rig = streams_open(state);
    play(rig, "a=30M | a~8 a~3 a~8 <record_stream 30M; record_stream 30M; record_stream 30M> "
              "record=0 -a <free_requested 30M>");
    assert_int_equal(spy.count, 2);
    assert_true(spy.streams[0] == 3 && spy.streams[1] == 8);
    complete(rig, 0);
    play(rig, "30M!a");
    complete(rig, 1);
    play(rig, "30M>a");
}

/* The first event of a stream that is not complete hides those behind it. */
TEST_WITH(test_queue_stops_at_its_front, rig_setup, rig_teardown)
{
    struct rig *rig = streams_open(state);
    play(rig, "a=30M b=32M c=34M a~7 b~7 c~9 -a -b -c |");
    complete(rig, 1);
    complete(rig, 2);
    play(rig, "28M>c <free_completed 34M; split 28M left 6M; alloc cache 28M>"); /* though b would fit better */
    complete(rig, 0);
    play(rig, "28M>a <free_completed 30M; free_completed 32M; split 28M left 2M; alloc cache 28M>");
}

/* Events are used again; a long row of pending frees keeps its order. */
TEST_WITH(test_many_pending, rig_setup, rig_teardown)
{
    struct rig *rig = streams_open(state);
    uint64_t addr[50];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 50; i++) {
            addr[i] = take(rig, 2 * MIB);
            use_on(rig, addr[i], 1 + (uint64_t)(i % 3));
        }
        for (int i = 0; i < 50; i++) {
            give(rig, addr[i]);
        }
        play(rig, "active=50 done@1 done@2 done@3 | a=512@99 -a active=0");
        for (size_t i = 0; i < 50; i++) { /* of stream after stream, each in the order of its frees */
            size_t stream = i < 17 ? 0 : i < 34 ? 1 : 2;
            size_t place = i - (size_t[]){0, 17, 34}[stream];
            assert_int_equal(nth_record(rig, VARVE_KIND_FREE_COMPLETED, i)->addr, addr[stream + 3 * place]);
        }
    }
}
