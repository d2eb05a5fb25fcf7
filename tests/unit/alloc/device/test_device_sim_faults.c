/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the sim device that fail because a script says so, each of them and at the right time, and what
 * calls cost on its virtual clock: the measured points, the lines between them, and that nothing else takes
 * time.
 * Costs: 1 s
 */
#include "support/cuda/device.h"
#include "alloc/device/sim/sim.h"
#include "alloc/device/sim/faults.h"

#define BASE 0x7f0000000000U

TEST(test_sim_faults)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){0});
    const struct varve_device_ops *ops = device->ops;
    static const int expected[] = {0, VARVE_ERROR_NO_MEMORY, VARVE_ERROR_NO_MEMORY, VARVE_ERROR_IO, 0};
    uint64_t addr = 0;
    segment(device, UNIT);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_SEGMENT_ALLOC, 2, 2, VARVE_ERROR_NO_MEMORY), 0);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_SEGMENT_ALLOC, 3, 2, VARVE_ERROR_IO), 0);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), expected[i]);
    }
    assert_int_equal(varve_sim_calls(device, VARVE_DEVICE_SEGMENT_ALLOC), 6);
    assert_int_equal(varve_sim_used(device), 3 * UNIT);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_SEGMENT_FREE, 1, UINT64_MAX, VARVE_ERROR_IO), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops->segment_free(device, BASE, UNIT), VARVE_ERROR_IO);
    }
    assert_int_equal(varve_sim_used(device), 3 * UNIT);
    sim_close(device);
}

/* Each call that can be scripted: it fails once, changes nothing, and works when it is made again. */
TEST(test_sim_fault_of_each_call)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){0});
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, base = 0, handle = 0, event = 0, stream = 0, host = 0;
    for (unsigned call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
        assert_int_equal(varve_sim_fail(device, (enum varve_device_call)call, 1, 1, VARVE_ERROR_FULL), 0);
    }
    assert_int_equal(ops->event_create(device, &event), 0);
    for (int again = 0; again < 2; again++) {
        const int expected = again ? 0 : VARVE_ERROR_FULL;
        assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), expected);
        assert_int_equal(ops->vmm_reserve(device, UNIT, NULL, &base), expected);
        assert_int_equal(ops->vmm_create(device, UNIT, &handle), expected);
        assert_int_equal(varve_sim_used(device), again ? 2 * UNIT : 0);
        assert_int_equal(ops->vmm_map(device, base, UNIT, handle), expected);
        assert_int_equal(ops->vmm_set_access(device, base, UNIT, 0), expected);
        assert_int_equal(ops->vmm_unmap(device, base, UNIT), expected);
        assert_int_equal(ops->vmm_release(device, handle, UNIT), expected);
        assert_int_equal(ops->stream_create(device, &stream), expected);
        assert_int_equal(ops->host_alloc(device, 100, &host), expected);
        assert_int_equal(ops->copy(device, addr, 0x1000, 100, VARVE_COPY_HOST_TO_DEVICE, stream), expected);
        assert_int_equal(ops->fill(device, addr, 0, 4, 25, stream), expected);
        assert_int_equal(ops->segment_free(device, addr, UNIT), expected);
        assert_int_equal(ops->event_record(device, event, 0), expected);
        assert_int_equal(ops->event_query(device, event), again ? 1 : VARVE_ERROR_FULL);
        assert_int_equal(ops->alloc_async(device, UNIT, 0, &addr), expected);
        assert_int_equal(ops->stream_wait_event(device, 0, event), expected);
        assert_int_equal(ops->free_async(device, addr, UNIT, 0), expected);
        assert_int_equal(ops->pool_trim(device, 0), expected);
    }
    for (unsigned call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
        assert_int_equal(varve_sim_calls(device, (enum varve_device_call)call), 2);
    }
    assert_int_equal(varve_sim_used(device), 0);
    sim_close(device);
}

