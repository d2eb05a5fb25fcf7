/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host device: memory of this machine within a byte limit, for tests with real writes, real threads and
 * real processes, and for machines without a GPU. All of it is one memfd, so that a device costs one file
 * descriptor however many segments it has; freed extents are punched out of it. Pages come when they are
 * touched: the limit is what is promised, not what is present. Called by allocators through the ops table.
 */
#include "alloc/device/host_device.h"
#include "alloc/device/device_operations.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int host_failed(struct host_device *host, const char *what)
{
    int code = errno;
    int error = code == ENOMEM || code == ENOSPC || code == EFBIG ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO;
    return DEVICE_REFUSE(&host->table.resources, error, "%s: %s", what, strerror(code));
}

int host_extent_alloc(struct host_device *host, uint64_t bytes, uint64_t *offset_out)
{
    uint64_t whole = resources_footprint(&host->table.resources, bytes);
    struct device_range *extent;
    int error = resources_range_new(&host->table.resources, DEVICE_RANGE_EXTENT, whole, &extent);
    if (error != 0) {
        return error;
    }
    if (!device_ranges_first_fit(&host->extents, whole, &extent->addr)) {
        free(extent);
        return DEVICE_REFUSE(&host->table.resources, VARVE_ERROR_NO_MEMORY, "the memory's file is too long");
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

int host_map_file(struct host_device *host, int fd, uint64_t offset, uint64_t bytes, int protection, uint64_t addr,
                  uint64_t *addr_out)
{
    uint64_t whole = resources_footprint(&host->table.resources, bytes);
    void *memory =
        mmap((void *)(uintptr_t)addr, whole, protection, MAP_SHARED | (addr ? MAP_FIXED : 0), fd, (off_t)offset);
    if (memory == MAP_FAILED) {
        return host_failed(host, "mmap");
    }
    madvise(memory, whole, MADV_DONTFORK);
    *addr_out = (uint64_t)(uintptr_t)memory;
    return 0;
}

void host_unmap(const struct host_device *host, uint64_t addr, uint64_t bytes)
{
    munmap((void *)(uintptr_t)addr, resources_footprint(&host->table.resources, bytes));
}

static void handle_gone(void *context, const struct device_slot *handle)
{
    host_extent_free(context, handle->value, false);
}

static bool host_device_is_inherited(const struct device_table *table)
{
    return getpid() != host_of_table(table)->pid;
}

static bool host_device_enter(struct device_table *table, struct device_call *call, int *result_out)
{
    (void)call;
    if (host_device_is_inherited(table)) {
        *result_out = VARVE_ERROR_UNSUPPORTED;
        return false;
    }
    pthread_mutex_lock(&table->mutex);
    return true;
}

static int host_device_leave(struct device_table *table, struct device_call *call, int result)
{
    (void)call;
    pthread_mutex_unlock(&table->mutex);
    return result;
}

static int host_device_memory_info(struct device_table *table, struct device_call *call)
{
    uint64_t *free_and_total = call->out;
    free_and_total[0] = table->resources.capacity - table->resources.used;
    free_and_total[1] = table->resources.capacity;
    return 0;
}

static int host_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    uint64_t free_and_total[2] = {0};
    int error = device_run(device, (struct device_call){.out = free_and_total}, host_device_memory_info);
    if (error == 0) {
        *free_out = free_and_total[0];
        *total_out = free_and_total[1];
    }
    return error;
}

static void host_close(struct varve_device *device)
{
    struct host_device *host = host_of(device);
    close(host->fd);
    if (host_device_is_inherited(&host->table)) {
        return; /* other things are at these addresses, and a thread may have been changing the table when it forked
                 */
    }
    const struct device_range *range = device_ranges_at_or_after(&host->table.resources.space, 0);
    for (; range; range = device_ranges_at_or_after(&host->table.resources.space, range->addr + 1)) {
        host_unmap(host, range->addr, range->bytes);
    }
    host_work_close(host);
    device_pinned_close(&host->table);
    resources_close(&host->table.resources);
    device_ranges_close(&host->extents);
    slots_close(&host->exports);
    pthread_cond_destroy(&host->released);
    pthread_mutex_destroy(&host->table.mutex);
    free(host);
}

static const struct varve_device_ops host_ops = {
    .name = "host",
    DEVICE_OPERATIONS,
    DEVICE_TRANSFERS,
    .stream_wait_event = device_stream_wait_event,
    .memory_info = host_memory_info,
    .peer_enable = device_peer_check,
    .ipc_export = host_ipc_export,
    .ipc_open = host_ipc_open,
    .ipc_close = device_ipc_close,
    .close = host_close,
};

static const struct device_hooks host_hooks = {
    .enter = host_device_enter,
    .leave = host_device_leave,
    .obtain = host_obtain,
    .is_inherited = host_device_is_inherited,
    .give_back = host_give_back,
    .memory_create = host_memory_create,
    .map = host_map,
    .set_access = host_set_access,
    .unmap = host_unmap_part,
    .stream_wait = host_stream_wait,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .stream_wait_event = host_stream_wait_event,
    .copy = host_copy,
    .fill = host_fill,
    .unpin = host_unpin,
};

int varve_host_open(const struct varve_host_options *options, struct varve_device **device_out,
                    struct varve_message *message)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = options->limit_bytes;
    if (options->index < 0 || options->index > DEVICE_INDEX_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "host: %d is no device's index; 0 to %d are",
                                 options->index, DEVICE_INDEX_MAX);
    }
    struct host_device *host = calloc(1, sizeof(*host));
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
    host->table.device = (struct varve_device){&host_ops, options->index};
    host->table.hooks = &host_hooks;
    host->pid = getpid();
    if (limit == 0) {
        limit = (uint64_t)sysconf(_SC_PHYS_PAGES) / 4 * page;
    }
    resources_init(&host->table.resources, limit, page, 0, page);
    host->table.resources.handle_gone = handle_gone;
    host->table.resources.handle_gone_context = host;
    device_ranges_init(&host->extents, HOST_TABLE_BYTES, page);
    pthread_mutex_init(&host->table.mutex, NULL);
    pthread_cond_init(&host->released, NULL);
    *device_out = &host->table.device;
    return 0;
}

static int host_device_check(struct device_table *table, struct device_call *call)
{
    struct host_device *host = host_of_table(table);
    int error = resources_check(&table->resources, call->out);
    VARVE_THEN(error, device_ranges_check(&host->extents, "extents", call->out));
    error = error == 0 ? slots_check(&host->exports, "exports", call->out) : error;
    return error == 0 ? host_work_check(host, call->out) : error;
}

int varve_host_check(const struct varve_device *device, struct varve_message *message)
{
    return device_run(&host_of(device)->table.device, (struct device_call){.out = message}, host_device_check);
}
