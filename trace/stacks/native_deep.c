/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outer part of a stack that is deeper than what is kept of it. A walk comes here with a frame that is as many
 * frames away from the innermost one as are kept at most, and wants the outermost ones and the number of all: what a
 * walk costs must not grow with the depth of the recursion. So this part is remembered. Where the walk meets a frame
 * that is known (same place, same return address, same frame pointer), what lies outside of it is taken from there: the
 * outermost frames if each word that led to them says the same as then, the number of those between if a share of
 * theirs does, another one each time. Frames that were met before are thus found again by a bounded number of reads,
 * and new ones cost the program a call each.
 *
 * What that may miss: between two walks of a thread its stack must have been left and built up again by hundreds of
 * frames, as large in sum and with the same innermost ones, without an allocation on the way. Then the figure of the
 * mark is wrong until a changed word has its turn; the outermost frames only if all words that led to them say the same
 * as before by chance. Called by native_stack.c.
 */
#include "trace/stacks/native_walk.h"
#include "trace/guest/guest_memory.h"

#include <string.h>

enum {
    FRAMES_FIRST = 1024, /* multiples of a page; 32 bytes each */
    FRAMES_MAX = 8192,
    CHECKED = 64, /* frames of the middle at each walk */
};

/*
 * frames[first, capacity): innermost first with rising sp, the outermost at the end. Between frames[capacity -
 * STACK_OUTSIDE - 1] and the next one `left` frames are not held. The steps to all others but the first read nothing
 * but the words of frame_has_changed. What lies before `first` is free.
 */
struct deep_memo {
    unsigned capacity;
    unsigned first; /* `capacity`: empty */
    unsigned left;
    unsigned turn;                     /* of the middle */
    unsigned generation;               /* of the rules that it was made with */
    struct frame outer[STACK_OUTSIDE]; /* of a walk that fills it: the last frames, going round */
    struct frame frames[];
};

static size_t native_deep_memo_bytes(unsigned capacity)
{
    return sizeof(struct deep_memo) + capacity * sizeof(struct frame);
}

void deep_memo_free(struct deep_memo *memo)
{
    if (memo != NULL) {
        recorder_unmap(memo, native_deep_memo_bytes(memo->capacity));
    }
}

/* An empty one with room for twice as many frames, as far as that goes. */
static struct deep_memo *native_deep_memo_make(unsigned frames)
{
    unsigned capacity = FRAMES_FIRST;
    while (capacity < FRAMES_MAX && capacity < 2 * frames) {
        capacity *= 2;
    }
    struct deep_memo *memo = recorder_map(native_deep_memo_bytes(capacity));
    if (memo != NULL) {
        memo->capacity = memo->first = capacity;
    }
    return memo;
}

static bool native_deep_is_same(const struct frame *known, const struct frame *frame)
{
    return known->pc == frame->pc && known->sp == frame->sp && known->fp == frame->fp;
}

/*
 * Walks until a known frame is met, which is frames[*met] then; new ones are put in front of it. False if there is
 * none, or no room.
 */
static UNWIND_UNSANITIZED bool native_deep_memo_meet(struct walk *walk, struct deep_memo *memo, unsigned *met)
{
    const unsigned end = memo->left > 0 ? memo->capacity - STACK_OUTSIDE : memo->capacity;
    struct frame frame = walk->at;
    unsigned fresh = 0;
    unsigned i = memo->first;
    for (;;) {
        while (i < end && memo->frames[i].sp < frame.sp) {
            i++;
        }
        if (i == end) {
            return false;
        }
        if (native_deep_is_same(&memo->frames[i], &frame)) {
            break;
        }
        if (fresh == i) {
            return false;
        }
        memo->frames[fresh++] = frame;
        if (!frame_step_own(&frame, &walk->window)) {
            return false;
        }
        walk_put(walk, frame.pc);
    }
    memo->first = i - fresh;
    memmove(&memo->frames[memo->first], memo->frames, fresh * sizeof(memo->frames[0]));
    if (fresh > 0) {
        memo->frames[i].fp_from = frame.fp_from;
    }
    *met = i;
    return true;
}

/* Takes over what lies outside of frame `met`, if it is unchanged. */
static UNWIND_UNSANITIZED bool native_deep_memo_verify(struct walk *walk, struct deep_memo *memo, unsigned met)
{
    const unsigned next = met + 1;
    const unsigned outside = memo->capacity - next > STACK_OUTSIDE ? memo->capacity - STACK_OUTSIDE : next;
    const unsigned middle = outside - next;
    for (unsigned i = 0; i < CHECKED && i < middle; i++) {
        memo->turn = memo->turn + 1 < middle ? memo->turn + 1 : 0;
        if (frame_has_changed(&memo->frames[next + memo->turn])) {
            return false;
        }
    }
    walk->count += middle + memo->left;
    for (unsigned i = outside; i < memo->capacity; i++) {
        if (frame_has_changed(&memo->frames[i])) {
            return false;
        }
        walk_put(walk, memo->frames[i].pc);
    }
    return true;
}

/* Of `count` frames those in frames[0, held) are the innermost. */
static void memo_arrange(struct deep_memo *memo, unsigned count, unsigned held)
{
    unsigned end = memo->capacity;
    memo->left = 0;
    if (count > held) {
        held = memo->capacity / 2; /* room for as many */
        end -= STACK_OUTSIDE;
        memo->left = count - held - STACK_OUTSIDE;
        for (unsigned i = 0; i < STACK_OUTSIDE; i++) {
            memo->frames[end + i] = memo->outer[(count - STACK_OUTSIDE + i) % STACK_OUTSIDE];
        }
    }
    memo->first = end - held;
    memmove(&memo->frames[memo->first], memo->frames, held * sizeof(memo->frames[0]));
}

/* Walks on, and fills the memo anew, if there is one and it has room. Returns how many frames it met. */
static UNWIND_UNSANITIZED unsigned memo_record(struct walk *walk, struct deep_memo *memo)
{
    const unsigned room = memo != NULL ? memo->capacity - STACK_OUTSIDE : 0;
    unsigned count = 0, held = 0;
    for (;;) {
        if (held < room) {
            memo->frames[held++] = walk->at;
        }
        if (memo != NULL) {
            memo->outer[count % STACK_OUTSIDE] = walk->at;
        }
        count++;
        if (!frame_step_own(&walk->at, &walk->window)) {
            break;
        }
        walk_put(walk, walk->at.pc);
    }
    if (memo != NULL) {
        memo->first = memo->capacity;
        if (count == held || memo->capacity == FRAMES_MAX) {
            memo_arrange(memo, count, held);
        }
    }
    return count;
}

void deep_walk(struct walk *walk, struct deep_memo **memo_of_thread)
{
    struct deep_memo *memo = *memo_of_thread;
    const unsigned count = walk->count;
    const unsigned generation = __atomic_load_n(&rule_generation, __ATOMIC_ACQUIRE);
    unsigned met = 0;
    if (memo != NULL && memo->generation != generation) {
        memo->generation = generation;
        memo->first = memo->capacity;
        memo->left = 0;
    }
    if (memo != NULL && native_deep_memo_meet(walk, memo, &met) && native_deep_memo_verify(walk, memo, met)) {
        walk->at = memo->frames[memo->capacity - 1];
    } else {
        walk->count = count;
        const unsigned frames = memo_record(walk, memo);
        if (memo == NULL || memo->first == memo->capacity) {
            deep_memo_free(memo);
            *memo_of_thread = native_deep_memo_make(frames);
        }
    }
    walk->done = unwind_rule_kind(rule_cached(walk->at.pc - 1)) == UNWIND_END;
}
