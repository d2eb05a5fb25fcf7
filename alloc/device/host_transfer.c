/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of the host device: done when their call returns, with the table unlocked, since they may last; or
 * queued, where their stream is held back. Called by the operations of all devices, and by the queue.
 */
#include "alloc/device/host_device.h"

#include <string.h>

void host_copy_bytes(const struct varve_copy_2d *copy)
{
    unsigned char *target = (unsigned char *)(uintptr_t)copy->target_addr;
    const unsigned char *source = (const unsigned char *)(uintptr_t)copy->source_addr;
    for (uint64_t row = 0; row < copy->rows; row++) {
        memcpy(target + row * copy->target_pitch, source + row * copy->source_pitch, copy->row_bytes);
    }
}

/* Elements are at multiples of their size. */
void host_fill_bytes(const struct device_fill *fill)
{
    void *target = (void *)(uintptr_t)fill->addr;
    if (fill->pattern_bytes == 1) {
        memset(target, (unsigned char)fill->pattern, fill->count);
    } else if (fill->pattern_bytes == 2) {
        for (uint64_t i = 0; i < fill->count; i++) {
            ((uint16_t *)target)[i] = (uint16_t)fill->pattern;
        }
    } else if (fill->pattern_bytes == 4) {
        for (uint64_t i = 0; i < fill->count; i++) {
            ((uint32_t *)target)[i] = (uint32_t)fill->pattern;
        }
    } else {
        for (uint64_t i = 0; i < fill->count; i++) {
            ((uint64_t *)target)[i] = fill->pattern;
        }
    }
}

int host_copy(struct device_table *table, const struct varve_copy_2d *copy, uint64_t stream)
{
    struct host_device *host = host_of_table(table);
    if (host_work_is_held(host, stream)) {
        return host_work_add(host, &(struct host_work){.stream = stream, .kind = HOST_WORK_COPY, .copy = *copy});
    }
    pthread_mutex_unlock(&table->mutex);
    host_copy_bytes(copy);
    pthread_mutex_lock(&table->mutex);
    return 0;
}

int host_fill(struct device_table *table, const struct device_fill *fill, uint64_t stream)
{
    struct host_device *host = host_of_table(table);
    if (host_work_is_held(host, stream)) {
        return host_work_add(host, &(struct host_work){.stream = stream, .kind = HOST_WORK_FILL, .fill = *fill});
    }
    pthread_mutex_unlock(&table->mutex);
    host_fill_bytes(fill);
    pthread_mutex_lock(&table->mutex);
    return 0;
}

/* As cuMemFreeHost, it waits for the work that uses the memory. */
int host_unpin(struct device_table *table, uint64_t addr, uint64_t bytes)
{
    host_work_wait_unused(host_of_table(table), addr, bytes);
    return 0;
}
