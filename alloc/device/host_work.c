/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of the host device, empty but for tests: one list for all streams, in the order in which the work was
 * given. A stream stands still while it is blocked or has something in the list that waits; a wait is for a mark that
 * was queued before it, so one walk through the list does everything that can be done. Called by the
 * device's other files.
 */
#include "alloc/device/host_device.h"
#include "alloc/device/device_operations.h"

#include <stdlib.h>

/* Has the stream work in front of `end`? NULL: anywhere. */
static bool has_work(const struct host_device *host, uint64_t stream, const struct host_work *end)
{
    const struct host_work *work = host->work;
    while (work != end && work->stream != stream) {
        work = work->next;
    }
    return work != end;
}

static bool is_blocked(const struct host_device *host, uint64_t stream)
{
    const struct device_stream *entry = resources_stream_find(&host->table.resources, stream);
    return entry && entry->is_blocked;
}

bool host_work_is_held(const struct host_device *host, uint64_t stream)
{
    return is_blocked(host, stream) || has_work(host, stream, NULL);
}

int host_work_add(struct host_device *host, const struct host_work *work)
{
    if (!resources_stream_acquire(&host->table.resources, work->stream)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    struct host_work *added = malloc(sizeof(*added));
    if (!added) {
        return DEVICE_REFUSE(&host->table.resources, VARVE_ERROR_NO_MEMORY, "no memory to queue work");
    }
    *added = *work;
    added->next = NULL;
    *(host->work ? &host->work_last->next : &host->work) = added;
    host->work_last = added;
    return 0;
}

/* False: it has to wait on. */
static bool work_do(struct host_device *host, const struct host_work *work)
{
    struct device_resources *resources = &host->table.resources;
    switch (work->kind) {
    case HOST_WORK_COPY:
        host_copy_bytes(&work->copy);
        return true;
    case HOST_WORK_FILL:
        host_fill_bytes(&work->fill);
        return true;
    case HOST_WORK_MARK:
        resources_stream_find(resources, work->stream)->completed = work->number;
        return true;
    case HOST_WORK_WAIT:
        return resources_stream_find(resources, work->other)->completed >= work->number;
    }
    return true;
}

void host_work_drain(struct host_device *host)
{
    struct host_work **at = &host->work, *last = NULL;
    while (*at) {
        struct host_work *work = *at;
        if (is_blocked(host, work->stream) || has_work(host, work->stream, work) || !work_do(host, work)) {
            last = work;
            at = &work->next;
        } else {
            *at = work->next;
            free(work);
        }
    }
    host->work_last = last;
}

static bool host_work_is_apart(uint64_t addr, uint64_t bytes, uint64_t other, uint64_t other_bytes)
{
    return addr + bytes <= other || other + other_bytes <= addr;
}

static bool does_touch(const struct host_work *work, uint64_t addr, uint64_t bytes)
{
    const struct varve_copy_2d *copy = &work->copy;
    if (work->kind == HOST_WORK_COPY) {
        return !host_work_is_apart(copy->target_addr, device_span(copy->row_bytes, copy->rows, copy->target_pitch),
                                   addr, bytes) ||
               !host_work_is_apart(copy->source_addr, device_span(copy->row_bytes, copy->rows, copy->source_pitch),
                                   addr, bytes);
    }
    return work->kind == HOST_WORK_FILL &&
           !host_work_is_apart(work->fill.addr, work->fill.count * work->fill.pattern_bytes, addr, bytes);
}

/* The first that is queued and uses memory there; NULL: none. */
static const struct host_work *find_user(const struct host_device *host, uint64_t addr, uint64_t bytes)
{
    const struct host_work *work = host->work;
    while (work && !does_touch(work, addr, bytes)) {
        work = work->next;
    }
    return work;
}

int host_work_check_unused(struct host_device *host, uint64_t addr, uint64_t bytes)
{
    const struct host_work *user = find_user(host, addr, bytes);
    return user ? DEVICE_REFUSE(&host->table.resources, VARVE_ERROR_BUSY,
                                "memory at %#llx is used by work that is queued on the stream %#llx",
                                (unsigned long long)addr, (unsigned long long)user->stream)
                : 0;
}

void host_work_wait_unused(struct host_device *host, uint64_t addr, uint64_t bytes)
{
    while (find_user(host, addr, bytes)) {
        pthread_cond_wait(&host->released, &host->table.mutex);
    }
}

void host_work_close(struct host_device *host)
{
    while (host->work) {
        struct host_work *next = host->work->next;
        free(host->work);
        host->work = next;
    }
    host->work_last = NULL;
}

/* Nothing is queued that could be done, and marks are in order. */
int host_work_check(const struct host_device *host, struct varve_message *message)
{
    const struct device_resources *resources = &host->table.resources;
    for (const struct host_work *work = host->work; work; work = work->next) {
        const struct device_stream *entry = resources_stream_find(resources, work->stream);
        bool is_waiting =
            work->kind == HOST_WORK_WAIT && resources_stream_find(resources, work->other)->completed < work->number;
        if (!entry || (!entry->is_blocked && !is_waiting && !has_work(host, work->stream, work))) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "work is queued on the stream %#llx, which is not held back",
                                     (unsigned long long)work->stream);
        }
        if (work->kind == HOST_WORK_MARK && (work->number <= entry->completed || work->number > resources->records)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "stream %#llx: mark %llu, complete up to %llu",
                                     (unsigned long long)work->stream, (unsigned long long)work->number,
                                     (unsigned long long)entry->completed);
        }
        if (!work->next && work != host->work_last) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "the queue's end is not its last work");
        }
    }
    return 0;
}
