/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of the cuda device on a real GPU, beyond the rules of all devices (test_device_cuda): copies that go on
 * while the program does, memory of the host that is not pinned, rows at any pitch, patterns of 8 bytes over many
 * elements, captures, and two GPUs.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"

#include <inttypes.h>

#define LARGE ((uint64_t)1 << 25) /* elements of 8 bytes: more rows than 24 bits count */

static unsigned char *host_of(uint64_t addr)
{
    return (unsigned char *)(uintptr_t)addr;
}

static uint64_t addr_of(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static uint64_t device_memory(struct varve_device *device, uint64_t bytes)
{
    uint64_t addr = 0;
    assert_int_equal(device->ops->segment_alloc(device, bytes, 0, &addr), 0);
    return addr;
}

static uint64_t pinned_memory(struct varve_device *device, uint64_t bytes)
{
    uint64_t addr = 0;
    assert_int_equal(device->ops->host_alloc(device, bytes, &addr), 0);
    return addr;
}

/* Something that repeats nowhere near. */
static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 2654435761U >> 13);
}

/* There and back on a stream that is held back: the calls return at once, and nothing has happened yet. */
TEST_CUDA(test_asynchronous, 0)
{
    uint64_t addr = device_memory(device, 64 * MIB), host = pinned_memory(device, 64 * MIB);
    uint64_t stream = 0, event = 0;
    assert_non_null(ops->copy);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    assert_int_equal(ops->event_create(device, &event), 0);
    for (uint64_t i = 0; i < 32 * MIB; i++) {
        host_of(host)[i] = byte_at(i);
    }
    memset(host_of(host + 32 * MIB), 0, 32 * MIB);
    struct gpu_gate gate;
    gpu_gate_shut(&gate, stream);
    assert_int_equal(ops->copy(device, addr, host, 32 * MIB, VARVE_COPY_HOST_TO_DEVICE, stream), 0);
    assert_int_equal(ops->copy(device, addr + 32 * MIB, addr, 32 * MIB, VARVE_COPY_WITHIN, stream), 0);
    assert_int_equal(ops->fill(device, addr + 32 * MIB, 0x5a, 1, 1000, stream), 0);
    assert_int_equal(ops->copy(device, host + 32 * MIB, addr + 32 * MIB, 32 * MIB, VARVE_COPY_DEVICE_TO_HOST, stream),
                     0);
    assert_int_equal(ops->event_record(device, event, stream), 0);
    assert_int_equal(ops->event_query(device, event), 0);
    assert_int_equal(host_of(host)[32 * MIB], 0);
    gpu_gate_open(&gate);
    assert_int_equal(ops->event_synchronize(device, event), 0);
    for (uint64_t i = 0; i < 32 * MIB; i++) {
        if (host_of(host)[32 * MIB + i] != (i < 1000 ? 0x5a : byte_at(i))) {
            fail_msg("byte %" PRIu64 " is %#x", i, host_of(host)[32 * MIB + i]);
        }
    }
    assert_int_equal(ops->stream_destroy(device, stream), 0);
    assert_int_equal(ops->host_free(device, host), 0);
}

TEST_CUDA(test_plain_host_memory, 0)
{
    uint64_t bytes = 5 * MIB + 7, addr = device_memory(device, bytes), stream = 0;
    unsigned char *to = malloc(bytes), *from = malloc(bytes);
    assert_true(to != NULL && from != NULL);
    assert_int_equal(ops->stream_create(device, &stream), 0);
    for (uint64_t i = 0; i < bytes; i++) {
        from[i] = byte_at(i);
    }
    assert_int_equal(ops->copy(device, addr, addr_of(from), bytes, VARVE_COPY_HOST_TO_DEVICE, stream), 0);
    assert_int_equal(ops->copy(device, addr_of(to), addr, bytes, VARVE_COPY_DEVICE_TO_HOST, stream), 0);
    assert_int_equal(ops->stream_synchronize(device, stream), 0);
    assert_memory_equal(to, from, bytes);
    free(to);
    free(from);
}

