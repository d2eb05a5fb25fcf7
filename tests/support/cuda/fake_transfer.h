/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The part of the fake driver (driver_fake.h) that is about transfers: streams, copies, fills and pinned memory. The
 * memory of the fake device is none, so nothing is copied: the calls are written down. Work for the default stream
 * while another one is under capture would end that capture: it is noted as wrong.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_FAKE_TRANSFER_H
#define VARVE_TESTS_SUPPORT_CUDA_FAKE_TRANSFER_H

#include "support/cuda/fake_state.h"

#include <stdlib.h>

static inline cuda_result fake_stream_create(cuda_stream *stream_out, unsigned flags)
{
    FAKE_CALL("cuStreamCreate", FAKE_INSIDE);
    if (flags != CUDA_STREAM_NON_BLOCKING) {
        fake_wrong("cuStreamCreate", flags);
    }
    *stream_out = (cuda_stream)(uintptr_t)fake_add(FAKE_STREAM, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_stream_destroy(cuda_stream stream)
{
    FAKE_CALL("cuStreamDestroy", FAKE_INSIDE);
    if (stream && (uint64_t)(uintptr_t)stream == fake.captured) {
        fake_wrong("cuStreamDestroy of a captured stream", fake.captured);
    }
    return fake_drop(FAKE_STREAM, (uint64_t)(uintptr_t)stream, 0);
}

static inline cuda_result fake_transfer(const char *name, struct fake_transfer transfer)
{
    FAKE_CALL(name, FAKE_INSIDE | FAKE_LASTS);
    if (transfer.stream <= CUDA_STREAM_LEGACY && fake.captured) {
        fake_wrong(name, fake.captured);
    }
    transfer.name = name;
    if (fake.transfers < FAKE_TRANSFERS) {
        fake.transfer[fake.transfers] = transfer;
    }
    fake.transfers++;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_copy(cuda_address target, cuda_address source, size_t bytes, cuda_stream stream)
{
    return fake_transfer("cuMemcpyAsync", (struct fake_transfer){.target = target,
                                                                 .source = source,
                                                                 .width = bytes,
                                                                 .stream = (uint64_t)(uintptr_t)stream});
}

static inline cuda_result fake_copy_2d(const struct cuda_copy_2d *copy, cuda_stream stream)
{
    if (copy->source_x || copy->source_y || copy->target_x || copy->target_y ||
        copy->source_type != CUDA_MEMORY_UNIFIED || copy->target_type != CUDA_MEMORY_UNIFIED) {
        fake_wrong("cuMemcpy2DAsync", copy->source_type);
    }
    return fake_transfer("cuMemcpy2DAsync", (struct fake_transfer){.target = copy->target_device,
                                                                   .target_pitch = copy->target_pitch,
                                                                   .source = copy->source_device,
                                                                   .source_pitch = copy->source_pitch,
                                                                   .width = copy->row_bytes,
                                                                   .rows = copy->rows,
                                                                   .stream = (uint64_t)(uintptr_t)stream});
}

static inline cuda_result fake_fill(const char *name, cuda_address addr, uint64_t value, size_t count,
                                    cuda_stream stream)
{
    return fake_transfer(
        name,
        (struct fake_transfer){.target = addr, .value = value, .width = count, .stream = (uint64_t)(uintptr_t)stream});
}

static inline cuda_result fake_fill_8(cuda_address addr, unsigned char value, size_t count, cuda_stream stream)
{
    return fake_fill("cuMemsetD8Async", addr, value, count, stream);
}

static inline cuda_result fake_fill_16(cuda_address addr, unsigned short value, size_t count, cuda_stream stream)
{
    return fake_fill("cuMemsetD16Async", addr, value, count, stream);
}

static inline cuda_result fake_fill_32(cuda_address addr, unsigned value, size_t count, cuda_stream stream)
{
    return fake_fill("cuMemsetD32Async", addr, value, count, stream);
}

static inline cuda_result fake_fill_2d_32(cuda_address addr, size_t pitch, unsigned value, size_t row_count,
                                          size_t rows, cuda_stream stream)
{
    return fake_transfer("cuMemsetD2D32Async", (struct fake_transfer){.target = addr,
                                                                      .target_pitch = pitch,
                                                                      .value = value,
                                                                      .width = row_count,
                                                                      .rows = rows,
                                                                      .stream = (uint64_t)(uintptr_t)stream});
}

/* Memory that is there: tests write to it. */
static inline cuda_result fake_host_alloc(void **memory_out, size_t bytes, unsigned flags)
{
    FAKE_CALL("cuMemHostAlloc", FAKE_INSIDE | FAKE_LASTS);
    if (fake.has_no_memory || bytes > FAKE_TOTAL || posix_memalign(memory_out, 4096, bytes) != 0) {
        return CUDA_RESULT_OUT_OF_MEMORY;
    }
    if (flags != CUDA_HOST_PORTABLE) {
        fake_wrong("cuMemHostAlloc", flags);
    }
    fake_add(FAKE_PINNED, (uint64_t)(uintptr_t)*memory_out, bytes);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_host_free(void *memory)
{
    FAKE_CALL("cuMemFreeHost", FAKE_INSIDE);
    cuda_result result = fake_drop(FAKE_PINNED, (uint64_t)(uintptr_t)memory, 0);
    if (result == CUDA_RESULT_SUCCESS) {
        free(memory);
    }
    return result;
}

#endif
