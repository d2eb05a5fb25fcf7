/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only the sim device does: bases counted up, reused or scripted, events that complete when a script
 * says so, a walker that finds what is wrong, and a table that stays fast with a million segments.
 * Costs: 3 s
 */
#include "support/cuda/device.h"
#include "alloc/device/resources.h"
#include "support/random.h"
#include "alloc/device/sim/sim.h"

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

TEST(test_sim_counts_up)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){0});
    uint64_t reserved = 0;
    assert_int_equal(segment(device, 3 * MIB), BASE);
    assert_int_equal(segment(device, UNIT), BASE + 2 * UNIT);
    assert_int_equal(device->ops->segment_free(device, BASE, 3 * MIB), 0);
    assert_int_equal(segment(device, UNIT), BASE + 3 * UNIT); /* not the freed one */
    assert_int_equal(device->ops->vmm_reserve(device, 10 * UNIT, NULL, &reserved), 0);
    assert_int_equal(reserved, BASE + 4 * UNIT);
    assert_int_equal(segment(device, 1), BASE + 14 * UNIT);
    assert_int_equal(varve_sim_used(device), 2 * UNIT + 1);
    assert_int_equal(device->ops->segment_alloc(device, (uint64_t)1 << 63, 0, &reserved), VARVE_ERROR_NO_MEMORY);
    sim_close(device);
}

