/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of the driver are recorded and how their parameters are read: one row each. CUPTI hands
 * over a pointer to the arguments, laid out as a struct per function and version (driver.h). What a
 * call gives out lies behind a pointer of the program's that may be read only after success.
 */
#include "trace/recorder/cupti/parameters.h"
#include "trace/recorder/cuda/array.h"
#include "trace/recorder/cupti/driver.h"

#include <stddef.h>

/* ---- linear memory ---- */

static bool read_alloc(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_alloc *call = parameters;

    out->bytes = call->bytes;
    out->addr = has_out ? *call->out : 0;
    return true;
}

/* The pitch is the driver's choice: what was asked for stands in for it if there is none. */
static bool read_pitch(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_alloc_pitch *call = parameters;

    out->bytes = (uint64_t)(has_out ? *call->pitch_out : call->width_bytes) * call->height;
    out->addr = has_out ? *call->out : 0;
    return true;
}

static bool read_alloc_async(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    out->stream = ((const struct cupti_call_alloc_async *)parameters)->stream;
    return read_alloc(parameters, has_out, out);
}

static bool read_alloc_pool(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_alloc_pool *call = parameters;

    out->stream = call->stream;
    out->pool = call->pool;
    return read_alloc(parameters, has_out, out);
}

static bool read_free(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)has_out;
    out->addr = ((const struct cupti_call_free *)parameters)->addr;
    return out->addr != 0;
}

static bool read_free_async(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    out->stream = ((const struct cupti_call_free_async *)parameters)->stream;
    return read_free(parameters, has_out, out);
}

static bool read_range(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_range *call = parameters;

    (void)has_out;
    out->addr = call->addr;
    out->bytes = call->bytes;
    return true;
}

/* Somebody else knows how large it is. */
static bool read_ipc_open(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    out->addr = has_out ? *((const struct cupti_call_out *)parameters)->out : 0;
    return true;
}

/* ---- virtual memory ---- */

static void set_location(const struct cupti_location *location, struct cupti_parameters *out)
{
    if (location->type == CUPTI_LOCATION_DEVICE) {
        out->device = location->id;
        out->memory = VARVE_MEMORY_DEVICE;
    } else {
        out->memory = VARVE_MEMORY_PINNED;
    }
}

static bool read_create(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_create *call = parameters;

    out->bytes = call->bytes;
    out->arg = has_out ? *call->out : 0;
    if (call->properties != NULL) {
        set_location(&call->properties->location, out);
    }
    return true;
}

static bool read_handle_out(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    out->arg = has_out ? *((const struct cupti_call_out *)parameters)->out : 0;
    return true;
}

static bool read_release(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)has_out;
    out->arg = ((const struct cupti_call_free *)parameters)->addr;
    return true;
}

static bool read_map(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_map *call = parameters;

    (void)has_out;
    out->addr = call->addr;
    out->bytes = call->bytes;
    out->arg = call->handle;
    return true;
}

static bool read_access(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_access *call = parameters;

    (void)has_out;
    out->addr = call->addr;
    out->bytes = call->bytes;
    out->arg = call->count;
    return true;
}

/* ---- pools ---- */

static bool read_pool_create(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_pool_create *call = parameters;

    out->addr = out->pool = has_out ? *call->out : 0;
    if (call->properties != NULL) {
        set_location(&call->properties->location, out);
        if (call->properties->type == CUPTI_ALLOCATION_MANAGED) {
            out->memory = VARVE_MEMORY_MANAGED;
        }
    }
    return true;
}

static bool read_pool(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    out->pool = ((const struct cupti_call_free *)parameters)->addr;
    return read_free(parameters, has_out, out);
}

static bool read_pool_trim(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    out->arg = ((const struct cupti_call_pool_trim *)parameters)->bytes_to_keep;
    return read_pool(parameters, has_out, out);
}

/* Of what can be set, only the bytes that it may keep are about memory. */
static bool read_pool_set(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_pool_set *call = parameters;

    if (call->attribute != CUPTI_POOL_THRESHOLD || call->value == NULL) {
        return false;
    }
    out->arg = *call->value;
    return read_pool(parameters, has_out, out);
}

/* ---- contexts, waiting, the state of the device ---- */

static bool read_device(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)has_out;
    out->device = ((const struct cupti_call_device *)parameters)->device;
    return true;
}

static bool read_context(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)has_out;
    out->context = ((const struct cupti_call_context *)parameters)->context;
    return true;
}

static bool read_nothing(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)parameters;
    (void)has_out;
    (void)out;
    return true;
}

static bool read_stream(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)has_out;
    out->stream = ((const struct cupti_call_sync *)parameters)->handle;
    return true;
}

static bool read_event(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    (void)has_out;
    out->addr = ((const struct cupti_call_sync *)parameters)->handle;
    return true;
}

static bool read_info(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_info *call = parameters;

    if (!has_out || call->total_out == NULL || call->free_out == NULL) {
        return false;
    }
    out->bytes = *call->total_out;
    out->arg = *call->free_out;
    return true;
}

