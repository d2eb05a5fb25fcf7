/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device: memory of this machine within a byte limit, for tests with real writes, real threads and
 * real processes, and for machines without a GPU. All of it is one memfd, so that a device costs one file
 * descriptor however many segments it has; freed extents are punched out of it. Pages come when they are
 * touched: the limit is what is promised, not what is present. Called by allocators through the ops table.
 */
#include "alloc/device/host/host.h"
#include "alloc/device/host/ipc.h"
#include "alloc/device/host/vmm.h"
#include "alloc/device/host/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct host_device *host_of(const struct varve_device *device)
{
    return (struct host_device *)(uintptr_t)device;
}

int host_enter(struct host_device *host)
{
    if (getpid() != host->pid) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    pthread_mutex_lock(&host->mutex);
    return 0;
}

int host_leave(struct host_device *host, int result)
{
    pthread_mutex_unlock(&host->mutex);
    return result;
}

int host_failed(struct host_device *host, const char *what)
{
    int code = errno;
    int error = code == ENOMEM || code == ENOSPC || code == EFBIG ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO;

    return DEVICE_REFUSE(&host->resources, error, "%s: %s", what, strerror(code));
}

int host_extent_alloc(struct host_device *host, uint64_t bytes, uint64_t *offset_out)
{
    uint64_t whole = resources_footprint(&host->resources, bytes);
    struct device_range *extent = resources_range_new(&host->resources, DEVICE_RANGE_EXTENT, whole);

    if (!extent) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (!device_ranges_first_fit(&host->extents, whole, &extent->addr)) {
        free(extent);
        return DEVICE_REFUSE(&host->resources, VARVE_ERROR_NO_MEMORY, "the memory's file is too long");
    }
    if (extent->addr + whole > host->file_bytes) {
        if (ftruncate(host->fd, (off_t)(extent->addr + whole)) != 0) {
            free(extent);
            return host_failed(host, "ftruncate");
        }
        host->file_bytes = extent->addr + whole;
    }
    *offset_out = extent->addr;
    device_ranges_insert(&host->extents, extent);
    return 0;
}

void host_extent_free(struct host_device *host, uint64_t offset, bool is_retired)
{
    struct device_range *extent = device_ranges_at_or_before(&host->extents, offset);

    assert(extent && extent->addr == offset);
    fallocate(host->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)extent->bytes);
    if (!is_retired) {
        device_ranges_remove(&host->extents, extent);
        free(extent);
    }
}

int host_map_file(struct host_device *host, int fd, uint64_t offset, uint64_t bytes, int protection,
                  uint64_t addr, uint64_t *addr_out)
{
    uint64_t whole = resources_footprint(&host->resources, bytes);
    void *memory = mmap((void *)(uintptr_t)addr, whole, protection, MAP_SHARED | (addr ? MAP_FIXED : 0), fd,
                        (off_t)offset);

    if (memory == MAP_FAILED) {
        return host_failed(host, "mmap");
    }
    madvise(memory, whole, MADV_DONTFORK);
    *addr_out = (uint64_t)(uintptr_t)memory;
    return 0;
}

void host_unmap(const struct host_device *host, uint64_t addr, uint64_t bytes)
{
    munmap((void *)(uintptr_t)addr, resources_footprint(&host->resources, bytes));
}

static void handle_gone(void *context, const struct device_slot *handle)
{
    host_extent_free(context, handle->value, false);
}

static int segment_obtain(struct host_device *host, uint64_t bytes, uint64_t *addr_out)
{
    struct device_range *range;
    uint64_t addr = 0, offset;
    int error = host_extent_alloc(host, bytes, &offset);

    if (error != 0) {
        return error;
    }
    range = resources_range_new(&host->resources, DEVICE_RANGE_SEGMENT, bytes);
    error = range ? host_map_file(host, host->fd, offset, bytes, PROT_READ | PROT_WRITE, 0, &addr)
                  : VARVE_ERROR_NO_MEMORY;
    if (error != 0) {
        free(range);
        host_extent_free(host, offset, false);
        return error;
    }
    range->value = offset;
    error = resources_range_enter(&host->resources, range, addr);
    if (error != 0) {
        host_unmap(host, addr, bytes);
        host_extent_free(host, offset, false);
        return error;
    }
    *addr_out = addr;
    return 0;
}

static int host_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream,
                              uint64_t *addr_out)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    (void)stream;
    if (error != 0) {
        return error;
    }
    error = resources_room(&host->resources, bytes);
    if (error == 0) {
        error = segment_obtain(host, bytes, addr_out);
    }
    return host_leave(host, error);
}

