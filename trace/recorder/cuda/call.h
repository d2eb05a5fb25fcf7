/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the CUDA recorder */
/*
 * A call of the driver from its beginning to its record:
 *
 *   dlsym (dlsym_*.c) ────────► lookup.c ──► real.c       who is behind our functions
 *   cuGetProcAddress ─────────┘      │
 *   symbols of linked programs ──────┴─► memory.c, array.c, vmm.c, pools.c, contexts.c
 *                                            │            the functions: what each call means
 *   cudaMalloc … (runtime.c)                 └─► call.c ─► resources.c
 *      which only notes what was called          records       device, context, pool, stream
 *
 * The driver is the truth: one record per call of it that returned, whichever entry point it came through.
 * Rules: the driver is never called while a lock is held, nor before a call of the program has shown that
 * it works in this process image (in a fork child it does not), and errno stays the program's.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CALL_H
#define VARVE_TRACE_RECORDER_CUDA_CALL_H

#include "trace/recorder/cuda/real.h"
#include "trace/recorder/cuda/record.h"
#include "trace/recorder/stacks/native/stack.h"
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
    int reset_device; /* 1 + the device that is being reset, of which nothing was recorded; or 0 */
};

extern __thread struct cuda_thread cuda_thread __attribute__((tls_model("initial-exec")));

struct cuda_scope {
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
/// Begin a call; its record will be of this kind. Fill in more of scope->call before cuda_end.
void cuda_begin(struct cuda_scope *scope, const struct cuda_entry *entry, enum varve_kind kind,
                enum varve_cause cause, enum varve_memory_kind memory);
/// The real function has returned `result`, which is returned.
int cuda_returned(struct cuda_scope *scope, int result);
/// Emit its record. Returns the result.
int cuda_end(struct cuda_scope *scope);

/// For calls that give something back: after cuda_begin, when the call is described, before the real one.
void cuda_free_emit(struct cuda_scope *scope);
/// Instead of cuda_returned and cuda_end.
int cuda_free_end(struct cuda_scope *scope, int result);

#endif