/* `rows` rows out of the host, within the device, and back, each time at other pitches; what lies between stays. */
static void check_rows(struct varve_device *device, uint64_t row_bytes, uint64_t rows, const uint64_t pitches[4])
{
    const struct varve_device_ops *ops = device->ops;
    uint64_t from = pinned_memory(device, rows * pitches[0]), to = pinned_memory(device, rows * pitches[3]);
    uint64_t first = device_memory(device, rows * pitches[1]), second = device_memory(device, rows * pitches[2]);
    const struct varve_copy_2d copies[3] = {
        {VARVE_COPY_HOST_TO_DEVICE, first, pitches[1], from, pitches[0], row_bytes, rows},
        {VARVE_COPY_WITHIN, second, pitches[2], first, pitches[1], row_bytes, rows},
        {VARVE_COPY_DEVICE_TO_HOST, to, pitches[3], second, pitches[2], row_bytes, rows},
    };
    for (uint64_t i = 0; i < rows * pitches[0]; i++) {
        host_of(from)[i] = byte_at(i);
    }
    memset(host_of(to), 0xee, rows * pitches[3]);
    for (size_t i = 0; i < 3; i++) {
        if (ops->copy_2d(device, &copies[i], 0) != 0) {
            fail_msg("%s", cuda_reason(device));
        }
    }
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    for (uint64_t i = 0; i < rows * pitches[3]; i++) {
        uint64_t row = i / pitches[3], column = i % pitches[3];
        if (host_of(to)[i] != (column < row_bytes ? byte_at(row * pitches[0] + column) : 0xee)) {
            fail_msg("row %" PRIu64 " of %" PRIu64 ", byte %" PRIu64 " of %" PRIu64, row, rows, column, row_bytes);
        }
    }
    assert_int_equal(ops->segment_free(device, first, rows * pitches[1]), 0);
    assert_int_equal(ops->segment_free(device, second, rows * pitches[2]), 0);
    assert_int_equal(ops->host_free(device, from), 0);
    assert_int_equal(ops->host_free(device, to), 0);
}

TEST(test_rows)
{
    static const struct {
        uint64_t row_bytes, rows, pitches[4];
    } cases[] = {
        {1, 1000, {3, 5, 7, 11}},           {4, 100000, {8, 12, 4, 20}},           {31, 7, {31, 31, 31, 31}},
        {100, 65536, {128, 100, 257, 101}}, {4096, 300, {4096, 8192, 4097, 5000}},
    };
    struct varve_device *device = cuda_open(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_rows(device, cases[i].row_bytes, cases[i].rows, cases[i].pitches);
    }
    cuda_close_checked(device);
}

/* Farther apart than the driver's copy of rows allows. */
TEST(test_far_rows)
{
    struct varve_device *device = cuda_open(0);
    const struct varve_device_ops *ops = device->ops;
    const uint64_t pitch = (uint64_t)1 << 31, bytes = 2 * pitch + 4096;
    uint64_t free_bytes = 0, total = 0;
    struct varve_copy_2d rows = {
        .direction = VARVE_COPY_HOST_TO_DEVICE, .row_bytes = 1000, .rows = 3, .source_pitch = 1000};
    assert_int_equal(ops->memory_info(device, &free_bytes, &total), 0);
    if (free_bytes < 2 * bytes) {
        cuda_close_checked(device);
        skip("less than %" PRIu64 " bytes are free", 2 * bytes);
    }
    uint64_t addr = device_memory(device, bytes);
    uint64_t host = pinned_memory(device, 3000);
    for (uint64_t i = 0; i < 3000; i++) {
        host_of(host)[i] = (unsigned char)(i / 1000 + 1);
    }
    rows.target_addr = addr;
    rows.target_pitch = pitch;
    rows.source_addr = host;
    assert_int_equal(ops->copy_2d(device, &rows, 0), 0);
    assert_int_equal(ops->stream_synchronize(device, 0), 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(gpu_first_other(addr + i * pitch, 1000, (unsigned char)(i + 1)), 1000);
    }
    cuda_close_checked(device);
}

