/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of the cuda device. Addresses are unified: from an address the driver knows whether it is memory of this
 * device, of another one or of the host, so one call does all directions. Giving work to a stream may last: the driver
 * stages host memory that is not pinned, and a stream's queue can be full. So the table is unlocked meanwhile. Unlike
 * allocations, copies and fills are allowed on a stream under capture; on the default stream the driver would end the
 * capture of another one for them, which is refused before that. Called by the operations of all devices.
 */
#include "alloc/device/cuda_device.h"

#define PITCH_MAX ((uint64_t)INT32_MAX) /* of one copy of rows: CU_DEVICE_ATTRIBUTE_MAX_PITCH of GPUs so far */

bool cuda_has_transfers(const struct cuda_driver *driver)
{
#define IS_THERE(field, symbol, exported, version, parameters) driver->field &&
    return CUDA_DRIVER_TRANSFER_LIST(IS_THERE) true;
#undef IS_THERE
}

/* ---- streams ---- */

int cuda_stream_make(struct device_table *table, uint64_t *stream_out)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_stream stream = NULL;
    int error = cuda_failed(cuda, cuda->driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING),
                            "cuStreamCreate for CUDA device %d", cuda->ordinal);
    *stream_out = (uint64_t)(uintptr_t)stream;
    return error;
}

/* The driver lets go of it once its work is done. */
int cuda_stream_end(struct device_table *table, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = cuda_capture_check(cuda, stream);
    return error == VARVE_OK ? cuda_failed(cuda, cuda->driver->stream_destroy(cuda_stream_of(stream)),
                                           "cuStreamDestroy of %#llx", (unsigned long long)stream)
                             : error;
}

/* ---- memory that others have got from the driver ---- */

static cuda_result cuda_transfer_describe(const struct cuda_driver *driver, uint64_t addr, int *type_out,
                                          int *ordinal_out, uint64_t *end_out)
{
    cuda_result result = driver->pointer_attribute(type_out, CUDA_POINTER_MEMORY_TYPE, addr);
    VARVE_THEN(result, driver->pointer_attribute(ordinal_out, CUDA_POINTER_ORDINAL, addr));
    size_t bytes = 0;
    cuda_address base = 0;
    VARVE_THEN(result, driver->memory_range(&base, &bytes, addr));
    *end_out = base + bytes;
    return result;
}

/* Piece by piece: a range may lie in mappings that follow each other. */
int cuda_foreign_check(struct device_table *table, uint64_t addr, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of_table(table);
    for (uint64_t at = addr, end; at - addr < bytes; at = end) {
        int type = 0, ordinal = 0;
        cuda_result result = cuda_transfer_describe(cuda->driver, at, &type, &ordinal, &end);
        if (result == CUDA_RESULT_INVALID_VALUE || result == CUDA_RESULT_NOT_FOUND ||
            (result == CUDA_RESULT_SUCCESS && (type != CUDA_MEMORY_DEVICE || ordinal != cuda->ordinal || end <= at))) {
            return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NOT_FOUND, "%#llx lies in no memory of CUDA device %d",
                                 (unsigned long long)at, cuda->ordinal);
        }
        if (result != CUDA_RESULT_SUCCESS) {
            return cuda_failed(cuda, result, "cuPointerGetAttribute of %#llx", (unsigned long long)at);
        }
    }
    return VARVE_OK;
}

/* ---- copies ---- */

static cuda_result copy_2d(const struct cuda_driver *driver, const struct varve_copy_2d *copy, cuda_stream stream)
{
    const struct cuda_copy_2d call = {
        .source_type = CUDA_MEMORY_UNIFIED,
        .source_device = copy->source_addr,
        .source_pitch = copy->source_pitch,
        .target_type = CUDA_MEMORY_UNIFIED,
        .target_device = copy->target_addr,
        .target_pitch = copy->target_pitch,
        .row_bytes = copy->row_bytes,
        .rows = copy->rows,
    };
    return driver->copy_2d(&call, stream);
}

/* Rows too far apart for one call are few. */
static cuda_result copy_each_row(const struct cuda_driver *driver, const struct varve_copy_2d *copy, cuda_stream stream)
{
    cuda_result result = CUDA_RESULT_SUCCESS;
    for (uint64_t row = 0; result == CUDA_RESULT_SUCCESS && row < copy->rows; row++) {
        result = driver->copy(copy->target_addr + row * copy->target_pitch,
                              copy->source_addr + row * copy->source_pitch, copy->row_bytes, stream);
    }
    return result;
}

