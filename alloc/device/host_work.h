/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that is queued on streams of the host device: those that a test holds back, and those that wait for them. All
 * of it with the table locked.
 */
#ifndef VARVE_ALLOC_DEVICE_HOST_WORK_H
#define VARVE_ALLOC_DEVICE_HOST_WORK_H

#include "alloc/device/host_device.h"

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
