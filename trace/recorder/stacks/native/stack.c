/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native stack walk on x86-64: from the caller of a hook outwards, a few ns per frame, in any state of
 * the program (inside malloc, in signal handlers, on stacks of its own making), and never reading memory
 * that is not there. Called by recorder/stacks/callsite.c.
 */
#include "trace/recorder/stacks/native/stack.h"
#include "trace/recorder/guest/loaded_object.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/guest/own_stack/switch.h"
#include "trace/recorder/guest/signals.h"
#include "trace/recorder/stacks/native/unwind_rules.h"
#include "trace/recorder/stacks/native/window.h"

#include <string.h>

/*
 * Three layers, each the slow path of the one before:
 *
 *   memo    what the last walk of this thread read; where those words are unchanged, the result is too
 *   rules   the rule of each return address, in a cache shared by all threads (unwind_rules.c fills it)
 *   odd     signal frames, realigned stacks, code without tables
 *
 * Every word read lies in [floor, limit): on the thread's own stack that is all up to its top, of other
 * stacks (signal stacks, coroutines) a copy that the kernel made.
 */

#define WALK_INLINE static inline __attribute__((always_inline)) UNWIND_UNSANITIZED
#define WALK_COLD __attribute__((noinline, cold)) UNWIND_UNSANITIZED
#define UNLIKELY(condition) __builtin_expect((condition), 0)

#define PC_MIN ((uintptr_t)4096)
#define SIGNAL_FRAMES_MAX 8U
#define RED_ZONE_BYTES 128U
#define GUESSED_FRAME_MAX ((uintptr_t)65536) /* a larger distance to rbp means that rbp heads no frame */

enum { RULE_SET_BITS = 17, RULE_WAYS = 2, MEMO_FRAMES = 320, MEMO_LEAVES = 16 };

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
    unsigned signal_frames;
    unsigned count;
    unsigned max;
    uint64_t *pcs;
};

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
    unsigned generation; /* of the rules that it was made with; 0 before the first walk */
    unsigned first;
    struct frame frames[MEMO_FRAMES];
    struct frame leaves[MEMO_LEAVES]; /* of the walk that goes on now, inside of those */
    struct walk walk;                 /* it: the program's stack may be small */
    _Alignas(16) unsigned char copy[STACK_COPY_BYTES];
};

static _Thread_local struct stack_memo *thread_memo __attribute__((tls_model("initial-exec")));

/* Of threads that have none: no memory for it, or they have ended. Always busy. */
static struct stack_memo no_memo = {.busy = true};

/*
 * The rule cache, for the whole process: an entry is one word, so it is never seen torn. Upper half: the bits
 * of the address that the set number does not imply; lower half: the rule. 0 is empty (UNWIND_NONE is not
 * stored: code made at run time comes and goes without notice).
 */
static uint64_t rules[1U << RULE_SET_BITS][RULE_WAYS];
static unsigned rules_generation = 1;

/* ---- rules ---- */

WALK_INLINE unsigned rule_set(uintptr_t address)
{
    return (unsigned)((address >> 3) ^ (address >> (RULE_SET_BITS + 3))) & ((1U << RULE_SET_BITS) - 1U);
}

WALK_INLINE uint32_t rule_tag(uintptr_t address)
{
    return (uint32_t)((address >> (RULE_SET_BITS + 3)) << 3) | (uint32_t)(address & 7);
}

/* 0 (UNWIND_NONE) if it is not in the cache. */
WALK_INLINE uint32_t rule_cached(uintptr_t address)
{
    uint64_t *set = rules[rule_set(address)];
    uint64_t entry = __atomic_load_n(&set[0], __ATOMIC_RELAXED);
    if (UNLIKELY((uint32_t)(entry >> 32) != rule_tag(address))) {
        entry = __atomic_load_n(&set[1], __ATOMIC_RELAXED);
        if ((uint32_t)(entry >> 32) != rule_tag(address)) {
            return 0;
        }
    }
    return (uint32_t)entry;
}

struct search {
    uintptr_t address;
    uint32_t rule;
};

static void search_now(void *argument)
{
    struct search *search = argument;
    search->rule = unwind_rule_find(search->address);
}

