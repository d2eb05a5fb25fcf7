/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of the cuda device on a fake driver: which calls become of them, with what arguments and on which stream;
 * what stream capture forbids; pinned memory and streams that are left; and a driver without some of it.
 * Costs: 1 s
 */
#include "support/cuda/fake_device.h"

#define OTHER 0x7000 /* a stream */

/* The transfers so far are these, and are forgotten. */
static void transfers_are(const struct fake_transfer *wanted, size_t count)
{
    assert_int_equal(fake.transfers, count);
    for (size_t i = 0; i < count; i++) {
        const struct fake_transfer *seen = &fake.transfer[i];
        assert_string_equal(seen->name, wanted[i].name);
        assert_int_equal(seen->target, wanted[i].target);
        assert_int_equal(seen->target_pitch, wanted[i].target_pitch);
        assert_int_equal(seen->source, wanted[i].source);
        assert_int_equal(seen->source_pitch, wanted[i].source_pitch);
        assert_int_equal(seen->width, wanted[i].width);
        assert_int_equal(seen->rows, wanted[i].rows);
        assert_int_equal(seen->stream, wanted[i].stream);
        assert_int_equal(seen->value, wanted[i].value);
    }
    fake.transfers = 0;
}

#define TRANSFERS_ARE(...)                                     \
    transfers_are((const struct fake_transfer[]){__VA_ARGS__}, \
                  sizeof((const struct fake_transfer[]){__VA_ARGS__}) / sizeof(struct fake_transfer))

TEST(test_copies)
{
    static const enum varve_copy_direction in[] = {VARVE_COPY_HOST_TO_DEVICE, VARVE_COPY_PEER_TO_DEVICE};
    static const enum varve_copy_direction out[] = {VARVE_COPY_DEVICE_TO_HOST, VARVE_COPY_DEVICE_TO_PEER};
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->copy(device, addr, 0x99000, 5000, in[i], STREAM), 0);
        assert_int_equal(ops->copy(device, 0x99000, addr + 7, 5000, out[i], 0), 0);
        TRANSFERS_ARE({.name = "cuMemcpyAsync", .target = addr, .source = 0x99000, .width = 5000, .stream = STREAM},
                      {.name = "cuMemcpyAsync", .target = 0x99000, .source = addr + 7, .width = 5000});
    }
    assert_int_equal(ops->copy(device, addr + 100, addr, 100, VARVE_COPY_WITHIN, OTHER), 0);
    TRANSFERS_ARE({.name = "cuMemcpyAsync", .target = addr + 100, .source = addr, .width = 100, .stream = OTHER});
    assert_int_equal(ops->copy(device, addr + 99, addr, 100, VARVE_COPY_WITHIN, OTHER), VARVE_ERROR_INVALID);
    assert_int_equal(ops->copy(device, addr, 0x99000, 0, VARVE_COPY_HOST_TO_DEVICE, OTHER), 0);
    assert_int_equal(fake.transfers, 0); /* neither came to the driver */
    fake_closed(device);
}

TEST(test_rows)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    struct varve_copy_2d rows = {.direction = VARVE_COPY_HOST_TO_DEVICE, .source_addr = 0x99000};
    const uint64_t far = (uint64_t)1 << 31;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &rows.target_addr), 0);
    rows.target_pitch = 512;
    rows.source_pitch = 300;
    rows.row_bytes = 200;
    rows.rows = 50;
    assert_int_equal(ops->copy_2d(device, &rows, STREAM), 0);
    TRANSFERS_ARE({.name = "cuMemcpy2DAsync",
                   .target = rows.target_addr,
                   .target_pitch = 512,
                   .source = 0x99000,
                   .source_pitch = 300,
                   .width = 200,
                   .rows = 50,
                   .stream = STREAM});
    rows.source_pitch = far - 1; /* the largest that a driver takes; one more, and it is asked for each row */
    assert_int_equal(ops->copy_2d(device, &rows, STREAM), 0);
    assert_string_equal(fake.transfer[0].name, "cuMemcpy2DAsync");
    fake.transfers = 0;
    rows.source_pitch = far;
    rows.rows = 3;
    assert_int_equal(ops->copy_2d(device, &rows, STREAM), 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_string_equal(fake.transfer[i].name, "cuMemcpyAsync");
        assert_int_equal(fake.transfer[i].target, rows.target_addr + i * 512);
        assert_int_equal(fake.transfer[i].source, 0x99000 + i * far);
        assert_int_equal(fake.transfer[i].width, 200);
    }
    assert_int_equal(fake.transfers, 3);
    fake.transfers = 0;
    rows.target_pitch = rows.source_pitch = rows.row_bytes; /* nothing between them: one row */
    assert_int_equal(ops->copy_2d(device, &rows, STREAM), 0);
    rows.source_pitch++;
    rows.rows = 1;
    assert_int_equal(ops->copy_2d(device, &rows, STREAM), 0);
    TRANSFERS_ARE(
        {.name = "cuMemcpyAsync", .target = rows.target_addr, .source = 0x99000, .width = 600, .stream = STREAM},
        {.name = "cuMemcpyAsync", .target = rows.target_addr, .source = 0x99000, .width = 200, .stream = STREAM});
    fake_closed(device);
}

