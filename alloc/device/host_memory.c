/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the host device: a segment is a mapped extent of the device's file, a reservation a mapping without access,
 * a handle an extent that is mapped over it. A fresh mapping has no access either until it is given, so that what
 * forgets to ask for it dies here as it would on a GPU. Called by the operations of all devices.
 */
#include "alloc/device/host_device.h"

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

static int segment_obtain(struct host_device *host, struct device_range *segment)
{
    int error = host_extent_alloc(host, segment->bytes, &segment->value);
    if (error == 0) {
        error =
            host_map_file(host, host->fd, segment->value, segment->bytes, PROT_READ | PROT_WRITE, 0, &segment->addr);
        if (error != 0) {
            host_extent_free(host, segment->value, false);
        }
    }
    return error;
}

static int reservation_obtain(struct host_device *host, struct device_range *reservation)
{
    uint64_t from = 0;
    int error = map_nothing(host, 0, reservation->bytes + HOST_UNIT, &from);
    if (error != 0) {
        return error;
    }
    uint64_t addr = (from + HOST_UNIT - 1) / HOST_UNIT * HOST_UNIT;
    if (addr != from) {
        host_unmap(host, from, addr - from);
    }
    host_unmap(host, addr + reservation->bytes, from + HOST_UNIT - addr);
    reservation->addr = addr;
    return 0;
}

int host_obtain(struct device_table *table, struct device_call *call, struct device_range *range)
{
    (void)call;
    return range->kind == DEVICE_RANGE_SEGMENT ? segment_obtain(host_of_table(table), range)
                                               : reservation_obtain(host_of_table(table), range);
}

/* As cuMemFree, it waits for the work that uses the memory. */
int host_give_back(struct device_table *table, struct device_call *call, struct device_range *range)
{
    struct host_device *host = host_of_table(table);
    bool was_exported = range->export_id != 0;
    (void)call;
    host_work_wait_unused(host, range->addr, range->bytes);
    if (was_exported) {
        host_export_withdraw(host, range->export_id);
    }
    host_unmap(host, range->addr, range->bytes);
    if (range->kind == DEVICE_RANGE_SEGMENT) {
        host_extent_free(host, range->value, was_exported);
    }
    return 0;
}

int host_memory_create(struct device_table *table, uint64_t bytes, uint64_t *value_out)
{
    return host_extent_alloc(host_of_table(table), bytes, value_out);
}

int host_map(struct device_table *table, uint64_t addr, uint64_t bytes, uint64_t value)
{
    struct host_device *host = host_of_table(table);
    return host_map_file(host, host->fd, value, bytes, PROT_NONE, addr, &addr);
}

int host_set_access(struct device_table *table, uint64_t addr, uint64_t bytes, int peer)
{
    return peer == table->device.index && mprotect((void *)(uintptr_t)addr, bytes, PROT_READ | PROT_WRITE) != 0
               ? host_failed(host_of_table(table), "mprotect")
               : 0;
}

/* cuMemUnmap waits for nothing: the streams are to be synchronized before. */
int host_unmap_part(struct device_table *table, uint64_t addr, uint64_t bytes)
{
    int error = host_work_check_unused(host_of_table(table), addr, bytes);
    return error == 0 ? map_nothing(host_of_table(table), addr, bytes, &addr) : error;
}
