/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of the runtime library, for programs that link a shared one. They record nothing: they note
 * what the program called, and where, for the calls of the driver that follow. Programs with a static
 * runtime library, or who look it up by dlsym, are recorded with the driver's function. cudaDeviceReset
 * reaches the driver past all hooks: it is recorded here.
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/stacks/native_stack.h"
#include "trace/record.h"

#include <stddef.h>

/*
 * A process may have several versions of that library, each with its version on its symbols, so there is an
 * entry point for each version: the loader binds a program to the one of the library that it was linked
 * with, and behind it is that library.
 */

static cuda_function cuda_runtime_find(cuda_function *slot, const char *name, const char *soname, uintptr_t caller)
{
    cuda_function function = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (function == NULL) {
        function = cuda_real_runtime(name, soname, (const void *)caller);
        __atomic_store_n(slot, function, __ATOMIC_RELEASE);
    }
    return function;
}

static bool cuda_runtime_enter(enum varve_cause cause, const struct callsite_start *start)
{
    if (cuda_thread.cause != VARVE_CAUSE_NONE) {
        return false;
    }
    cuda_thread.cause = cause;
    cuda_thread.start = start;
    cuda_thread.reset_device = cause == VARVE_CAUSE_CUDA_DEVICE_RESET ? 1 + cuda_device_current() : 0;
    return true;
}

static int cuda_runtime_leave(bool is_outermost, int result)
{
    if (is_outermost) {
        if (cuda_thread.reset_device > 0 && result == 0) {
            cuda_reset_emit(cuda_thread.reset_device - 1);
        }
        cuda_thread.cause = VARVE_CAUSE_NONE;
        cuda_thread.start = NULL;
        cuda_thread.reset_device = 0;
    }
    return result;
}

#define ENTRY(number, soname, node, name, CAUSE, parameters, arguments)                        \
    HOOK cuda_type_##name cuda_runtime_##number##_##name;                                      \
    int cuda_runtime_##number##_##name parameters                                              \
    {                                                                                          \
        static cuda_function slot;                                                             \
        cuda_type_##name *real = (cuda_type_##name *)__atomic_load_n(&slot, __ATOMIC_ACQUIRE); \
        if (cuda_is_off() && real != NULL) {                                                   \
            return real arguments;                                                             \
        }                                                                                      \
        const struct callsite_start start = hook_start(HOOK_FRAME());                          \
        real = (cuda_type_##name *)cuda_runtime_find(&slot, #name, soname, start.pc);          \
        if (real == NULL) {                                                                    \
            return CUDA_RUNTIME_RESULT_NO_DRIVER;                                              \
        }                                                                                      \
        bool is_outermost = cuda_runtime_enter(VARVE_CAUSE_##CAUSE, &start);                   \
        return cuda_runtime_leave(is_outermost, real arguments);                               \
    }                                                                                          \
    CUDA_EXPORT(cuda_runtime_##number##_##name, name, node);

#define ENTRY_ANY(name, CAUSE, parameters, arguments) ENTRY(0, NULL, "VARVE_CUDA", name, CAUSE, parameters, arguments)
#define ENTRY_11(name, CAUSE, parameters, arguments) \
    ENTRY(11, "libcudart.so.11.0", "libcudart.so.11.0", name, CAUSE, parameters, arguments)
#define ENTRY_12(name, CAUSE, parameters, arguments) \
    ENTRY(12, "libcudart.so.12", "libcudart.so.12", name, CAUSE, parameters, arguments)
#define ENTRY_13(name, CAUSE, parameters, arguments) \
    ENTRY(13, "libcudart.so.13", "libcudart.so.13", name, CAUSE, parameters, arguments)
#define ENTRY_14(name, CAUSE, parameters, arguments) \
    ENTRY(14, "libcudart.so.14", "libcudart.so.14", name, CAUSE, parameters, arguments)

CUDA_RUNTIME_LIST(ENTRY_ANY)
CUDA_RUNTIME_LIST(ENTRY_11)
CUDA_RUNTIME_LIST(ENTRY_12)
CUDA_RUNTIME_LIST(ENTRY_13)
CUDA_RUNTIME_LIST(ENTRY_14)
