/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk on x86-64: from the caller of a hook outwards, a few ns per frame, in any state of
 * the program (inside malloc, in signal handlers, on stacks of its own making), and never reading memory
 * that is not there. Called by stacks/callsite_here.c.
 */
#include "trace/stacks/native_stack.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/guest_signals.h"
#include "trace/guest/stack_ends.h"
#include "trace/stacks/native_walk.h"

#include <string.h>

/*
 * Three layers, each the slow path of the one before:
 *
 *   memo    what the last walk of this thread read; where those words are unchanged, the result is too; native_deep.c
 * has
 *           what is far from the innermost frame
 *   rules   the rule of each return address, in a cache shared by all threads (rule_cache.c)
 *   odd     code without tables, realigned stacks, signal frames
 *
 * Every word read lies in [floor, limit): on the thread's own stack that is all up to its top, of other
 * stacks (signal stacks, coroutines) a copy that the kernel made.
 */

#define SIGNAL_FRAMES_MAX 8U
#define RED_ZONE_BYTES 128U
#define OTHER_STACK_FRAMES_MAX 512U /* what is not the thread's own stack is read by the kernel */

/* The memo has room for frames to come. */
enum { MEMO_FRAMES = 448, MEMO_RECORDED = 321, MEMO_LEAVES = 16, MEMO_MISSED = 16, MEMO_FAILURES = 4, MEMO_REST = 64 };

/*
 * What the last walk of a thread read from its own stack. Thread-local is a pointer only: of initial-exec
 * storage a library that is opened late finds very little. No other thread reads it; a signal handler that
 * interrupts its owner finds `busy` set and leaves it alone.
 *
 * Invariant: frames[first, MEMO_FRAMES) are innermost first with rising sp, and for each i > first the step
 * from i - 1 to i reads nothing but *(sp[i] - 8) = pc[i] and, unless NULL, *fp_from[i] = fp[i].
 */
struct stack_memo {
    bool busy;
    bool complete;       /* the last frame is the outermost */
    bool has_more;       /* more frames could be held outside of the last one */
    unsigned generation; /* of the rules that it was made with; 0 before the first walk */
    unsigned first;
    unsigned failed;  /* attempts in a row to meet it again behind a frame that had changed */
    unsigned resting; /* from such attempts: so many walks yet */
    struct frame frames[MEMO_FRAMES];
    struct frame leaves[MEMO_LEAVES]; /* of the walk that goes on now, inside of those */
    struct deep_memo *deep;
    struct walk walk; /* it: the program's stack may be small */
    _Alignas(16) unsigned char copy[STACK_COPY_BYTES];
};

static _Thread_local struct stack_memo *thread_memo __attribute__((tls_model("initial-exec")));

/* Of threads that have none: no memory for it, or they have ended. Always busy. */
static struct stack_memo no_memo = {.busy = true};

/* ---- one step ---- */

/* The registers that the kernel saved; offsets of ucontext_t.uc_mcontext.gregs: rbp, rsp, rip. */
static UNWIND_UNSANITIZED bool signal_step(struct walk *walk)
{
    const uintptr_t context = walk->at.sp;
    struct frame next = {.fp_from = NULL};
    if (++walk->signal_frames > SIGNAL_FRAMES_MAX || !stack_window_read(&walk->window, context + 120, &next.fp) ||
        !stack_window_read(&walk->window, context + 160, &next.sp) ||
        !stack_window_read(&walk->window, context + 168, &next.pc)) {
        return false;
    }
    /* The handler may have run on a stack of its own: look where this one is. An interrupted epilogue has
     * popped registers whose rules still point below sp; the red zone keeps them. */
    if (next.sp % 8 != 0 || !stack_window_open(&walk->window, next.sp, RED_ZONE_BYTES)) {
        return false;
    }
    walk->at = next;
    walk->exact = true;
    return true;
}

/* A guessed caller heads a frame, or is known code. */
static bool guess_plausible(const struct frame *frame, const struct frame *next)
{
    return guess_is_framed(frame, next) || loaded_object_is_at(next->pc - 1);
}

/* Of code that is in no loaded object nothing is kept: such code comes and goes without notice. */
WALK_INLINE uint32_t rule_find(uintptr_t address)
{
    const uint32_t rule = rule_cached(address);
    return rule == 0 && loaded_object_is_at(address) ? rule_fill(address) : rule;
}

WALK_APART bool frame_step_odd(struct frame *frame, const struct stack_window *window)
{
    const uint32_t rule = rule_find(frame->pc - 1);
    if (unwind_rule_kind(rule) != UNWIND_NONE) {
        return frame_step_by(rule, frame, window, 0);
    }
    struct frame next;
    if (!frame_guess(frame, window, 0, &next) || !guess_plausible(frame, &next)) {
        return false;
    }
    *frame = next;
    return true;
}

