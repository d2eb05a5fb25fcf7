/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder's own memory of a thread: a stack on which everything runs that needs more than a few hundred
 * bytes, and room for the frames of a call site and of the last new one. The program's stack may be one of
 * PTHREAD_STACK_MIN, a signal stack or a coroutine's, with next to nothing left. Made at the first use by a thread,
 * given back at its end; a fork child goes on with its copy.
 */
#ifndef VARVE_TRACE_GUEST_OWN_STACK_H
#define VARVE_TRACE_GUEST_OWN_STACK_H

#include "trace/guest/stack_ends.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a capture of a call site keeps its frames: what is in it is known to stacks/callsite_here.c. Zeros at first. */
#define RECORDER_SCRATCH_BYTES (STACK_ENDS * 48U + 8192U)

struct recorder_scratch {
    _Alignas(16) unsigned char bytes[RECORDER_SCRATCH_BYTES];
};

struct recorder_area {
    uintptr_t low;     /* of the stack; a page that cannot be touched lies below */
    uintptr_t next;    /* where the next switch to the stack begins */
    uintptr_t program; /* where the program left its stack, while this thread is on the recorder's; else 0 */
    bool is_taken;     /* the scratch */
    struct recorder_scratch scratch;
};

extern __thread struct recorder_area *recorder_area_current __attribute__((tls_model("initial-exec")));

/// Call function(argument) on the recorder's stack of this thread; at once, if the thread is there already.
/// False if there is no memory for a stack, or the thread is confined: it was not called. Threads: any, with
/// signals blocked, which they must stay unless recorder_off_stack is used: a handler would run on this
/// stack.
bool recorder_on_stack(void (*function)(void *argument), void *argument);

/// From there: call function(argument) where the program left its stack. Signals may be open meanwhile.
void recorder_off_stack(void (*function)(void *argument), void *argument);

/// This thread ends; signals are blocked and nothing of this is in use. What comes later maps its own.
void recorder_stack_thread_end(void);

/// The area of this thread, made if there is none; NULL: no memory for it, or the thread has ended.
struct recorder_area *recorder_area_make(void);

/// Room for one capture without a system call; NULL if it is in use (this is a signal handler) or not to be
/// had. Threads: any; async-signal-safe.
static inline struct recorder_scratch *recorder_scratch_acquire(void)
{
    struct recorder_area *area = recorder_area_current;

    if (__builtin_expect(area == NULL, 0)) {
        area = recorder_area_make();
    }
    if (area == NULL || area->is_taken) {
        return NULL;
    }
    area->is_taken = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return &area->scratch;
}

static inline void recorder_scratch_release(struct recorder_scratch *scratch)
{
    struct recorder_area *area = (struct recorder_area *)((char *)scratch - offsetof(struct recorder_area, scratch));

    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    area->is_taken = false;
}

/* switch_ARCH.c */

/// Call function(argument) with the stack pointer at `sp` (a multiple of 16), and come back. `*sp_old` is
/// where the stack was left: below it nothing is in use meanwhile.
void recorder_stack_call(void (*function)(void *argument), void *argument, uintptr_t sp, uintptr_t *sp_old);

#endif
