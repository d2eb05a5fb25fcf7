/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory of the cuda device. A handle is a slot of the resource table with the driver's handle in it, since
 * the driver takes any number for a handle and its behaviour is undefined for a stale one. A fresh mapping
 * has no access until it is given. Called through the ops table.
 */
#include "alloc/device/cuda/vmm.h"
#include "alloc/device/cuda/cuda.h"

#include <stdlib.h>

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

    if (cuda->driver->device_attribute(&has_vmm, CUDA_ATTRIBUTE_HAS_VMM, cuda->ordinal) !=
            CUDA_RESULT_SUCCESS ||
        !has_vmm ||
        cuda->driver->vmm_granularity(&bytes, &kind, CUDA_GRANULARITY_MINIMUM) != CUDA_RESULT_SUCCESS) {
        return 0;
    }
    return bytes;
}

static int reserve(struct cuda_device *cuda, uint64_t bytes, uint64_t *addr_out)
{
    uint64_t grain = cuda->resources.grain;
    struct device_range *range;
    cuda_address addr = 0;
    int error;

    if (bytes == 0 || bytes % grain != 0) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_INVALID,
                             "a reservation of %llu bytes is not a multiple of %llu",
                             (unsigned long long)bytes, (unsigned long long)grain);
    }
    if (bytes > UINT64_MAX / 2) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_NO_MEMORY, "no addresses for %llu bytes",
                             (unsigned long long)bytes);
    }
    range = resources_range_new(&cuda->resources, DEVICE_RANGE_RESERVATION, bytes);
    if (!range) {
        return VARVE_ERROR_NO_MEMORY;
    }
    error = cuda_failed(cuda, cuda->driver->vmm_reserve(&addr, bytes, grain, 0, 0),
                        "cuMemAddressReserve of %llu bytes", (unsigned long long)bytes);
    if (error != VARVE_OK) {
        free(range);
        return error;
    }
    error = resources_range_enter(&cuda->resources, range, addr);
    if (error != VARVE_OK) {
        cuda->driver->vmm_address_free(addr, bytes);
        return error;
    }
    *addr_out = addr;
    return VARVE_OK;
}

int cuda_vmm_reserve(struct varve_device *device, uint64_t bytes,
                     const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    (void)reservation;
    return error != VARVE_OK ? error : cuda_leave(cuda, &scope, reserve(cuda, bytes, addr_out));
}

/* The driver may take long to find the memory: the table is unlocked meanwhile, and counts it already. */
static int handle_create(struct cuda_device *cuda, uint64_t bytes, uint64_t *handle_out)
{
    const struct cuda_memory_kind kind = memory_kind(cuda);
    cuda_memory memory = 0;
    cuda_result result;
    int error = resources_room(&cuda->resources, bytes);

    if (error != VARVE_OK) {
        return error;
    }
    if (bytes % cuda->resources.grain != 0) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_INVALID,
                             "a handle of %llu bytes is not a multiple of %llu", (unsigned long long)bytes,
                             (unsigned long long)cuda->resources.grain);
    }
    cuda->resources.used += bytes;
    cuda_unlock(cuda);
    result = cuda->driver->vmm_create(&memory, bytes, &kind, 0);
    cuda_lock(cuda);
    cuda->resources.used -= bytes;
    error = cuda_failed(cuda, result, "cuMemCreate of %llu bytes", (unsigned long long)bytes);
    if (error != VARVE_OK) {
        return error;
    }
    error = resources_handle_create(&cuda->resources, bytes, memory, handle_out);
    if (error != VARVE_OK) {
        cuda->driver->vmm_release(memory);
    }
    return error;
}

int cuda_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    return error != VARVE_OK ? error : cuda_leave(cuda, &scope, handle_create(cuda, bytes, handle_out));
}

int cuda_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_range *mapping;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    error = resources_map_check(&cuda->resources, addr, bytes, handle, &mapping);
    if (error == VARVE_OK) {
        cuda_memory memory = slots_find(&cuda->resources.handles, handle)->value;

        error = cuda_failed(cuda, cuda->driver->vmm_map(addr, bytes, 0, memory, 0),
                            "cuMemMap of %llu bytes at %#llx", (unsigned long long)bytes,
                            (unsigned long long)addr);
        if (error == VARVE_OK) {
            resources_map_enter(&cuda->resources, mapping);
        } else {
            free(mapping);
        }
    }
    return cuda_leave(cuda, &scope, error);
}