/* A step of any kind. */
static UNWIND_UNSANITIZED bool odd_step(struct walk *walk, uint32_t rule)
{
    struct frame next = {.fp = walk->at.fp};
    const uintptr_t offset = unwind_rule_offset_bytes(rule);
    uintptr_t slot = unwind_rule_slot_bytes(rule);
    switch (unwind_rule_kind(rule)) {
    case UNWIND_FRAME:
    case UNWIND_RBP:
        next.sp = walk->at.fp + offset;
        break;
    case UNWIND_RSP:
        next.sp = walk->at.sp + offset;
        break;
    case UNWIND_NONE:
        /* Code without a table, often made at run time: such code mostly keeps frame pointers. */
        if (walk->at.fp - walk->at.sp > GUESSED_FRAME_MAX) {
            return false;
        }
        next.sp = walk->at.fp + 16;
        slot = 16;
        break;
    case UNWIND_DRAP:
        if (!stack_window_read(&walk->window, walk->at.fp - offset, &next.sp) ||
            !stack_window_read(&walk->window, walk->at.fp, &next.fp)) {
            return false;
        }
        break;
    case UNWIND_SIGNAL:
        return signal_step(walk);
    default:
        return false;
    }
    if (next.sp <= walk->at.sp || (slot != 0 && !stack_window_read(&walk->window, next.sp - slot, &next.fp)) ||
        !stack_window_read(&walk->window, next.sp - 8, &next.pc) ||
        (unwind_rule_kind(rule) == UNWIND_NONE && !guess_plausible(&walk->at, &next))) {
        return false;
    }
    walk->at = next;
    walk->exact = false;
    return true;
}

/* The slow path of frame_step: finds the rule, moves the window, or ends the walk. */
static WALK_COLD void walk_slow(struct walk *walk)
{
    const uintptr_t address = walk->at.pc - (walk->exact ? 0 : 1);
    if (!odd_step(walk, rule_find(address)) || !pc_plausible(walk->at.pc)) {
        walk->done = true;
        return;
    }
    /* What is stored is looked up one below: an interrupted instruction is stored one above. */
    const uintptr_t pc = walk->at.pc + (walk->exact ? 1 : 0);
    if (walk->is_deep) {
        walk_put(walk, pc);
    } else {
        walk->pcs[walk->count++] = pc;
        walk->done = walk->count == walk->max;
    }
}

WALK_INLINE void walk_steps(struct walk *walk)
{
    const struct stack_window window = walk->window;
    struct frame frame = walk->at;
    unsigned count = walk->count;
    while (count < walk->max &&
           (window.own ? frame_step_own(&frame, &window) : frame_step(&frame, &window, window.moved))) {
        walk->pcs[count++] = frame.pc;
    }
    walk->at = frame;
    walk->count = count;
}

static UNWIND_UNSANITIZED void walk_plain(struct walk *walk)
{
    while (!walk->done) {
        if (!walk->exact) {
            walk_steps(walk);
            if (walk->count == walk->max) {
                return;
            }
        }
        walk_slow(walk);
    }
}

/* Beyond the innermost frames, where there is no memo. */
static WALK_COLD void walk_deep_plain(struct walk *walk)
{
    while (!walk->done) {
        if (!walk->window.own && walk->count >= OTHER_STACK_FRAMES_MAX) {
            walk->is_unended = true;
            return;
        }
        if (!walk->exact && frame_step(&walk->at, &walk->window, walk->window.moved)) {
            walk_put(walk, walk->at.pc);
        } else {
            walk_slow(walk);
        }
    }
}

/* ---- the memo ---- */

/* Fills the empty memo along the way; the rest, which it cannot hold, is walked plainly. */
static WALK_APART void memo_fill(struct walk *walk, struct stack_memo *memo)
{
    struct frame frame = walk->at;
    unsigned filled = 0;
    memo->frames[filled++] = frame;
    memo->complete = false;
    while (walk->count < walk->max && filled < MEMO_RECORDED) {
        if (!frame_step_own(&frame, &walk->window)) {
            memo->complete = unwind_rule_kind(rule_cached(frame.pc - 1)) == UNWIND_END;
            break;
        }
        walk->pcs[walk->count++] = frame.pc;
        walk->at = frame;
        memo->frames[filled++] = frame;
    }
    memo->has_more = walk->count == walk->max;
    memo->first = MEMO_FRAMES - filled;
    memmove(&memo->frames[memo->first], memo->frames, filled * sizeof(memo->frames[0]));
    walk->done = memo->complete || walk->count == walk->max;
}

