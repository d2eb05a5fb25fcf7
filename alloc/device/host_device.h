/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the host device share. All memory is one memfd: a segment or a handle is an extent of it.
 * Page 0 on holds the table of exports, which is how another process knows that what it opens is still what
 * the exporter meant.
 *
 *   host_device.c   opening, extents, memory info
 *   host_memory.c segments, reservations and mappings
 *   host_ipc.c    segments of other processes, and ours for them
 *   host_wait.c   streams and events, which a test can hold back
 *   host_work.c   what is queued on streams that are held back
 *   host_transfer.c  copies and fills
 */
#ifndef VARVE_ALLOC_DEVICE_HOST_DEVICE_H
#define VARVE_ALLOC_DEVICE_HOST_DEVICE_H

#include "alloc/device/device_operations.h"

#include <sys/types.h>

#define HOST_FILE_NAME "varve-device"
#define HOST_TABLE_BYTES ((uint64_t)1 << 20)

/* An entry of the table of exports; all 0: none. */
struct host_export {
    uint64_t cookie; /* random */
    uint64_t offset, bytes;
    uint64_t unused;
};

#define HOST_EXPORTS (HOST_TABLE_BYTES / sizeof(struct host_export))

struct host_device {
    struct device_table table;
    pid_t pid;               /* who opened it; a fork child has nothing but a copy of the resource table */
    int fd;                  /* of the memfd */
    pthread_cond_t released; /* a stream was */
    /* Guarded by the mutex: */
    struct device_ranges extents; /* of the file; those of segments that were exported stay for ever */
    struct device_slots exports;  /* a slot's index is that of its entry */
    uint64_t file_bytes;
    struct host_work *work, *work_last; /* queued, the oldest first */
};

static inline struct host_device *host_of(const struct varve_device *device)
{
    return (struct host_device *)(uintptr_t)device;
}

static inline struct host_device *host_of_table(const struct device_table *table)
{
    return host_of(&table->device);
}

/// The error for errno after a failed call, with the reason.
int host_failed(struct host_device *host, const char *what);
int host_extent_alloc(struct host_device *host, uint64_t bytes, uint64_t *offset_out);
/// The memory goes; the offset in the file may be used again, or not if `is_retired`.
void host_extent_free(struct host_device *host, uint64_t offset, bool is_retired);
/// A mapping of [offset, offset + bytes) of `fd`, at `addr` if that is not 0; not passed on to fork children.
int host_map_file(struct host_device *host, int fd, uint64_t offset, uint64_t bytes, int protection, uint64_t addr,
                  uint64_t *addr_out);
void host_unmap(const struct host_device *host, uint64_t addr, uint64_t bytes);

/* Streams and events, which a test can hold back: what host_device.c puts into struct device_hooks. */

int host_stream_wait(struct device_table *table, uint64_t stream);
int host_event_record(struct device_table *table, uint64_t event, uint64_t stream);
int host_event_wait(struct device_table *table, uint64_t event);
int host_stream_wait_event(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete);

/* Segments, reservations and mappings: what host_device.c puts into struct device_hooks. */

int host_obtain(struct device_table *table, struct device_call *call, struct device_range *range);
int host_give_back(struct device_table *table, struct device_call *call, struct device_range *range);
int host_memory_create(struct device_table *table, uint64_t bytes, uint64_t *value_out);
int host_map(struct device_table *table, uint64_t addr, uint64_t bytes, uint64_t value);
int host_set_access(struct device_table *table, uint64_t addr, uint64_t bytes, int peer);
int host_unmap_part(struct device_table *table, uint64_t addr, uint64_t bytes);

/* Segments of other processes, and ours for them. Called by host_device.c, which has the table of operations. */

int host_ipc_export(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out);
int host_ipc_open(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out);
/// The entry of a segment that is about to be freed, so that nobody opens it any more.
void host_export_withdraw(struct host_device *host, uint64_t export_id);

/* Copies and fills of the host device. */

/* Of struct device_hooks. */
int host_copy(struct device_table *table, const struct varve_copy_2d *copy, uint64_t stream);
int host_fill(struct device_table *table, const struct device_fill *fill, uint64_t stream);
int host_unpin(struct device_table *table, uint64_t addr, uint64_t bytes);
/// The work itself, of ranges that were checked.
void host_copy_bytes(const struct varve_copy_2d *copy);
void host_fill_bytes(const struct device_fill *fill);

/*
 * Work that is queued on streams of the host device: those that a test holds back, and those that wait for them. All
 * of it with the table locked.
 */

enum host_work_kind {
    HOST_WORK_COPY,
    HOST_WORK_FILL,
    HOST_WORK_MARK, /* everything on the stream up to `number` is complete */
    HOST_WORK_WAIT, /* until that is so of `other` */
};

struct host_work {
    struct host_work *next;
    uint64_t stream;
    enum host_work_kind kind;
    struct varve_copy_2d copy;
    struct device_fill fill;
    uint64_t number, other;
};

/// Does work given to the stream have to be queued?
bool host_work_is_held(const struct host_device *host, uint64_t stream);
/// Queues a copy of `work` behind all that its stream has. Errors: VARVE_ERROR_NO_MEMORY.
int host_work_add(struct host_device *host, const struct host_work *work);
/// Does what no longer has to wait, in order.
void host_work_drain(struct host_device *host);
/// VARVE_ERROR_BUSY if something that is queued reads or writes there.
int host_work_check_unused(struct host_device *host, uint64_t addr, uint64_t bytes);
/// Returns when nothing does any more; the table is unlocked meanwhile.
void host_work_wait_unused(struct host_device *host, uint64_t addr, uint64_t bytes);
/// Everything goes, undone.
void host_work_close(struct host_device *host);
int host_work_check(const struct host_device *host, struct varve_message *message);

#endif