int cuda_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_access access = {.location = {.type = CUDA_LOCATION_DEVICE}, .flags = CUDA_ACCESS_READ_WRITE};
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    error = resources_mapped_check(&cuda->resources, addr, bytes);
    if (error == VARVE_OK) {
        error = cuda_peer_ordinal(cuda, peer, &access.location.id);
    }
    if (error == VARVE_OK) {
        error = cuda_failed(cuda, cuda->driver->vmm_set_access(addr, bytes, &access, 1),
                            "cuMemSetAccess of CUDA device %d to %llu bytes at %#llx", access.location.id,
                            (unsigned long long)bytes, (unsigned long long)addr);
    }
    return cuda_leave(cuda, &scope, error);
}

/* Mapping by mapping, as the driver wants it. What an error leaves mapped stays in the table. */
static int unmap(struct cuda_device *cuda, uint64_t addr, uint64_t bytes)
{
    uint64_t end = addr + bytes;
    int error = VARVE_OK;

    while (error == VARVE_OK && addr < end) {
        uint64_t part = device_ranges_at_or_before(&cuda->resources.mappings, addr)->bytes;

        error = cuda_failed(cuda, cuda->driver->vmm_unmap(addr, part), "cuMemUnmap of %llu bytes at %#llx",
                            (unsigned long long)part, (unsigned long long)addr);
        if (error == VARVE_OK) {
            resources_unmap_enter(&cuda->resources, addr, part);
        }
        addr += part;
    }
    return error;
}

int cuda_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    error = resources_mapped_check(&cuda->resources, addr, bytes);
    if (error == VARVE_OK) {
        error = unmap(cuda, addr, bytes);
    }
    return cuda_leave_freed(cuda, &scope, error);
}

/* The driver keeps the memory while it is mapped, as the table does; it knows what is no handle. */
int cuda_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct device_slot *slot;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    slot = slots_find(&cuda->resources.handles, handle);
    if (slot && !slot->is_released && slot->bytes == bytes) {
        error = cuda_failed(cuda, cuda->driver->vmm_release(slot->value), "cuMemRelease of %llu bytes",
                            (unsigned long long)bytes);
    }
    if (error == VARVE_OK) {
        error = resources_handle_release(&cuda->resources, handle, bytes);
    }
    return cuda_leave_freed(cuda, &scope, error);
}

int cuda_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_range *range;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    error = resources_range_to_free(&cuda->resources, DEVICE_RANGE_RESERVATION, addr, bytes, &range);
    if (error == VARVE_OK) {
        error = cuda_failed(cuda, cuda->driver->vmm_address_free(addr, bytes),
                            "cuMemAddressFree of %llu bytes at %#llx", (unsigned long long)bytes,
                            (unsigned long long)addr);
    }
    if (error == VARVE_OK) {
        resources_range_drop(&cuda->resources, range);
    }
    return cuda_leave_freed(cuda, &scope, error);
}

void cuda_vmm_close(struct cuda_device *cuda)
{
    const struct device_range *range = device_ranges_at_or_after(&cuda->resources.mappings, 0);

    for (; range; range = device_ranges_at_or_after(&cuda->resources.mappings, range->addr + 1)) {
        cuda->driver->vmm_unmap(range->addr, range->bytes);
    }
    for (uint32_t i = 0; i < cuda->resources.handles.count; i++) {
        const struct device_slot *handle = &cuda->resources.handles.slots[i];

        if (handle->is_live && !handle->is_released) {
            cuda->driver->vmm_release(handle->value);
        }
    }
    range = device_ranges_at_or_after(&cuda->resources.space, 0);
    for (; range; range = device_ranges_at_or_after(&cuda->resources.space, range->addr + 1)) {
        if (range->kind == DEVICE_RANGE_RESERVATION) {
            cuda->driver->vmm_address_free(range->addr, range->bytes);
        }
    }
}