TEST(test_fills)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    const uint64_t pattern = UINT64_C(0x1122334455667788);
    uint64_t addr = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->fill(device, addr + 1, pattern, 1, 9, STREAM), 0);
    assert_int_equal(ops->fill(device, addr + 2, pattern, 2, 9, STREAM), 0);
    assert_int_equal(ops->fill(device, addr + 4, pattern, 4, 9, STREAM), 0);
    assert_int_equal(ops->fill(device, addr + 8, UINT64_C(0x5566778855667788), 8, 9, STREAM), 0);
    assert_int_equal(ops->fill(device, addr + 8, pattern, 8, 9, STREAM), 0);
    TRANSFERS_ARE({.name = "cuMemsetD8Async", .target = addr + 1, .width = 9, .stream = STREAM, .value = 0x88},
                  {.name = "cuMemsetD16Async", .target = addr + 2, .width = 9, .stream = STREAM, .value = 0x7788},
                  {.name = "cuMemsetD32Async", .target = addr + 4, .width = 9, .stream = STREAM, .value = 0x55667788},
                  {.name = "cuMemsetD32Async", .target = addr + 8, .width = 18, .stream = STREAM, .value = 0x55667788},
                  {.name = "cuMemsetD2D32Async",
                   .target = addr + 8,
                   .target_pitch = 8,
                   .width = 1,
                   .rows = 9,
                   .stream = STREAM,
                   .value = 0x55667788},
                  {.name = "cuMemsetD2D32Async",
                   .target = addr + 12,
                   .target_pitch = 8,
                   .width = 1,
                   .rows = 9,
                   .stream = STREAM,
                   .value = 0x11223344});
    assert_int_equal(ops->fill(device, addr, pattern, 8, 0, STREAM), 0);
    assert_int_equal(ops->fill(device, addr + UNIT - 8, pattern, 8, 2, STREAM), VARVE_ERROR_INVALID);
    assert_int_equal(fake.transfers, 0);
    fake_closed(device);
}

TEST(test_reasons)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, host = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    fake.fail_at = 3; /* after the context, which takes two */
    fake.fail_with = 700;
    assert_int_equal(ops->copy(device, addr, 0x99000, 5000, VARVE_COPY_HOST_TO_DEVICE, STREAM), VARVE_ERROR_IO);
    assert_non_null(strstr(reason(device), "cuMemcpyAsync of 1 * 5000 bytes from 0x99000 to "));
    assert_non_null(strstr(reason(device), "on the stream 0x5000: CUDA_ERROR_OTHER"));
    fake.has_no_memory = true;
    assert_int_equal(ops->host_alloc(device, 5000, &host), VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(reason(device), "cuMemHostAlloc of 5000 bytes: CUDA_ERROR_OUT_OF_MEMORY"));
    assert_int_equal(host, 0);
    fake_closed(device);
}

/* Transfers become a part of the graph; what would end the capture of another stream is refused. */
TEST(test_capture)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, stream = 0, host = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    fake.captured = stream;
    assert_int_equal(ops->host_alloc(device, 100, &host), 0);
    assert_int_equal(ops->copy(device, addr, host, 100, VARVE_COPY_HOST_TO_DEVICE, stream), 0);
    assert_int_equal(ops->fill(device, addr, 1, 4, 10, stream), 0);
    assert_int_equal(ops->fill(device, addr, 1, 4, 10, STREAM), 0);
    assert_int_equal(fake.transfers, 3);
    assert_int_equal(ops->copy(device, addr, host, 100, VARVE_COPY_HOST_TO_DEVICE, 0), VARVE_ERROR_BUSY);
    assert_int_equal(ops->fill(device, addr, 1, 4, 10, 0), VARVE_ERROR_BUSY);
    assert_int_equal(fake.transfers, 3);
    assert_int_equal(ops->stream_destroy(device, stream), VARVE_ERROR_BUSY);
    assert_non_null(strstr(reason(device), "is being captured"));
    assert_int_equal(ops->host_free(device, host), 0);
    fake.captured = 0;
    assert_int_equal(ops->stream_destroy(device, stream), 0);
    assert_int_equal(ops->fill(device, addr, 1, 4, 10, 0), 0);
    fake_closed(device);
}

