/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the sim device does: bases counted up, reused or scripted, events that complete when a script says so,
 * calls that fail because a script says so, each of them and at the right time, what calls cost on its virtual clock,
 * and that nothing else takes time; a walker that finds what is wrong, and a table that stays fast with a million
 * segments.
 * Costs: 3 s
 */
#include "alloc/device/device_resources.h"
#include "alloc/device/sim_device.h"
#include "support/cuda/device_play.h"
#include "support/random.h"
#include "tests/cmocka.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BASE 0x7f0000000000U

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1 /* as gcc says it */
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define MANY 100000U /* each call is ten times slower */
#else
#define MANY 1000000U
#endif

static const struct device_case plays[] = {
    PLAY("bases are counted up, freed ones are not used again",
         "z=value:0x7f0000000000 alloc:3M?z alloc:1u?z+2u free:z:3M alloc:1u?z+3u reserve:10u?z+4u alloc:1?z+14u "
         "used?2u+1 alloc:0x8000000000000000!memory"),
    PLAY("bases are used again",
         "alloc:0x2800?0x101000 alloc:0x1000?0x104000 free:0x101000:0x2800 alloc:0x3001?0x105000 alloc:0x1000?0x101000 "
         "alloc:0x2000?0x102000",
         .sim = {.first_addr = 0x100100, .alignment = 0x1000, .reuses_addresses = true}),
    PLAY("memory_info without a limit", "alloc:1u total?80G used?1u"),
    PLAY("memory_info with a limit", "alloc:1u total?8M used?1u", .sim = {.capacity_bytes = 8 * MIB}),
    PLAY("memory_info with more in all than the limit", "alloc:1u total?100M used?94M",
         .sim = {.capacity_bytes = 8 * MIB, .total_bytes = 100 * MIB}),
    PLAY("memory_info with less in all than is in use", "alloc:1u total?1M used?1M", .sim = {.total_bytes = MIB}),

    PLAY("scripted events: a to c on stream 0, d on 1; one completes alone, or a stream; the last record counts",
         "a=event complete:a!missing record:a query:a?0 b=event record:b c=event record:c d=event complete:d!missing "
         "record:d@1 query:d?0 complete:b complete:b!missing query:a?0 query:b?1 sync:c query:c?1 query:a?0 complete@0 "
         "query:a?1 query:d?0 record:a query:a?0 record:a@1 finish query:a?0 finish@1 query:a?1 query:d?1 "
         "complete:77!missing no_event:a no_event:b no_event:c no_event:d",
         .sim = {.events_are_scripted = true}),
    PLAY("transfers complete when the script says so; a stream that is gone takes nothing",
         "a=alloc:4096 j=join t=stream differ:j:t?1 e=event fill:a:0:1:1@t record:e@t query:e?0 complete@t query:e?1 "
         "no_stream:t fill:a:0:1:1@t!missing fill:a:0:1:0@t!missing record:e@t!missing fill:a:0:1:1@j",
         .sim = {.events_are_scripted = true}),
    PLAY("two segments side by side are two; a range of the pool is as good as a segment",
         "a=alloc:4096 alloc:4096?a+4096 fill:a:0:1:4096 fill:a+4096:0:1:4096 fill:a:0:1:4097!invalid "
         "fill:a-1:0:1:1!missing p=alloc_async:1000 copy:p:a:1000 copy:p:a:1001!invalid free_async:p:1000 "
         "copy:p:a:1000!missing",
         .sim = {.alignment = 4096}),

    PLAY("the second and third call fail; where two rules meet, the first one counts",
         "a=alloc:1u fail:'alloc:2:2:'memory fail:'alloc:3:2:'io alloc:1u alloc:1u!memory alloc:1u!memory alloc:1u!io "
         "alloc:1u calls:'alloc?6 used?3u fail:'free:1:max:'io free:a:1u!io free:a:1u!io free:a:1u!io used?3u"),
    PLAY("transfers fail, and are counted; copies of rows are copies",
         "a=alloc:1M fail:'copy:2:1:'io fail:'fill:1:2:'busy fail:'pin:1:1:'memory fail:'stream:1:1:'full "
         "in:a:0x1000:10 rows:a:64:a+32:64:32:10!io reason{call 2 was to fail} rows:a:64:a+32:64:32:10 "
         "rows:a:64:a+32:64:33:10!invalid reason{overlaps itself} fill:a:0:1:1!busy fill:a:0:1:1!busy fill:a:0:1:1 "
         "pin:1!memory stream!full calls:'copy?4 calls:'fill?3"),
    PLAY("rules that are none", "fail:'create:0:1:'io!invalid fail:'create:1:0:'io!invalid fail:'create:1:1:0!invalid "
                                "fail:100:1:1:'io!invalid calls:100?0"),

    PLAY("the clock: what fails takes no time",
         "clock?0 a=alloc:1u clock?27000 alloc:8M!memory clock?27000 pass:1000000 r=reserve:64M h=create:1u map:r:1u:h "
         "access:r:1u clock?1027000+5700+450+17000 unmap:r:1u release:h:1u free:a:1u clock?1050150+12000+7000+23000",
         .sim = {.has_latency = true, .capacity_bytes = 8 * MIB}),
    PLAY("the clock of transfers: of rows, their bytes, not what lies between; to and from peers",
         "a=alloc:1100M z=clock in:a:0x1000:55000000 clock?z+1002000 out:0x1000:a:55000000 clock?z+2004000 "
         "peer_in:a:0x1000:380000000 clock?z+3006000 peer_out:0x1000:a:380000000 clock?z+4008000 "
         "copy:a+550M:a:190000000 clock?z+4110000 fill:a:1:4:87500000 clock?z+4212000 "
         "rows_in:a:4096:0x1000:1000:550:100000 clock?z+5214000 in:a:0x1000:0 fill:a:1:4:0 in:a:0:100!invalid stream "
         "pin:1000 clock?z+5214000",
         .sim = {.has_latency = true}),
    PLAY("no latency", "a=alloc:1u in:a:0x1000:1u clock?0"),
    PLAY(
        "a pool that grows costs what mapping costs, one that has the memory next to nothing; 4 MiB hold 3",
        "a=alloc_async:512 z=value:5700+450+17000+250 clock?z used?1u b=alloc_async:1u-512 clock?z+250 alloc_async:512 "
        "clock?z+z+250 free_async:b:1u-512@7 clock?z+z+610 used?2u alloc_async:8M!memory clock?z+z+610 trim:3M "
        "clock?z+z+610 trim:0 clock?z+z+610+12000+7000 used?1u trim:max used?1u",
        .sim = {.has_latency = true, .capacity_bytes = 8 * MIB}),
};
TEST_DEVICE_PLAYS(test_sim, &sim_kind, plays)

