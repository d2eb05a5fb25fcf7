/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the CUPTI recorder (cupti/) and its tests */
/*
 * What the CUPTI recorder knows of CUPTI: own declarations of the types, numbers and functions that it uses,
 * so that it builds where there is no toolkit. Nothing links against CUPTI. Names are ours, values and
 * layouts CUPTI's; test_cupti_headers.c compares all of them with the real headers where there are any.
 *
 * Of activity records only the front part is declared, which has been the same since CUPTI_VERSION_OLDEST
 * (CUpti_ActivityMemory2 to 4, CUpti_ActivityMemoryPool to 3): later versions append.
 */
#ifndef VARVE_TRACE_RECORDER_CUPTI_DRIVER_H
#define VARVE_TRACE_RECORDER_CUPTI_DRIVER_H

#include "trace/recorder/cuda/array.h"

#include <stddef.h>
#include <stdint.h>

/* cuptiGetVersion. Since CUDA 13.0: 10000 * major + 100 * minor + patch. */
#define CUPTI_VERSION_OLDEST 15U      /* CUDA 11.2: MEMORY2 and MEMORY_POOL */
#define CUPTI_VERSION_UTILIZED 17U    /* CUDA 11.6: pools report how much of them is in use */
#define CUPTI_VERSION_UNKNOWN 140000U /* from here on the layouts may be others */

/* ---- numbers ---- */

typedef uint32_t cupti_result; /* 0: success */
typedef struct cupti_subscriber_opaque *cupti_subscriber;
typedef struct cupti_context_opaque *cupti_context; /* the driver's */

enum cupti_result_number {
    CUPTI_RESULT_SUCCESS = 0,
    CUPTI_RESULT_SUBSCRIPTION_TAKEN = 39,
};

enum cupti_domain {
    CUPTI_DOMAIN_DRIVER = 1,
    CUPTI_DOMAIN_RESOURCE = 3,
    CUPTI_DOMAIN_STATE = 6,
};

enum cupti_callsite {
    CUPTI_SITE_ENTER = 0,
    CUPTI_SITE_EXIT = 1,
};

enum cupti_resource {
    CUPTI_RESOURCE_CONTEXT_DESTROYED = 2, /* about to be */
};

enum cupti_state_number {
    CUPTI_STATE_FATAL = 1,
};

enum cupti_activity {
    CUPTI_ACTIVITY_MEMORY = 49, /* MEMORY2 */
    CUPTI_ACTIVITY_POOL = 50,
};

enum cupti_constant {
    CUPTI_NAME_BYTES = 64, /* of a subscriber, at most */
    CUPTI_FLUSH_ALL_DONE = 0,
    CUPTI_FLUSH_FORCED = 1,
    CUPTI_MEMORY_ALLOCATED = 1,
    CUPTI_MEMORY_RELEASED = 2,
    CUPTI_MEMORY_KIND_LAST = 7, /* enum varve_memory_kind has CUPTI's numbers */
    CUPTI_POOL_LOCAL = 1,
    CUPTI_POOL_CREATED = 1,
    CUPTI_POOL_DESTROYED = 2,
    CUPTI_POOL_TRIMMED = 3,
    CUPTI_CAPTURE_ACTIVE = 1, /* CUstreamCaptureStatus */
};

/* X(NAME, number): the driver functions that are looked at, CUPTI_DRIVER_TRACE_CBID_NAME. Not those of the
 * interface's first version whose addresses have 32 bits: no GPU of today serves them. */