TEST(test_sim_reuses)
{
    struct varve_device *device =
        sim_open(&(struct varve_sim_options){.first_addr = 0x100100, .alignment = 0x1000, .reuses_addresses = true});
    assert_int_equal(segment(device, 0x2800), 0x101000);
    assert_int_equal(segment(device, 0x1000), 0x104000);
    assert_int_equal(device->ops->segment_free(device, 0x101000, 0x2800), 0);
    assert_int_equal(segment(device, 0x3001), 0x105000);
    assert_int_equal(segment(device, 0x1000), 0x101000);
    assert_int_equal(segment(device, 0x2000), 0x102000);
    sim_close(device);
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

TEST(test_sim_scripted)
{
    static const uint64_t bases[] = {0x5000, 0x2000, 0x5800, 0x4001, 0x5000, 0, UINT64_MAX - 10, 0x6000};
    struct script script = {.bases = bases, .error = VARVE_ERROR_CORRUPT};
    struct varve_device *device = sim_open(&(struct varve_sim_options){
        .capacity_bytes = 0x4000, .segment_address = script_place, .address_context = &script});
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 1;
    assert_int_equal(ops->segment_alloc(device, 0x1000, 9, &addr), 0);
    assert_int_equal(addr, 0x5000);
    assert_true(script.bytes == 0x1000 && script.stream == 9 && !script.had_place);
    assert_int_equal(segment(device, 0x1000), 0x2000);
    struct varve_message message;
    device->ops->reason(device, &message);
    assert_string_equal(message.text, "");
    assert_int_equal(ops->segment_alloc(device, 0x1000, 0, &addr), VARVE_ERROR_INVALID);
    device->ops->reason(device, &message);
    assert_non_null(strstr(message.text, "[0x5800, 0x6800)"));
    assert_non_null(strstr(message.text, "[0x5000, 0x6000)"));
    assert_int_equal(ops->segment_alloc(device, 0x1000, 0, &addr), VARVE_ERROR_INVALID);
    assert_int_equal(addr, 0x5000);
    assert_int_equal(ops->segment_free(device, 0x5000, 0x1000), 0);
    assert_int_equal(segment(device, 0x1000), 0x5000); /* the same base again */
    assert_int_equal(script.next, 5);
    assert_int_equal(ops->segment_alloc(device, 0x2001, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(script.next, 5); /* not asked */
    assert_int_equal(ops->segment_alloc(device, 0x1000, 0, &addr), VARVE_ERROR_CORRUPT);
    assert_int_equal(ops->segment_alloc(device, 0x1000, 0, &addr), VARVE_ERROR_INVALID);
    script.device = device;
    assert_int_equal(segment(device, 0x1000), 0x6000);
    assert_true(script.used == 0x2000 && varve_sim_clock_ns(device) == 5);
    assert_int_equal(varve_sim_used(device), 0x3000);
    sim_close(device);
}

TEST(test_sim_scripted_reservations)
{
    static const uint64_t bases[] = {BASE + UNIT, BASE + 2 * UNIT, BASE + 20 * UNIT};
    struct script script = {.bases = bases};
    const struct varve_device_reservation place = {.stream = 4, .pool_id = {1, 2}, .is_small = true};
    struct varve_device *device =
        sim_open(&(struct varve_sim_options){.reservation_address = script_place, .address_context = &script});
    uint64_t addr = 0;
    assert_int_equal(device->ops->vmm_reserve(device, 10 * UNIT, &place, &addr), 0);
    assert_int_equal(addr, BASE + UNIT);
    assert_true(script.had_place && script.stream == 4 && script.place.pool_id[1] == 2 && script.place.is_small);
    assert_int_equal(segment(device, UNIT), BASE);
    assert_int_equal(segment(device, UNIT), BASE + 11 * UNIT); /* over the reservation */
    assert_int_equal(device->ops->vmm_reserve(device, UNIT, &place, &addr), VARVE_ERROR_INVALID);
    assert_int_equal(device->ops->vmm_reserve(device, UNIT, &place, &addr), 0);
    assert_int_equal(addr, BASE + 20 * UNIT);
    sim_close(device);
}

TEST(test_sim_scripted_events)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.events_are_scripted = true});
    const struct varve_device_ops *ops = device->ops;
    uint64_t events[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->event_create(device, &events[i]), 0);
        assert_int_equal(varve_sim_event_complete(device, events[i]), VARVE_ERROR_NOT_FOUND);
        assert_int_equal(ops->event_record(device, events[i], i / 3), 0); /* 0 to 2 on stream 0 */
        assert_int_equal(ops->event_query(device, events[i]), 0);
    }
    assert_int_equal(varve_sim_event_complete(device, events[1]), 0);
    assert_int_equal(varve_sim_event_complete(device, events[1]), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_query(device, events[0]), 0);
    assert_int_equal(ops->event_query(device, events[1]), 1);
    assert_int_equal(ops->event_synchronize(device, events[2]), 0);
    assert_int_equal(ops->event_query(device, events[2]), 1);
    assert_int_equal(ops->event_query(device, events[0]), 0); /* that event alone */
    assert_int_equal(varve_sim_stream_complete(device, 0), 0);
    assert_int_equal(ops->event_query(device, events[0]), 1);
    assert_int_equal(ops->event_query(device, events[3]), 0);
    assert_int_equal(ops->event_record(device, events[0], 0), 0); /* after the completion */
    assert_int_equal(ops->event_query(device, events[0]), 0);
    assert_int_equal(ops->event_record(device, events[0], 1), 0); /* the last record counts */
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    assert_int_equal(ops->event_query(device, events[0]), 0);
    assert_int_equal(ops->stream_synchronize(device, 1), 0);
    assert_int_equal(ops->event_query(device, events[0]), 1);
    assert_int_equal(ops->event_query(device, events[3]), 1);
    assert_int_equal(varve_sim_event_complete(device, 77), VARVE_ERROR_NOT_FOUND);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ops->event_destroy(device, events[i]), 0);
    }
    sim_close(device);
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

TEST(test_sim_memory_info)
{
    static const struct {
        uint64_t capacity, total, free_expected, total_expected;
    } cases[] = {
        {0, 0, (80 << 10) * MIB - UNIT, (80 << 10) * MIB},
        {8 * MIB, 0, 6 * MIB, 8 * MIB},
        {8 * MIB, 100 * MIB, 6 * MIB, 100 * MIB},
        {0, MIB, 0, MIB},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct varve_device *device =
            sim_open(&(struct varve_sim_options){.capacity_bytes = cases[i].capacity, .total_bytes = cases[i].total});
        uint64_t free_bytes = 1, total = 1;
        segment(device, UNIT);
        assert_int_equal(device->ops->memory_info(device, &free_bytes, &total), 0);
        assert_int_equal(free_bytes, cases[i].free_expected);
        assert_int_equal(total, cases[i].total_expected);
        sim_close(device);
    }
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
