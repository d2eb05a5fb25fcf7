/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two entry points of a function that is recorded: the one that look-ups get in the place of the
 * driver's, and the one that a linked program binds to. Both are frames of their own, whose return address
 * is the program's.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_ENTRY_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_ENTRY_H

#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/cuda/cuda_lookup.h"
#include "trace/recorder/cuda/cuda_real.h"
#include "trace/recorder/heap/heap_hooks.h"

#include <stddef.h>

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