/* clang-format off */
#define CUPTI_CALL_LIST(X)                  \
    X(cuCtxDestroy, 11)                     \
    X(cuCtxSynchronize, 17)                 \
    X(cuMemFreeHost, 38)                    \
    X(cuMemHostAlloc, 39)                   \
    X(cuArrayDestroy, 89)                   \
    X(cuEventSynchronize, 121)              \
    X(cuStreamSynchronize, 126)             \
    X(cuMemGetInfo_v2, 242)                 \
    X(cuMemAlloc_v2, 243)                   \
    X(cuMemAllocPitch_v2, 244)              \
    X(cuMemFree_v2, 245)                    \
    X(cuMemHostAlloc_v2, 271)               \
    X(cuArrayCreate_v2, 272)                \
    X(cuArray3DCreate_v2, 274)              \
    X(cuMemAllocHost_v2, 294)               \
    X(cuMemHostRegister, 301)               \
    X(cuMemHostUnregister, 302)             \
    X(cuCtxDestroy_v2, 322)                 \
    X(cuIpcOpenMemHandle, 329)              \
    X(cuIpcCloseMemHandle, 330)             \
    X(cuMipmappedArrayCreate, 347)          \
    X(cuMipmappedArrayDestroy, 349)         \
    X(cuMemAllocManaged, 371)               \
    X(cuMemHostRegister_v2, 379)            \
    X(cuDevicePrimaryCtxRelease, 387)       \
    X(cuDevicePrimaryCtxReset, 389)         \
    X(cuStreamSynchronize_ptsz, 440)        \
    X(cuDevicePrimaryCtxRelease_v2, 544)    \
    X(cuDevicePrimaryCtxReset_v2, 545)      \
    X(cuMemAddressReserve, 547)             \
    X(cuMemAddressFree, 548)                \
    X(cuMemCreate, 549)                     \
    X(cuMemRelease, 550)                    \
    X(cuMemMap, 551)                        \
    X(cuMemUnmap, 552)                      \
    X(cuMemSetAccess, 553)                  \
    X(cuMemImportFromShareableHandle, 555)  \
    X(cuMemRetainAllocationHandle, 565)     \
    X(cuIpcOpenMemHandle_v2, 567)           \
    X(cuMemAllocAsync, 598)                 \
    X(cuMemAllocAsync_ptsz, 599)            \
    X(cuMemFreeAsync, 600)                  \
    X(cuMemFreeAsync_ptsz, 601)             \
    X(cuMemPoolTrimTo, 602)                 \
    X(cuMemPoolSetAttribute, 603)           \
    X(cuMemPoolCreate, 607)                 \
    X(cuMemPoolDestroy, 608)                \
    X(cuMemAllocFromPoolAsync, 611)         \
    X(cuMemAllocFromPoolAsync_ptsz, 612)    \
    X(cuCtxSynchronize_v2, 800)
/* clang-format on */

enum cupti_call_id {
#define CUPTI_CALL_ENUM(NAME, number) CUPTI_CALL_##NAME = (number),
    CUPTI_CALL_LIST(CUPTI_CALL_ENUM)
#undef CUPTI_CALL_ENUM
};

#define CUPTI_CALL_LIMIT 801U

/* ---- what callbacks are given ---- */

struct cupti_callback_data {
    uint32_t callsite; /* enum cupti_callsite */
    const char *name;
    const void *parameters;
    const uint32_t *result; /* at exit: CUresult */
    const char *symbol;
    cupti_context context; /* current, or NULL */
    uint32_t context_id;   /* CUPTI's number, unique in the process */
    uint64_t *correlation_data;
    uint32_t correlation_id;
};

struct cupti_resource_data {
    cupti_context context;
    void *handle;
    void *descriptor;
};

struct cupti_state_data {
    cupti_result result;
    const char *message; /* may be NULL */
};

struct cupti_subscriber_params {
    size_t bytes;
    const char *name;
    char *old_name; /* who is subscribed */
    size_t old_name_bytes;
};

/* ---- activity records: their front part ---- */

struct cupti_activity_record {
    uint32_t kind;
};

struct cupti_activity_memory {
    uint32_t kind, operation, memory_kind, correlation_id;
    uint64_t addr, bytes;
    uint64_t timestamp_ns;
    uint64_t pc;
    uint32_t process_id, device, context_id, stream_id;
    const char *name;
    uint32_t is_async, padding_1;
    uint32_t pool_type, padding_2;
    uint64_t pool_addr, pool_threshold, pool_bytes;
    uint64_t pool_used_bytes; /* from CUPTI_VERSION_UTILIZED on */
};

struct cupti_activity_pool {
    uint32_t kind, operation, pool_type, correlation_id;
    uint32_t process_id, device;
    uint64_t bytes_to_keep;
    uint64_t addr, bytes, threshold;
    uint64_t timestamp_ns;
    uint64_t used_bytes; /* from CUPTI_VERSION_UTILIZED on */
};

/* ---- parameters of the driver's functions, as CUPTI hands them over ---- */

/* Allocations and others that give out an address or a handle first: cuMemAlloc_v2, Managed, AllocHost,
 * HostAlloc, cuMemAddressReserve, and the beginning of the asynchronous ones. */
struct cupti_call_alloc {
    uint64_t *out;
    size_t bytes;
};

struct cupti_call_alloc_async {
    uint64_t *out;
    size_t bytes;
    uint64_t stream;
};

struct cupti_call_alloc_pool {
    uint64_t *out;
    size_t bytes;
    uint64_t pool, stream;
};

struct cupti_call_alloc_pitch {
    uint64_t *out;
    size_t *pitch_out;
    size_t width_bytes, height;
    uint32_t element_bytes;
};

/* cuMemFree_v2, FreeHost, HostUnregister, ArrayDestroy, MipmappedArrayDestroy, IpcClose, cuMemRelease: the
 * handle. */
struct cupti_call_free {
    uint64_t addr;
};

struct cupti_call_free_async {
    uint64_t addr, stream;
};

/* cuMemHostRegister, cuMemUnmap, cuMemAddressFree. */
struct cupti_call_range {
    uint64_t addr;
    size_t bytes;
};

