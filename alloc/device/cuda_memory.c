/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the cuda device. A handle is a slot of the resource table with the driver's in it, since the driver takes
 * any number for a handle and its behaviour is undefined for a stale one. Stream-ordered memory has a pool of its own,
 * made when it is first asked for: the program's default pool is nothing to it, and its release threshold can be
 * unlimited. An allocation or a free on a captured stream would become a part of the graph; both are
 * refused before that.
 */
#include "alloc/device/cuda_device.h"

static struct cuda_memory_kind memory_kind(const struct cuda_device *cuda)
{
    return (struct cuda_memory_kind){
        .type = CUDA_ALLOCATION_PINNED,
        .handle_types = cuda->shares ? CUDA_HANDLE_TYPE_FD : CUDA_HANDLE_TYPE_NONE,
        .location = {.type = CUDA_LOCATION_DEVICE, .id = cuda->ordinal},
    };
}

uint64_t cuda_vmm_granularity(const struct cuda_device *cuda)
{
    struct cuda_memory_kind kind = memory_kind(cuda);
    size_t bytes = 0;
    int has_vmm = 0;
    if (cuda->driver->device_attribute(&has_vmm, CUDA_ATTRIBUTE_HAS_VMM, cuda->ordinal) != CUDA_RESULT_SUCCESS ||
        !has_vmm || cuda->driver->vmm_granularity(&bytes, &kind, CUDA_GRANULARITY_MINIMUM) != CUDA_RESULT_SUCCESS) {
        return 0;
    }
    return bytes;
}

/* ---- the pool of stream-ordered memory ---- */

bool cuda_has_pools(const struct cuda_device *cuda)
{
    const struct cuda_driver *driver = cuda->driver;
    int has_pools = 0;

#define IS_THERE(field, symbol, exported, version, parameters) driver->field &&
    return CUDA_DRIVER_POOL_LIST(IS_THERE) driver->stream_create && driver->stream_destroy &&
           driver->device_attribute(&has_pools, CUDA_ATTRIBUTE_HAS_POOLS, cuda->ordinal) == CUDA_RESULT_SUCCESS &&
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
    if (cuda->pool) {
        return VARVE_OK;
    }
    int error = cuda_failed(cuda, cuda->driver->pool_create(&cuda->pool, &kind), "cuMemPoolCreate for CUDA device %d",
                            cuda->ordinal);
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

static int join_stream(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = VARVE_OK;
    if (!cuda->join_stream) {
        error = cuda_failed(cuda, cuda->driver->stream_create(&cuda->join_stream, CUDA_STREAM_NON_BLOCKING),
                            "cuStreamCreate for CUDA device %d", cuda->ordinal);
    }
    if (error != VARVE_OK) {
        cuda->join_stream = NULL;
        return error;
    }
    *(uint64_t *)call->out = (uint64_t)(uintptr_t)cuda->join_stream;
    return VARVE_OK;
}

int cuda_join_stream(struct varve_device *device, uint64_t *stream_out)
{
    return device_run(device, (struct device_call){.out = stream_out}, join_stream);
}

static int cuda_memory_trim(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_pool pool = cuda->pool; /* there until the device closes */
    if (!pool) {
        return VARVE_OK;
    }
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->pool_trim(pool, call->bytes);
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuMemPoolTrimTo %llu bytes", (unsigned long long)call->bytes);
}

int cuda_pool_trim(struct varve_device *device, uint64_t keep_bytes)
{
    return device_run(device, (struct device_call){.bytes = keep_bytes, .gives_back = true}, cuda_memory_trim);
}

/* ---- ranges ---- */

/* The pool may have to grow, which lasts: the table is unlocked meanwhile, and counts the memory already. */
static int pool_obtain(struct cuda_device *cuda, struct device_range *range, uint64_t stream)
{
    struct device_resources *resources = &cuda->table.resources;
    int error = resources_pool_room(resources, range->bytes);
    VARVE_THEN(error, cuda_capture_check(cuda, stream));
    VARVE_THEN(error, pool_make(cuda));
    if (error != VARVE_OK) {
        return error;
    }
    resources_pool_grow(resources, range->bytes);
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->pool_alloc(&range->addr, range->bytes, cuda->pool, cuda_stream_of(stream));
    cuda_lock(cuda);
    if (result != CUDA_RESULT_SUCCESS) {
        resources_pool_shrink(resources, range->bytes);
    }
    return cuda_failed(cuda, result, "cuMemAllocFromPoolAsync of %llu bytes on the stream %#llx",
                       (unsigned long long)range->bytes, (unsigned long long)stream);
}

int cuda_obtain(struct device_table *table, struct device_call *call, struct device_range *range)
{
    struct cuda_device *cuda = cuda_of_table(table);
    if (range->kind == DEVICE_RANGE_POOLED) {
        return pool_obtain(cuda, range, call->stream);
    }
    if (range->kind == DEVICE_RANGE_RESERVATION) {
        return cuda_failed(cuda,
                           cuda->driver->vmm_reserve(&range->addr, range->bytes, cuda->table.resources.grain, 0, 0),
                           "cuMemAddressReserve of %llu bytes", (unsigned long long)range->bytes);
    }
    uint64_t memory = resources_footprint(&table->resources, range->bytes);
    table->resources.used += memory;
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->memory_alloc(&range->addr, range->bytes);
    cuda_lock(cuda);
    table->resources.used -= memory;
    return cuda_failed(cuda, result, "cuMemAlloc of %llu bytes", (unsigned long long)range->bytes);
}

static int pool_give_back(struct cuda_device *cuda, const struct device_range *range, uint64_t stream)
{
    int error = cuda_capture_check(cuda, stream);
    VARVE_THEN(error, cuda_failed(cuda, cuda->driver->pool_free(range->addr, cuda_stream_of(stream)),
                                  "cuMemFreeAsync of %llu bytes at %#llx", (unsigned long long)range->bytes,
                                  (unsigned long long)range->addr));
    if (error == VARVE_OK) {
        resources_pool_shrink(&cuda->table.resources, range->bytes);
    }
    return error;
}

/* For cuMemFree the driver waits for the GPU. */
int cuda_give_back(struct device_table *table, struct device_call *call, struct device_range *range)
{
    struct cuda_device *cuda = cuda_of_table(table);
    unsigned long long addr = range->addr, bytes = range->bytes;
    if (range->kind == DEVICE_RANGE_POOLED) {
        return pool_give_back(cuda, range, call->stream);
    }
    if (range->kind == DEVICE_RANGE_RESERVATION) {
        return cuda_failed(cuda, cuda->driver->vmm_address_free(addr, bytes), "cuMemAddressFree of %llu bytes at %#llx",
                           bytes, addr);
    }
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->memory_free(addr);
    cuda_lock(cuda);
    if (result == CUDA_RESULT_SUCCESS) {
        cuda_export_withdraw(cuda, addr);
    }
    return cuda_failed(cuda, result, "cuMemFree of %llu bytes at %#llx", bytes, addr);
}

/* ---- handles and mappings ---- */

/* The driver may take long to find the memory. */
int cuda_memory_create(struct device_table *table, uint64_t bytes, uint64_t *value_out)
{
    struct cuda_device *cuda = cuda_of_table(table);
    const struct cuda_memory_kind kind = memory_kind(cuda);
    cuda_unlock(cuda);
    cuda_memory memory = 0;
    cuda_result result = cuda->driver->vmm_create(&memory, bytes, &kind, 0);
    cuda_lock(cuda);
    *value_out = memory;
    return cuda_failed(cuda, result, "cuMemCreate of %llu bytes", (unsigned long long)bytes);
}

/* The driver keeps the memory while it is mapped, as the table does. */
int cuda_memory_release(struct device_table *table, uint64_t bytes, uint64_t value)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_lent_withdraw(cuda, value);
    return cuda_failed(cuda, cuda->driver->vmm_release(value), "cuMemRelease of %llu bytes", (unsigned long long)bytes);
}