/* Each call that can be scripted: it fails once, changes nothing, and works when it is made again. */
TEST_DEVICE(test_sim_fault_of_each_call, &sim_kind)
{
    for (unsigned call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
        assert_int_equal(varve_sim_fail(play->device, (enum varve_device_call)call, 1, 1, VARVE_ERROR_FULL), 0);
    }
    device_words(play, "e=event alloc:1u!full reserve:1u!full create:1u!full used?0 map:r:1u:h!full access:r:1u!full "
                       "unmap:r:1u!full release:h:1u!full stream!full pin:100!full in:a:0x1000:100!full "
                       "fill:a:0:4:25!full free:a:1u!full record:e!full query:e!full alloc_async:1u!full wait:e!full "
                       "free_async:a:1u!full trim:0!full");
    device_words(play, "a=alloc:1u r=reserve:1u h=create:1u used?2u map:r:1u:h access:r:1u unmap:r:1u release:h:1u "
                       "t=stream pin:100 in:a:0x1000:100@t fill:a:0:4:25@t free:a:1u record:e query:e?1 "
                       "a=alloc_async:1u wait:e free_async:a:1u trim:0 used?0");
    for (unsigned call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
        assert_int_equal(varve_sim_calls(play->device, (enum varve_device_call)call), 2);
    }
}

