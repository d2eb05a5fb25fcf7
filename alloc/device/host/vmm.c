/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory of the host device: a reservation is a mapping without access, a handle an extent of the
 * device's file, mapped over it. A fresh mapping has no access either until it is given, so that what forgets
 * to ask for it dies here as it would on a GPU. Called through the ops table.
 */
#include "alloc/device/host/vmm.h"
#include "alloc/device/host/host.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HOST_UNIT ((uint64_t)2 << 20) /* reservations begin at its multiples, as those of the driver do */

/* Address space without memory, at `addr` if that is not 0. */
static int map_nothing(struct host_device *host, uint64_t addr, uint64_t bytes, uint64_t *addr_out)
{
    void *memory = mmap((void *)(uintptr_t)addr, bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (addr ? MAP_FIXED : 0), -1, 0);

    if (memory == MAP_FAILED) {
        return host_failed(host, "mmap");
    }
    *addr_out = (uint64_t)(uintptr_t)memory;
    return 0;
}

static int reserve(struct host_device *host, uint64_t bytes, uint64_t *addr_out)
{
    struct device_range *range;
    uint64_t from = 0, addr;
    int error;

    if (bytes == 0 || bytes % host->resources.grain != 0) {
        return DEVICE_REFUSE(&host->resources, VARVE_ERROR_INVALID,
                             "a reservation of %llu bytes is not a multiple of %llu",
                             (unsigned long long)bytes, (unsigned long long)host->resources.grain);
    }
    if (bytes > UINT64_MAX / 2) {
        return DEVICE_REFUSE(&host->resources, VARVE_ERROR_NO_MEMORY, "no addresses for %llu bytes",
                             (unsigned long long)bytes);
    }
    range = resources_range_new(&host->resources, DEVICE_RANGE_RESERVATION, bytes);
    error = range ? map_nothing(host, 0, bytes + HOST_UNIT, &from) : VARVE_ERROR_NO_MEMORY;
    if (error != 0) {
        free(range);
        return error;
    }
    addr = (from + HOST_UNIT - 1) / HOST_UNIT * HOST_UNIT;
    if (addr != from) {
        host_unmap(host, from, addr - from);
    }
    host_unmap(host, addr + bytes, from + HOST_UNIT - addr);
    error = resources_range_enter(&host->resources, range, addr);
    if (error != 0) {
        host_unmap(host, addr, bytes);
        return error;
    }
    *addr_out = addr;
    return 0;
}

int host_vmm_reserve(struct varve_device *device, uint64_t bytes,
                     const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    (void)reservation;
    return error != 0 ? error : host_leave(host, reserve(host, bytes, addr_out));
}

static int handle_create(struct host_device *host, uint64_t bytes, uint64_t *handle_out)
{
    uint64_t offset;
    int error = resources_room(&host->resources, bytes);

    if (error == 0) {
        error = host_extent_alloc(host, bytes, &offset);
    }
    if (error != 0) {
        return error;
    }
    error = resources_handle_create(&host->resources, bytes, offset, handle_out);
    if (error != 0) {
        host_extent_free(host, offset, false);
    }
    return error;
}

int host_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    return error != 0 ? error : host_leave(host, handle_create(host, bytes, handle_out));
}

int host_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle)
{
    struct host_device *host = host_of(device);
    struct device_range *mapping;
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    error = resources_map_check(&host->resources, addr, bytes, handle, &mapping);
    if (error == 0) {
        uint64_t offset = slots_find(&host->resources.handles, handle)->value;

        error = host_map_file(host, host->fd, offset, bytes, PROT_NONE, addr, &addr);
        if (error == 0) {
            resources_map_enter(&host->resources, mapping);
        } else {
            free(mapping);
        }
    }
    return host_leave(host, error);
}

int host_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    if (peer < 0 || peer > DEVICE_INDEX_MAX) {
        error = DEVICE_REFUSE(&host->resources, VARVE_ERROR_INVALID, "%d is no device's index", peer);
    } else {
        error = resources_mapped_check(&host->resources, addr, bytes);
    }
    if (error == 0 && peer == device->index &&
        mprotect((void *)(uintptr_t)addr, bytes, PROT_READ | PROT_WRITE) != 0) {
        error = host_failed(host, "mprotect");
    }
    return host_leave(host, error);
}

int host_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    error = resources_mapped_check(&host->resources, addr, bytes);
    if (error == 0) {
        error = map_nothing(host, addr, bytes, &addr);
    }
    if (error == 0) {
        resources_unmap_enter(&host->resources, addr, bytes);
    }
    return host_leave(host, error);
}

int host_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    return error != 0 ? error : host_leave(host, resources_handle_release(&host->resources, handle, bytes));
}

int host_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct host_device *host = host_of(device);
    struct device_range *range;
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    error = bytes == 0
                ? DEVICE_REFUSE(&host->resources, VARVE_ERROR_INVALID, "0 bytes to free")
                : resources_range_find(&host->resources, DEVICE_RANGE_RESERVATION, addr, bytes, &range);
    if (error == 0) {
        host_unmap(host, addr, bytes);
        resources_range_drop(&host->resources, range);
    }
    return host_leave(host, error);
}