int cuda_map(struct device_table *table, uint64_t addr, uint64_t bytes, uint64_t value)
{
    struct cuda_device *cuda = cuda_of_table(table);
    return cuda_failed(cuda, cuda->driver->vmm_map(addr, bytes, 0, value, 0), "cuMemMap of %llu bytes at %#llx",
                       (unsigned long long)bytes, (unsigned long long)addr);
}

int cuda_set_access(struct device_table *table, uint64_t addr, uint64_t bytes, int peer)
{
    struct cuda_device *cuda = cuda_of_table(table);
    struct cuda_access access = {.location = {.type = CUDA_LOCATION_DEVICE}, .flags = CUDA_ACCESS_READ_WRITE};
    int error = cuda_peer_ordinal(cuda, peer, &access.location.id);
    return error != VARVE_OK ? error
                             : cuda_failed(cuda, cuda->driver->vmm_set_access(addr, bytes, &access, 1),
                                           "cuMemSetAccess of CUDA device %d to %llu bytes at %#llx",
                                           access.location.id, (unsigned long long)bytes, (unsigned long long)addr);
}

int cuda_unmap(struct device_table *table, uint64_t addr, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of_table(table);
    return cuda_failed(cuda, cuda->driver->vmm_unmap(addr, bytes), "cuMemUnmap of %llu bytes at %#llx",
                       (unsigned long long)bytes, (unsigned long long)addr);
}

/* A failure leaves the rest to the end of the context. */
static void range_close(struct cuda_device *cuda, const struct device_range *range)
{
    if (range->kind == DEVICE_RANGE_SEGMENT || range->kind == DEVICE_RANGE_POOLED) {
        cuda->driver->memory_free(range->addr);
    } else if (range->kind == DEVICE_RANGE_RESERVATION) {
        cuda->driver->vmm_address_free(range->addr, range->bytes);
    }
    for (uint64_t i = 0; range->kind == DEVICE_RANGE_IMPORT && i < range->value; i++) {
        cuda->driver->ipc_close(range->addr);
    }
}

void cuda_memory_close(struct cuda_device *cuda)
{
    cuda_lent_close(cuda);
    const struct device_range *range = device_ranges_at_or_after(&cuda->table.resources.mappings, 0);
    for (; range; range = device_ranges_at_or_after(&cuda->table.resources.mappings, range->addr + 1)) {
        cuda->driver->vmm_unmap(range->addr, range->bytes);
    }
    for (uint32_t i = 0; i < cuda->table.resources.handles.count; i++) {
        const struct device_slot *handle = &cuda->table.resources.handles.slots[i];
        if (handle->is_live && !handle->is_released) {
            cuda->driver->vmm_release(handle->value);
        }
    }
    range = device_ranges_at_or_after(&cuda->table.resources.space, 0);
    for (; range; range = device_ranges_at_or_after(&cuda->table.resources.space, range->addr + 1)) {
        range_close(cuda, range);
    }
    if (cuda->join_stream) {
        cuda->driver->stream_destroy(cuda->join_stream); /* what it has to wait for it goes on waiting for */
    }
    if (cuda->pool) {
        cuda->driver->pool_destroy(cuda->pool);
    }
}