TEST(test_patterns)
{
    static const uint64_t patterns[] = {UINT64_C(0x3ff0000000000001), UINT64_C(0x1234567812345678), 0};
    struct varve_device *device = cuda_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr = device_memory(device, 8 * (LARGE + 2)), host = pinned_memory(device, 8 * (LARGE + 2));
    const uint64_t *seen = (const uint64_t *)(uintptr_t)host;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ops->fill(device, addr, 0xcc, 1, 8 * (LARGE + 2), 0), 0);
        assert_int_equal(ops->fill(device, addr + 8, patterns[i], 8, LARGE, 0), 0);
        assert_int_equal(ops->copy(device, host, addr, 8 * (LARGE + 2), VARVE_COPY_DEVICE_TO_HOST, 0), 0);
        assert_int_equal(ops->stream_synchronize(device, 0), 0);
        assert_true(seen[0] == UINT64_C(0xcccccccccccccccc) && seen[LARGE + 1] == seen[0]);
        for (uint64_t at = 1; at <= LARGE; at++) {
            if (seen[at] != patterns[i]) {
                fail_msg("element %" PRIu64 " is %#" PRIx64, at, seen[at]);
            }
        }
    }
    cuda_close_checked(device);
}

/* Transfers on a captured stream are done with each launch of the graph, with what is there by then. */
TEST_CUDA(test_capture, 0)
{
    uint64_t addr = device_memory(device, 2 * UNIT), host = pinned_memory(device, UNIT), stream = 0, unused = 0;
    gpu_graph graph = NULL;
    gpu_graph_exec exec = NULL;
    assert_int_equal(ops->stream_create(device, &stream), 0);
    memset(host_of(host), 0, UNIT);
    GPU_OK(gpu.capture_begin(gpu_stream_of(stream), CUDA_CAPTURE_MODE_GLOBAL));
    assert_int_equal(ops->copy(device, addr, host, UNIT, VARVE_COPY_HOST_TO_DEVICE, stream), 0);
    assert_int_equal(ops->copy(device, addr + UNIT, addr, UNIT, VARVE_COPY_WITHIN, stream), 0);
    assert_int_equal(ops->fill(device, addr, UINT64_C(0x0102030405060708), 8, 10, stream), 0);
    assert_int_equal(ops->host_alloc(device, 100, &unused), 0);
    assert_int_equal(ops->host_free(device, unused), 0);
    assert_int_equal(ops->stream_destroy(device, stream), VARVE_ERROR_BUSY);
    GPU_OK(gpu.capture_end(gpu_stream_of(stream), &graph));
    assert_non_null(graph);
    GPU_OK(gpu.graph_make(&exec, graph, 0));
    for (unsigned char i = 1; i < 4; i++) {
        memset(host_of(host), i, UNIT);
        GPU_OK(gpu.graph_launch(exec, gpu_stream_of(stream)));
        assert_int_equal(ops->stream_synchronize(device, stream), 0);
        assert_int_equal(gpu_first_other(addr + UNIT, UNIT, i), UNIT);
        assert_int_equal(gpu_first_other(addr + 80, UNIT - 80, i), UNIT - 80);
        assert_int_equal(gpu_first_other(addr, 80, 8), 1);
    }
    GPU_OK(gpu.graph_exec_destroy(exec));
    GPU_OK(gpu.graph_destroy(graph));
    /* with the stream and the memory */
}

TEST(test_peer)
{
    struct varve_device *device = cuda_open(0), *other = NULL;
    const struct varve_cuda_options options = {.index = 1, .ordinal = 1};
    uint64_t addr = device_memory(device, UNIT);
    if (gpu.count < 2) {
        cuda_close_checked(device);
        skip("peers need two GPUs");
    }
    assert_int_equal(varve_cuda_open(&options, &other, NULL), 0);
    uint64_t there = device_memory(other, UNIT);
    for (int i = 0; i < 2; i++) {
        int has_access = i == 1 && device->ops->peer_enable(device, 1) == 0 && other->ops->peer_enable(other, 0) == 0;
        assert_int_equal(device->ops->fill(device, addr, 0x21 + (unsigned)i, 1, UNIT, 0), 0);
        assert_int_equal(device->ops->copy(device, there, addr, UNIT, VARVE_COPY_DEVICE_TO_PEER, 0), 0);
        assert_int_equal(device->ops->fill(device, addr, 0, 1, UNIT, 0), 0);
        assert_int_equal(device->ops->copy(device, addr, there, UNIT, VARVE_COPY_PEER_TO_DEVICE, 0), 0);
        assert_int_equal(device->ops->stream_synchronize(device, 0), 0);
        assert_int_equal(gpu_first_other(addr, UNIT, (unsigned char)(0x21 + i)), UNIT);
        printf("peers %s access to each other\n", has_access ? "with" : "without");
    }
    cuda_close_checked(other);
    cuda_close_checked(device);
}

TEST_FILE(gpu_start, NULL)
