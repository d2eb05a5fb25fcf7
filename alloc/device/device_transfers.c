/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the caller's own, copies, fills and host memory, as far as all devices have them in common: which ranges
 * may be copied and filled, and what is out. The work itself is the device's. Called through the ops tables of sim,
 * host and cuda.
 */
#include "alloc/device/device_operations.h"

#include <stdlib.h>

#define PINNED_ALIGNMENT ((size_t)4096)

/* ---- streams ---- */

static int stream_create(struct device_table *table, struct device_call *call)
{
    struct device_resources *resources = &table->resources;
    uint64_t stream = DEVICE_STREAM_FIRST + resources->streams_made;
    int error = resources_created_reserve(resources);
    if (error == VARVE_OK && table->hooks->stream_make) {
        error = table->hooks->stream_make(table, &stream);
    }
    if (error == VARVE_OK) {
        resources->streams_made += table->hooks->stream_make == NULL;
        resources_created_enter(resources, stream);
        *(uint64_t *)call->out = stream;
    }
    return error;
}

int device_stream_create(struct varve_device *device, uint64_t *stream_out)
{
    return device_run(device, (struct device_call){.kind = VARVE_DEVICE_STREAM_CREATE, .out = stream_out},
                      stream_create);
}

static int stream_destroy(struct device_table *table, struct device_call *call)
{
    int error = resources_created_find(&table->resources, call->stream);
    if (error == VARVE_OK && table->hooks->stream_end) {
        error = table->hooks->stream_end(table, call->stream);
    }
    if (error == VARVE_OK) {
        resources_created_remove(&table->resources, call->stream);
    }
    return error;
}

int device_stream_destroy(struct varve_device *device, uint64_t stream)
{
    return device_run(device, (struct device_call){.kind = DEVICE_CALL_UNCOUNTED, .stream = stream, .gives_back = true},
                      stream_destroy);
}

/* ---- copies ---- */

static int memory_check(struct device_table *table, uint64_t addr, uint64_t bytes)
{
    return table->hooks->foreign_check && !resources_memory_begins(&table->resources, addr)
               ? table->hooks->foreign_check(table, addr, bytes)
               : resources_memory_check(&table->resources, addr, bytes);
}

/* One end of a copy: addresses that exist, and memory of the device where it is to be that. */
static int end_check(struct device_table *table, const struct varve_copy_2d *copy, uint64_t addr, uint64_t pitch,
                     bool is_here)
{
    struct device_resources *resources = &table->resources;
    if (copy->rows > 1 && pitch < copy->row_bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "rows of %llu bytes at a pitch of %llu",
                             (unsigned long long)copy->row_bytes, (unsigned long long)pitch);
    }
    uint64_t last;
    if (addr == 0 || __builtin_mul_overflow(copy->rows - 1, pitch, &last) ||
        __builtin_add_overflow(last, copy->row_bytes, &last) || last > UINT64_MAX - addr) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "%llu rows of %llu bytes, %llu apart, cannot lie at %#llx",
                             (unsigned long long)copy->rows, (unsigned long long)copy->row_bytes,
                             (unsigned long long)pitch, (unsigned long long)addr);
    }
    return is_here ? memory_check(table, addr, last) : VARVE_OK;
}

/* Of two series of rows with one pitch: is a row of one so near to a row of the other? */
static bool rows_meet(const struct varve_copy_2d *copy)
{
    uint64_t pitch = copy->target_pitch;
    uint64_t apart = copy->target_addr > copy->source_addr ? copy->target_addr - copy->source_addr
                                                           : copy->source_addr - copy->target_addr;
    return copy->rows > 1 ? (apart / pitch < copy->rows && apart % pitch < copy->row_bytes) ||
                                (apart / pitch + 1 < copy->rows && pitch - apart % pitch < copy->row_bytes)
                          : apart < copy->row_bytes;
}

