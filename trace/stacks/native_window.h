/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a stack may be read. */
#ifndef VARVE_TRACE_STACKS_NATIVE_WINDOW_H
#define VARVE_TRACE_STACKS_NATIVE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Reading what other functions keep on the stack looks like an error to the sanitizers. */
#define UNWIND_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

#define STACK_COPY_BYTES 1024U

/* Words in [floor, limit) may be read, each at its address + moved; limit - floor >= 8. */
struct stack_window {
    uintptr_t floor;
    uintptr_t limit;
    uintptr_t moved; /* 0 on the thread's own stack */
    void *copy;      /* STACK_COPY_BYTES, aligned; set by the caller, who owns it */
    bool own;        /* the thread's own stack, to its top: nothing beyond is ever read */
};

/// The window of a walk that stands at `sp`, and `below` bytes less where these are on the same page or known
/// to be mapped; false if not even the word at `sp` can be read.
/// Threads: any, each asks about its own stacks; async-signal-safe, as is stack_window_read.
bool stack_window_open(struct stack_window *window, uintptr_t sp, uintptr_t below);

/// The word at `address`; moves the window upwards if need be, never back. False if it cannot be read.
bool stack_window_read(struct stack_window *window, uintptr_t address, uintptr_t *word);

#endif
