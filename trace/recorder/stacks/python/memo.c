/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of each thread's last walk, with the hash of each and all outside of it. A frame that is where
 * it was, with the same code object, which has the same names, at the same instruction, needs no other
 * check and no hashing. It is a frame again only because the one before it still points to it. Called by
 * stack.c.
 */
#include "trace/recorder/stacks/python/memo.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/guest/stack_hash.h"
#include "trace/recorder/stacks/python/frame.h"
#include "trace/recorder/stacks/python/layout.h"
#include "trace/recorder/stacks/python/pages.h"

#include <assert.h>
#include <string.h>

enum { MEMO_ENTRIES = 512 }; /* frames shown and not shown */

/* What was read of a frame. All of it but `offset` and `kind` is compared before it is believed again. */
struct known_frame {
    const char *code; /* NULL: believe nothing */
    const char *name;
    const char *filename;
    uint64_t instruction; /* as it lies in the frame */
    uint32_t offset;      /* as struct python_frame has it */
    uint16_t tag;         /* owner, and in 3.11 the flag of entry frames */
    uint8_t kind;         /* enum python_frame_kind */
    uint8_t shown;        /* 1 or 0 */
};

/*
 * The stack lies at the end of the arrays, innermost frame first, so frames that come and go move nothing.
 * hashes[i] covers the shown frames in [i, hash_end). New frames wait in the second pair of arrays until it
 * is known where the walk meets an old one.
 */
struct python_memo {
    unsigned first;                       /* MEMO_ENTRIES: empty */
    unsigned hash_end;                    /* 0: no hash is valid */
    const char *frames[MEMO_ENTRIES + 1]; /* addresses; the last one stays NULL, where every stack ends */
    struct known_frame known[MEMO_ENTRIES];
    struct stack_hash hashes[MEMO_ENTRIES];
    const char *new_frames[MEMO_ENTRIES];
    struct known_frame new_known[MEMO_ENTRIES];
};

#define NO_MEMO ((struct python_memo *)(uintptr_t)1) /* no memory for it, or the thread has ended */

static _Thread_local __attribute__((tls_model("initial-exec"))) struct python_memo *thread_memo;

struct memo_walk {
    struct python_memo *memo;
    const struct python_layout *layout;
    const void *code_type;
    const char *at; /* the next frame */
    unsigned slot;  /* entries in [memo->first, slot) are of this walk */
    unsigned dirty; /* hashes below this slot are to be made anew */
    unsigned shown;
    unsigned max;
    bool is_too_deep;
    uint64_t instruction_mask;
    size_t tag_at;
    uint16_t tag_mask;
};

static inline uint64_t word_at(const char *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, base + offset, sizeof(value));
    return value;
}

static inline uint16_t tag_of(const struct memo_walk *walk, const char *frame)
{
    assert(frame != NULL); /* found readable before */
    uint16_t value;
    memcpy(&value, frame + walk->tag_at, sizeof(value));
    return value & walk->tag_mask;
}

static void walk_layout(struct memo_walk *walk, const struct python_layout *layout)
{
    walk->layout = layout;
    walk->instruction_mask = layout->frames_are_objects ? UINT32_MAX : UINT64_MAX;
    walk->tag_at = layout->frames_are_objects ? 0 : layout->frame_owner - 1U;
    walk->tag_mask = layout->frames_are_objects ? 0 : layout->has_entry_flag ? 0xffff : 0xff00;
}

/*
 * Goes on over frames that are as they were. Returns true if the walk is complete: the stack ends, or the
 * next frame would be one too many. Else either the frame at `slot` has changed or the stack goes on
 * elsewhere than there.
 */
