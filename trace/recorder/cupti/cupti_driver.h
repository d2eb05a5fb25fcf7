/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUPTI recorder knows of CUPTI: own declarations of the types, numbers and functions that it uses,
 * so that it builds where there is no toolkit; arguments of the driver's functions are in cuda/driver_calls.h. Nothing
 * links against CUPTI. Names are ours, values and layouts CUPTI's; test_cupti_headers.c compares all of them with the
 * real headers where there are any.
 *
 * Of activity records only the front part is declared, which has been the same since CUPTI_VERSION_OLDEST
 * (CUpti_ActivityMemory2 to 4, CUpti_ActivityMemoryPool to 3): later versions append.
 */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_DRIVER_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_DRIVER_H

#include "trace/recorder/cuda/driver_calls.h"

#include <stddef.h>
#include <stdint.h>

/* cuptiGetVersion. Since CUDA 13.0: 10000 * major + 100 * minor + patch. */
#define CUPTI_VERSION_OLDEST 15U      /* CUDA 11.2: MEMORY2 and MEMORY_POOL */
#define CUPTI_VERSION_UTILIZED 17U    /* CUDA 11.6: pools report how much of them is in use */
#define CUPTI_VERSION_UNKNOWN 140000U /* from here on the layouts may be others */

/* numbers */

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

/* The driver functions that are looked at: CUPTI_DRIVER_TRACE_CBID_name. */
enum cupti_call_id {
#define CUPTI_CALL_ENUM(name, number, ...) CUPTI_CALL_##name = (number),
    CUDA_DRIVER_CALL_LIST(CUPTI_CALL_ENUM)
#undef CUPTI_CALL_ENUM
};

#define CUPTI_CALL_LIMIT 801U

/* what callbacks are given */

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

/* activity records: their front part */

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

/* CUPTI's functions */

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
