/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory of the cuda device. It has a pool of its own, made when it is first asked for and
 * kept until the device closes: what the program does with the driver's default pool is nothing to it, and
 * its release threshold can be unlimited, so that the pool serves again what was freed instead of mapping
 * anew after each wait. An allocation or a free on a captured stream would become a part of the graph; both
 * are refused before the driver hears of it. Called through the ops table.
 */
#include "alloc/device/cuda/pool.h"
#include "alloc/device/cuda/cuda.h"
#include "alloc/device/cuda/event.h"

#include <stdlib.h>

bool cuda_has_pools(const struct cuda_device *cuda)
{
    const struct cuda_driver *driver = cuda->driver;
    int has_pools = 0;

#define IS_THERE(field, symbol, exported, version, parameters) driver->field &&
    return CUDA_DRIVER_POOL_LIST(IS_THERE) driver->device_attribute(&has_pools, CUDA_ATTRIBUTE_HAS_POOLS,
                                                                    cuda->ordinal) == CUDA_RESULT_SUCCESS &&
           has_pools;
#undef IS_THERE
}

int cuda_pool_set_access(struct cuda_device *cuda, cuda_ordinal peer)
{
    const struct cuda_access access = {.location = {.type = CUDA_LOCATION_DEVICE, .id = peer},
                                       .flags = CUDA_ACCESS_READ_WRITE};

    if (!cuda->pool) {
        return VARVE_OK;
    }
    return cuda_failed(cuda, cuda->driver->pool_set_access(cuda->pool, &access, 1),
                       "cuMemPoolSetAccess of CUDA device %d", peer);
}

static int pool_set_up(struct cuda_device *cuda)
{
    uint64_t threshold = UINT64_MAX;
    int error = cuda_failed(cuda, cuda->driver->pool_set(cuda->pool, CUDA_POOL_RELEASE_THRESHOLD, &threshold),
                            "cuMemPoolSetAttribute of the release threshold");

    for (int i = 0; error == VARVE_OK && i <= DEVICE_INDEX_MAX; i++) {
        cuda_ordinal peer;

        if (cuda->has_peer[i]) {
            error = cuda_peer_ordinal(cuda, i, &peer);
            error = error == VARVE_OK ? cuda_pool_set_access(cuda, peer) : error;
        }
    }
    return error;
}

static int pool_make(struct cuda_device *cuda)
{
    const struct cuda_pool_kind kind = {
        .type = CUDA_ALLOCATION_PINNED,
        .handle_types = CUDA_HANDLE_TYPE_NONE,
        .location = {.type = CUDA_LOCATION_DEVICE, .id = cuda->ordinal},
    };
    int error;

    if (cuda->pool) {
        return VARVE_OK;
    }
    error = cuda_failed(cuda, cuda->driver->pool_create(&cuda->pool, &kind),
                        "cuMemPoolCreate for CUDA device %d", cuda->ordinal);
    if (error != VARVE_OK) {
        cuda->pool = NULL;
        return error;
    }
    error = pool_set_up(cuda);
    if (error != VARVE_OK) {
        cuda->driver->pool_destroy(cuda->pool);
        cuda->pool = NULL;
    }
    return error;
}

void cuda_pool_close(struct cuda_device *cuda)
{
    if (cuda->join_stream) {
        cuda->driver->stream_destroy(cuda->join_stream); /* what it has to wait for it goes on waiting for */
    }
    if (cuda->pool) {
        cuda->driver->pool_destroy(cuda->pool);
    }
}

/* The pool may have to grow, which lasts: the table is unlocked meanwhile, and counts the memory already. */
static int pool_obtain(struct cuda_device *cuda, struct device_range *range, uint64_t stream,
                       uint64_t *addr_out)
{
    uint64_t bytes = range->bytes;
    cuda_address addr = 0;
    cuda_result result;
    int error;

    resources_pool_grow(&cuda->resources, bytes);
    cuda_unlock(cuda);
    result = cuda->driver->pool_alloc(&addr, bytes, cuda->pool, cuda_stream_of(stream));
    cuda_lock(cuda);
    error = cuda_failed(cuda, result, "cuMemAllocFromPoolAsync of %llu bytes on the stream %#llx",
                        (unsigned long long)bytes, (unsigned long long)stream);
    if (error != VARVE_OK) {
        free(range);
    } else {
        error = resources_range_enter(&cuda->resources, range, addr);
        if (error != VARVE_OK) {
            cuda->driver->pool_free(addr, cuda_stream_of(stream));
        }
    }
    if (error != VARVE_OK) {
        resources_pool_shrink(&cuda->resources, bytes);
    } else {
        *addr_out = addr;
    }
    return error;
}

int cuda_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_range *range = NULL;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    error = bytes == 0 ? DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_INVALID, "0 bytes of memory asked for")
                       : resources_pool_room(&cuda->resources, bytes);
    if (error == VARVE_OK) {
        error = cuda_capture_check(cuda, stream);
    }
    if (error == VARVE_OK) {
        error = pool_make(cuda);
    }
    if (error == VARVE_OK) {
        range = resources_range_new(&cuda->resources, DEVICE_RANGE_POOLED, bytes);
        error = range ? pool_obtain(cuda, range, stream, addr_out) : VARVE_ERROR_NO_MEMORY;
    }
    return cuda_leave(cuda, &scope, error);
}

int cuda_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_range *range;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    error = resources_range_to_free(&cuda->resources, DEVICE_RANGE_POOLED, addr, bytes, &range);
    if (error == VARVE_OK) {
        error = cuda_capture_check(cuda, stream);
    }
    if (error == VARVE_OK) {
        error = cuda_failed(cuda, cuda->driver->pool_free(addr, cuda_stream_of(stream)),
                            "cuMemFreeAsync of %llu bytes at %#llx", (unsigned long long)bytes,
                            (unsigned long long)addr);
    }
    if (error == VARVE_OK) {
        resources_range_drop(&cuda->resources, range);
        resources_pool_shrink(&cuda->resources, bytes);
    }
    return cuda_leave_freed(cuda, &scope, error);
}

int cuda_join_stream(struct varve_device *device, uint64_t *stream_out)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    if (!cuda->join_stream) {
        error = cuda_failed(cuda, cuda->driver->stream_create(&cuda->join_stream, CUDA_STREAM_NON_BLOCKING),
                            "cuStreamCreate for CUDA device %d", cuda->ordinal);
    }
    if (error == VARVE_OK) {
        *stream_out = (uint64_t)(uintptr_t)cuda->join_stream;
    } else {
        cuda->join_stream = NULL;
    }
    return cuda_leave(cuda, &scope, error);
}

int cuda_pool_trim(struct varve_device *device, uint64_t keep_bytes)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    if (cuda->pool) {
        cuda_pool pool = cuda->pool; /* there until the device closes */
        cuda_result result;

        cuda_unlock(cuda);
        result = cuda->driver->pool_trim(pool, keep_bytes);
        cuda_lock(cuda);
        error = cuda_failed(cuda, result, "cuMemPoolTrimTo %llu bytes", (unsigned long long)keep_bytes);
    }
    return cuda_leave_freed(cuda, &scope, error);
}
