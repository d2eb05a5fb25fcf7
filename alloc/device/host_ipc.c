/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments shared between processes: a handle names the exporter's process, the descriptor of its memory file
 * and an entry of the table at the file's beginning. A handle may have outlived what it
 * names: process ids, descriptors and offsets in the file come again. So the file must be one of ours, and its
 * table must still hold the random cookie that the handle was made with. The offset of an exported segment is
 * never used again, since another process may have it mapped for as long as it likes. Called through the ops
 * table.
 */
#include "alloc/device/host_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST_IPC_MAGIC 0x31637069656f7276U

/* What the bytes of a handle are. */
struct host_ticket {
    uint64_t magic;
    int32_t pid, fd;
    uint64_t entry; /* of the table */
    struct host_export export;
};

_Static_assert(sizeof(struct host_ticket) <= VARVE_IPC_HANDLE_BYTES, "a ticket must fit into a handle");

static int entry_write(struct host_device *host, uint64_t entry, const struct host_export *export)
{
    ssize_t done = pwrite(host->fd, export, sizeof(*export), (off_t)(entry * sizeof(*export)));
    return done == (ssize_t)sizeof(*export) ? 0 : host_failed(host, "pwrite");
}

/* A new entry of the table for a segment that has none. */
static int segment_publish(struct host_device *host, struct device_range *segment)
{
    struct host_export export = {.offset = segment->value, .bytes = segment->bytes};
    if (getrandom(&export.cookie, sizeof(export.cookie), 0) != (ssize_t)sizeof(export.cookie)) {
        return host_failed(host, "getrandom");
    }
    export.cookie |= 1; /* never 0, which is no entry */
    uint64_t id;
    struct device_slot *slot = slots_acquire(&host->exports, &id);
    if (!slot || slots_index(id) >= HOST_EXPORTS) {
        if (slot) {
            slots_release(&host->exports, id);
        }
        return DEVICE_REFUSE(&host->table.resources, VARVE_ERROR_FULL, "more than %llu segments are exported",
                             (unsigned long long)HOST_EXPORTS);
    }
    slot->value = export.cookie;
    int error = entry_write(host, slots_index(id), &export);
    if (error != 0) {
        slots_release(&host->exports, id);
        return error;
    }
    segment->export_id = id;
    return 0;
}

void host_export_withdraw(struct host_device *host, uint64_t export_id)
{
    const struct host_export none = {0};
    entry_write(host, slots_index(export_id), &none);
    slots_release(&host->exports, export_id);
}

static int host_ipc_segment_export(struct device_table *table, struct device_call *call)
{
    struct host_device *host = host_of_table(table);
    struct varve_ipc_handle *handle_out = call->out;
    struct host_ticket ticket = {.magic = HOST_IPC_MAGIC, .pid = host->pid, .fd = host->fd};
    struct device_range *segment;
    int error = resources_range_find(&host->table.resources, DEVICE_RANGE_SEGMENT, call->addr, 0, &segment);
    if (error == 0 && segment->export_id == 0) {
        error = segment_publish(host, segment);
    }
    if (error != 0) {
        return error;
    }
    ticket.entry = slots_index(segment->export_id);
    ticket.export.cookie = slots_find(&host->exports, segment->export_id)->value;
    ticket.export.offset = segment->value;
    ticket.export.bytes = segment->bytes;
    memset(handle_out, 0, sizeof(*handle_out));
    memcpy(handle_out->bytes, &ticket, sizeof(ticket));
    return 0;
}

int host_ipc_export(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out)
{
    return device_run(device, (struct device_call){.addr = addr, .out = handle_out}, host_ipc_segment_export);
}

static int refuse_ticket(struct host_device *host, int error, const struct host_ticket *ticket, const char *why)
{
    return DEVICE_REFUSE(&host->table.resources, error, "memory of process %d: %s", (int)ticket->pid, why);
}

/* The exporter's file. The link is looked at first: to open just anything by a stale number could block. */
static int exporter_open(struct host_device *host, const struct host_ticket *ticket, int *fd_out)
{
    static const char expected[] = "/memfd:" HOST_FILE_NAME;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->fd);
    char target[sizeof(expected)] = "";
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0 && errno != ENOENT && errno != ESRCH) {
        return refuse_ticket(host, errno == EACCES || errno == EPERM ? VARVE_ERROR_PERMISSION : VARVE_ERROR_IO, ticket,
                             strerror(errno));
    }
    if (length < 0 || strcmp(target, expected) != 0) {
        return refuse_ticket(host, VARVE_ERROR_NOT_FOUND, ticket, "its device is closed");
    }
    *fd_out = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (*fd_out < 0) {
        return refuse_ticket(host, errno == EACCES || errno == EPERM ? VARVE_ERROR_PERMISSION : VARVE_ERROR_NOT_FOUND,
                             ticket, strerror(errno));
    }
    return 0;
}

/* Is what the ticket names still there? */
static int ticket_check(struct host_device *host, const struct host_ticket *ticket, int fd)
{
    const struct host_export *export = &ticket->export;
    struct host_export entry;
    if (pread(fd, &entry, sizeof(entry), (off_t)(ticket->entry * sizeof(entry))) != (ssize_t)sizeof(entry) ||
        memcmp(&entry, export, sizeof(entry)) != 0) {
        return refuse_ticket(host, VARVE_ERROR_NOT_FOUND, ticket, "the segment was freed");
    }
    struct stat status;
    if (fstat(fd, &status) != 0 || (uint64_t)status.st_size < export->offset ||
        (uint64_t)status.st_size - export->offset < export->bytes) {
        return refuse_ticket(host, VARVE_ERROR_NOT_FOUND, ticket, "the segment is not in its file");
    }
    return 0;
}

static int ticket_map(struct host_device *host, const struct host_ticket *ticket, int fd, uint64_t *addr_out)
{
    const struct host_export *export = &ticket->export;
    struct device_range *range;
    int error = resources_range_new(&host->table.resources, DEVICE_RANGE_IMPORT, export->bytes, &range);
    if (error != 0) {
        return error;
    }
    error = host_map_file(host, fd, export->offset, export->bytes, PROT_READ | PROT_WRITE, 0, &range->addr);
    if (error == 0) {
        error = resources_range_enter(&host->table.resources, range);
        if (error != 0) {
            host_unmap(host, range->addr, export->bytes);
        }
    }
    if (error == 0) {
        *addr_out = range->addr;
    } else {
        free(range);
    }
    return error;
}

static int host_ipc_import(struct device_table *table, struct device_call *call)
{
    struct host_device *host = host_of_table(table);
    struct host_ticket ticket;
    memcpy(&ticket, call->ipc->bytes, sizeof(ticket));
    if (ticket.magic != HOST_IPC_MAGIC || ticket.pid <= 0 || ticket.fd < 0 || ticket.entry >= HOST_EXPORTS ||
        ticket.export.cookie == 0 || ticket.export.bytes == 0) {
        return DEVICE_REFUSE(&host->table.resources, VARVE_ERROR_INVALID, "no handle of a host device");
    }
    int fd = -1;
    int error = exporter_open(host, &ticket, &fd);
    if (error == 0) {
        error = ticket_check(host, &ticket, fd);
        VARVE_THEN(error, ticket_map(host, &ticket, fd, call->out));
        close(fd);
    }
    return error;
}

int host_ipc_open(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out)
{
    return device_run(device, (struct device_call){.ipc = handle, .out = addr_out}, host_ipc_import);
}