static inline bool memo_follow(struct memo_walk *walk)
{
    const struct python_memo *memo = walk->memo;
    const size_t code_at = walk->layout->frame_code;
    const size_t instruction_at = walk->layout->frame_instruction;
    const size_t previous_at = walk->layout->frame_previous;
    const size_t name_at = walk->layout->code_name;
    const size_t filename_at = walk->layout->code_filename;
    const char *at = walk->at;
    unsigned slot = walk->slot;
    unsigned shown = walk->shown;
    bool complete = false;
    while (at == memo->frames[slot]) {
        const struct known_frame *known = &memo->known[slot];
        if (at == NULL) {
            complete = true;
            break;
        }
        /* Its own reference keeps the code object there, so what it says now can be read if it is the one. */
        if (python_pointer(at, code_at) != known->code || known->code == NULL) {
            break;
        }
        if ((((word_at(at, instruction_at) & walk->instruction_mask) ^ known->instruction) |
             (uint64_t)(tag_of(walk, at) ^ known->tag) | (word_at(known->code, name_at) ^ (uintptr_t)known->name) |
             (word_at(known->code, filename_at) ^ (uintptr_t)known->filename)) != 0) {
            break;
        }
        if (shown + known->shown > walk->max) {
            walk->is_too_deep = true;
            complete = true;
            break;
        }
        shown += known->shown;
        at = python_pointer(at, previous_at);
        slot++;
    }
    walk->at = at;
    walk->slot = slot;
    walk->shown = shown;
    return complete;
}

/* Reads a frame that is not known. False if the walk ends before it. */
static bool frame_learn(struct memo_walk *walk, struct known_frame *known)
{
    const struct python_layout *layout = walk->layout;
    struct python_frame frame = {0};
    enum python_frame_kind kind = python_frame_read(layout, walk->code_type, walk->at, &frame);
    walk->is_too_deep = kind == PYTHON_FRAME_SHOWN && walk->shown == walk->max;
    if (kind == PYTHON_FRAME_END || walk->is_too_deep) {
        return false;
    }
    *known = (struct known_frame){.kind = (uint8_t)kind, .tag = tag_of(walk, walk->at)};
    known->instruction = word_at(walk->at, layout->frame_instruction) & walk->instruction_mask;
    if (kind == PYTHON_FRAME_SHOWN) {
        known->code = frame.code;
        known->name = frame.name;
        known->filename = frame.filename;
        known->offset = frame.instruction;
        known->shown = 1;
    } else if (kind == PYTHON_FRAME_MARK) {
        /* Whatever object it has for its code is as good for comparing as any, if it can be read. */
        const char *code = python_pointer(walk->at, layout->frame_code);
        if (python_readable(code, layout->code_bytes)) {
            known->code = code;
            known->name = python_pointer(code, layout->code_name);
            known->filename = python_pointer(code, layout->code_filename);
        }
    }
    walk->shown += known->shown;
    walk->at = python_pointer(walk->at, layout->frame_previous);
    return true;
}

/* The frame at `slot` has changed. False if the walk ends before it. */
static bool memo_replace(struct memo_walk *walk)
{
    if (!frame_learn(walk, &walk->memo->known[walk->slot])) {
        return false;
    }
    walk->slot++;
    walk->dirty = walk->slot;
    return true;
}

/* Moves what this walk has found so far, then `count` new frames, to where they end before `met`. */
static bool memo_insert(struct memo_walk *walk, unsigned count, unsigned met)
{
    struct python_memo *memo = walk->memo;
    const unsigned found = walk->slot - memo->first;
    if (found + count > met) {
        return false;
    }
    const unsigned first = met - count - found;
    memmove(&memo->frames[first], &memo->frames[memo->first], found * sizeof(memo->frames[0]));
    memmove(&memo->known[first], &memo->known[memo->first], found * sizeof(memo->known[0]));
    memcpy(&memo->frames[first + found], memo->new_frames, count * sizeof(memo->frames[0]));
    memcpy(&memo->known[first + found], memo->new_known, count * sizeof(memo->known[0]));
    memo->first = first;
    walk->slot = met;
    if (found + count > 0) {
        walk->dirty = met;
    }
    return true;
}

/* Frames that are not at `slot`: walks until one of those from there on is met. False if there is no room;
 * `*complete` if the walk ended first. */