/* ---- arrays: the handle, and the bytes of the texels in all levels ---- */

static bool read_any_array(const struct cupti_call_array *call, const struct cuda_array_3d *array,
                           uint32_t levels, bool has_out, struct cupti_parameters *out)
{
    out->bytes = array != NULL ? cuda_array_bytes(array, levels) : 0; /* NULL: the call fails */
    out->addr = has_out ? *call->out : 0;
    return true;
}

static bool read_array(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;
    const struct cuda_array_2d *flat = call->array;
    struct cuda_array_3d array = {0};

    if (flat != NULL) { /* else the call fails */
        array = cuda_array_flat(flat);
    }
    return read_any_array(call, &array, 1, has_out, out);
}

static bool read_array_3d(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;

    return read_any_array(call, call->array, 1, has_out, out);
}

static bool read_mipmapped(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;

    return read_any_array(call, call->array, call->levels, has_out, out);
}

/* ---- the table ---- */

#define ALLOC(ID, KIND, CAUSE, MEMORY, READ) \
    [CUPTI_CALL_##ID] = {                    \
        CUPTI_ROLE_AFTER, VARVE_KIND_##KIND, VARVE_CAUSE_##CAUSE, VARVE_MEMORY_##MEMORY, true, false, READ},
#define OTHER(ROLE, ID, KIND, CAUSE, MEMORY, READ) \
    [CUPTI_CALL_##ID] = {CUPTI_ROLE_##ROLE,        \
                         VARVE_KIND_##KIND,        \
                         VARVE_CAUSE_##CAUSE,      \
                         VARVE_MEMORY_##MEMORY,    \
                         false,                    \
                         false,                    \
                         READ},
#define PER_THREAD(ROLE, ID, KIND, CAUSE, MEMORY, IS_ALLOC, READ) \
    [CUPTI_CALL_##ID] = {CUPTI_ROLE_##ROLE,                       \
                         VARVE_KIND_##KIND,                       \
                         VARVE_CAUSE_##CAUSE,                     \
                         VARVE_MEMORY_##MEMORY,                   \
                         IS_ALLOC,                                \
                         true,                                    \
                         READ},

/* clang-format off */
static const struct cupti_rule rules[CUPTI_CALL_LIMIT] = {
    ALLOC(cuMemAlloc_v2, DEV_ALLOC, CU_MEM_ALLOC, DEVICE, read_alloc)
    ALLOC(cuMemAllocPitch_v2, DEV_ALLOC, CU_MEM_ALLOC_PITCH, DEVICE, read_pitch)
    ALLOC(cuMemAllocManaged, DEV_ALLOC, CU_MEM_ALLOC_MANAGED, MANAGED, read_alloc)
    ALLOC(cuMemAllocHost_v2, DEV_ALLOC, CU_MEM_ALLOC_HOST, PINNED, read_alloc)
    ALLOC(cuMemHostAlloc, DEV_ALLOC, CU_MEM_HOST_ALLOC, PINNED, read_alloc)
    ALLOC(cuMemHostAlloc_v2, DEV_ALLOC, CU_MEM_HOST_ALLOC, PINNED, read_alloc)
    ALLOC(cuMemHostRegister, DEV_ALLOC, CU_MEM_HOST_REGISTER, PINNED, read_range)
    ALLOC(cuMemHostRegister_v2, DEV_ALLOC, CU_MEM_HOST_REGISTER, PINNED, read_range)
    ALLOC(cuArrayCreate_v2, DEV_ALLOC, CU_ARRAY_CREATE, ARRAY, read_array)
    ALLOC(cuArray3DCreate_v2, DEV_ALLOC, CU_ARRAY_3D_CREATE, ARRAY, read_array_3d)
    ALLOC(cuMipmappedArrayCreate, DEV_ALLOC, CU_MIPMAPPED_ARRAY_CREATE, ARRAY, read_mipmapped)
    ALLOC(cuIpcOpenMemHandle, DEV_ALLOC, CU_IPC_OPEN_MEM_HANDLE, DEVICE, read_ipc_open)
    ALLOC(cuIpcOpenMemHandle_v2, DEV_ALLOC, CU_IPC_OPEN_MEM_HANDLE, DEVICE, read_ipc_open)
    ALLOC(cuMemAllocAsync, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_ASYNC, DEVICE, read_alloc_async)
    PER_THREAD(AFTER, cuMemAllocAsync_ptsz, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_ASYNC, DEVICE, true, read_alloc_async)
    ALLOC(cuMemAllocFromPoolAsync, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_FROM_POOL_ASYNC, DEVICE, read_alloc_pool)
    PER_THREAD(AFTER, cuMemAllocFromPoolAsync_ptsz, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_FROM_POOL_ASYNC, DEVICE, true,
               read_alloc_pool)
    OTHER(FREE, cuMemFree_v2, DEV_FREE, CU_MEM_FREE, DEVICE, read_free)
    OTHER(FREE, cuMemFreeHost, DEV_FREE, CU_MEM_FREE_HOST, PINNED, read_free)
    OTHER(FREE, cuMemHostUnregister, DEV_FREE, CU_MEM_HOST_UNREGISTER, PINNED, read_free)
    OTHER(FREE, cuArrayDestroy, DEV_FREE, CU_ARRAY_DESTROY, ARRAY, read_free)
    OTHER(FREE, cuMipmappedArrayDestroy, DEV_FREE, CU_MIPMAPPED_ARRAY_DESTROY, ARRAY, read_free)
    OTHER(FREE, cuIpcCloseMemHandle, DEV_FREE, CU_IPC_CLOSE_MEM_HANDLE, DEVICE, read_free)
    OTHER(FREE, cuMemFreeAsync, DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, DEVICE, read_free_async)
    PER_THREAD(FREE, cuMemFreeAsync_ptsz, DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, DEVICE, false, read_free_async)
    OTHER(AFTER, cuMemAddressReserve, VMM_RESERVE, CU_MEM_ADDRESS_RESERVE, DEVICE, read_alloc)
    ALLOC(cuMemCreate, VMM_CREATE, CU_MEM_CREATE, DEVICE, read_create)
    OTHER(AFTER, cuMemRetainAllocationHandle, VMM_CREATE, CU_MEM_RETAIN_ALLOCATION_HANDLE, DEVICE, read_handle_out)
    OTHER(AFTER, cuMemImportFromShareableHandle, VMM_CREATE, CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE, DEVICE,
          read_handle_out)
    OTHER(AFTER, cuMemMap, VMM_MAP, CU_MEM_MAP, DEVICE, read_map)
    OTHER(AFTER, cuMemSetAccess, VMM_SET_ACCESS, CU_MEM_SET_ACCESS, DEVICE, read_access)
    OTHER(FREE, cuMemUnmap, VMM_UNMAP, CU_MEM_UNMAP, DEVICE, read_range)
    OTHER(FREE, cuMemRelease, VMM_RELEASE, CU_MEM_RELEASE, DEVICE, read_release)
    OTHER(FREE, cuMemAddressFree, VMM_ADDRESS_FREE, CU_MEM_ADDRESS_FREE, DEVICE, read_range)
    OTHER(AFTER, cuMemPoolCreate, DEV_POOL, CU_MEM_POOL_CREATE, DEVICE, read_pool_create)
    OTHER(AFTER, cuMemPoolDestroy, DEV_POOL, CU_MEM_POOL_DESTROY, DEVICE, read_pool)
    OTHER(AFTER, cuMemPoolTrimTo, DEV_POOL, CU_MEM_POOL_TRIM_TO, DEVICE, read_pool_trim)
    OTHER(AFTER, cuMemPoolSetAttribute, DEV_POOL, CU_MEM_POOL_SET_ATTRIBUTE, DEVICE, read_pool_set)
    OTHER(RESET, cuDevicePrimaryCtxReset, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RESET, UNKNOWN, read_device)
    OTHER(RESET, cuDevicePrimaryCtxReset_v2, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RESET, UNKNOWN, read_device)
    OTHER(RELEASE, cuDevicePrimaryCtxRelease, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RELEASE, UNKNOWN, read_device)
    OTHER(RELEASE, cuDevicePrimaryCtxRelease_v2, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RELEASE, UNKNOWN, read_device)
    OTHER(RESET, cuCtxDestroy, DEV_RESET, CU_CTX_DESTROY, UNKNOWN, read_context)
    OTHER(RESET, cuCtxDestroy_v2, DEV_RESET, CU_CTX_DESTROY, UNKNOWN, read_context)
    OTHER(AFTER, cuCtxSynchronize, DEV_SYNC, CU_CTX_SYNCHRONIZE, UNKNOWN, read_nothing)
    OTHER(AFTER, cuCtxSynchronize_v2, DEV_SYNC, CU_CTX_SYNCHRONIZE, UNKNOWN, read_context)
    OTHER(AFTER, cuStreamSynchronize, DEV_SYNC, CU_STREAM_SYNCHRONIZE, UNKNOWN, read_stream)
    PER_THREAD(AFTER, cuStreamSynchronize_ptsz, DEV_SYNC, CU_STREAM_SYNCHRONIZE, UNKNOWN, false, read_stream)
    OTHER(AFTER, cuEventSynchronize, DEV_SYNC, CU_EVENT_SYNCHRONIZE, UNKNOWN, read_event)
    OTHER(INFO, cuMemGetInfo_v2, DEV_MEMORY, CU_MEM_GET_INFO, UNKNOWN, read_info)
};
/* clang-format on */

const struct cupti_rule *cupti_rule_of(uint32_t id)
{
    return id < CUPTI_CALL_LIMIT && rules[id].role != CUPTI_ROLE_NONE ? &rules[id] : NULL;
}
