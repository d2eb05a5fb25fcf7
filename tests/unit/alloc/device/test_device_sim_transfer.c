/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of the sim device: what they take on the virtual clock, that scripts count them and make them
 * fail, and which of its made-up ranges they may touch.
 * Costs: 1 s
 */
#include "support/cuda/device.h"

#include <string.h>

#define HOST 0x1000 /* an address that nobody looks at */

static int copy(struct varve_device *device, uint64_t target, uint64_t source, uint64_t bytes,
                enum varve_copy_direction direction)
{
    return device->ops->copy(device, target, source, bytes, direction, 0);
}

static uint64_t took(struct varve_device *device)
{
    static uint64_t before;
    uint64_t ns = varve_sim_clock_ns(device) - before;
    before += ns;
    return ns;
}

TEST(test_clock)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.has_latency = true});
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 1100 * MIB), far = addr + 550 * MIB, stream = 0, host = 0;
    struct varve_copy_2d rows = {.direction = VARVE_COPY_HOST_TO_DEVICE,
                                 .target_addr = addr,
                                 .target_pitch = 4096,
                                 .source_addr = HOST,
                                 .source_pitch = 1000,
                                 .row_bytes = 550,
                                 .rows = 100000};
    took(device);
    assert_int_equal(copy(device, addr, HOST, 55000000, VARVE_COPY_HOST_TO_DEVICE), 0);
    assert_int_equal(took(device), 2000 + 1000000);
    assert_int_equal(copy(device, HOST, addr, 55000000, VARVE_COPY_DEVICE_TO_HOST), 0);
    assert_int_equal(took(device), 2000 + 1000000);
    assert_int_equal(copy(device, addr, HOST, 380000000, VARVE_COPY_PEER_TO_DEVICE), 0);
    assert_int_equal(took(device), 2000 + 1000000);
    assert_int_equal(copy(device, HOST, addr, 380000000, VARVE_COPY_DEVICE_TO_PEER), 0);
    assert_int_equal(took(device), 2000 + 1000000);
    assert_int_equal(copy(device, far, addr, 190000000, VARVE_COPY_WITHIN), 0);
    assert_int_equal(took(device), 2000 + 100000);
    assert_int_equal(ops->fill(device, addr, 1, 4, 87500000, 0), 0);
    assert_int_equal(took(device), 2000 + 100000);
    assert_int_equal(ops->copy_2d(device, &rows, 0), 0); /* the bytes of the rows, not what lies between */
    assert_int_equal(took(device), 2000 + 1000000);
    assert_int_equal(copy(device, addr, HOST, 0, VARVE_COPY_HOST_TO_DEVICE), 0);
    assert_int_equal(ops->fill(device, addr, 1, 4, 0, 0), 0);
    assert_int_equal(copy(device, addr, 0, 100, VARVE_COPY_HOST_TO_DEVICE), VARVE_ERROR_INVALID);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    assert_int_equal(ops->host_alloc(device, 1000, &host), 0);
    assert_int_equal(took(device), 0);
    sim_close(device);
    device = sim_open(&(struct varve_sim_options){0});
    addr = segment(device, MIB);
    assert_int_equal(copy(device, addr, HOST, MIB, VARVE_COPY_HOST_TO_DEVICE), 0);
    assert_int_equal(varve_sim_clock_ns(device), 0);
    sim_close(device);
}

TEST(test_faults)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){0});
    const struct varve_device_ops *ops = device->ops;
    struct varve_message message = {""};
    uint64_t addr = segment(device, MIB), stream = 0;
    struct varve_copy_2d rows = {VARVE_COPY_WITHIN, addr, 64, addr + 32, 64, 32, 10};
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_COPY, 2, 1, VARVE_ERROR_IO), 0);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_FILL, 1, 2, VARVE_ERROR_BUSY), 0);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_HOST_ALLOC, 1, 1, VARVE_ERROR_NO_MEMORY), 0);
    assert_int_equal(varve_sim_fail(device, VARVE_DEVICE_STREAM_CREATE, 1, 1, VARVE_ERROR_FULL), 0);
    assert_int_equal(copy(device, addr, HOST, 10, VARVE_COPY_HOST_TO_DEVICE), 0);
    assert_int_equal(ops->copy_2d(device, &rows, 0), VARVE_ERROR_IO);
    ops->reason(device, &message);
    assert_string_equal(message.text, "call 2 was to fail");
    assert_int_equal(ops->copy_2d(device, &rows, 0), 0);
    rows.row_bytes = 33;
    assert_int_equal(ops->copy_2d(device, &rows, 0), VARVE_ERROR_INVALID);
    ops->reason(device, &message);
    assert_non_null(strstr(message.text, "overlaps itself"));
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, 0), VARVE_ERROR_BUSY);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, 0), VARVE_ERROR_BUSY);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, 0), 0);
    assert_int_equal(ops->host_alloc(device, 1, &stream), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(ops->stream_create(device, &stream), VARVE_ERROR_FULL);
    assert_int_equal(stream, 0);
    assert_int_equal(varve_sim_calls(device, VARVE_DEVICE_COPY), 4);
    assert_int_equal(varve_sim_calls(device, VARVE_DEVICE_FILL), 3);
    sim_close(device);
}

/* Two segments side by side are two; a range of the pool is as good as a segment. */
TEST(test_ranges)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.alignment = 4096});
    const struct varve_device_ops *ops = device->ops;
    uint64_t first = segment(device, 4096), second = segment(device, 4096), pooled = 0;
    assert_int_equal(second, first + 4096);
    assert_int_equal(ops->fill(device, first, 0, 1, 4096, 0), 0);
    assert_int_equal(ops->fill(device, second, 0, 1, 4096, 0), 0);
    assert_int_equal(ops->fill(device, first, 0, 1, 4097, 0), VARVE_ERROR_INVALID);
    assert_int_equal(ops->fill(device, first - 1, 0, 1, 1, 0), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->alloc_async(device, 1000, 0, &pooled), 0);
    assert_int_equal(copy(device, pooled, first, 1000, VARVE_COPY_WITHIN), 0);
    assert_int_equal(copy(device, pooled, first, 1001, VARVE_COPY_WITHIN), VARVE_ERROR_INVALID);
    assert_int_equal(ops->free_async(device, pooled, 1000, 0), 0);
    assert_int_equal(copy(device, pooled, first, 1000, VARVE_COPY_WITHIN), VARVE_ERROR_NOT_FOUND);
    sim_close(device);
}

TEST(test_streams)
{
    struct varve_device *device = sim_open(&(struct varve_sim_options){.events_are_scripted = true});
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = segment(device, 4096), stream = 0, event = 0, joined = 0;
    assert_int_equal(ops->join_stream(device, &joined), 0);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    assert_true(stream != joined);
    assert_int_equal(ops->event_create(device, &event), 0);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, stream), 0);
    assert_int_equal(ops->event_record(device, event, stream), 0);
    assert_int_equal(ops->event_query(device, event), 0); /* transfers complete when the script says so */
    assert_int_equal(varve_sim_stream_complete(device, stream), 0);
    assert_int_equal(ops->event_query(device, event), 1);
    assert_int_equal(ops->stream_destroy(device, stream), 0);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->fill(device, addr, 0, 1, 0, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->event_record(device, event, stream), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, joined), 0);
    sim_close(device);
}