/* What is left goes with the device: fake_closed looks. */
TEST(test_left)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t streams[3], hosts[3], joined = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops->stream_create(device, &streams[i]), 0);
        assert_int_equal(ops->host_alloc(device, 5000, &hosts[i]), 0);
    }
    assert_int_equal(fake_count(FAKE_STREAM), 3);
    assert_int_equal(fake_count(FAKE_PINNED), 3);
    assert_int_equal(ops->join_stream(device, &joined), 0);
    assert_int_equal(ops->stream_destroy(device, joined), VARVE_ERROR_NOT_FOUND); /* the device's own */
    assert_int_equal(ops->stream_destroy(device, streams[1]), 0);
    assert_int_equal(ops->host_free(device, hosts[1]), 0);
    assert_int_equal(fake_count(FAKE_STREAM), 3);
    assert_int_equal(fake_count(FAKE_PINNED), 2);
    fake_closed(device);
}

/* Giving back is no error at the driver's end, the rest is. */
TEST(test_end)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = 0, stream = 0, host = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &addr), 0);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    assert_int_equal(ops->host_alloc(device, 100, &host), 0);
    void *memory = (void *)(uintptr_t)host;
    fake.has_ended = true;
    assert_int_equal(ops->host_free(device, host), 0);
    uint64_t calls = fake.calls;
    assert_int_equal(ops->stream_destroy(device, stream), 0);
    assert_int_equal(ops->stream_create(device, &stream), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->host_alloc(device, 100, &host), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->copy(device, addr + 100, addr, 100, VARVE_COPY_WITHIN, 0), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(ops->fill(device, addr, 0, 1, 1, 0), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(fake.calls, calls);
    fake.device = NULL;
    device->ops->close(device);
    nothing_is_wrong();
    free(memory); /* as the end of a process would */
}

/* All or none; pools need two of them. */
/* Memory that others have got from the driver, in two pieces that follow each other: the driver says whose it is. */
TEST(test_foreign_memory)
{
    struct varve_device *device = fake_opened();
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = fake_add(FAKE_SEGMENT, 0, UNIT), next = fake_add(FAKE_SEGMENT, addr + UNIT, UNIT), own = 0;
    assert_int_equal(ops->segment_alloc(device, UNIT, 0, &own), 0);
    assert_int_equal(ops->fill(device, addr, 7, 1, 2 * UNIT, STREAM), 0);
    assert_int_equal(ops->copy(device, 0x99000, addr + 5, UNIT, VARVE_COPY_DEVICE_TO_HOST, STREAM), 0);
    assert_int_equal(ops->copy(device, own, next, UNIT, VARVE_COPY_WITHIN, STREAM), 0);
    TRANSFERS_ARE({.name = "cuMemsetD8Async", .target = addr, .width = 2 * UNIT, .stream = STREAM, .value = 7},
                  {.name = "cuMemcpyAsync", .target = 0x99000, .source = addr + 5, .width = UNIT, .stream = STREAM},
                  {.name = "cuMemcpyAsync", .target = own, .source = next, .width = UNIT, .stream = STREAM});
    assert_int_equal(ops->fill(device, addr, 7, 1, 2 * UNIT + 1, STREAM), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(reason(device), "lies in no memory of CUDA device 1"));
    assert_int_equal(ops->fill(device, own, 7, 1, UNIT + 1, STREAM), VARVE_ERROR_INVALID);
    fake.pointer_device = 1;
    assert_int_equal(ops->fill(device, addr, 7, 1, 1, STREAM), VARVE_ERROR_NOT_FOUND);
    fake.pointer_device = 0;
    for (uint64_t call = 1; call <= 6; call++) { /* each of what is asked of the driver, and the fill itself */
        fake.fail_at = call;
        fake.fail_with = 719;
        assert_int_equal(ops->fill(device, addr, 7, 1, 1, STREAM), VARVE_ERROR_IO);
        assert_int_equal(fake.fail_at, 0);
    }
    assert_int_equal(fake.transfers, 0);
    assert_int_equal(fake_drop(FAKE_SEGMENT, addr, UNIT) | fake_drop(FAKE_SEGMENT, next, UNIT), 0);
    assert_int_equal(ops->fill(device, addr, 7, 1, 1, STREAM), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(ops->segment_free(device, own, UNIT), 0);
    fake_closed(device);
}

TEST(test_old_driver)
{
    const struct varve_cuda_options options = {.index = RULES_INDEX, .ordinal = FAKE_ORDINAL};
    struct cuda_driver driver = fake_driver;
    for (int i = 0; i < 2; i++) {
        struct varve_device *device = NULL;
        fake_reset();
        driver.copy_2d = NULL;
        driver.stream_create = i == 0 ? fake_stream_create : NULL;
        assert_int_equal(cuda_device_open(&driver, &options, &device, NULL), 0);
        assert_true(!device->ops->copy && !device->ops->copy_2d && !device->ops->fill);
        assert_true(!device->ops->stream_create && !device->ops->stream_destroy);
        assert_true(!device->ops->host_alloc && !device->ops->host_free);
        assert_non_null(device->ops->stream_wait_event);
        assert_true((device->ops->alloc_async != NULL) == (i == 0));
        device->ops->close(device);
        nothing_is_wrong();
    }
}