static bool does_overlap(const struct varve_copy_2d *copy)
{
    if (copy->rows == 1 || copy->target_pitch == copy->source_pitch) {
        return rows_meet(copy);
    }
    return copy->target_addr < copy->source_addr + device_span(copy->row_bytes, copy->rows, copy->source_pitch) &&
           copy->source_addr < copy->target_addr + device_span(copy->row_bytes, copy->rows, copy->target_pitch);
}

static int copy_check(struct device_table *table, const struct varve_copy_2d *copy)
{
    static const struct {
        bool has_target, has_source;
    } directions[VARVE_COPY_DIRECTION_LIMIT] = {
        [VARVE_COPY_WITHIN] = {true, true},          [VARVE_COPY_HOST_TO_DEVICE] = {true, false},
        [VARVE_COPY_DEVICE_TO_HOST] = {false, true}, [VARVE_COPY_PEER_TO_DEVICE] = {true, false},
        [VARVE_COPY_DEVICE_TO_PEER] = {false, true},
    };
    struct device_resources *resources = &table->resources;
    if ((unsigned)copy->direction >= VARVE_COPY_DIRECTION_LIMIT) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "%d is no direction of a copy", (int)copy->direction);
    }
    int error = end_check(table, copy, copy->target_addr, copy->target_pitch, directions[copy->direction].has_target);
    VARVE_THEN(error,
               end_check(table, copy, copy->source_addr, copy->source_pitch, directions[copy->direction].has_source));
    if (error == VARVE_OK && does_overlap(copy)) {
        error = DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "the copy from %#llx to %#llx overlaps itself",
                              (unsigned long long)copy->source_addr, (unsigned long long)copy->target_addr);
    }
    return error;
}

static int copy_rows(struct device_table *table, struct device_call *call)
{
    struct varve_copy_2d copy = *call->copy;
    int error = resources_stream_check(&table->resources, call->stream);
    if (error != VARVE_OK || copy.row_bytes == 0 || copy.rows == 0) {
        return error;
    }
    error = copy_check(table, &copy);
    if (error != VARVE_OK) {
        return error;
    }
    if (copy.target_pitch == copy.row_bytes && copy.source_pitch == copy.row_bytes) {
        copy.row_bytes *= copy.rows; /* which end_check has found to be a number */
        copy.rows = 1;
    }
    return table->hooks->copy ? table->hooks->copy(table, &copy, call->stream) : VARVE_OK;
}

int device_copy_2d(struct varve_device *device, const struct varve_copy_2d *copy, uint64_t stream)
{
    return device_run(
        device,
        (struct device_call){
            .kind = VARVE_DEVICE_COPY, .bytes = copy->row_bytes * copy->rows, .stream = stream, .copy = copy},
        copy_rows);
}

int device_copy(struct varve_device *device, uint64_t target_addr, uint64_t source_addr, uint64_t bytes,
                enum varve_copy_direction direction, uint64_t stream)
{
    return device_copy_2d(device,
                          &(struct varve_copy_2d){.direction = direction,
                                                  .target_addr = target_addr,
                                                  .target_pitch = bytes,
                                                  .source_addr = source_addr,
                                                  .source_pitch = bytes,
                                                  .row_bytes = bytes,
                                                  .rows = 1},
                          stream);
}

/* ---- fills ---- */

static int device_transfers_fill(struct device_table *table, struct device_call *call)
{
    const struct device_fill *fill = call->fill;
    struct device_resources *resources = &table->resources;
    unsigned bytes = fill->pattern_bytes;
    int error = resources_stream_check(resources, call->stream);
    if (error != VARVE_OK) {
        return error;
    }
    if (bytes == 0 || bytes > 8 || (bytes & (bytes - 1)) != 0) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "a pattern of %u bytes; 1, 2, 4 and 8 are possible",
                             bytes);
    }
    if (fill->count == 0) {
        return VARVE_OK;
    }
    if (fill->addr % bytes != 0 || fill->count > UINT64_MAX / bytes || fill->addr > UINT64_MAX - fill->count * bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "%llu elements of %u bytes cannot lie at %#llx",
                             (unsigned long long)fill->count, bytes, (unsigned long long)fill->addr);
    }
    error = memory_check(table, fill->addr, fill->count * bytes);
    return error == VARVE_OK && table->hooks->fill ? table->hooks->fill(table, fill, call->stream) : error;
}