TEST(test_sim_fault_limits)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){0});
    const enum varve_device_call call = VARVE_DEVICE_VMM_CREATE;
    uint64_t handle = 0;
    assert_int_equal(varve_sim_fail(device, call, 0, 1, VARVE_ERROR_IO), VARVE_ERROR_INVALID);
    assert_int_equal(varve_sim_fail(device, call, 1, 0, VARVE_ERROR_IO), VARVE_ERROR_INVALID);
    assert_int_equal(varve_sim_fail(device, call, 1, 1, 0), VARVE_ERROR_INVALID);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_CALL_LIMIT, 1, 1, VARVE_ERROR_IO), VARVE_ERROR_INVALID);
    for (uint64_t i = 0; i < 64; i++) {
        assert_int_equal(varve_sim_fail(device, call, 2 * i + 1, 1, VARVE_ERROR_IO), 0);
    }
    assert_int_equal(varve_sim_fail(device, call, 1, 1, VARVE_ERROR_IO), VARVE_ERROR_FULL);
    for (uint64_t i = 0; i < 128; i++) {
        assert_int_equal(device->ops->vmm_create(device, UNIT, &handle), i % 2 ? 0 : VARVE_ERROR_IO);
        assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_EVENT_QUERY, i + 1, 1, VARVE_ERROR_IO),
                         i % 2 ? VARVE_ERROR_FULL : 0); /* a rule that is over makes room for one */
    }
    assert_int_equal(varve_sim_calls(device, VARVE_DEVICE_CALL_LIMIT), 0);
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

TEST(test_sim_clock)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.has_latency = true, .capacity_bytes = 8 * MIB});
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, handle = 0;
    assert_int_equal(varve_sim_clock_ns(device), 0);
    segment(device, UNIT);
    assert_int_equal(varve_sim_clock_ns(device), 27000);
    assert_int_equal(ops->segment_alloc(device, 8 * MIB, 0, &addr), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_sim_clock_ns(device), 27000);
    varve_sim_clock_advance(device, 1000000);
    assert_int_equal(ops->vmm_reserve(device, 64 * MIB, NULL, &addr), 0);
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(ops->vmm_map(device, addr, UNIT, handle), 0);
    assert_int_equal(ops->vmm_set_access(device, addr, UNIT, 0), 0);
    assert_int_equal(varve_sim_clock_ns(device), 1027000 + 5700 + 450 + 17000);
    assert_int_equal(ops->vmm_unmap(device, addr, UNIT), 0);
    assert_int_equal(ops->vmm_release(device, handle, UNIT), 0);
    assert_int_equal(ops->segment_free(device, BASE, UNIT), 0);
    assert_int_equal(varve_sim_clock_ns(device), 1050150 + 12000 + 7000 + 23000);
    sim_close(device);

    device = sim_open(&(struct varve_sim_options){0});
    segment(device, UNIT);
    assert_int_equal(varve_sim_clock_ns(device), 0);
    sim_close(device);
}

/* A pool that grows costs what mapping costs; one that has the memory, next to nothing. */
TEST(test_sim_pool_costs)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.has_latency = true, .capacity_bytes = 8 * MIB});
    const struct varve_device_ops *ops = device->ops;
    uint64_t addrs[4], now = 5700 + 450 + 17000 + 250;
    assert_int_equal(ops->alloc_async(device, 512, 0, &addrs[0]), 0);
    assert_int_equal(varve_sim_clock_ns(device), now);
    assert_int_equal(varve_sim_used(device), UNIT);
    assert_int_equal(ops->alloc_async(device, UNIT - 512, 0, &addrs[1]), 0);
    assert_int_equal(varve_sim_clock_ns(device), now += 250);
    assert_int_equal(ops->alloc_async(device, 512, 0, &addrs[2]), 0);
    assert_int_equal(varve_sim_clock_ns(device), now += 5700 + 450 + 17000 + 250);
    assert_int_equal(ops->free_async(device, addrs[1], UNIT - 512, 7), 0);
    assert_int_equal(varve_sim_clock_ns(device), now += 360);
    assert_int_equal(varve_sim_used(device), 2 * UNIT);
    assert_int_equal(ops->alloc_async(device, 8 * MIB, 0, &addrs[3]), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_sim_clock_ns(device), now);
    assert_int_equal(ops->pool_trim(device, 3 * MIB), 0);
    assert_int_equal(varve_sim_clock_ns(device), now); /* 4 MiB hold 3 */
    assert_int_equal(ops->pool_trim(device, 0), 0);
    assert_int_equal(varve_sim_clock_ns(device), now += 12000 + 7000);
    assert_int_equal(varve_sim_used(device), UNIT); /* of 1,024 bytes */
    assert_int_equal(ops->pool_trim(device, UINT64_MAX), 0);
    assert_int_equal(varve_sim_used(device), UNIT);
    sim_close(device);
}
