/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What trace/recorder/cupti/cupti_driver.h says of CUPTI, against its own headers: numbers, layouts of what callbacks
 * are given, of the parameters of the driver's functions and of activity records, and prototypes. The compiler does the
 * comparing: with a toolkit at hand, a program that was built has passed. Without one it is skipped. Costs: 1 s
 */
#include <cmocka.h>

#include "trace/recorder/cupti/cupti_driver.h"

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

/* ---- layouts ---- */

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), "size of " #theirs)
/* Ours is the front part of theirs. */
#define FRONT(ours, theirs) _Static_assert(sizeof(ours) <= sizeof(theirs), "size of " #theirs)
#define FIELD(ours, field, theirs, their_field)                                          \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
/* Pairs of a field of ours and one of theirs. */
#define FIRST(field, their_field) field
#define SECOND(field, their_field) their_field
#define PAIR_1(ours, theirs, pair) FIELD(ours, FIRST pair, theirs, SECOND pair)
#define PAIR_2(ours, theirs, pair, ...) \
    PAIR_1(ours, theirs, pair);         \
    PAIR_1(ours, theirs, __VA_ARGS__)
#define PAIR_3(ours, theirs, pair, ...) \
    PAIR_1(ours, theirs, pair);         \
    PAIR_2(ours, theirs, __VA_ARGS__)
#define PAIR_4(ours, theirs, pair, ...) \
    PAIR_1(ours, theirs, pair);         \
    PAIR_3(ours, theirs, __VA_ARGS__)
#define PAIR_OF(ours, theirs, one, two, three, four, name, ...) name
#define FIELDS(ours, theirs, ...) \
    PAIR_OF(ours, theirs, __VA_ARGS__, PAIR_4, PAIR_3, PAIR_2, PAIR_1, )(ours, theirs, __VA_ARGS__)

SAME_SIZE(cupti_result, CUptiResult);
SAME_SIZE(cupti_subscriber, CUpti_SubscriberHandle);
SAME_SIZE(cupti_context, CUcontext);

SAME_SIZE(struct cupti_callback_data, CUpti_CallbackData);
FIELDS(struct cupti_callback_data, CUpti_CallbackData, (callsite, callbackSite), (name, functionName),
       (parameters, functionParams), (result, functionReturnValue));
FIELDS(struct cupti_callback_data, CUpti_CallbackData, (symbol, symbolName), (context, context),
       (context_id, contextUid), (correlation_data, correlationData));
FIELDS(struct cupti_callback_data, CUpti_CallbackData, (correlation_id, correlationId));

SAME_SIZE(struct cupti_resource_data, CUpti_ResourceData);
FIELD(struct cupti_resource_data, context, CUpti_ResourceData, context);
FIELD(struct cupti_resource_data, descriptor, CUpti_ResourceData, resourceDescriptor);
SAME_SIZE(struct cupti_state_data, CUpti_StateData);
FIELD(struct cupti_state_data, result, CUpti_StateData, notification.result);
FIELD(struct cupti_state_data, message, CUpti_StateData, notification.message);

FRONT(struct cupti_subscriber_params, CUpti_SubscriberParams);
FIELDS(struct cupti_subscriber_params, CUpti_SubscriberParams, (bytes, structSize), (name, subscriberName),
       (old_name, oldSubscriberName), (old_name_bytes, oldSubscriberSize));

/* ---- activity records, of all versions that are read ---- */

#define MEMORY_FRONT(theirs)                                                                                       \
    FRONT(struct cupti_activity_record, theirs);                                                                   \
    FIELDS(struct cupti_activity_memory, theirs, (kind, kind), (operation, memoryOperationType),                   \
           (memory_kind, memoryKind), (correlation_id, correlationId));                                            \
    FIELDS(struct cupti_activity_memory, theirs, (addr, address), (bytes, bytes), (timestamp_ns, timestamp),       \
           (process_id, processId));                                                                               \
    FIELDS(struct cupti_activity_memory, theirs, (device, deviceId), (context_id, contextId), (is_async, isAsync), \
           (pool_type, memoryPoolConfig.memoryPoolType));                                                          \
    FIELDS(struct cupti_activity_memory, theirs, (pool_addr, memoryPoolConfig.address),                            \
           (pool_threshold, memoryPoolConfig.releaseThreshold), (pool_bytes, memoryPoolConfig.pool.size))
#define MEMORY_UTILIZED(theirs) \
    FIELD(struct cupti_activity_memory, pool_used_bytes, theirs, memoryPoolConfig.utilizedSize)
MEMORY_FRONT(CUpti_ActivityMemory2);
MEMORY_FRONT(CUpti_ActivityMemory3);
MEMORY_UTILIZED(CUpti_ActivityMemory3);
MEMORY_FRONT(CUpti_ActivityMemory4);
MEMORY_UTILIZED(CUpti_ActivityMemory4);

#define POOL_FRONT(theirs)                                                                                    \
    FIELDS(struct cupti_activity_pool, theirs, (kind, kind), (operation, memoryPoolOperationType),            \
           (process_id, processId), (device, deviceId));                                                      \
    FIELDS(struct cupti_activity_pool, theirs, (addr, address), (bytes, size), (threshold, releaseThreshold), \
           (timestamp_ns, timestamp))
