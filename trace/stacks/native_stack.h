/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk:
 *
 *   native_stack.c ─► rule_cache.c ─► unwind_rules.c ─► unwind_table.c ─► guest/loaded_object.c (the loader)
 *     │  └─► native_deep.c                      └─► unwind_expression.c
 *     └─► native_window.c (what may be read)
 */
#ifndef VARVE_TRACE_STACKS_NATIVE_STACK_H
#define VARVE_TRACE_STACKS_NATIVE_STACK_H

#include <stdint.h>

/// The state of the hook's caller: what the registers will be when the hook returns.
struct callsite_start {
    uintptr_t pc; /* return address of the hook */
    uintptr_t sp;
    uintptr_t fp; /* rbp on x86-64 */
};

/// Return addresses from `start` outwards, start->pc first, at most `max`. Frame pointers where the unwind
/// tables say that the frame has one, cached unwind rules elsewhere; ends at what these cannot express.
/// Threads: any; async-signal-safe.
unsigned native_stack_capture(const struct callsite_start *start, uint64_t *pcs, unsigned max);

/// The two ends of a stack of any depth, by the slots of stack_ends.h, and the number of all frames: STACK_UNENDED if
/// its end was not found, since it is not on the thread's own stack and far. Threads: as native_stack_capture.
unsigned native_stack_ends(const struct callsite_start *start, uint64_t *pcs);

/// This thread ends: what is kept for its next walk goes. Signals are blocked.
void native_stack_thread_end(void);

/// Forget cached rules: an object was unloaded and its addresses may be reused.
void native_stack_forget(void);

#endif