int cuda_copy(struct device_table *table, const struct varve_copy_2d *copy, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of_table(table);
    bool is_one_call = copy->rows > 1 && copy->target_pitch <= PITCH_MAX && copy->source_pitch <= PITCH_MAX;
    int error = cuda_work_check(cuda, stream);
    if (error != VARVE_OK) {
        return error;
    }
    cuda_unlock(cuda);
    cuda_result result = is_one_call ? copy_2d(cuda->driver, copy, cuda_stream_of(stream))
                                     : copy_each_row(cuda->driver, copy, cuda_stream_of(stream));
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "%s of %llu * %llu bytes from %#llx to %#llx on the stream %#llx",
                       is_one_call ? "cuMemcpy2DAsync" : "cuMemcpyAsync", (unsigned long long)copy->rows,
                       (unsigned long long)copy->row_bytes, (unsigned long long)copy->source_addr,
                       (unsigned long long)copy->target_addr, (unsigned long long)stream);
}

/* ---- fills ---- */

/* The driver has no pattern of 8 bytes, but columns of 4: one of the lower halves, one of the upper ones. */
static cuda_result cuda_transfer_fill_64(const struct cuda_driver *driver, const struct device_fill *fill,
                                         cuda_stream stream)
{
    uint32_t low = (uint32_t)fill->pattern, high = (uint32_t)(fill->pattern >> 32);
    if (low == high) {
        return driver->fill_32(fill->addr, low, 2 * fill->count, stream);
    }
    cuda_result result = driver->fill_2d_32(fill->addr, sizeof(uint64_t), low, 1, fill->count, stream);
    return result == CUDA_RESULT_SUCCESS
               ? driver->fill_2d_32(fill->addr + sizeof(low), sizeof(uint64_t), high, 1, fill->count, stream)
               : result;
}

static cuda_result fill_any(const struct cuda_driver *driver, const struct device_fill *fill, cuda_stream stream)
{
    switch (fill->pattern_bytes) {
    case 1:
        return driver->fill_8(fill->addr, (unsigned char)fill->pattern, fill->count, stream);
    case 2:
        return driver->fill_16(fill->addr, (unsigned short)fill->pattern, fill->count, stream);
    case 4:
        return driver->fill_32(fill->addr, (unsigned)fill->pattern, fill->count, stream);
    default:
        return cuda_transfer_fill_64(driver, fill, stream);
    }
}

int cuda_fill(struct device_table *table, const struct device_fill *fill, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = cuda_work_check(cuda, stream);
    if (error != VARVE_OK) {
        return error;
    }
    cuda_unlock(cuda);
    cuda_result result = fill_any(cuda->driver, fill, cuda_stream_of(stream));
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuMemset of %llu elements of %u bytes at %#llx on the stream %#llx",
                       (unsigned long long)fill->count, fill->pattern_bytes, (unsigned long long)fill->addr,
                       (unsigned long long)stream);
}

/* ---- pinned memory ---- */

int cuda_pin(struct device_table *table, uint64_t bytes, uint64_t *addr_out)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_unlock(cuda);
    void *memory = NULL;
    cuda_result result = cuda->driver->host_alloc(&memory, bytes, CUDA_HOST_PORTABLE);
    cuda_lock(cuda);
    *addr_out = (uint64_t)(uintptr_t)memory;
    return cuda_failed(cuda, result, "cuMemHostAlloc of %llu bytes", (unsigned long long)bytes);
}

int cuda_unpin(struct device_table *table, uint64_t addr, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->host_free((void *)(uintptr_t)addr);
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuMemFreeHost of %llu bytes at %#llx", (unsigned long long)bytes,
                       (unsigned long long)addr);
}

/* Failures leave the rest to the end of the context. */
void cuda_transfers_close(struct cuda_device *cuda)
{
    struct device_resources *resources = &cuda->table.resources;
    const struct device_range *range = device_ranges_at_or_after(&resources->pinned, 0);
    for (size_t i = 0; i < resources->created_count; i++) {
        cuda->driver->stream_destroy(cuda_stream_of(resources->created[i]));
    }
    for (; range; range = device_ranges_at_or_after(&resources->pinned, range->addr + 1)) {
        cuda->driver->host_free((void *)(uintptr_t)range->addr);
    }
}
