/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The part of the fake driver (driver_fake.h) that is about stream-ordered memory: pools, and what is
 * out of them. As strict as the rest: neither allocating nor freeing on a captured stream goes through
 * unnoticed.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_FAKE_POOL_H
#define VARVE_TESTS_SUPPORT_CUDA_FAKE_POOL_H

#include "support/cuda/fake_state.h"

static inline cuda_result fake_pool_create(cuda_pool *pool_out, const struct cuda_pool_kind *kind)
{
    FAKE_CALL("cuMemPoolCreate", FAKE_INSIDE);
    if (kind->type != CUDA_ALLOCATION_PINNED || kind->location.type != CUDA_LOCATION_DEVICE ||
        kind->location.id != FAKE_ORDINAL || kind->max_bytes || kind->usage || kind->reserved[0]) {
        fake_wrong("cuMemPoolCreate", kind->max_bytes);
    }
    *pool_out = (cuda_pool)(uintptr_t)fake_add(FAKE_POOL, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_pool_destroy(cuda_pool pool)
{
    FAKE_CALL("cuMemPoolDestroy", FAKE_INSIDE);
    if (fake_count(FAKE_POOLED) != 0) {
        fake_wrong("cuMemPoolDestroy with memory out", fake_count(FAKE_POOLED));
    }
    return fake_drop(FAKE_POOL, (uint64_t)(uintptr_t)pool, 0);
}

static inline cuda_result fake_pool_set(cuda_pool pool, enum cuda_pool_attribute attribute, void *value)
{
    if (attribute != CUDA_POOL_RELEASE_THRESHOLD || *(const uint64_t *)value != UINT64_MAX) {
        fake_wrong("cuMemPoolSetAttribute", attribute);
    }
    return fake_use("cuMemPoolSetAttribute", FAKE_POOL, pool, FAKE_INSIDE);
}

static inline cuda_result fake_pool_set_access(cuda_pool pool, const struct cuda_access *access, size_t count)
{
    if (count != 1 || access->flags != CUDA_ACCESS_READ_WRITE) {
        fake_wrong("cuMemPoolSetAccess", count);
    }
    fake.pool_peer = access->location.id;
    return fake_use("cuMemPoolSetAccess", FAKE_POOL, pool, FAKE_INSIDE);
}

static inline cuda_result fake_pool_trim(cuda_pool pool, size_t keep_bytes)
{
    (void)keep_bytes;
    fake.trims++;
    return fake_use("cuMemPoolTrimTo", FAKE_POOL, pool, FAKE_INSIDE | FAKE_LASTS);
}

static inline cuda_result fake_pool_alloc(cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream)
{
    cuda_result result = fake_use("cuMemAllocFromPoolAsync", FAKE_POOL, pool, FAKE_INSIDE | FAKE_LASTS);
    if (stream && (uint64_t)(uintptr_t)stream == fake.captured) {
        fake_wrong("cuMemAllocFromPoolAsync on a captured stream", fake.captured);
    }
    if (result == CUDA_RESULT_SUCCESS && fake.has_no_memory) {
        return CUDA_RESULT_OUT_OF_MEMORY;
    }
    if (result == CUDA_RESULT_SUCCESS) {
        *addr_out = fake_add(FAKE_POOLED, 0, bytes);
    }
    return result;
}

static inline cuda_result fake_pool_free(cuda_address addr, cuda_stream stream)
{
    FAKE_CALL("cuMemFreeAsync", FAKE_INSIDE);
    if (stream && (uint64_t)(uintptr_t)stream == fake.captured) {
        fake_wrong("cuMemFreeAsync on a captured stream", fake.captured);
    }
    fake.free_stream = (uint64_t)(uintptr_t)stream;
    fake.free_orders = fake.orders;
    return fake_drop(FAKE_POOLED, addr, 0);
}

#endif