/* UNWIND_NONE too if there is no memory to look it up. */
static WALK_COLD uint32_t rule_fill(uintptr_t address)
{
    uint64_t *set = rules[rule_set(address)];
    struct search search = {address, unwind_rule(UNWIND_NONE, 0, 0)};
    if (!loaded_object_is_at(address)) {
        return search.rule; /* soon answered: code made at run time comes here at every walk */
    }
    struct recorder_signals signals;
    recorder_signals_block(&signals);
    (void)recorder_on_stack(search_now, &search);
    recorder_signals_restore(&signals);
    if (unwind_rule_kind(search.rule) != UNWIND_NONE) {
        /* Newest first; two threads here may drop a rule of each other, which is found again. */
        uint64_t older = __atomic_load_n(&set[0], __ATOMIC_RELAXED);
        __atomic_store_n(&set[1], older, __ATOMIC_RELAXED);
        __atomic_store_n(&set[0], (uint64_t)rule_tag(address) << 32 | search.rule, __ATOMIC_RELAXED);
    }
    return search.rule;
}

void native_stack_forget(void)
{
    for (unsigned i = 0; i < 1U << RULE_SET_BITS; i++) {
        for (unsigned way = 0; way < RULE_WAYS; way++) {
            if (__atomic_load_n(&rules[i][way], __ATOMIC_RELAXED) != 0) {
                __atomic_store_n(&rules[i][way], 0, __ATOMIC_RELAXED);
            }
        }
    }
    __atomic_fetch_add(&rules_generation, 1, __ATOMIC_RELEASE);
}

/* ---- one step ---- */

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

/* A guessed caller is known code, or heads a frame in its turn. */
static bool guess_plausible(const struct walk *walk, const struct frame *next)
{
    return next->fp - walk->at.fp - 16 <= GUESSED_FRAME_MAX || loaded_object_is_at(next->pc - 1);
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
        (unwind_rule_kind(rule) == UNWIND_NONE && !guess_plausible(walk, &next))) {
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
    uint32_t rule = rule_cached(address);
    if (unwind_rule_kind(rule) == UNWIND_NONE) {
        rule = rule_fill(address);
    }
    if (!odd_step(walk, rule) || !pc_plausible(walk->at.pc)) {
        walk->done = true;
        return;
    }
    /* What is stored is looked up one below: an interrupted instruction is stored one above. */
    walk->pcs[walk->count++] = walk->at.pc + (walk->exact ? 1 : 0);
    walk->done = walk->count == walk->max;
}

WALK_INLINE void walk_steps(struct walk *walk, uintptr_t moved)
{
    const struct stack_window window = walk->window;
    struct frame frame = walk->at;
    unsigned count = walk->count;
    while (count < walk->max && frame_step(&frame, &window, moved)) {
        walk->pcs[count++] = frame.pc;
    }
    walk->at = frame;
    walk->count = count;
}

static UNWIND_UNSANITIZED void walk_plain(struct walk *walk)
{
    while (!walk->done) {
        if (!walk->exact) {
            if (walk->window.own) {
                walk_steps(walk, 0); /* compiled without the addition */
            } else {
                walk_steps(walk, walk->window.moved);
            }
            if (walk->count == walk->max) {
                return;
            }
        }
        walk_slow(walk);
    }
}

/* ---- the memo ---- */

