/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the driver from its beginning to its record. The driver is the truth: one record per call of it that
 * returned, whichever entry point it came through. The driver is never called while a lock is held, nor before a
 * call of the program has shown that it works in this process image (in a fork child it does not), and errno
 * stays the program's.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_CALL_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_CALL_H

#include "trace/recorder/cuda/driver_calls.h"
#include "trace/recorder/cuda/cuda_real.h"
#include "trace/recorder/cuda/cuda_record.h"
#include "trace/stacks/native_stack.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

/* How a call got here. */
struct cuda_entry {
    cuda_function real;
    struct callsite_start start; /* the program's side of it */
};

/* What this thread is in the middle of. */
struct cuda_thread {
    uint32_t depth;                     /* calls of the driver: only the outermost one is recorded */
    uint32_t replacing;                 /* the allocator that serves cudaMalloc: it is not served by itself */
    enum varve_cause cause;             /* the outermost function of the runtime library, or NONE */
    const struct callsite_start *start; /* its caller; NULL without one */
    int reset_device;                   /* 1 + the device that is being reset, of which nothing was recorded; or 0 */
};

extern __thread struct cuda_thread cuda_thread __attribute__((tls_model("initial-exec")));

struct cuda_scope {
    struct cuda_entry entry;
    const struct cuda_rule *rule;
    const void *arguments;        /* the struct that the rule reads */
    struct cuda_parameters given; /* what they say */
    struct cuda_call call;
    uint64_t stream; /* handle; becomes call.stream when the device is known */
    uint64_t began_ns;
    int saved_errno;
    bool is_recorded; /* not nested in another call, and recorded at all */
    bool has_device;  /* call.device was filled in */
    bool has_context; /* call.context, too */
    bool is_captured; /* becomes part of a graph: the driver is asked nothing, which could end the capture */
};

/// Number of the program's stack: of a runtime function's caller, if the call came through one; 0: none.
uint32_t cuda_callsite(const struct cuda_entry *entry);
/// A call begins: `scope` holds its entry, and zeros. False: it was served by another allocator, call.result says how.
bool cuda_call_begin(struct cuda_scope *scope, enum cuda_driver_call number, const void *arguments);
/// The real function has returned `result`, which is returned.
int cuda_call_end(struct cuda_scope *scope, int result);
/// The program has reset this device, in a way that no hook of the driver saw.
void cuda_reset_emit(int device);

#endif