static int host_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct host_device *host = host_of(device);
    struct device_range *range;
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    error = bytes == 0 ? DEVICE_REFUSE(&host->resources, VARVE_ERROR_INVALID, "0 bytes to free")
                       : resources_range_find(&host->resources, DEVICE_RANGE_SEGMENT, addr, bytes, &range);
    if (error == 0) {
        bool was_exported = range->export_id != 0;

        if (was_exported) {
            host_export_withdraw(host, range->export_id);
        }
        host_unmap(host, addr, bytes);
        host_extent_free(host, range->value, was_exported);
        resources_range_drop(&host->resources, range);
    }
    return host_leave(host, error);
}

static int host_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    *free_out = host->resources.capacity - host->resources.used;
    *total_out = host->resources.capacity;
    return host_leave(host, 0);
}

/* All devices of this kind are memory of one machine. */
static int host_peer_enable(struct varve_device *device, int peer)
{
    return peer < 0 || peer > DEVICE_INDEX_MAX || peer == device->index ? VARVE_ERROR_INVALID : 0;
}

static void host_close(struct varve_device *device)
{
    struct host_device *host = host_of(device);
    const struct device_range *range;

    close(host->fd);
    if (getpid() != host->pid) {
        return; /* other things are at these addresses, and a thread may have been changing the table when it forked
                 */
    }
    range = device_ranges_at_or_after(&host->resources.space, 0);
    for (; range; range = device_ranges_at_or_after(&host->resources.space, range->addr + 1)) {
        host_unmap(host, range->addr, range->bytes);
    }
    resources_close(&host->resources);
    device_ranges_close(&host->extents);
    slots_close(&host->exports);
    pthread_cond_destroy(&host->released);
    pthread_mutex_destroy(&host->mutex);
    free(host);
}

static void get_reason(const struct varve_device *device, struct varve_message *message_out)
{
    struct host_device *host = host_of(device);

    message_out->text[0] = '\0';
    if (host_enter(host) == 0) {
        *message_out = host->resources.reason;
        host_leave(host, 0);
    }
}

static const struct varve_device_ops host_ops = {
    .name = "host",
    .segment_alloc = host_segment_alloc,
    .segment_free = host_segment_free,
    .vmm_reserve = host_vmm_reserve,
    .vmm_create = host_vmm_create,
    .vmm_map = host_vmm_map,
    .vmm_set_access = host_vmm_set_access,
    .vmm_unmap = host_vmm_unmap,
    .vmm_release = host_vmm_release,
    .vmm_address_free = host_vmm_address_free,
    .stream_synchronize = host_stream_synchronize,
    .event_create = host_event_create,
    .event_destroy = host_event_destroy,
    .event_record = host_event_record,
    .event_query = host_event_query,
    .event_synchronize = host_event_synchronize,
    .memory_info = host_memory_info,
    .peer_enable = host_peer_enable,
    .ipc_export = host_ipc_export,
    .ipc_open = host_ipc_open,
    .ipc_close = host_ipc_close,
    .reason = get_reason,
    .close = host_close,
};

int varve_host_open(const struct varve_host_options *options, struct varve_device **device_out,
                    struct varve_message *message)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = options->limit_bytes;
    struct host_device *host;

    if (options->index < 0 || options->index > DEVICE_INDEX_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "host: %d is no device's index; 0 to %d are",
                                 options->index, DEVICE_INDEX_MAX);
    }
    host = calloc(1, sizeof(*host));
    if (!host) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "host: no memory for a device");
    }
    host->fd = memfd_create(HOST_FILE_NAME, MFD_CLOEXEC);
    if (host->fd < 0 || ftruncate(host->fd, (off_t)HOST_TABLE_BYTES) != 0) {
        int error = errno;

        if (host->fd >= 0) {
            close(host->fd);
        }
        free(host);
        return varve_message_set(message, VARVE_ERROR_IO, "host: no memory file: %s", strerror(error));
    }
    host->file_bytes = HOST_TABLE_BYTES;
    host->device = (struct varve_device){&host_ops, options->index};
    host->pid = getpid();
    if (limit == 0) {
        limit = (uint64_t)sysconf(_SC_PHYS_PAGES) / 4 * page;
    }
    resources_init(&host->resources, limit, page, 0, page);
    host->resources.handle_gone = handle_gone;
    host->resources.handle_gone_context = host;
    device_ranges_init(&host->extents, HOST_TABLE_BYTES, page);
    pthread_mutex_init(&host->mutex, NULL);
    pthread_cond_init(&host->released, NULL);
    *device_out = &host->device;
    return 0;
}

int varve_host_check(const struct varve_device *device, struct varve_message *message)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    error = resources_check(&host->resources, message);
    if (error == 0) {
        error = device_ranges_check(&host->extents, "extents", message);
    }
    if (error == 0) {
        error = slots_check(&host->exports, "exports", message);
    }
    return host_leave(host, error);
}