static bool memo_meet(struct memo_walk *walk, bool *complete)
{
    struct python_memo *memo = walk->memo;
    unsigned count = 0;
    for (;;) {
        unsigned met = walk->at != NULL ? walk->slot : MEMO_ENTRIES;
        while (met < MEMO_ENTRIES && memo->frames[met] != walk->at) {
            met++;
        }
        if (met < MEMO_ENTRIES) {
            return memo_insert(walk, count, met);
        }
        const char *frame = walk->at;
        if (count == MEMO_ENTRIES) {
            return false;
        }
        if (!frame_learn(walk, &memo->new_known[count])) {
            *complete = true;
            return count == 0 || memo_insert(walk, count, MEMO_ENTRIES);
        }
        memo->new_frames[count++] = frame;
    }
}

/* Hashes of what has changed and of all inside of it. */
static void memo_rehash(const struct memo_walk *walk)
{
    struct python_memo *memo = walk->memo;
    const unsigned end = walk->slot;
    unsigned slot = memo->hash_end == end ? walk->dirty : end;
    struct stack_hash hash = {0};
    unsigned outer = slot;
    if (slot < end) {
        hash = memo->hashes[slot];
    }
    while (outer < end && memo->known[outer].kind == PYTHON_FRAME_HIDDEN) {
        outer++;
    }
    bool mark = outer < end && memo->known[outer].kind == PYTHON_FRAME_MARK;
    while (slot-- > memo->first) {
        const struct known_frame *known = &memo->known[slot];
        if (known->shown != 0) {
            bool is_entry =
                mark || walk->layout->frames_are_objects || (walk->layout->has_entry_flag && (known->tag & 0xff) != 0);
            python_hash_frame(&hash, known->code, known->name, known->filename,
                              python_hash_position(known->offset, is_entry));
        }
        mark = known->kind == PYTHON_FRAME_MARK || (mark && known->shown == 0);
        memo->hashes[slot] = hash;
    }
    memo->hash_end = end;
}

static __attribute__((noinline, cold)) struct python_memo *memo_make(void)
{
    struct python_memo *memo = recorder_map(sizeof(*memo));
    thread_memo = memo != NULL ? memo : NO_MEMO;
    if (memo != NULL) {
        memo->first = MEMO_ENTRIES;
    }
    return thread_memo;
}

unsigned python_memo_hash(const struct python_layout *layout, const void *code_type, const char *at, unsigned max,
                          struct stack_hash *hash)
{
    struct python_memo *memo = __builtin_expect(thread_memo != NULL, 1) ? thread_memo : memo_make();
    struct memo_walk walk = {.memo = memo, .code_type = code_type, .at = at, .max = max};
    if (memo == NO_MEMO || max > PYTHON_MEMO_FRAMES_MAX) {
        return PYTHON_STACK_UNKNOWN;
    }
    walk_layout(&walk, layout);
    walk.slot = memo->first;
    bool complete = false;
    while (!complete) {
        if (walk.at != memo->frames[walk.slot]) {
            if (!memo_meet(&walk, &complete)) {
                memo->first = MEMO_ENTRIES;
                memo->hash_end = 0;
                return PYTHON_STACK_UNKNOWN;
            }
        } else {
            complete = memo_follow(&walk) || (walk.at == memo->frames[walk.slot] && !memo_replace(&walk));
        }
    }
    if (walk.dirty > memo->first || memo->hash_end != walk.slot) {
        memo_rehash(&walk);
    }
    if (walk.is_too_deep) {
        return PYTHON_STACK_UNKNOWN;
    }
    if (walk.shown > 0) {
        *hash = memo->hashes[memo->first];
    }
    return walk.shown;
}

void python_memo_thread_end(void)
{
    struct python_memo *memo = thread_memo;
    thread_memo = NO_MEMO;
    if (memo != NULL && memo != NO_MEMO) {
        recorder_unmap(memo, sizeof(*memo));
    }
}
