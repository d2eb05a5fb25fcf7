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

#endif
