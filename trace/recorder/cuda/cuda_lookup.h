/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is anything of CUDA wanted; the real dlsym, and what dlsym answers when a program asks for a function of
 * the driver.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_LOOKUP_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

enum cuda_wanted {
    CUDA_WANTED_UNKNOWN = 0,
    CUDA_WANTED_NO = 1,
    CUDA_WANTED_YES = 2,
};

/* Read by the jump of dlsym. Hidden, or its code could not reach them. */
extern uint8_t cuda_wanted __attribute__((visibility("hidden")));
extern void *(*cuda_dlsym_real)(void *handle, const char *name) __attribute__((visibility("hidden")));

/// Find the real dlsym and decide whether the session wants CUDA. Before anything else here; may come long
/// before any constructor. Threads: any.
void cuda_prepare(void);

static inline bool cuda_is_wanted(void)
{
    if (__builtin_expect(__atomic_load_n(&cuda_wanted, __ATOMIC_ACQUIRE) == CUDA_WANTED_UNKNOWN, 0)) {
        cuda_prepare();
    }
    return __atomic_load_n(&cuda_wanted, __ATOMIC_RELAXED) == CUDA_WANTED_YES;
}

/* Off is the state to be fast in: decided, and nothing is wanted. */
static inline bool cuda_is_off(void)
{
    return __builtin_expect(__atomic_load_n(&cuda_wanted, __ATOMIC_RELAXED) == CUDA_WANTED_NO, 1);
}

/// What dlsym says of `name`, if that is one of ours; NULL: whatever the C library says. `caller`: an address
/// in the code that asks. Called by the jump of dlsym.
void *cuda_dlsym_answer(void *handle, const char *name, const void *caller) __attribute__((visibility("hidden")));

/* Questions to the dynamic loader, asked between recorder_reentrant_begin and _end. Threads: any. */

/// What dlsym(RTLD_DEFAULT, name) will say to the code at `caller`, if that is certain; else NULL.
void *cuda_objects_default(const char *name, const void *caller);
/// The same of RTLD_NEXT.
void *cuda_objects_next(const char *name, const void *caller);

/// A symbol of the driver library; NULL: no such symbol, or no such library is loaded.
void *cuda_objects_driver_symbol(const char *name);
/// Keep the object that holds `address` loaded from now on: pointers to its functions will be kept.
void cuda_objects_hold(const void *address);
/// A symbol as the next object behind us defines it, for all programs alike.
void *cuda_objects_behind_us(const char *name);
/// A symbol of a loaded library, which stays loaded from then on; `name` NULL is not allowed.
void *cuda_objects_symbol_of(const char *library, const char *name);
/// A symbol as the object that holds `caller` sees it among its own libraries.
void *cuda_objects_symbol_for(const void *caller, const char *name);

/* Between cuda_lookup.c and the one file dlsym_hook_*.c that fits the processor, which defines dlsym itself. */

/* Versions of the C library's own dlsym, NULL at the end; all are the same function, one of them is there.
 * None: ours does not exist, so that the plain name is the C library's. */
extern const char *const cuda_dlsym_versions[];

#endif
