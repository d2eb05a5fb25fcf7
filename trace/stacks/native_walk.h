/* SPDX-License-Identifier: Apache-2.0 */
/* One walk of a stack, and its steps as they mostly are. */
#ifndef VARVE_TRACE_STACKS_NATIVE_WALK_H
#define VARVE_TRACE_STACKS_NATIVE_WALK_H

#include "trace/guest/guest_memory.h"
#include "trace/guest/stack_ends.h"
#include "trace/stacks/native_window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rule of each return address that was met, for all threads. */

/* How to leave one frame, in 32 bits. */

#define UNWIND_ADDRESS_LIMIT ((uintptr_t)1 << 47) /* user addresses on x86-64 with 4 page-table levels */

/* The canonical frame address (CFA) is what rsp will be in the caller; the return address lies just below. */
enum unwind_kind {
    UNWIND_NONE = 0,    /* no table: guess that rbp heads a frame */
    UNWIND_FRAME = 1,   /* CFA = rbp + 16, rbp saved at CFA - 16: the frame-pointer convention */
    UNWIND_RSP = 2,     /* CFA = rsp + 8 * offset */
    UNWIND_RBP = 3,     /* CFA = rbp + 8 * offset */
    UNWIND_DRAP = 4,    /* CFA = *(rbp - 8 * offset), rbp saved at rbp: a realigned stack */
    UNWIND_SIGNAL = 5,  /* the frame that the kernel made for a signal handler */
    UNWIND_END = 6,     /* outermost frame */
    UNWIND_UNKNOWN = 7, /* a table that these rules cannot express: the stack ends */
};

/* bits 0-2 kind, 3-10 where rbp is saved (CFA - 8 * slot; 0: not saved), 11-31 offset */
#define UNWIND_SLOT_MAX 255U
#define UNWIND_OFFSET_MAX ((1U << 21) - 1U)

static inline uint32_t unwind_rule(enum unwind_kind kind, uint32_t slot, uint32_t offset)
{
    return (uint32_t)kind | (slot << 3) | (offset << 11);
}

/* As a cached rule: there is no table, and there will be none. Never 0. */
#define UNWIND_GUESS ((uint32_t)UNWIND_NONE | (2U << 11))

static inline enum unwind_kind unwind_rule_kind(uint32_t rule)
{
    return (enum unwind_kind)(rule & 7U);
}

static inline uintptr_t unwind_rule_slot_bytes(uint32_t rule)
{
    return rule & (UNWIND_SLOT_MAX << 3);
}

static inline uintptr_t unwind_rule_offset_bytes(uint32_t rule)
{
    return (uintptr_t)(rule >> 11) * 8U;
}

/// Rule for the instruction at `address` (one below a return address). Threads: any; reads tables of loaded
/// objects, takes microseconds and 2 KiB of stack: the caller caches it.
uint32_t unwind_rule_find(uintptr_t address);

#define WALK_INLINE static inline __attribute__((always_inline)) UNWIND_UNSANITIZED
#define WALK_APART __attribute__((noinline)) UNWIND_UNSANITIZED
#define WALK_COLD __attribute__((noinline, cold)) UNWIND_UNSANITIZED
#define UNLIKELY(condition) __builtin_expect((condition), 0)

/*
 * A set is a cache line: 50,000 addresses fill hardly one. With few ways those that share a set would take turns in it,
 * and each walk through them would cost a look-up, and the other threads the line.
 */
enum { RULE_SET_BITS = 15, RULE_WAYS = 8 };

/*
 * An entry is one word, so it is never seen torn. Upper half: the bits of the address that the set number does not
 * imply; lower half: the rule. 0 is empty: nothing is kept behind it.
 */
struct rule_set {
    _Alignas(CACHE_LINE_BYTES) uint64_t ways[RULE_WAYS];
};

extern struct rule_set rule_sets[1U << RULE_SET_BITS];
extern unsigned rule_generation; /* grows with native_stack_forget; never 0 */

WALK_INLINE unsigned rule_set(uintptr_t address)
{
    return (unsigned)((address >> 3) ^ (address >> (RULE_SET_BITS + 3))) & ((1U << RULE_SET_BITS) - 1U);
}

WALK_INLINE uint32_t rule_tag(uintptr_t address)
{
    return (uint32_t)((address >> (RULE_SET_BITS + 3)) << 3) | (uint32_t)(address & 7);
}

/* 0 if it is not in the cache. */
WALK_INLINE uint32_t rule_cached(uintptr_t address)
{
    const struct rule_set *set = &rule_sets[rule_set(address)];
    uint64_t entry = __atomic_load_n(&set->ways[0], __ATOMIC_RELAXED);
    for (unsigned way = 1; UNLIKELY((uint32_t)(entry >> 32) != rule_tag(address)); way++) {
        if (entry == 0 || way == RULE_WAYS) {
            return 0;
        }
        entry = __atomic_load_n(&set->ways[way], __ATOMIC_RELAXED);
    }
    return (uint32_t)entry;
}

/// Looks up the rule of code in a loaded object and keeps it. Of kind UNWIND_NONE if there is none, or no memory to
/// look it up. Threads: any; async-signal-safe.
uint32_t rule_fill(uintptr_t address);

#define PC_MIN ((uintptr_t)4096)
#define GUESSED_FRAME_MAX ((uintptr_t)65536) /* a larger distance to rbp means that rbp heads no frame */

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

/* Code without a table, often made at run time, mostly keeps frame pointers: what is there if this one does. */
WALK_INLINE bool frame_guess(const struct frame *frame, const struct stack_window *window, uintptr_t moved,
                             struct frame *next)
{
    const uintptr_t span = window->limit - 2 * sizeof(uintptr_t) - window->floor;
    const uintptr_t fp = frame->fp;
    if (UNLIKELY(fp - frame->sp > GUESSED_FRAME_MAX || fp % 8 != 0 || fp - window->floor > span)) {
        return false;
    }
    const uintptr_t *const head = (const uintptr_t *)(fp + moved);
    *next = (struct frame){.pc = head[1], .sp = fp + 16, .fp = head[0], .fp_from = (const uintptr_t *)fp};
    return pc_plausible(next->pc);
}

/* A guessed caller heads a frame in its turn. */
WALK_INLINE bool guess_is_framed(const struct frame *frame, const struct frame *next)
{
    return next->fp - frame->fp - 16 <= GUESSED_FRAME_MAX;
}

/*
 * The frequent kinds of frame whose words lie in the window, `moved` bytes from their addresses. On false nothing was
 * changed. The kind is a predicted branch on purpose: with frame pointers the next step then waits for nothing but its
 * own load.
 */
WALK_INLINE bool frame_step_by(uint32_t rule, struct frame *frame, const struct stack_window *window, uintptr_t moved)
{
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
        struct frame next;
        if (rule != UNWIND_GUESS || !frame_guess(frame, window, moved, &next) || !guess_is_framed(frame, &next)) {
            return false;
        }
        *frame = next;
        return true;
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

/* The same, by the rule that is cached. */
WALK_INLINE bool frame_step(struct frame *frame, const struct stack_window *window, uintptr_t moved)
{
    return frame_step_by(rule_cached(frame->pc - 1), frame, window, moved);
}

/// The same on the thread's own stack where the rule is not in the cache yet, or never will be since the code is in no
/// object, or where it takes a look at the caller's code to believe in a frame without a table. What is read are the
/// same two words.
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
