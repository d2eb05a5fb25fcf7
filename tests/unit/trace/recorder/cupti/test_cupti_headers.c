/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trace/recorder/cupti/driver.h says of CUPTI, against its own headers: numbers, layouts of what callbacks are
 * given, of the parameters of the driver's functions and of activity records, and prototypes. The compiler
 * does the comparing: with a toolkit at hand, a program that was built has passed. Without one it is skipped.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "trace/recorder/cupti/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of CUDA 13, whose set of functions is the one that is declared. */
#if __has_include(<cupti.h>)
/* CUPTI's own headers are no strict C. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wundef"
#include <cupti.h>
#pragma GCC diagnostic pop
#endif

#if defined(CUPTI_API_VERSION) && CUPTI_API_VERSION >= 130000

/* ---- numbers ---- */

#define CALL_CHECK(NAME, number, ...) _Static_assert((int)CUPTI_DRIVER_TRACE_CBID_##NAME == (number), #NAME);
CUDA_DRIVER_CALL_LIST(CALL_CHECK)

#define SAME(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)
SAME(CUPTI_RESULT_SUCCESS, CUPTI_SUCCESS);
SAME(CUPTI_RESULT_SUBSCRIPTION_TAKEN, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME(CUPTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
SAME(CUPTI_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_RESOURCE);
SAME(CUPTI_DOMAIN_STATE, CUPTI_CB_DOMAIN_STATE);
SAME(CUPTI_SITE_ENTER, CUPTI_API_ENTER);
SAME(CUPTI_SITE_EXIT, CUPTI_API_EXIT);
SAME(CUPTI_RESOURCE_CONTEXT_DESTROYED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
SAME(CUPTI_STATE_FATAL, CUPTI_CBID_STATE_FATAL_ERROR);
SAME(CUPTI_ACTIVITY_MEMORY, CUPTI_ACTIVITY_KIND_MEMORY2);
SAME(CUPTI_ACTIVITY_POOL, CUPTI_ACTIVITY_KIND_MEMORY_POOL);
SAME(CUPTI_NAME_BYTES, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN);
SAME(CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME(CUPTI_MEMORY_ALLOCATED, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
SAME(CUPTI_MEMORY_RELEASED, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
SAME(CUPTI_MEMORY_KIND_LAST, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC);
SAME(CUPTI_POOL_LOCAL, CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL);
SAME(CUPTI_POOL_CREATED, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED);
SAME(CUPTI_POOL_DESTROYED, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED);
SAME(CUPTI_POOL_TRIMMED, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED);
SAME(CUPTI_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUDA_ALLOCATION_MANAGED, CU_MEM_ALLOCATION_TYPE_MANAGED);
SAME(CUDA_POOL_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);

/* ---- layouts ---- */

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), "size of " #theirs)
/* Ours is the front part of theirs. */
#define FRONT(ours, theirs) _Static_assert(sizeof(ours) <= sizeof(theirs), "size of " #theirs)
#define FIELD(ours, field, theirs, their_field)                                          \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)

SAME_SIZE(cupti_result, CUptiResult);
SAME_SIZE(cupti_subscriber, CUpti_SubscriberHandle);
SAME_SIZE(cupti_context, CUcontext);

#define DATA(field, their_field) FIELD(struct cupti_callback_data, field, CUpti_CallbackData, their_field)
SAME_SIZE(struct cupti_callback_data, CUpti_CallbackData);
DATA(callsite, callbackSite);
DATA(name, functionName);
DATA(parameters, functionParams);
DATA(result, functionReturnValue);
DATA(symbol, symbolName);
DATA(context, context);
DATA(context_id, contextUid);
DATA(correlation_data, correlationData);
DATA(correlation_id, correlationId);

SAME_SIZE(struct cupti_resource_data, CUpti_ResourceData);
FIELD(struct cupti_resource_data, context, CUpti_ResourceData, context);
FIELD(struct cupti_resource_data, descriptor, CUpti_ResourceData, resourceDescriptor);
SAME_SIZE(struct cupti_state_data, CUpti_StateData);
FIELD(struct cupti_state_data, result, CUpti_StateData, notification.result);
FIELD(struct cupti_state_data, message, CUpti_StateData, notification.message);

#define PARAMS(field, their_field) FIELD(struct cupti_subscriber_params, field, CUpti_SubscriberParams, their_field)
FRONT(struct cupti_subscriber_params, CUpti_SubscriberParams);
PARAMS(bytes, structSize);
PARAMS(name, subscriberName);
PARAMS(old_name, oldSubscriberName);
PARAMS(old_name_bytes, oldSubscriberSize);

/* ---- activity records, of all versions that are read ---- */

#define MEMORY_FRONT(theirs)                                                                        \
    FRONT(struct cupti_activity_record, theirs);                                                    \
    FIELD(struct cupti_activity_memory, kind, theirs, kind);                                        \
    FIELD(struct cupti_activity_memory, operation, theirs, memoryOperationType);                    \
    FIELD(struct cupti_activity_memory, memory_kind, theirs, memoryKind);                           \
    FIELD(struct cupti_activity_memory, correlation_id, theirs, correlationId);                     \
    FIELD(struct cupti_activity_memory, addr, theirs, address);                                     \
    FIELD(struct cupti_activity_memory, bytes, theirs, bytes);                                      \
    FIELD(struct cupti_activity_memory, timestamp_ns, theirs, timestamp);                           \
    FIELD(struct cupti_activity_memory, process_id, theirs, processId);                             \
    FIELD(struct cupti_activity_memory, device, theirs, deviceId);                                  \
    FIELD(struct cupti_activity_memory, context_id, theirs, contextId);                             \
    FIELD(struct cupti_activity_memory, is_async, theirs, isAsync);                                 \
    FIELD(struct cupti_activity_memory, pool_type, theirs, memoryPoolConfig.memoryPoolType);        \
    FIELD(struct cupti_activity_memory, pool_addr, theirs, memoryPoolConfig.address);               \
    FIELD(struct cupti_activity_memory, pool_threshold, theirs, memoryPoolConfig.releaseThreshold); \
    FIELD(struct cupti_activity_memory, pool_bytes, theirs, memoryPoolConfig.pool.size)
#define MEMORY_UTILIZED(theirs) \
    FIELD(struct cupti_activity_memory, pool_used_bytes, theirs, memoryPoolConfig.utilizedSize)
MEMORY_FRONT(CUpti_ActivityMemory2);
MEMORY_FRONT(CUpti_ActivityMemory3);
MEMORY_UTILIZED(CUpti_ActivityMemory3);
MEMORY_FRONT(CUpti_ActivityMemory4);
MEMORY_UTILIZED(CUpti_ActivityMemory4);

#define POOL_FRONT(theirs)                                                         \
    FIELD(struct cupti_activity_pool, kind, theirs, kind);                         \
    FIELD(struct cupti_activity_pool, operation, theirs, memoryPoolOperationType); \
    FIELD(struct cupti_activity_pool, process_id, theirs, processId);              \
    FIELD(struct cupti_activity_pool, device, theirs, deviceId);                   \
    FIELD(struct cupti_activity_pool, addr, theirs, address);                      \
    FIELD(struct cupti_activity_pool, bytes, theirs, size);                        \
    FIELD(struct cupti_activity_pool, threshold, theirs, releaseThreshold);        \
    FIELD(struct cupti_activity_pool, timestamp_ns, theirs, timestamp)
#define POOL_UTILIZED(theirs) FIELD(struct cupti_activity_pool, used_bytes, theirs, utilizedSize)
POOL_FRONT(CUpti_ActivityMemoryPool);
POOL_FRONT(CUpti_ActivityMemoryPool2);
POOL_UTILIZED(CUpti_ActivityMemoryPool2);
POOL_FRONT(CUpti_ActivityMemoryPool3);
POOL_UTILIZED(CUpti_ActivityMemoryPool3);

/* ---- parameters of the driver's functions ---- */

#define CALL(ours, field, function, their_field) \
    FIELD(struct cuda_arguments_##ours, field, function##_params, their_field)

CALL(alloc, out, cuMemAlloc_v2, dptr);
CALL(alloc, bytes, cuMemAlloc_v2, bytesize);
CALL(alloc, out, cuMemAllocManaged, dptr);
CALL(alloc, bytes, cuMemAllocManaged, bytesize);
CALL(alloc, out, cuMemAllocHost_v2, pp);
CALL(alloc, bytes, cuMemAllocHost_v2, bytesize);
CALL(alloc, out, cuMemHostAlloc, pp);
CALL(alloc, bytes, cuMemHostAlloc, bytesize);
CALL(alloc, out, cuMemAddressReserve, ptr);
CALL(alloc, bytes, cuMemAddressReserve, size);
CALL(alloc_async, out, cuMemAllocAsync, dptr);
CALL(alloc_async, bytes, cuMemAllocAsync, bytesize);
CALL(alloc_async, stream, cuMemAllocAsync, hStream);
CALL(alloc_async, stream, cuMemAllocAsync_ptsz, hStream);
CALL(alloc_pool, out, cuMemAllocFromPoolAsync, dptr);
CALL(alloc_pool, bytes, cuMemAllocFromPoolAsync, bytesize);
CALL(alloc_pool, pool, cuMemAllocFromPoolAsync, pool);
CALL(alloc_pool, stream, cuMemAllocFromPoolAsync, hStream);
CALL(alloc_pool, stream, cuMemAllocFromPoolAsync_ptsz, hStream);
CALL(alloc_pitch, out, cuMemAllocPitch_v2, dptr);
CALL(alloc_pitch, pitch_out, cuMemAllocPitch_v2, pPitch);
CALL(alloc_pitch, width_bytes, cuMemAllocPitch_v2, WidthInBytes);
CALL(alloc_pitch, height, cuMemAllocPitch_v2, Height);
CALL(free, addr, cuMemFree_v2, dptr);
CALL(free, addr, cuMemFreeHost, p);
CALL(free, addr, cuMemHostUnregister, p);
CALL(free, addr, cuArrayDestroy, hArray);
CALL(free, addr, cuMipmappedArrayDestroy, hMipmappedArray);
CALL(free, addr, cuIpcCloseMemHandle, dptr);
CALL(free, addr, cuMemRelease, handle);
CALL(free, addr, cuMemPoolDestroy, pool);
CALL(free_async, addr, cuMemFreeAsync, dptr);
CALL(free_async, stream, cuMemFreeAsync, hStream);
CALL(free_async, stream, cuMemFreeAsync_ptsz, hStream);
CALL(range, addr, cuMemHostRegister_v2, p);
CALL(range, bytes, cuMemHostRegister_v2, bytesize);
CALL(range, bytes, cuMemHostRegister, bytesize);
CALL(range, addr, cuMemUnmap, ptr);
CALL(range, bytes, cuMemUnmap, size);
CALL(range, addr, cuMemAddressFree, ptr);
CALL(range, bytes, cuMemAddressFree, size);
CALL(array, out, cuArrayCreate_v2, pHandle);
CALL(array, array, cuArrayCreate_v2, pAllocateArray);
CALL(array, array, cuArray3DCreate_v2, pAllocateArray);
CALL(array, out, cuMipmappedArrayCreate, pHandle);
CALL(array, array, cuMipmappedArrayCreate, pMipmappedArrayDesc);
CALL(array, levels, cuMipmappedArrayCreate, numMipmapLevels);
CALL(out, out, cuIpcOpenMemHandle, pdptr);
CALL(out, out, cuIpcOpenMemHandle_v2, pdptr);
CALL(out, out, cuMemRetainAllocationHandle, handle);
CALL(out, out, cuMemImportFromShareableHandle, handle);
CALL(create, out, cuMemCreate, handle);
CALL(create, bytes, cuMemCreate, size);
CALL(create, properties, cuMemCreate, prop);
CALL(map, addr, cuMemMap, ptr);
CALL(map, bytes, cuMemMap, size);
CALL(map, handle, cuMemMap, handle);
CALL(access, addr, cuMemSetAccess, ptr);
CALL(access, bytes, cuMemSetAccess, size);
CALL(access, access, cuMemSetAccess, desc);
CALL(access, count, cuMemSetAccess, count);
CALL(pool_create, out, cuMemPoolCreate, pool);
CALL(pool_create, properties, cuMemPoolCreate, poolProps);
CALL(pool_trim, pool, cuMemPoolTrimTo, pool);
CALL(pool_trim, bytes_to_keep, cuMemPoolTrimTo, minBytesToKeep);
CALL(pool_set, pool, cuMemPoolSetAttribute, pool);
CALL(pool_set, attribute, cuMemPoolSetAttribute, attr);
CALL(pool_set, value, cuMemPoolSetAttribute, value);
CALL(device, device, cuDevicePrimaryCtxReset, dev);
CALL(device, device, cuDevicePrimaryCtxReset_v2, dev);
CALL(device, device, cuDevicePrimaryCtxRelease, dev);
CALL(device, device, cuDevicePrimaryCtxRelease_v2, dev);
CALL(context, context, cuCtxDestroy, ctx);
CALL(context, context, cuCtxDestroy_v2, ctx);
CALL(context, context, cuCtxSynchronize_v2, ctx);
CALL(sync, handle, cuStreamSynchronize, hStream);
CALL(sync, handle, cuStreamSynchronize_ptsz, hStream);
CALL(sync, handle, cuEventSynchronize, hEvent);
CALL(info, free_out, cuMemGetInfo_v2, free);
CALL(info, total_out, cuMemGetInfo_v2, total);

#define ARRAY(ours, theirs)                     \
    SAME_SIZE(struct ours, theirs);             \
    FIELD(struct ours, width, theirs, Width);   \
    FIELD(struct ours, height, theirs, Height); \
    FIELD(struct ours, format, theirs, Format); \
    FIELD(struct ours, channels, theirs, NumChannels)
ARRAY(cuda_array_2d, CUDA_ARRAY_DESCRIPTOR);
ARRAY(cuda_array_3d, CUDA_ARRAY3D_DESCRIPTOR);
FIELD(struct cuda_array_3d, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
FIELD(struct cuda_array_3d, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
FIELD(struct cuda_placement, type, CUmemPoolProps, allocType);
FIELD(struct cuda_placement, location, CUmemAllocationProp, location);
FIELD(struct cuda_placement, location, CUmemPoolProps, location);
FIELD(struct cuda_location, type, CUmemLocation, type);
FIELD(struct cuda_location, id, CUmemLocation, id);
SAME_SIZE(struct cuda_access, CUmemAccessDesc);

/* ---- prototypes: ours, written with CUPTI's types from here on ---- */

typedef __typeof__(*(CUpti_CallbackFunc)NULL) their_callback;
typedef __typeof__(*(CUpti_BuffersCallbackRequestFunc)NULL) their_requested;
typedef __typeof__(*(CUpti_BuffersCallbackCompleteFunc)NULL) their_completed;

#define IS_SAME_TYPE(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, theirs), #theirs)
IS_SAME_TYPE(cupti_buffer_requested, their_requested);

#define cupti_result CUptiResult
#define cupti_subscriber CUpti_SubscriberHandle
#define cupti_context CUcontext
#define cupti_callback their_callback
#define cupti_buffer_requested their_requested
#define cupti_buffer_completed their_completed

/* Anonymous structs cannot be named like ours: in these two the pointer to one is checked by its size alone.
 */
#define FUNCTION_CHECK(field, symbol, necessity, parameters)                                                         \
    _Static_assert(__builtin_types_compatible_p(CUptiResult(*) parameters, __typeof__(&symbol)) ||                   \
                       (__builtin_types_compatible_p(__typeof__(&symbol), __typeof__(&cuptiSubscribe_v2)) ||         \
                        __builtin_types_compatible_p(__typeof__(&symbol), __typeof__(&cuptiActivityGetNextRecord))), \
                   #symbol);
CUPTI_FUNCTION_LIST(FUNCTION_CHECK)

TEST(test_headers)
{
    assert_true(CUPTI_API_VERSION >= (int)CUPTI_VERSION_OLDEST);
    assert_true(CUPTI_API_VERSION < (int)CUPTI_VERSION_UNKNOWN);
    print_message("compared with CUPTI %d\n", CUPTI_API_VERSION);
}

#else

TEST(test_headers)
{
    skip("the headers of CUPTI (CUDA 13 or newer) are not here");
}

#endif