/* Puts the frames walked before the memo was met in front of it. */
static UNWIND_UNSANITIZED void memo_extend(struct stack_memo *memo, unsigned met, unsigned count)
{
    if (count > MEMO_LEAVES || count > met) {
        memo->first = MEMO_FRAMES;
        return;
    }
    memo->first = met - count;
    memcpy(&memo->frames[memo->first], memo->leaves, count * sizeof(memo->leaves[0]));
}

/* Frames [from, to) of the memo, which this walk has found, move to where they end before those that it has walked
 * since, and these to where they end before `met`. */
static UNWIND_UNSANITIZED void memo_join(struct stack_memo *memo, unsigned from, unsigned to, unsigned met,
                                         unsigned walked)
{
    const unsigned found = to - from;
    if (found + walked <= met && walked <= MEMO_LEAVES) {
        memmove(&memo->frames[met - walked - found], &memo->frames[from], found * sizeof(memo->frames[0]));
    }
    memo_extend(memo, met, walked);
    memo->first = found <= memo->first && memo->first < MEMO_FRAMES ? memo->first - found : MEMO_FRAMES;
}

/* Takes over what follows frame `met` as far as it is unchanged; the walk goes on behind it. Returns where the frame is
 * that has changed; MEMO_FRAMES: none, or none that is wanted. */
WALK_INLINE unsigned memo_verify(struct walk *walk, struct stack_memo *memo, unsigned met)
{
    unsigned end = walk->max - walk->count < MEMO_FRAMES - 1 - met ? met + 1 + walk->max - walk->count : MEMO_FRAMES;
    uint64_t *pcs = walk->pcs + walk->count;
    unsigned i = met + 1;
    for (; i < end; i++) {
        const struct frame *frame = &memo->frames[i];
        if (frame_has_changed(frame)) {
            break;
        }
        *pcs++ = frame->pc;
    }
    walk->count += i - met - 1;
    walk->at = memo->frames[i - 1];
    walk->done = walk->count == walk->max || (i == MEMO_FRAMES && memo->complete);
    return i == end ? MEMO_FRAMES : i;
}

/* Frame `to` has changed: walks until the memo is met again behind it, and forgets all if that does not happen, or if
 * more has changed. Apart, so that the way of most walks is short; and where it fails often, seldom. */
static WALK_APART void memo_regain(struct walk *walk, struct stack_memo *memo, unsigned from, unsigned to)
{
    struct frame frame = walk->at;
    unsigned walked = 0;
    unsigned i = to;
    while (frame_step_own(&frame, &walk->window)) {
        walk->pcs[walk->count++] = frame.pc;
        walk->at = frame;
        walk->done = walk->count == walk->max;
        while (i < MEMO_FRAMES && memo->frames[i].sp < frame.sp) {
            i++;
        }
        if (walk->done || i == MEMO_FRAMES) {
            break;
        }
        struct frame *known = &memo->frames[i];
        if (known->pc == frame.pc && known->sp == frame.sp && known->fp == frame.fp) {
            memo_join(memo, from, to, i, walked);
            known->fp_from = frame.fp_from;
            if (memo_verify(walk, memo, i) == MEMO_FRAMES) {
                memo->failed = 0;
                return;
            }
            break;
        }
        if (walked < MEMO_LEAVES) {
            memo->leaves[walked] = frame;
        }
        walked++;
    }
    memo->first = MEMO_FRAMES;
    if (++memo->failed == MEMO_FAILURES) {
        memo->failed = 0;
        memo->resting = MEMO_REST;
    }
}

WALK_INLINE void memo_walk(struct walk *walk, struct stack_memo *memo)
{
    struct frame frame = walk->at;
    unsigned walked = 0;
    unsigned i = memo->first;
    for (;;) {
        while (i < MEMO_FRAMES && memo->frames[i].sp < frame.sp) {
            i++;
        }
        if (i == MEMO_FRAMES) {
            break;
        }
        struct frame *known = &memo->frames[i];

        if (known->pc == frame.pc && known->sp == frame.sp && known->fp == frame.fp) {
            const unsigned changed = memo_verify(walk, memo, i);
            if (walked > 0) {
                memo_extend(memo, i, walked);
                known->fp_from = frame.fp_from;
            }
            if (changed < MEMO_FRAMES && memo->resting > 0) {
                memo->resting--;
                memo->first = MEMO_FRAMES;
            } else if (changed < MEMO_FRAMES && memo->first < MEMO_FRAMES) {
                memo_regain(walk, memo, i - walked, changed);
            }
            return;
        }
        if (walked < MEMO_LEAVES) {
            memo->leaves[walked] = frame;
        }
        walked++;
        if (!frame_step_own(&frame, &walk->window)) {
            break;
        }
        walk->pcs[walk->count++] = frame.pc;
        walk->at = frame;
        if (walk->count == walk->max) {
            walk->done = true;
            break;
        }
    }
    memo->first = MEMO_FRAMES;
}

