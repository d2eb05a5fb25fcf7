/* SPDX-License-Identifier: Apache-2.0 */
/* One walk of a stack, and its steps as they mostly are. */
#ifndef VARVE_TRACE_STACKS_NATIVE_WALK_H
#define VARVE_TRACE_STACKS_NATIVE_WALK_H

#include "trace/guest/stack_ends.h"
#include "trace/stacks/native_window.h"
#include "trace/stacks/rule_cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PC_MIN ((uintptr_t)4096)

/* The state on entering a frame. */
struct frame {
    uintptr_t pc;
    uintptr_t sp;
    uintptr_t fp;
    const uintptr_t *fp_from; /* the word that fp was read from in the last step, NULL if it was not read */
};

struct walk {
    struct frame at;
    struct stack_window window;
    bool exact; /* at.pc is an interrupted instruction, not a return address */
    bool done;
    bool is_deep;    /* past the innermost frames: `pcs` has the slots of stack_slot */
    bool is_unended; /* it was given up before its end */
    unsigned signal_frames;
    unsigned count;
    unsigned max;
    uint64_t *pcs;
};

WALK_INLINE bool pc_plausible(uintptr_t pc)
{
    return pc - PC_MIN < UNWIND_ADDRESS_LIMIT - PC_MIN;
}

/*
 * The frequent kinds of frame whose rule is cached and whose words lie in the window, `moved` bytes from
 * their addresses. On false nothing was changed. The kind is a predicted branch on purpose: with frame
 * pointers the next step then waits for nothing but its own load.
 */
WALK_INLINE bool frame_step(struct frame *frame, const struct stack_window *window, uintptr_t moved)
{
    const uint32_t rule = rule_cached(frame->pc - 1);
    const enum unwind_kind kind = unwind_rule_kind(rule);
    const uintptr_t floor = window->floor;
    const uintptr_t span = window->limit - sizeof(uintptr_t) - floor;
    const uintptr_t *fp_from = NULL;
    uintptr_t cfa;
    if (kind == UNWIND_FRAME) {
        cfa = frame->fp + 16;
        fp_from = (const uintptr_t *)frame->fp;
        if (UNLIKELY(cfa <= frame->sp || frame->fp - floor > span || cfa - 8 - floor > span || (cfa & 7) != 0)) {
            return false;
        }
    } else if (kind == UNWIND_RSP || kind == UNWIND_RBP) {
        const uintptr_t slot = unwind_rule_slot_bytes(rule);
        cfa = (kind == UNWIND_RBP ? frame->fp : frame->sp) + unwind_rule_offset_bytes(rule);
        fp_from = slot != 0 ? (const uintptr_t *)(cfa - slot) : NULL;
        if (UNLIKELY(cfa <= frame->sp || cfa - 8 - floor > span || (cfa & 7) != 0 ||
                     (slot != 0 && cfa - slot - floor > span))) {
            return false;
        }
    } else {
        return false;
    }
    const uintptr_t pc = *(const uintptr_t *)(cfa - 8 + moved);

    if (UNLIKELY(!pc_plausible(pc))) {
        return false;
    }
    frame->fp = fp_from != NULL ? *(const uintptr_t *)((uintptr_t)fp_from + moved) : frame->fp;
    frame->fp_from = fp_from;
    frame->pc = pc;
    frame->sp = cfa;
    return true;
}

/// The same where the rule is not in the cache yet, or code has no table, often since it was made at run time, and is
/// taken to keep frame pointers. What is read are the same two words.
bool frame_step_odd(struct frame *frame, const struct stack_window *window);

/* On the thread's own stack. The frame stays in registers: its address is given to nobody. */
WALK_INLINE bool frame_step_own(struct frame *frame, const struct stack_window *window)
{
    if (frame_step(frame, window, 0)) {
        return true;
    }
    struct frame odd = *frame;
    if (!frame_step_odd(&odd, window)) {
        return false;
    }
    *frame = odd;
    return true;
}

/* Do the words that the step to this frame has read say something else than then? */
WALK_INLINE bool frame_has_changed(const struct frame *frame)
{
    return UNLIKELY(*(const uintptr_t *)(frame->sp - 8) != frame->pc ||
                    (frame->fp_from != NULL && *frame->fp_from != frame->fp));
}

/* The next frame of a walk that is_deep. */
static inline void walk_put(struct walk *walk, uintptr_t pc)
{
    walk->pcs[stack_slot(walk->count++)] = pc;
}

/* What lies beyond the innermost frames of a deep stack. */

struct deep_memo;

/// Goes on from `walk->at` on the thread's own stack, to the outermost frame or up to one that takes another kind of
/// step. `*memo` is what the last such walk of the thread has left, NULL at first; it belongs to this walk alone.
void deep_walk(struct walk *walk, struct deep_memo **memo);
void deep_memo_free(struct deep_memo *memo);

#endif
