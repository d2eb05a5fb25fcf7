/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every hook begins with: may the real function be called, is anything recorded, who called. All inline:
 * with the recorder off a hook is one load, one branch and a jump.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_HEAP_HOOKS_H
#define VARVE_TRACE_RECORDER_HEAP_HEAP_HOOKS_H

#include "trace/guest/reentrant.h"
#include "trace/recorder/heap/loading.h"
#include "trace/recorder/heap/heap_real.h"
#include "trace/recorder/sink_emit.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/native_stack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#define HOOK __attribute__((visibility("default"), noinline))

/* The frame of a hook: saved frame pointer and return address, which -fno-omit-frame-pointer guarantees. */
#define HOOK_FRAME() ((const uintptr_t *)__builtin_frame_address(0))

/* The registers of the hook's caller as they will be when the hook returns. */
static inline struct callsite_start hook_start(const uintptr_t *frame)
{
    return (struct callsite_start){.pc = frame[1], .sp = (uintptr_t)(frame + 2), .fp = frame[0]};
}

/* Where the real function is not known yet: the answer of a system call as the C library gives it. */
static inline long hook_answer(long result)
{
    if (result < 0 && result >= -4095) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* Off is the state to be fast in: hooks test it first and jump to the real function. */
static inline bool hook_is_off(void)
{
    return __builtin_expect(__atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) == HEAP_STATE_OFF, 1);
}

static inline bool hook_can_call(void)
{
    return __builtin_expect(__atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) >= HEAP_STATE_OFF, 1) || heap_ready();
}

static inline bool hook_records(void)
{
    const uint32_t state = __atomic_load_n(&heap_state, __ATOMIC_RELAXED);
    return (__builtin_expect(state == HEAP_STATE_ON, 1) || (state == HEAP_STATE_LOADING && loading_look())) &&
           __builtin_expect(recorder_reentrant_depth == 0, 1);
}

/* Is there a session at all, and this thread not at work for it? */
static inline bool hook_is_recording(void)
{
    return preload_is_on && recorder_reentrant_depth == 0;
}

/* The provider of the second sink tidies up at the end of the program: not the program's doing. */
static inline bool hook_is_sink_closing(const uintptr_t *frame)
{
    return __builtin_expect(second_sink_is_closed, 0) && second_sink_owns_code(frame[1]);
}

static inline uint32_t hook_callsite(const struct callsite_start *start)
{
    return __builtin_expect(heap_with_stacks != 0, 0) ? callsite_capture(start) : 0;
}

#endif