int device_fill(struct varve_device *device, uint64_t addr, uint64_t pattern, unsigned pattern_bytes, uint64_t count,
                uint64_t stream)
{
    const struct device_fill all = {.addr = addr, .pattern = pattern, .count = count, .pattern_bytes = pattern_bytes};
    return device_run(
        device,
        (struct device_call){.kind = VARVE_DEVICE_FILL, .bytes = count * pattern_bytes, .stream = stream, .fill = &all},
        device_transfers_fill);
}

/* ---- host memory ---- */

static int no_host_memory(struct device_table *table, uint64_t bytes)
{
    return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NO_MEMORY, "no host memory of %llu bytes",
                         (unsigned long long)bytes);
}

static int plain_alloc(struct device_table *table, uint64_t bytes, uint64_t *addr_out)
{
    void *memory = NULL;
    if (posix_memalign(&memory, PINNED_ALIGNMENT, (size_t)bytes) != 0) {
        return no_host_memory(table, bytes);
    }
    *addr_out = (uint64_t)(uintptr_t)memory;
    return VARVE_OK;
}

static int host_alloc(struct device_table *table, struct device_call *call)
{
    if (call->bytes == 0) {
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_INVALID, "0 bytes of host memory asked for");
    }
    if (call->bytes > SIZE_MAX / 2) {
        return no_host_memory(table, call->bytes);
    }
    struct device_range *range;
    int error = resources_range_new(&table->resources, DEVICE_RANGE_PINNED, call->bytes, &range);
    if (error != VARVE_OK) {
        return error;
    }
    error = table->hooks->pin ? table->hooks->pin(table, call->bytes, &range->addr)
                              : plain_alloc(table, call->bytes, &range->addr);
    if (error != VARVE_OK) {
        free(range);
        return error;
    }
    device_ranges_insert(&table->resources.pinned, range);
    *(uint64_t *)call->out = range->addr;
    return VARVE_OK;
}

int device_host_alloc(struct varve_device *device, uint64_t bytes, uint64_t *addr_out)
{
    return device_run(device, (struct device_call){.kind = VARVE_DEVICE_HOST_ALLOC, .bytes = bytes, .out = addr_out},
                      host_alloc);
}

/* The range leaves the table before its addresses can come again. */
static int host_free(struct device_table *table, struct device_call *call)
{
    struct device_ranges *pinned = &table->resources.pinned;
    struct device_range *range = device_ranges_at_or_before(pinned, call->addr);
    if (!range || range->addr != call->addr) {
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NOT_FOUND, "no host memory begins at %#llx",
                             (unsigned long long)call->addr);
    }
    device_ranges_remove(pinned, range);
    int error = table->hooks->unpin ? table->hooks->unpin(table, range->addr, range->bytes) : VARVE_OK;
    if (error != VARVE_OK) {
        device_ranges_insert(pinned, range);
        return error;
    }
    if (!table->hooks->pin) {
        free((void *)(uintptr_t)range->addr);
    }
    free(range);
    return VARVE_OK;
}

int device_host_free(struct varve_device *device, uint64_t addr)
{
    return device_run(device, (struct device_call){.kind = DEVICE_CALL_UNCOUNTED, .addr = addr, .gives_back = true},
                      host_free);
}

void device_pinned_close(struct device_table *table)
{
    const struct device_range *range = device_ranges_at_or_after(&table->resources.pinned, 0);
    for (; range; range = device_ranges_at_or_after(&table->resources.pinned, range->addr + 1)) {
        free((void *)(uintptr_t)range->addr);
    }
}