TEST(test_sim_fault_limits)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){0});
    const enum varve_device_call call = VARVE_DEVICE_VMM_CREATE;
    uint64_t handle = 0;
    for (uint64_t i = 0; i < 64; i++) {
        assert_int_equal(varve_sim_fail(device, call, 2 * i + 1, 1, VARVE_ERROR_IO), 0);
    }
    assert_int_equal(varve_sim_fail(device, call, 1, 1, VARVE_ERROR_IO), VARVE_ERROR_FULL);
    for (uint64_t i = 0; i < 128; i++) {
        assert_int_equal(device->ops->vmm_create(device, UNIT, &handle), i % 2 ? 0 : VARVE_ERROR_IO);
        assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_EVENT_QUERY, i + 1, 1, VARVE_ERROR_IO),
                         i % 2 ? VARVE_ERROR_FULL : 0); /* a rule that is over makes room for one */
    }
    sim_close(device);
}

TEST(test_sim_costs)
{
    static const struct {
        enum varve_device_call call;
        uint64_t bytes, ns;
    } cases[] = {
        {VARVE_DEVICE_SEGMENT_ALLOC, 1, 27000},
        {VARVE_DEVICE_SEGMENT_ALLOC, 2 * MIB, 27000},
        {VARVE_DEVICE_SEGMENT_ALLOC, 11 * MIB, 28000},
        {VARVE_DEVICE_SEGMENT_ALLOC, 20 * MIB, 29000},
        {VARVE_DEVICE_SEGMENT_ALLOC, 128 * MIB, 33000},
        {VARVE_DEVICE_SEGMENT_ALLOC, 8192 * MIB, 368000},
        {VARVE_DEVICE_SEGMENT_ALLOC, 15360 * MIB, 661000},
        {VARVE_DEVICE_SEGMENT_FREE, 74 * MIB, 37500},
        {VARVE_DEVICE_SEGMENT_FREE, 8192 * MIB, 1766000},
        {VARVE_DEVICE_VMM_CREATE, 8192 * MIB, 19000000},
        {VARVE_DEVICE_VMM_MAP, 8192 * MIB, 450},
        {VARVE_DEVICE_VMM_SET_ACCESS, 576 * MIB, 46000},
        {VARVE_DEVICE_VMM_UNMAP, 1024 * MIB, 27000},
        {VARVE_DEVICE_VMM_RELEASE, 1920 * MIB, 383000},
        {VARVE_DEVICE_VMM_RESERVE, 1024 * MIB, 0},
        {VARVE_DEVICE_EVENT_RECORD, 0, 0},
        {VARVE_DEVICE_ALLOC_ASYNC, 512, 250},
        {VARVE_DEVICE_FREE_ASYNC, 20000 * MIB, 360},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t difference = (int64_t)(sim_cost_ns(cases[i].call, cases[i].bytes) - cases[i].ns);
        if (difference < -1 || difference > 1) {
            fail_msg("case %zu: %lld ns off", i, (long long)difference);
        }
    }
    for (uint64_t bytes = MIB; bytes < 20000 * MIB; bytes += 7 * MIB) {
        for (unsigned call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
            assert_true(sim_cost_ns((enum varve_device_call)call, bytes) <=
                        sim_cost_ns((enum varve_device_call)call, bytes + MIB));
        }
    }
}

/* A list of bases; an entry 0 makes the script refuse. */
struct script {
    const uint64_t *bases;
    size_t next;
    uint64_t bytes, stream;
    struct varve_device_reservation place;
    bool had_place;
    int error;
    struct varve_device *device; /* to be asked from inside the script; NULL: not */
    uint64_t used;
};

static int script_place(void *context, uint64_t bytes, uint64_t stream, const struct varve_device_reservation *place,
                        uint64_t *addr_out)
{
    struct script *script = context;
    script->bytes = bytes;
    script->stream = stream;
    script->had_place = place != NULL;
    if (place) {
        script->place = *place;
    }
    if (script->device) {
        script->used = varve_sim_used(script->device);
        varve_sim_clock_advance(script->device, 5);
    }
    *addr_out = script->bases[script->next++];
    return *addr_out ? 0 : script->error;
}

