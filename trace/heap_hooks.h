/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the preload library */
/*
 * What every hook begins with: may the real function be called, is anything recorded, who called. All inline:
 * with the recorder off a hook is one load, one branch and a jump.
 */
#ifndef VARVE_HEAP_HOOKS_H
#define VARVE_HEAP_HOOKS_H

#include "trace/heap_internal.h"
#include "trace/recorder_internal.h"

#include <unistd.h>

#define HOOK __attribute__((visibility("default"), noinline))

/* The registers of the hook's caller as they will be when the hook returns. Only in a hook itself: it reads
 * the frame that -fno-omit-frame-pointer guarantees. */
#define HOOK_START(start)                                            \
    do {                                                             \
        const uintptr_t *frame_of_hook = __builtin_frame_address(0); \
        (start).fp = frame_of_hook[0];                               \
        (start).pc = frame_of_hook[1];                               \
        (start).sp = (uintptr_t)(frame_of_hook + 2);                 \
    } while (0)

static inline bool hook_can_call(void)
{
    return __builtin_expect(__atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) >= HEAP_STATE_OFF, 1) ||
           heap_ready();
}

static inline bool hook_records(void)
{
    return __atomic_load_n(&heap_state, __ATOMIC_RELAXED) == HEAP_STATE_ON && recorder_foreign_depth == 0;
}

static inline uint32_t hook_callsite(const struct callsite_start *start)
{
    return heap_with_stacks != 0 ? callsite_capture(start) : 0;
}

static inline size_t hook_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

#endif
