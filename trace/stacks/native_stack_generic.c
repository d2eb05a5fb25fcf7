/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk where no rules are known for the machine: frame pointers only, so code without them
 * is left out or ends the stack. Chosen by the build in place of native_stack.c; called by
 * stacks/callsite_here.c.
 */
#include "trace/stacks/native_stack.h"
#include "trace/guest/stack_ends.h"
#include "trace/stacks/native_window.h"

#define FRAME_BYTES_MAX ((uintptr_t)1 << 20) /* a larger distance to the next frame is taken for nonsense */

/* Where a frame pointer finds the caller's own and the return address, in words. */
#if defined(__riscv)
enum { FRAME_CALLER = -2, FRAME_RETURN = -1 };
#else
enum { FRAME_CALLER = 0, FRAME_RETURN = 1 };
#endif

/* The innermost `max`, or both ends. */
static UNWIND_UNSANITIZED unsigned native_stack_walk(const struct callsite_start *start, uint64_t *pcs, unsigned max,
                                                     bool goes_on)
{
    uintptr_t copy[STACK_COPY_BYTES / sizeof(uintptr_t)];
    struct stack_window window = {.copy = copy};
    uintptr_t least = start->sp;
    uintptr_t fp = start->fp;
    unsigned count = 1;

    if (max == 0) {
        return 0;
    }
    pcs[0] = start->pc;
    if (start->sp % sizeof(uintptr_t) != 0 || !stack_window_open(&window, start->sp, 0)) {
        return 1;
    }
    while ((count < max || goes_on) && fp >= least && fp - least <= FRAME_BYTES_MAX) {
        uintptr_t caller;
        uintptr_t pc;

        if (!stack_window_read(&window, fp + (uintptr_t)(FRAME_CALLER * (intptr_t)sizeof(uintptr_t)), &caller) ||
            !stack_window_read(&window, fp + (uintptr_t)(FRAME_RETURN * (intptr_t)sizeof(uintptr_t)), &pc) || pc == 0) {
            break;
        }
        pcs[goes_on ? stack_slot(count) : count] = pc;
        count++;
        least = fp + 2 * sizeof(uintptr_t);
        fp = caller;
    }
    return count;
}

unsigned native_stack_capture(const struct callsite_start *start, uint64_t *pcs, unsigned max)
{
    return native_stack_walk(start, pcs, max, false);
}

unsigned native_stack_ends(const struct callsite_start *start, uint64_t *pcs)
{
    return native_stack_walk(start, pcs, STACK_INSIDE, true);
}

void native_stack_thread_end(void)
{
}

void native_stack_forget(void)
{
}