#define POOL_UTILIZED(theirs) FIELD(struct cupti_activity_pool, used_bytes, theirs, utilizedSize)
POOL_FRONT(CUpti_ActivityMemoryPool);
POOL_FRONT(CUpti_ActivityMemoryPool2);
POOL_UTILIZED(CUpti_ActivityMemoryPool2);
POOL_FRONT(CUpti_ActivityMemoryPool3);
POOL_UTILIZED(CUpti_ActivityMemoryPool3);

/* ---- parameters of the driver's functions ---- */

#define CALL(ours, function, ...) FIELDS(struct cuda_arguments_##ours, function##_params, __VA_ARGS__)

CALL(alloc, cuMemAlloc_v2, (out, dptr), (bytes, bytesize));
CALL(alloc, cuMemAllocManaged, (out, dptr), (bytes, bytesize));
CALL(alloc, cuMemAllocHost_v2, (out, pp), (bytes, bytesize));
CALL(alloc, cuMemHostAlloc, (out, pp), (bytes, bytesize));
CALL(alloc, cuMemAddressReserve, (out, ptr), (bytes, size));
CALL(alloc_async, cuMemAllocAsync, (out, dptr), (bytes, bytesize), (stream, hStream));
CALL(alloc_async, cuMemAllocAsync_ptsz, (stream, hStream));
CALL(alloc_pool, cuMemAllocFromPoolAsync, (out, dptr), (bytes, bytesize), (pool, pool), (stream, hStream));
CALL(alloc_pool, cuMemAllocFromPoolAsync_ptsz, (stream, hStream));
CALL(alloc_pitch, cuMemAllocPitch_v2, (out, dptr), (pitch_out, pPitch), (width_bytes, WidthInBytes), (height, Height));
CALL(free, cuMemFree_v2, (addr, dptr));
CALL(free, cuMemFreeHost, (addr, p));
CALL(free, cuMemHostUnregister, (addr, p));
CALL(free, cuArrayDestroy, (addr, hArray));
CALL(free, cuMipmappedArrayDestroy, (addr, hMipmappedArray));
CALL(free, cuIpcCloseMemHandle, (addr, dptr));
CALL(free, cuMemRelease, (addr, handle));
CALL(free, cuMemPoolDestroy, (addr, pool));
CALL(free_async, cuMemFreeAsync, (addr, dptr), (stream, hStream));
CALL(free_async, cuMemFreeAsync_ptsz, (stream, hStream));
CALL(range, cuMemHostRegister_v2, (addr, p), (bytes, bytesize));
CALL(range, cuMemHostRegister, (bytes, bytesize));
CALL(range, cuMemUnmap, (addr, ptr), (bytes, size));
CALL(range, cuMemAddressFree, (addr, ptr), (bytes, size));
CALL(array, cuArrayCreate_v2, (out, pHandle), (array, pAllocateArray));
CALL(array, cuArray3DCreate_v2, (array, pAllocateArray));
CALL(array, cuMipmappedArrayCreate, (out, pHandle), (array, pMipmappedArrayDesc), (levels, numMipmapLevels));
CALL(out, cuIpcOpenMemHandle, (out, pdptr));
CALL(out, cuIpcOpenMemHandle_v2, (out, pdptr));
CALL(out, cuMemRetainAllocationHandle, (out, handle));
CALL(out, cuMemImportFromShareableHandle, (out, handle));
CALL(create, cuMemCreate, (out, handle), (bytes, size), (properties, prop));
CALL(map, cuMemMap, (addr, ptr), (bytes, size), (handle, handle));
CALL(access, cuMemSetAccess, (addr, ptr), (bytes, size), (access, desc), (count, count));
CALL(pool_create, cuMemPoolCreate, (out, pool), (properties, poolProps));
CALL(pool_trim, cuMemPoolTrimTo, (pool, pool), (bytes_to_keep, minBytesToKeep));
CALL(pool_set, cuMemPoolSetAttribute, (pool, pool), (attribute, attr), (value, value));
CALL(device, cuDevicePrimaryCtxReset, (device, dev));
CALL(device, cuDevicePrimaryCtxReset_v2, (device, dev));
CALL(device, cuDevicePrimaryCtxRelease, (device, dev));
CALL(device, cuDevicePrimaryCtxRelease_v2, (device, dev));
CALL(context, cuCtxDestroy, (context, ctx));
CALL(context, cuCtxDestroy_v2, (context, ctx));
CALL(context, cuCtxSynchronize_v2, (context, ctx));
CALL(sync, cuStreamSynchronize, (handle, hStream));
CALL(sync, cuStreamSynchronize_ptsz, (handle, hStream));
CALL(sync, cuEventSynchronize, (handle, hEvent));
CALL(info, cuMemGetInfo_v2, (free_out, free), (total_out, total));

/* What the CUDA recorder shares with this one: test_cuda_hooks.c. */
FIELD(struct cuda_placement, type, CUmemPoolProps, allocType);
FIELD(struct cuda_placement, location, CUmemAllocationProp, location);
FIELD(struct cuda_placement, location, CUmemPoolProps, location);

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