static WALK_COLD struct stack_memo *native_stack_memo_make(void)
{
    struct recorder_signals signals;
    recorder_signals_block(&signals); /* a handler would make another one */
    if (thread_memo == NULL) {
        thread_memo = recorder_map(sizeof(*thread_memo));
        if (thread_memo == NULL) {
            thread_memo = &no_memo;
        }
    }
    recorder_signals_restore(&signals);
    return thread_memo;
}

void native_stack_thread_end(void)
{
    struct stack_memo *memo = thread_memo;
    thread_memo = &no_memo;
    if (memo != NULL && memo != &no_memo) {
        deep_memo_free(memo->deep);
        recorder_unmap(memo, sizeof(*memo));
    }
}

static void walk_begin(struct walk *walk, const struct callsite_start *start, uint64_t *pcs, unsigned max, void *copy)
{
    walk->at = (struct frame){.pc = start->pc, .sp = start->sp, .fp = start->fp};
    walk->window.copy = copy;
    walk->exact = false;
    walk->done = false;
    walk->is_deep = false;
    walk->is_unended = false;
    walk->signal_frames = 0;
    walk->count = 1;
    walk->max = max;
    walk->pcs = pcs;
}

/* The rest of a stack whose innermost frames are there. */
static WALK_COLD void walk_deep(struct walk *walk, struct stack_memo *memo)
{
    walk->is_deep = true;
    walk->done = false;
    if (memo != NULL && walk->window.own && !walk->exact) {
        deep_walk(walk, &memo->deep);
    }
    walk_deep_plain(walk);
}

/* In the midst of another walk of this thread, or after its end. stacks/callsite_here.c then runs on the recorder's
 * stack, which has room. */
static WALK_COLD unsigned walk_apart(const struct callsite_start *start, uint64_t *pcs, unsigned max, bool goes_on)
{
    _Alignas(16) unsigned char copy[STACK_COPY_BYTES];
    struct walk walk;
    walk_begin(&walk, start, pcs, max, copy);
    if (stack_window_open(&walk.window, start->sp, 0)) {
        walk_plain(&walk);
        if (goes_on && walk.count == max) {
            walk_deep(&walk, NULL);
        }
    }
    return walk.is_unended ? STACK_UNENDED : walk.count;
}

/* `memo` is this walk's alone. */
WALK_INLINE void walk_all(struct walk *walk, struct stack_memo *memo)
{
    unsigned generation = __atomic_load_n(&rule_generation, __ATOMIC_ACQUIRE);
    if (!stack_window_open(&walk->window, walk->at.sp, 0)) {
        return;
    }
    if (walk->window.own) {
        if (memo->generation != generation) {
            memo->generation = generation;
            memo->first = MEMO_FRAMES;
        }
        if (memo->first == MEMO_FRAMES) {
            memo_fill(walk, memo);
        } else {
            memo_walk(walk, memo);
        }
    }
    if (walk->done) {
        return;
    }
    const unsigned count = walk->count;
    walk_plain(walk);
    if (UNLIKELY(walk->count - count > MEMO_MISSED) && walk->window.own && memo->has_more) {
        memo->first = MEMO_FRAMES; /* inner frames are gone: the next walk has room for outer ones */
    }
}

WALK_INLINE unsigned capture(const struct callsite_start *start, uint64_t *pcs, unsigned max, bool goes_on)
{
    struct stack_memo *memo = UNLIKELY(thread_memo == NULL) ? native_stack_memo_make() : thread_memo;
    if (max == 0) {
        return 0;
    }
    pcs[0] = start->pc;
    if (max == 1 || !pc_plausible(start->pc) || start->sp % 8 != 0) {
        return 1;
    }
    if (UNLIKELY(memo->busy)) {
        return walk_apart(start, pcs, max, goes_on);
    }
    memo->busy = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    struct walk *walk = &memo->walk;
    walk_begin(walk, start, pcs, max, memo->copy);
    walk_all(walk, memo);
    if (UNLIKELY(goes_on && walk->count == max)) {
        walk_deep(walk, memo);
    }
    const unsigned count = walk->is_unended ? STACK_UNENDED : walk->count;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memo->busy = false;
    return count;
}

UNWIND_UNSANITIZED unsigned native_stack_capture(const struct callsite_start *start, uint64_t *pcs, unsigned max)
{
    return capture(start, pcs, max, false);
}

UNWIND_UNSANITIZED unsigned native_stack_ends(const struct callsite_start *start, uint64_t *pcs)
{
    return capture(start, pcs, STACK_INSIDE, true);
}