/* The words between which the script is looked at. */
TEST_WITH(test_sim_scripted, device_play_setup, device_play_teardown)
{
    static const uint64_t bases[] = {0x5000, 0x2000, 0x5800, 0x4001, 0x5000, 0, UINT64_MAX - 10, 0x6000};
    struct script script = {.bases = bases, .error = VARVE_ERROR_IO};
    struct device_play *play = *state;
    device_play_open(
        play, &sim_kind,
        &(const struct device_case){
            .what = "scripted segments",
            .sim = {.capacity_bytes = 0x4000, .segment_address = script_place, .address_context = &script}});
    device_words(play, "alloc:4K@9?0x5000");
    assert_true(script.bytes == 0x1000 && script.stream == 9 && !script.had_place);
    device_words(play, "alloc:4K?0x2000 reason{} alloc:4K!invalid reason{[0x5800, 0x6800)} reason{[0x5000, 0x6000)} "
                       "alloc:4K!invalid free:0x5000:4K alloc:4K?0x5000"); /* the same base again */
    assert_int_equal(script.next, 5);
    device_words(play, "alloc:8K+1!memory");
    assert_int_equal(script.next, 5); /* not asked */
    device_words(play, "alloc:4K!io alloc:4K!invalid");
    script.device = play->device;
    device_words(play, "alloc:4K?0x6000 clock?5 used?12K");
    assert_int_equal(script.used, 0x2000);
    device_play_close(play);
}

TEST_WITH(test_sim_scripted_reservations, device_play_setup, device_play_teardown)
{
    static const uint64_t bases[] = {BASE + UNIT, BASE + 2 * UNIT, BASE + 20 * UNIT};
    struct script script = {.bases = bases};
    const struct varve_device_reservation place = {.stream = 4, .pool_id = {1, 2}, .is_small = true};
    struct device_play *play = *state;
    device_play_open(
        play, &sim_kind,
        &(const struct device_case){.what = "scripted reservations",
                                    .sim = {.reservation_address = script_place, .address_context = &script}});
    assert_int_equal(play->device->ops->vmm_reserve(play->device, 10 * UNIT, &place, &play->named[0]), 0);
    assert_true(script.had_place && script.stream == 4 && script.place.pool_id[1] == 2 && script.place.is_small);
    device_words(play, "z=value:0x7f0000000000 value:a?z+1u alloc:1u?z alloc:1u?z+11u reserve:1u@4!invalid "
                       "reserve:1u@4?z+20u"); /* over the reservation */
    device_play_close(play);
}

TEST(test_sim_many_streams)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.events_are_scripted = true});
    uint64_t events[300];
    for (uint64_t i = 0; i < 300; i++) {
        assert_int_equal(device->ops->event_create(device, &events[i]), 0);
        assert_int_equal(device->ops->event_record(device, events[i], i * 7919 % 300), 0);
    }
    for (uint64_t stream = 300; stream-- > 0;) {
        assert_int_equal(varve_sim_stream_complete(device, stream), 0);
        for (uint64_t i = 0; i < 300; i++) {
            assert_int_equal(device->ops->event_query(device, events[i]), i * 7919 % 300 >= stream ? 1 : 0);
        }
    }
    sim_close(device);
}

