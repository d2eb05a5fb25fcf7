/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the CUPTI recorder */
/*
 * What a call's parameters say, function by function.
 */
#ifndef VARVE_TRACE_RECORDER_CUPTI_PARAMETERS_H
#define VARVE_TRACE_RECORDER_CUPTI_PARAMETERS_H

#include "trace/recorder/cupti/driver.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

/* What a call's parameters say. 0: nothing. */
struct cupti_parameters {
    uint64_t addr, bytes, arg;
    uint64_t stream; /* handle */
    uint64_t pool;   /* handle */
    cupti_context context;
    int device; /* -1: that of the context */
    enum varve_memory_kind memory;
};

enum cupti_role {
    CUPTI_ROLE_NONE,
    CUPTI_ROLE_AFTER,   /* one record when it has returned */
    CUPTI_ROLE_FREE,    /* a record before: what it frees may have another owner when it returns */
    CUPTI_ROLE_RESET,   /* a context's end */
    CUPTI_ROLE_RELEASE, /* of a primary context: its end, if it was the last */
    CUPTI_ROLE_INFO,    /* the state of the device */
};

/* How a function of the driver is recorded. */
struct cupti_rule {
    uint8_t role; /* enum cupti_role */
    uint8_t kind, cause, memory;
    bool is_alloc;
    bool is_per_thread; /* stream 0 is the thread's own */
    /* `has_out`: the call has succeeded, what it gives out may be read. False: nothing worth a record. */
    bool (*read)(const void *parameters, bool has_out, struct cupti_parameters *out);
};

/// The rule for a function by its callback id; NULL: none of ours.
const struct cupti_rule *cupti_rule_of(uint32_t id);

#endif