/* Fills the empty memo along the way; the rest, which it cannot hold, is walked plainly. */
static UNWIND_UNSANITIZED void memo_record(struct walk *walk, struct stack_memo *memo)
{
    struct frame frame = walk->at;
    unsigned filled = 0;
    memo->frames[filled++] = frame;
    memo->complete = false;
    while (walk->count < walk->max && filled < MEMO_FRAMES) {
        if (unwind_rule_kind(rule_cached(frame.pc - 1)) == UNWIND_NONE) {
            (void)rule_fill(frame.pc - 1);
        }
        if (!frame_step(&frame, &walk->window, 0)) {
            memo->complete = unwind_rule_kind(rule_cached(frame.pc - 1)) == UNWIND_END;
            break;
        }
        walk->pcs[walk->count++] = frame.pc;
        walk->at = frame;
        memo->frames[filled++] = frame;
    }
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

/* Takes over what follows frame `met` as far as it is unchanged; the walk goes on behind it. */
WALK_INLINE bool memo_verify(struct walk *walk, struct stack_memo *memo, unsigned met)
{
    unsigned end = walk->max - walk->count < MEMO_FRAMES - 1 - met ? met + 1 + walk->max - walk->count : MEMO_FRAMES;
    uint64_t *pcs = walk->pcs + walk->count;
    unsigned i = met + 1;
    for (; i < end; i++) {
        const struct frame *frame = &memo->frames[i];
        if (UNLIKELY(*(const uintptr_t *)(frame->sp - 8) != frame->pc ||
                     (frame->fp_from != NULL && *frame->fp_from != frame->fp))) {
            break;
        }
        *pcs++ = frame->pc;
    }
    walk->count += i - met - 1;
    walk->at = memo->frames[i - 1];
    walk->done = walk->count == walk->max || (i == MEMO_FRAMES && memo->complete);
    return i == end;
}

static UNWIND_UNSANITIZED void memo_walk(struct walk *walk, struct stack_memo *memo)
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
        const struct frame *known = &memo->frames[i];

        if (known->pc == frame.pc && known->sp == frame.sp && known->fp == frame.fp) {
            if (!memo_verify(walk, memo, i)) {
                memo->first = MEMO_FRAMES;
            } else if (walked > 0) {
                memo_extend(memo, i, walked);
                memo->frames[i].fp_from = frame.fp_from;
            }
            return;
        }
        if (walked < MEMO_LEAVES) {
            memo->leaves[walked] = frame;
        }
        walked++;
        if (!frame_step(&frame, &walk->window, 0)) {
            break;
        }
        walk->pcs[walk->count++] = frame.pc;
        walk->at = frame;
        if (walk->count == walk->max) {
            walk->done = true;
            return;
        }
    }
    memo->first = MEMO_FRAMES;
}

static WALK_COLD struct stack_memo *memo_make(void)
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
        recorder_unmap(memo, sizeof(*memo));
    }
}

static void walk_begin(struct walk *walk, const struct callsite_start *start, uint64_t *pcs, unsigned max, void *copy)
{
    walk->at = (struct frame){.pc = start->pc, .sp = start->sp, .fp = start->fp};
    walk->window.copy = copy;
    walk->exact = false;
    walk->done = false;
    walk->signal_frames = 0;
    walk->count = 1;
    walk->max = max;
    walk->pcs = pcs;
}

/* In the midst of another walk of this thread, or after its end. recorder/stacks/callsite.c then runs on the recorder's
 * stack, which has room. */
static WALK_COLD unsigned walk_apart(const struct callsite_start *start, uint64_t *pcs, unsigned max)
{
    _Alignas(16) unsigned char copy[STACK_COPY_BYTES];
    struct walk walk;
    walk_begin(&walk, start, pcs, max, copy);
    if (stack_window_open(&walk.window, start->sp, 0)) {
        walk_plain(&walk);
    }
    return walk.count;
}

/* `memo` is this walk's alone. */
WALK_INLINE void walk_all(struct walk *walk, struct stack_memo *memo)
{
    unsigned generation = __atomic_load_n(&rules_generation, __ATOMIC_ACQUIRE);
    if (!stack_window_open(&walk->window, walk->at.sp, 0)) {
        return;
    }
    if (walk->window.own) {
        if (memo->generation != generation) {
            memo->generation = generation;
            memo->first = MEMO_FRAMES;
        }
        if (memo->first == MEMO_FRAMES) {
            memo_record(walk, memo);
        } else {
            memo_walk(walk, memo);
        }
    }
    walk_plain(walk);
}

UNWIND_UNSANITIZED unsigned native_stack_capture(const struct callsite_start *start, uint64_t *pcs, unsigned max)
{
    struct stack_memo *memo = UNLIKELY(thread_memo == NULL) ? memo_make() : thread_memo;
    if (max == 0) {
        return 0;
    }
    pcs[0] = start->pc;
    if (max == 1 || !pc_plausible(start->pc) || start->sp % 8 != 0) {
        return 1;
    }
    if (UNLIKELY(memo->busy)) {
        return walk_apart(start, pcs, max);
    }
    memo->busy = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    walk_begin(&memo->walk, start, pcs, max, memo->copy);
    walk_all(&memo->walk, memo);
    unsigned count = memo->walk.count;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memo->busy = false;
    return count;
}