/* The walker must see what is wrong, or its silence says nothing. */
TEST(test_sim_check_finds)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.capacity_bytes = 64 * MIB});
    struct sim_device *sim = sim_of(device);
    struct varve_message message = {""};
    uint64_t addr = 0, handle = 0, event = 0;
    struct device_range *mapping;
    assert_int_equal(segment(device, UNIT), BASE);
    assert_int_equal(device->ops->vmm_reserve(device, 4 * UNIT, NULL, &addr), 0);
    assert_int_equal(device->ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(device->ops->vmm_map(device, addr, UNIT, handle), 0);
    assert_int_equal(device->ops->event_create(device, &event), 0);
    assert_int_equal(varve_sim_check(device, &message), 0);
    mapping = sim->table.resources.mappings.root;
#define FINDS(change, undo)                                                       \
    do {                                                                          \
        message.text[0] = '\0';                                                   \
        change;                                                                   \
        assert_int_equal(varve_sim_check(device, &message), VARVE_ERROR_CORRUPT); \
        assert_true(message.text[0] != '\0');                                     \
        undo;                                                                     \
        assert_int_equal(varve_sim_check(device, NULL), 0);                       \
    } while (0)
    FINDS(sim->table.resources.used++, sim->table.resources.used--);
    FINDS(sim->table.resources.handles.slots[0].maps++, sim->table.resources.handles.slots[0].maps--);
    FINDS(mapping->addr += 4 * UNIT, mapping->addr -= 4 * UNIT);
    FINDS(mapping->value++, mapping->value--);
    FINDS(sim->table.resources.space.root->gap_max += 1, sim->table.resources.space.root->gap_max -= 1);
    FINDS(sim->table.resources.space.count++, sim->table.resources.space.count--);
    FINDS(sim->table.resources.events.live++, sim->table.resources.events.live--);
    FINDS(sim->table.resources.events.slots[0].value = 1, sim->table.resources.events.slots[0].value = 0);
    FINDS(sim->table.resources.handles.slots[0].is_live = false, sim->table.resources.handles.slots[0].is_live = true);
#undef FINDS
    sim_close(device);
}

/* Replays make hundreds of thousands of calls; the limit is what a quadratic device could never keep. */
TEST(test_sim_million_segments)
{
    const uint64_t count = MANY;
    struct varve_device *device = sim_open(&(struct varve_sim_options){.reuses_addresses = true});
    uint64_t *addrs = malloc(count * sizeof(*addrs));
    uint64_t seed = 5;
    assert_non_null(addrs);
    for (uint64_t i = 0; i < count; i++) {
        addrs[i] = segment(device, UNIT);
    }
    for (uint64_t i = 0; i < count / 4; i++) {
        uint64_t at = random_below(&seed, count);
        assert_int_equal(device->ops->segment_free(device, addrs[at], UNIT), 0);
        assert_int_equal(segment(device, UNIT), addrs[at]); /* the only hole */
    }
    assert_int_equal(varve_sim_used(device), count * UNIT);
    free(addrs);
    sim_close(device);
}

struct worker {
    pthread_t thread;
    struct varve_device *device;
    unsigned failures;
};

static void *work(void *context)
{
    struct worker *worker = context;
    const struct varve_device_ops *ops = worker->device->ops;
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t addr = 0, event = 0;
        worker->failures += ops->segment_alloc(worker->device, UNIT, 0, &addr) != 0;
        worker->failures += ops->event_create(worker->device, &event) != 0;
        worker->failures += ops->event_record(worker->device, event, 0) != 0;
        worker->failures += ops->event_synchronize(worker->device, event) != 0;
        worker->failures += ops->event_query(worker->device, event) != 1;
        worker->failures += ops->event_destroy(worker->device, event) != 0;
        worker->failures += ops->segment_free(worker->device, addr, UNIT) != 0;
    }
    return NULL;
}

/* Several allocators on one device, or one that lets its lock go while it asks for a segment. */
TEST(test_sim_threads)
{
    struct varve_device *device =
        sim_open(&(struct varve_sim_options){.has_latency = true, .events_are_scripted = true});
    struct worker workers[4];
    for (size_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.device = device};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < 1000; i++) {
        assert_true(varve_sim_used(device) <= 4 * UNIT);
        assert_int_equal(varve_sim_check(device, NULL), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].failures, 0);
    }
    assert_int_equal(varve_sim_calls(device, VARVE_DEVICE_SEGMENT_FREE), 8000);
    assert_int_equal(varve_sim_clock_ns(device), 8000 * (27000 + 23000));
    sim_close(device);
}
