/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * A driver table for the cuda device with nothing behind it but a list of what is out. It is strict where the
 * real one is undefined: each call that has no right context, is not in relaxed mode, comes with the table
 * locked though it may last, or names something that is not there, is noted as what went wrong. Calls can be
 * made to fail, the driver can end, a stream can be under capture.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_DRIVER_FAKE_H
#define VARVE_TESTS_SUPPORT_CUDA_DRIVER_FAKE_H

#include "support/cuda/fake_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors, devices, contexts ---- */

static inline cuda_result fake_error_name(cuda_result result, const char **name_out)
{
    *name_out = result == CUDA_RESULT_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_error_text(cuda_result result, const char **text_out)
{
    (void)result;
    *text_out = "said by the driver";
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_device_count(int *count_out)
{
    FAKE_CALL("cuDeviceGetCount", FAKE_ANYHOW);
    *count_out = FAKE_DEVICES;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_device_get(cuda_ordinal *device_out, int ordinal)
{
    FAKE_CALL("cuDeviceGet", FAKE_ANYHOW);
    *device_out = ordinal;
    return ordinal < 0 || ordinal >= FAKE_DEVICES ? CUDA_RESULT_INVALID_DEVICE : CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_device_attribute(int *value_out, enum cuda_attribute attribute, cuda_ordinal device)
{
    (void)device;
    FAKE_CALL("cuDeviceGetAttribute", FAKE_ANYHOW);
    *value_out = attribute == CUDA_ATTRIBUTE_HAS_POOLS ? !fake.has_no_pools : fake.granularity != 0;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_device_can_access(int *can_out, cuda_ordinal device, cuda_ordinal peer)
{
    FAKE_CALL("cuDeviceCanAccessPeer", FAKE_ANYHOW);
    *can_out = device == 0 && peer == FAKE_ORDINAL; /* of the others, only the first one */
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_primary_retain(cuda_context *context_out, cuda_ordinal device)
{
    struct fake_object *retained = fake_find(FAKE_RETAIN, (uint64_t)device + 1);
    FAKE_CALL("cuDevicePrimaryCtxRetain", FAKE_ANYHOW);
    if (retained) {
        retained->count++;
    } else {
        fake_add(FAKE_RETAIN, (uint64_t)device + 1, 0);
    }
    *context_out = fake_context(device);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_primary_release(cuda_ordinal device)
{
    FAKE_CALL("cuDevicePrimaryCtxRelease", FAKE_ANYHOW);
    return fake_drop(FAKE_RETAIN, (uint64_t)device + 1, 0);
}

static inline cuda_result fake_context_current(cuda_context *context_out)
{
    FAKE_CALL("cuCtxGetCurrent", FAKE_ANYHOW);
    *context_out = fake_current();
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_context_push(cuda_context context)
{
    FAKE_CALL("cuCtxPushCurrent", FAKE_ANYHOW);
    if (fake.context_result == CUDA_RESULT_SUCCESS) {
        fake_thread.contexts[fake_thread.depth++] = context;
    }
    return fake.context_result;
}

/* Both always work, as with the driver: what they put back is there. */
static inline cuda_result fake_context_pop(cuda_context *context_out)
{
    *context_out = fake_current();
    if (fake_thread.depth == 0) {
        fake_wrong("cuCtxPopCurrent", 0);
        return CUDA_RESULT_INVALID_CONTEXT;
    }
    fake_thread.depth--;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_capture_mode_exchange(enum cuda_capture_mode *mode)
{
    enum cuda_capture_mode before = fake_thread.mode;
    fake_thread.mode = *mode;
    *mode = before;
    return fake.has_ended ? CUDA_RESULT_DEINITIALIZED : CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_context_enable_peer(cuda_context peer, unsigned flags)
{
    FAKE_CALL("cuCtxEnablePeerAccess", FAKE_ANYHOW);
    fake.peer_from = (int)((uintptr_t)fake_current() - 0xc0000);
    fake.peer_to = (int)((uintptr_t)peer - 0xc0000);
    return flags ? CUDA_RESULT_INVALID_VALUE : fake.peer_result;
}

/* ---- memory ---- */

static inline cuda_result fake_memory_alloc(cuda_address *addr_out, size_t bytes)
{
    FAKE_CALL("cuMemAlloc", FAKE_INSIDE | FAKE_LASTS);
    if (fake.has_no_memory) {
        return CUDA_RESULT_OUT_OF_MEMORY;
    }
    *addr_out = fake_add(FAKE_SEGMENT, 0, bytes);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_memory_free(cuda_address addr)
{
    FAKE_CALL("cuMemFree", FAKE_INSIDE);
    return fake_drop(fake_find(FAKE_POOLED, addr) ? FAKE_POOLED : FAKE_SEGMENT, addr, 0);
}

static inline cuda_result fake_memory_info(size_t *free_out, size_t *total_out)
{
    FAKE_CALL("cuMemGetInfo", FAKE_INSIDE);
    *free_out = FAKE_TOTAL / 2;
    *total_out = FAKE_TOTAL;
    return CUDA_RESULT_SUCCESS;
}

/* What the device's memory at an address belongs to; NULL: nothing. */
static inline struct fake_object *fake_memory_at(uint64_t addr)
{
    for (size_t i = 0; i < FAKE_OBJECTS; i++) {
        struct fake_object *object = &fake.objects[i];
        if ((object->kind == FAKE_SEGMENT || object->kind == FAKE_IMPORT || object->kind == FAKE_MAPPING ||
             object->kind == FAKE_POOLED) &&
            addr - object->addr < object->bytes) {
            return object;
        }
    }
    return NULL;
}

static inline cuda_result fake_memory_range(cuda_address *base_out, size_t *bytes_out, cuda_address addr)
{
    const struct fake_object *object = fake_memory_at(addr);
    FAKE_CALL("cuMemGetAddressRange", FAKE_INSIDE);
    if (!object) {
        return CUDA_RESULT_INVALID_VALUE;
    }
    *base_out = object->addr;
    *bytes_out = object->bytes;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_pointer_attribute(void *value_out, enum cuda_pointer_attribute attribute,
                                                 cuda_address addr)
{
    const int values[] = {
        [CUDA_POINTER_MEMORY_TYPE] = CUDA_MEMORY_DEVICE, [CUDA_POINTER_ORDINAL] = FAKE_ORDINAL + fake.pointer_device};
    FAKE_CALL("cuPointerGetAttribute", FAKE_INSIDE);
    if (!fake_memory_at(addr)) {
        return CUDA_RESULT_INVALID_VALUE;
    }
    memcpy(value_out, &values[attribute], sizeof(int));
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_vmm_granularity(size_t *bytes_out, const struct cuda_memory_kind *kind,
                                               enum cuda_granularity which)
{
    FAKE_CALL("cuMemGetAllocationGranularity", FAKE_ANYHOW);
    *bytes_out = fake.granularity;
    return kind->location.id != FAKE_ORDINAL || which ? CUDA_RESULT_INVALID_VALUE : CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_vmm_reserve(cuda_address *addr_out, size_t bytes, size_t alignment, cuda_address hint,
                                           unsigned long long flags)
{
    FAKE_CALL("cuMemAddressReserve", FAKE_INSIDE);
    if (alignment != FAKE_UNIT || hint || flags) {
        fake_wrong("cuMemAddressReserve", alignment);
    }
    *addr_out = fake_add(FAKE_RESERVATION, 0, bytes);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_vmm_address_free(cuda_address addr, size_t bytes)
{
    FAKE_CALL("cuMemAddressFree", FAKE_INSIDE);
    for (size_t i = 0; i < FAKE_OBJECTS; i++) {
        if (fake.objects[i].kind == FAKE_MAPPING && fake.objects[i].addr - addr < bytes) {
            fake_wrong("cuMemAddressFree of mapped memory", addr);
        }
    }
    return fake_drop(FAKE_RESERVATION, addr, bytes);
}

static inline cuda_result fake_vmm_create(cuda_memory *memory_out, size_t bytes, const struct cuda_memory_kind *kind,
                                          unsigned long long flags)
{
    FAKE_CALL("cuMemCreate", FAKE_INSIDE | FAKE_LASTS);
    if (fake.has_no_memory) {
        return CUDA_RESULT_OUT_OF_MEMORY;
    }
    if (kind->type != CUDA_ALLOCATION_PINNED || kind->location.type != CUDA_LOCATION_DEVICE ||
        kind->location.id != FAKE_ORDINAL || flags) {
        fake_wrong("cuMemCreate", bytes);
    }
    fake.handle_types = kind->handle_types;
    *memory_out = fake_add(FAKE_HANDLE, 0, bytes);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_vmm_map(cuda_address addr, size_t bytes, size_t offset, cuda_memory memory,
                                       unsigned long long flags)
{
    FAKE_CALL("cuMemMap", FAKE_INSIDE);
    if (!fake_find(FAKE_HANDLE, memory) || offset || flags) {
        fake_wrong("cuMemMap", memory);
    }
    fake_add(FAKE_MAPPING, addr, bytes);
    return CUDA_RESULT_SUCCESS;
}

/* A descriptor of /dev/null each time: the numbers are what is looked at. */
static inline cuda_result fake_vmm_export(void *shareable_out, cuda_memory memory, unsigned type,
                                          unsigned long long flags)
{
    FAKE_CALL("cuMemExportToShareableHandle", FAKE_INSIDE);
    if (!fake_find(FAKE_HANDLE, memory) || type != CUDA_HANDLE_TYPE_FD || fake.handle_types != CUDA_HANDLE_TYPE_FD ||
        flags) {
        fake_wrong("cuMemExportToShareableHandle", memory);
    }
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    memcpy(shareable_out, &fd, sizeof(fd));
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_vmm_import(cuda_memory *memory_out, void *shareable, unsigned type)
{
    FAKE_CALL("cuMemImportFromShareableHandle", FAKE_INSIDE);
    if (type != CUDA_HANDLE_TYPE_FD) {
        fake_wrong("cuMemImportFromShareableHandle", type);
    }
    if (fcntl((int)(uintptr_t)shareable, F_GETFD) < 0) {
        return CUDA_RESULT_INVALID_HANDLE;
    }
    *memory_out = fake_add(FAKE_HANDLE, 0, FAKE_UNIT);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_context_synchronize(void)
{
    FAKE_CALL("cuCtxSynchronize", FAKE_INSIDE | FAKE_LASTS);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_vmm_unmap(cuda_address addr, size_t bytes)
{
    FAKE_CALL("cuMemUnmap", FAKE_INSIDE);
    return fake_drop(FAKE_MAPPING, addr, bytes);
}

static inline cuda_result fake_vmm_set_access(cuda_address addr, size_t bytes, const struct cuda_access *access,
                                              size_t count)
{
    FAKE_CALL("cuMemSetAccess", FAKE_INSIDE);
    if (!fake_find(FAKE_MAPPING, addr) || bytes == 0 || count != 1 || access->flags != CUDA_ACCESS_READ_WRITE) {
        fake_wrong("cuMemSetAccess", addr);
    }
    return CUDA_RESULT_SUCCESS;
}

/* ---- streams and events ---- */

static inline cuda_result fake_stream_synchronize(cuda_stream stream)
{
    FAKE_CALL("cuStreamSynchronize", FAKE_INSIDE | FAKE_LASTS);
    fake_not_captured("cuStreamSynchronize of a captured stream", stream);
    fake.waits++;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_stream_is_capturing(cuda_stream stream, enum cuda_capture_status *status_out)
{
    FAKE_CALL("cuStreamIsCapturing", FAKE_INSIDE);
    if (!stream && fake.captured) {
        return CUDA_RESULT_STREAM_CAPTURE_IMPLICIT;
    }
    *status_out = (enum cuda_capture_status)(stream && (uint64_t)(uintptr_t)stream == fake.captured);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_event_create(cuda_event *event_out, unsigned flags)
{
    FAKE_CALL("cuEventCreate", FAKE_INSIDE);
    if (flags != CUDA_EVENT_NO_TIMING) {
        fake_wrong("cuEventCreate", flags);
    }
    fake.event_creates++;
    *event_out = (cuda_event)(uintptr_t)fake_add(FAKE_EVENT, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_event_record(cuda_event event, cuda_stream stream)
{
    fake_not_captured("cuEventRecord on a captured stream", stream);
    fake.event_records++;
    if (fake_find(FAKE_EVENT, (uint64_t)(uintptr_t)event)) {
        fake_find(FAKE_EVENT, (uint64_t)(uintptr_t)event)->bytes = (uint64_t)(uintptr_t)stream;
    }
    return fake_use("cuEventRecord", FAKE_EVENT, event, FAKE_INSIDE);
}

static inline cuda_result fake_event_query(cuda_event event)
{
    cuda_result result = fake_use("cuEventQuery", FAKE_EVENT, event, FAKE_INSIDE);
    return result == CUDA_RESULT_SUCCESS && fake.is_event_pending ? CUDA_RESULT_NOT_READY : result;
}

static inline cuda_result fake_event_synchronize(cuda_event event)
{
    fake.waits++;
    return fake_use("cuEventSynchronize", FAKE_EVENT, event, FAKE_INSIDE | FAKE_LASTS);
}

static inline cuda_result fake_stream_wait_event(cuda_stream stream, cuda_event event, unsigned flags)
{
    fake_not_captured("cuStreamWaitEvent on a captured stream", stream);
    if (flags) {
        fake_wrong("cuStreamWaitEvent", flags);
    }
    if (fake.orders < sizeof(fake.order) / sizeof(fake.order[0]) && fake_find(FAKE_EVENT, (uint64_t)(uintptr_t)event)) {
        fake.order[fake.orders] =
            (struct fake_order){(uint64_t)(uintptr_t)stream, fake_find(FAKE_EVENT, (uint64_t)(uintptr_t)event)->bytes};
    }
    fake.orders++;
    return fake_use("cuStreamWaitEvent", FAKE_EVENT, event, FAKE_INSIDE);
}

/* ---- other processes: a handle's first bytes are an address, and whoever made it exists ---- */

static inline cuda_result fake_ipc_export(struct cuda_ipc_memory *handle_out, cuda_address addr)
{
    FAKE_CALL("cuIpcGetMemHandle", FAKE_INSIDE);
    memset(handle_out, 0x5a, sizeof(*handle_out));
    memcpy(handle_out->bytes, &addr, sizeof(addr));
    return fake_find(FAKE_SEGMENT, addr) ? CUDA_RESULT_SUCCESS : CUDA_RESULT_INVALID_VALUE;
}

static inline cuda_result fake_ipc_open(cuda_address *addr_out, struct cuda_ipc_memory handle, unsigned flags)
{
    uint64_t addr;
    memcpy(&addr, handle.bytes, sizeof(addr));
    addr += (uint64_t)1 << 50;
    struct fake_object *import = fake_find(FAKE_IMPORT, addr);
    FAKE_CALL("cuIpcOpenMemHandle", FAKE_INSIDE);
    if (flags != CUDA_IPC_LAZY_PEER_ACCESS || handle.bytes[63] != 0x5a) {
        return CUDA_RESULT_INVALID_HANDLE;
    }
    if (import) {
        import->count++;
    } else {
        fake_add(FAKE_IMPORT, addr, FAKE_UNIT);
    }
    *addr_out = addr;
    return CUDA_RESULT_SUCCESS;
}

/* ---- what is only given back; a module at the close, with the table, else without ---- */

#define FAKE_DROP(function, called, type, kind)                 \
    static inline cuda_result function(type handle)             \
    {                                                           \
        FAKE_CALL(called, FAKE_INSIDE);                         \
        return fake_drop(kind, (uint64_t)(uintptr_t)handle, 0); \
    }
FAKE_DROP(fake_module_unload, "cuModuleUnload", cuda_module, FAKE_MODULE)
FAKE_DROP(fake_vmm_release, "cuMemRelease", cuda_memory, FAKE_HANDLE)
FAKE_DROP(fake_event_destroy, "cuEventDestroy", cuda_event, FAKE_EVENT)
FAKE_DROP(fake_ipc_close, "cuIpcCloseMemHandle", cuda_address, FAKE_IMPORT)

/* ---- stream-ordered memory: neither allocating nor freeing on a captured stream goes through unnoticed ---- */

static inline cuda_result fake_pool_create(cuda_pool *pool_out, const struct cuda_pool_kind *kind)
{
    FAKE_CALL("cuMemPoolCreate", FAKE_INSIDE);
    if (kind->type != CUDA_ALLOCATION_PINNED || kind->location.type != CUDA_LOCATION_DEVICE ||
        kind->location.id != FAKE_ORDINAL || kind->max_bytes || kind->usage || kind->reserved[0]) {
        fake_wrong("cuMemPoolCreate", kind->max_bytes);
    }
    *pool_out = (cuda_pool)(uintptr_t)fake_add(FAKE_POOL, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_pool_destroy(cuda_pool pool)
{
    FAKE_CALL("cuMemPoolDestroy", FAKE_INSIDE);
    if (fake_count(FAKE_POOLED) != 0) {
        fake_wrong("cuMemPoolDestroy with memory out", fake_count(FAKE_POOLED));
    }
    return fake_drop(FAKE_POOL, (uint64_t)(uintptr_t)pool, 0);
}

static inline cuda_result fake_pool_set(cuda_pool pool, enum cuda_pool_attribute attribute, void *value)
{
    if (attribute != CUDA_POOL_RELEASE_THRESHOLD || *(const uint64_t *)value != UINT64_MAX) {
        fake_wrong("cuMemPoolSetAttribute", attribute);
    }
    return fake_use("cuMemPoolSetAttribute", FAKE_POOL, pool, FAKE_INSIDE);
}

static inline cuda_result fake_pool_set_access(cuda_pool pool, const struct cuda_access *access, size_t count)
{
    if (count != 1 || access->flags != CUDA_ACCESS_READ_WRITE) {
        fake_wrong("cuMemPoolSetAccess", count);
    }
    fake.pool_peer = access->location.id;
    return fake_use("cuMemPoolSetAccess", FAKE_POOL, pool, FAKE_INSIDE);
}

static inline cuda_result fake_pool_trim(cuda_pool pool, size_t keep_bytes)
{
    (void)keep_bytes;
    fake.trims++;
    return fake_use("cuMemPoolTrimTo", FAKE_POOL, pool, FAKE_INSIDE | FAKE_LASTS);
}

static inline cuda_result fake_pool_alloc(cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream)
{
    cuda_result result = fake_use("cuMemAllocFromPoolAsync", FAKE_POOL, pool, FAKE_INSIDE | FAKE_LASTS);
    fake_not_captured("cuMemAllocFromPoolAsync on a captured stream", stream);
    if (result == CUDA_RESULT_SUCCESS && fake.has_no_memory) {
        return CUDA_RESULT_OUT_OF_MEMORY;
    }
    if (result == CUDA_RESULT_SUCCESS) {
        *addr_out = fake_add(FAKE_POOLED, 0, bytes);
    }
    return result;
}

static inline cuda_result fake_pool_free(cuda_address addr, cuda_stream stream)
{
    FAKE_CALL("cuMemFreeAsync", FAKE_INSIDE);
    fake_not_captured("cuMemFreeAsync on a captured stream", stream);
    fake.free_stream = (uint64_t)(uintptr_t)stream;
    fake.free_orders = fake.orders;
    return fake_drop(FAKE_POOLED, addr, 0);
}

/* ---- transfers: streams, copies, fills and pinned memory ----
 *
 * The memory of the fake device is none, so nothing is copied: the calls are written down. Work for the default stream
 * while another one is under capture would end that capture: it is noted as wrong. */

static inline cuda_result fake_stream_create(cuda_stream *stream_out, unsigned flags)
{
    FAKE_CALL("cuStreamCreate", FAKE_INSIDE);
    if (flags != CUDA_STREAM_NON_BLOCKING) {
        fake_wrong("cuStreamCreate", flags);
    }
    *stream_out = (cuda_stream)(uintptr_t)fake_add(FAKE_STREAM, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_stream_destroy(cuda_stream stream)
{
    FAKE_CALL("cuStreamDestroy", FAKE_INSIDE);
    fake_not_captured("cuStreamDestroy of a captured stream", stream);
    return fake_drop(FAKE_STREAM, (uint64_t)(uintptr_t)stream, 0);
}

static inline cuda_result fake_transfer(const char *name, struct fake_transfer transfer)
{
    FAKE_CALL(name, FAKE_INSIDE | FAKE_LASTS);
    if (transfer.stream <= CUDA_STREAM_LEGACY && fake.captured) {
        fake_wrong(name, fake.captured);
    }
    transfer.name = name;
    if (fake.transfers < FAKE_TRANSFERS) {
        fake.transfer[fake.transfers] = transfer;
    }
    fake.transfers++;
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_copy(cuda_address target, cuda_address source, size_t bytes, cuda_stream stream)
{
    return fake_transfer("cuMemcpyAsync", (struct fake_transfer){.target = target,
                                                                 .source = source,
                                                                 .width = bytes,
                                                                 .stream = (uint64_t)(uintptr_t)stream});
}

static inline cuda_result fake_copy_2d(const struct cuda_copy_2d *copy, cuda_stream stream)
{
    if (copy->source_x || copy->source_y || copy->target_x || copy->target_y ||
        copy->source_type != CUDA_MEMORY_UNIFIED || copy->target_type != CUDA_MEMORY_UNIFIED) {
        fake_wrong("cuMemcpy2DAsync", copy->source_type);
    }
    return fake_transfer("cuMemcpy2DAsync", (struct fake_transfer){.target = copy->target_device,
                                                                   .target_pitch = copy->target_pitch,
                                                                   .source = copy->source_device,
                                                                   .source_pitch = copy->source_pitch,
                                                                   .width = copy->row_bytes,
                                                                   .rows = copy->rows,
                                                                   .stream = (uint64_t)(uintptr_t)stream});
}

static inline cuda_result fake_fill(const char *name, cuda_address addr, uint64_t value, size_t count,
                                    cuda_stream stream)
{
    return fake_transfer(
        name,
        (struct fake_transfer){.target = addr, .value = value, .width = count, .stream = (uint64_t)(uintptr_t)stream});
}

#define FAKE_FILL(function, called, type)                                                               \
    static inline cuda_result function(cuda_address addr, type value, size_t count, cuda_stream stream) \
    {                                                                                                   \
        return fake_fill(called, addr, value, count, stream);                                           \
    }
FAKE_FILL(fake_fill_8, "cuMemsetD8Async", unsigned char)
FAKE_FILL(fake_fill_16, "cuMemsetD16Async", unsigned short)
FAKE_FILL(fake_fill_32, "cuMemsetD32Async", unsigned)

static inline cuda_result fake_fill_2d_32(cuda_address addr, size_t pitch, unsigned value, size_t row_count,
                                          size_t rows, cuda_stream stream)
{
    return fake_transfer("cuMemsetD2D32Async", (struct fake_transfer){.target = addr,
                                                                      .target_pitch = pitch,
                                                                      .value = value,
                                                                      .width = row_count,
                                                                      .rows = rows,
                                                                      .stream = (uint64_t)(uintptr_t)stream});
}

/* Memory that is there: tests write to it. */
static inline cuda_result fake_host_alloc(void **memory_out, size_t bytes, unsigned flags)
{
    FAKE_CALL("cuMemHostAlloc", FAKE_INSIDE | FAKE_LASTS);
    if (fake.has_no_memory || bytes > FAKE_TOTAL || posix_memalign(memory_out, 4096, bytes) != 0) {
        return CUDA_RESULT_OUT_OF_MEMORY;
    }
    if (flags != CUDA_HOST_PORTABLE) {
        fake_wrong("cuMemHostAlloc", flags);
    }
    fake_add(FAKE_PINNED, (uint64_t)(uintptr_t)*memory_out, bytes);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_host_free(void *memory)
{
    FAKE_CALL("cuMemFreeHost", FAKE_INSIDE);
    cuda_result result = fake_drop(FAKE_PINNED, (uint64_t)(uintptr_t)memory, 0);
    if (result == CUDA_RESULT_SUCCESS) {
        free(memory);
    }
    return result;
}

/* ---- programs: an image is a text; a launch is written down as a transfer with the function as its target ---- */

static inline cuda_result fake_module_load(cuda_module *module_out, const void *image)
{
    FAKE_CALL("cuModuleLoadData", FAKE_INSIDE | FAKE_LASTS);
    if (*(const char *)image == '\0') {
        return CUDA_RESULT_NO_BINARY_FOR_GPU;
    }
    *module_out = (cuda_module)(uintptr_t)fake_add(FAKE_MODULE, 0, 0);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_module_function(cuda_function *function_out, cuda_module module, const char *name)
{
    FAKE_CALL("cuModuleGetFunction", FAKE_INSIDE);
    if (strcmp(name, "there") != 0) {
        return CUDA_RESULT_NOT_FOUND;
    }
    *function_out = (cuda_function)((uintptr_t)module + 1);
    return CUDA_RESULT_SUCCESS;
}

static inline cuda_result fake_launch(cuda_function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                                      unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                                      cuda_stream stream, void **arguments, void **packed_arguments)
{
    if (packed_arguments || !arguments || shared_bytes != 0) {
        fake_wrong("cuLaunchKernel", shared_bytes);
        return CUDA_RESULT_INVALID_VALUE;
    }
    return fake_transfer("cuLaunchKernel", (struct fake_transfer){.target = (uint64_t)(uintptr_t)function,
                                                                  .source = (uint64_t)(uintptr_t)*arguments,
                                                                  .width = (uint64_t)blocks_x * blocks_y * blocks_z,
                                                                  .rows = (uint64_t)threads_x * threads_y * threads_z,
                                                                  .stream = (uint64_t)(uintptr_t)stream});
}

/* Whoever loads a driver asks these; no device does. */
#define fake_init NULL
#define fake_driver_version NULL
#define FAKE_FIELD(field, ...) .field = fake_##field,
static const struct cuda_driver fake_driver = {CUDA_DRIVER_LIST(FAKE_FIELD) CUDA_DRIVER_POOL_LIST(
    FAKE_FIELD) CUDA_DRIVER_TRANSFER_LIST(FAKE_FIELD) CUDA_DRIVER_PROGRAM_LIST(FAKE_FIELD)};
#undef FAKE_FIELD

static inline void fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
    memset(&fake_thread, 0, sizeof(fake_thread));
    fake.next = UINT64_C(0x7f0000000000);
    fake.granularity = FAKE_UNIT;
}

#endif
