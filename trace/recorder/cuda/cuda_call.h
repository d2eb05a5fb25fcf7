/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the driver from its beginning to its record. The driver is the truth: one record per call of it that
 * returned, whichever entry point it came through. The driver is never called while a lock is held, nor before a
 * call of the program has shown that it works in this process image (in a fork child it does not), and errno
 * stays the program's.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_CALL_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_CALL_H

#include "trace/record.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/cuda/cuda_lookup.h"
#include "trace/recorder/cuda/cuda_real.h"
#include "trace/recorder/cuda/cuda_record.h"
#include "trace/recorder/cuda/driver_calls.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/stacks/native_stack.h"

#include <stdbool.h>
#include <stddef.h>
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

/* cudaMalloc and cudaFree served by an allocator of ours. */

/// Is it to be, on this thread?
bool cuda_replace_is_on(void);
/// True: served, or refused for good: *result_out says. False: the driver is to be called.
bool cuda_replace_alloc(const struct cuda_entry *entry, uint64_t bytes, uint64_t *addr_out, int *result_out);
bool cuda_replace_free(const struct cuda_entry *entry, uint64_t addr, int *result_out);
bool cuda_replace_range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out);
void cuda_replace_forget(int device);

/*
 * The two entry points of a function that is recorded: the one that look-ups get in the place of the
 * driver's, and the one that a linked program binds to. Both are frames of their own, whose return address
 * is the program's.
 */

#define CUDA_SCOPE(function)                                              \
    {                                                                     \
        .entry = {.real = (function), .start = hook_start(HOOK_FRAME()) } \
    }

#define CUDA_REAL(real, exported) ((cuda_type_##exported *)(real))

/* A version that dlsym does not find, so that it answers as if we were not there; that references without a
 * version find all the same, the driver's have none (recorder/exports.map). */
#define CUDA_EXPORT(function, name, node) __asm__(".symver " #function "," #name "@" node)

/* `call` is an expression that uses `scope`, a struct cuda_scope. Where nothing is recorded programs that link the
 * driver go straight through. */
#define CUDA_ENTRIES(exported, parameters, arguments, call)                                           \
    __attribute__((noinline)) int cuda_resolved_##exported parameters                                 \
    {                                                                                                 \
        struct cuda_scope scope = CUDA_SCOPE(cuda_real_resolved(CUDA_HOOK_##exported));               \
        return call;                                                                                  \
    }                                                                                                 \
    HOOK int cuda_exported_##exported parameters                                                      \
    {                                                                                                 \
        cuda_function real = __atomic_load_n(&cuda_exported[CUDA_HOOK_##exported], __ATOMIC_ACQUIRE); \
        if (cuda_is_off() && real != NULL) {                                                          \
            return CUDA_REAL(real, exported) arguments;                                               \
        }                                                                                             \
        struct cuda_scope scope = CUDA_SCOPE(cuda_real_exported(CUDA_HOOK_##exported));               \
        return scope.entry.real == NULL ? CUDA_RESULT_NOT_INITIALIZED : call;                         \
    }                                                                                                 \
    CUDA_EXPORT(cuda_exported_##exported, exported, "VARVE_CUDA")

#endif