/* What is wanted is a struct cuda_array_2d or cuda_array_3d. */
struct cupti_call_array {
    uint64_t *out;
    const void *array;
    uint32_t levels; /* only of mipmapped ones */
};

struct cupti_location {
    uint32_t type;
    int32_t id;
};

#define CUPTI_LOCATION_DEVICE 1U
#define CUPTI_ALLOCATION_MANAGED 2U

struct cupti_memory_properties {
    uint32_t type, handle_types;
    struct cupti_location location;
};

struct cupti_call_create {
    uint64_t *out;
    size_t bytes;
    const struct cupti_memory_properties *properties;
    unsigned long long flags;
};

struct cupti_call_map {
    uint64_t addr;
    size_t bytes, offset;
    uint64_t handle;
    unsigned long long flags;
};

struct cupti_access {
    struct cupti_location location;
    uint32_t flags;
};

struct cupti_call_access {
    uint64_t addr;
    size_t bytes;
    const struct cupti_access *access;
    size_t count;
};

/* cuMemRetainAllocationHandle, cuMemImportFromShareableHandle, cuIpcOpenMemHandle: what they give out. */
struct cupti_call_out {
    uint64_t *out;
};

struct cupti_call_pool_create {
    uint64_t *out;
    const struct cupti_memory_properties *properties; /* of a pool: the same front part */
};

struct cupti_call_pool_trim {
    uint64_t pool;
    size_t bytes_to_keep;
};

#define CUPTI_POOL_THRESHOLD 4U /* the attribute: the others do not say how much it holds */

struct cupti_call_pool_set {
    uint64_t pool;
    uint32_t attribute;
    const uint64_t *value;
};

struct cupti_call_device {
    int32_t device;
};

struct cupti_call_context {
    cupti_context context;
};

/* cuStreamSynchronize and cuEventSynchronize. */
struct cupti_call_sync {
    uint64_t handle;
};

struct cupti_call_info {
    size_t *free_out, *total_out;
};

/* ---- CUPTI's functions ---- */

typedef void cupti_callback(void *context, uint32_t domain, uint32_t id, const void *data);
typedef void cupti_buffer_requested(uint8_t **buffer_out, size_t *bytes_out, size_t *records_max_out);
typedef void cupti_buffer_completed(cupti_context context, uint32_t stream_id, uint8_t *buffer, size_t bytes,
                                    size_t valid_bytes);

/* X(field, symbol, necessity, parameters). Necessity: 1 for any use, 2 for activity, 0 not at all. */
/* clang-format off */
#define CUPTI_FUNCTION_LIST(X)                                                                                      \
    X(version, cuptiGetVersion, 1, (uint32_t *version_out))                                                         \
    X(subscribe, cuptiSubscribe, 1, (cupti_subscriber *out, cupti_callback *callback, void *context))               \
    X(subscribe_v2, cuptiSubscribe_v2, 0, (cupti_subscriber *out, cupti_callback *callback, void *context,          \
                                           struct cupti_subscriber_params *params))                                 \
    X(unsubscribe, cuptiUnsubscribe, 1, (cupti_subscriber subscriber))                                              \
    X(enable_callback, cuptiEnableCallback, 1, (uint32_t is_on, cupti_subscriber subscriber, uint32_t domain,       \
                                                uint32_t id))                                                       \
    X(result_text, cuptiGetResultString, 0, (cupti_result result, const char **text_out))                           \
    X(timestamp, cuptiGetTimestamp, 1, (uint64_t *ns_out))                                                          \
    X(device_id, cuptiGetDeviceId, 1, (cupti_context context, uint32_t *device_out))                                \
    X(context_id, cuptiGetContextId, 0, (cupti_context context, uint32_t *id_out))                                  \
    X(activity_callbacks, cuptiActivityRegisterCallbacks, 2, (cupti_buffer_requested *requested,                    \
                                                              cupti_buffer_completed *completed))                   \
    X(activity_enable, cuptiActivityEnable, 2, (uint32_t kind))                                                     \
    X(activity_disable, cuptiActivityDisable, 2, (uint32_t kind))                                                   \
    X(activity_next, cuptiActivityGetNextRecord, 2, (uint8_t *buffer, size_t valid_bytes,                           \
                                                     struct cupti_activity_record **record))                        \
    X(activity_dropped, cuptiActivityGetNumDroppedRecords, 2, (cupti_context context, uint32_t stream_id,           \
                                                               size_t *dropped_out))                                \
    X(activity_flush, cuptiActivityFlushAll, 2, (uint32_t flag))                                                    \
    X(activity_period, cuptiActivityFlushPeriod, 0, (uint32_t period_ms))
/* clang-format on */

struct cupti_functions {
#define CUPTI_FUNCTION_FIELD(field, symbol, necessity, parameters) cupti_result(*field) parameters;
    CUPTI_FUNCTION_LIST(CUPTI_FUNCTION_FIELD)
#undef CUPTI_FUNCTION_FIELD
};

#endif
