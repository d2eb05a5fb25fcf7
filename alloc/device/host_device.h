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

#endif
