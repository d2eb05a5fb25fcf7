/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of each thread's last walk, with the hash of each and all outside of it. A frame that is where
 * it was, with the same code object, which has the same names, at the same instruction, needs no other
 * check and no hashing. It is a frame again only because the one before it still points to it: only such a one may be
 * read, so each walk follows the chain, all of it up to a thousand frames. What is farther out is walked only now and
 * then: the longer that takes, the more captures trust it afterwards, as long as the last frame before leads to where
 * it begins. For frames lie one after the other: one that is where it was has as many bytes of frames outside of it as
 * then. That is not so of objects (frames up to 3.10, those of generators), behind which everything is walked each
 * time. Called by python_stack.c.
 */
#include "trace/stacks/python_stack.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/stack_ends.h"
#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_layout.h"
#include "trace/stacks/python_pages.h"
#include "trace/stacks/python_walk.h"

#include <assert.h>
#include <string.h>

enum {
    ENTRIES_FIRST = 512, /* frames shown and not shown */
    ENTRIES_DEEP = 2048, /* of a thread that had more */
    ENTRIES_ALL = 8192,  /* likewise, where what is farther out is never trusted */
    SEARCHED = 16,       /* entries where a new frame is mostly looked for */
    FAR_PER_WALK = 64,   /* of the frames farther out, on the average */
};

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
 * hashes[i] covers the shown frames in [i, hash_end), and of a stack that is cut there what is kept of the rest. New
 * frames wait in the second pair of arrays until it is known where the walk meets an old one.
 */
struct python_memo {
    unsigned capacity;
    unsigned first;        /* `capacity`: empty */
    unsigned hash_end;     /* 0: no hash is valid */
    unsigned hash_skipped; /* frames that are left out there; 0: there is no cut */
    /* what is farther out than the entries: shown frames, the outermost ones of them going round */
    unsigned far_count, far_trust;
    struct python_frame far[STACK_OUTSIDE];
    const char **frames;       /* addresses, and one more: of the next one farther out; NULL: every stack ends there */
    struct known_frame *known; /* and one more, which nothing is equal to */
    struct stack_hash *hashes;
    const char **new_frames;
    struct known_frame *new_known;
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

static inline uint16_t python_memo_tag_of(const struct memo_walk *walk, const char *frame)
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
 * Goes on over frames that are as they were. Returns true if the walk is complete: the stack ends. Else either the
 * frame at `slot` has changed, or the stack goes on elsewhere than there, or farther out than the entries.
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
        at = memo->frames[slot]; /* equal, but known without the frame before: a long chain is read side by side */
        __asm__("" : "+r"(at));
        if (at == NULL) {
            complete = true;
            break;
        }
        /* Its own reference keeps the code object there, so what it says now can be read if it is the one. */
        if (python_code(at, code_at) != known->code || known->code == NULL) {
            break;
        }
        if ((((word_at(at, instruction_at) & walk->instruction_mask) ^ known->instruction) |
             (uint64_t)(python_memo_tag_of(walk, at) ^ known->tag) |
             (word_at(known->code, name_at) ^ (uintptr_t)known->name) |
             (word_at(known->code, filename_at) ^ (uintptr_t)known->filename)) != 0) {
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
    if (kind == PYTHON_FRAME_END) {
        return false;
    }
    assert(walk->at != NULL);
    *known = (struct known_frame){.kind = (uint8_t)kind, .tag = python_memo_tag_of(walk, walk->at)};
    known->instruction = word_at(walk->at, layout->frame_instruction) & walk->instruction_mask;
    if (kind == PYTHON_FRAME_SHOWN) {
        known->code = frame.code;
        known->name = frame.name;
        known->filename = frame.filename;
        known->offset = frame.instruction;
        known->shown = 1;
    } else if (kind == PYTHON_FRAME_MARK) {
        /* Whatever object it has for its code is as good for comparing as any, if it can be read. */
        const char *code = python_code(walk->at, layout->frame_code);
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

/* The last `kept` of the entries are held, and what follows them is farther out from now on. */
static void memo_shorten(struct python_memo *memo, unsigned from, unsigned kept)
{
    const char *far = memo->frames[from + kept];
    memmove(&memo->frames[memo->capacity - kept], &memo->frames[from], kept * sizeof(memo->frames[0]));
    memmove(&memo->known[memo->capacity - kept], &memo->known[from], kept * sizeof(memo->known[0]));
    memo->frames[memo->capacity] = far;
    memo->far_trust = 0;
    memo->hash_end = 0;
}

/* Moves what this walk has found so far, then `count` new frames, to where they end before `met`. */
static bool memo_insert(struct memo_walk *walk, unsigned count, unsigned met)
{
    struct python_memo *memo = walk->memo;
    const unsigned found = walk->slot - memo->first;
    if (found + count > met) {
        const unsigned half = memo->capacity / 2;
        if (memo->capacity == ENTRIES_FIRST || found + count > half) {
            return false;
        }
        memo_shorten(memo, met, half - found - count);
        met = half + found + count;
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

/* New frames alone fill all: half of them are held. */
static bool memo_restart(struct memo_walk *walk)
{
    struct python_memo *memo = walk->memo;
    const unsigned half = memo->capacity / 2;
    if (memo->capacity == ENTRIES_FIRST || walk->slot != memo->first) {
        return false;
    }
    memcpy(&memo->frames[half], memo->new_frames, half * sizeof(memo->frames[0]));
    memcpy(&memo->known[half], memo->new_known, half * sizeof(memo->known[0]));
    memo->first = half;
    memo->frames[memo->capacity] = memo->new_frames[half];
    memo->far_trust = 0;
    for (unsigned i = half; i < memo->capacity; i++) {
        walk->shown -= memo->new_known[i].shown;
    }
    walk->slot = walk->dirty = memo->capacity;
    walk->at = memo->frames[memo->capacity];
    return true;
}

/* Where the next frame is among those from `slot` on; more than `capacity`: nowhere. The first new frames are looked
 * for everywhere, later ones mostly where they will be if only a few are gone: so it costs little more than they. */
static unsigned memo_search(const struct memo_walk *walk, unsigned count)
{
    const struct python_memo *memo = walk->memo;
    const bool is_everywhere = (count & (count - 1)) == 0;
    unsigned end = memo->capacity;
    if (!is_everywhere && end - walk->slot > SEARCHED) {
        end = walk->slot + SEARCHED;
    }
    for (unsigned met = walk->slot; met <= end; met++) {
        if (memo->frames[met] == walk->at) {
            return met;
        }
    }
    return memo->capacity + 1;
}

/* Frames that are not at `slot`: walks until one of those from there on is met. False if there is no room;
 * `*complete` if the walk ended first. */
static bool python_memo_meet(struct memo_walk *walk, bool *complete)
{
    struct python_memo *memo = walk->memo;
    unsigned count = 0;
    for (;;) {
        const unsigned met = walk->at != NULL ? memo_search(walk, count) : memo->capacity + 1;
        if (met <= memo->capacity) {
            return memo_insert(walk, count, met);
        }
        const char *frame = walk->at;
        if (count == memo->capacity) {
            return memo_restart(walk);
        }
        if (!frame_learn(walk, &memo->new_known[count])) {
            *complete = true;
            memo->frames[memo->capacity] = NULL;
            return count == 0 || memo_insert(walk, count, memo->capacity);
        }
        memo->new_frames[count++] = frame;
    }
}

/* By itself: it may also be that a mark follows. */
static inline bool has_entered(const struct python_layout *layout, const struct known_frame *known)
{
    return layout->frames_are_objects || (layout->has_entry_flag && (known->tag & 0xff) != 0);
}

/* Hashes of what has changed inside of `end` and of all inside of it; `hash` is that of what is outside. */
static void memo_rehash(const struct memo_walk *walk, unsigned end, struct stack_hash hash)
{
    struct python_memo *memo = walk->memo;
    unsigned slot = memo->hash_end == end ? walk->dirty : end;
    unsigned outer = slot;
    if (slot < end) {
        hash = memo->hashes[slot];
    }
    while (outer < walk->slot && memo->known[outer].kind == PYTHON_FRAME_HIDDEN) {
        outer++;
    }
    bool mark = outer < walk->slot && memo->known[outer].kind == PYTHON_FRAME_MARK;
    while (slot-- > memo->first) {
        const struct known_frame *known = &memo->known[slot];
        if (known->shown != 0) {
            python_hash_frame(&hash, known->code, known->name, known->filename,
                              python_hash_position(known->offset, mark || has_entered(walk->layout, known)));
        }
        mark = known->kind == PYTHON_FRAME_MARK || (mark && known->shown == 0);
        memo->hashes[slot] = hash;
    }
    memo->hash_end = end;
}

/* ---- both ends of a deep stack ---- */

/* Shown frames of entries [slot, end), the first of them being `index` in the whole stack; `end` is none of them. */
static void ends_put(const struct memo_walk *walk, unsigned slot, unsigned end, unsigned index, unsigned stop,
                     struct python_frame *frames)
{
    const struct python_memo *memo = walk->memo;
    struct python_frame *last = NULL;
    for (; slot < end; slot++) {
        const struct known_frame *known = &memo->known[slot];
        if (known->kind == PYTHON_FRAME_MARK && last != NULL) {
            last->is_entry = true;
        }
        last = known->kind == PYTHON_FRAME_MARK ? NULL : last;
        if (known->shown != 0 && index == stop) {
            return;
        }
        if (known->shown != 0) {
            last = &frames[stack_slot(index++)];
            python_frame_set(last, walk->layout, known->code, known->offset);
            last->is_entry = has_entered(walk->layout, known);
        }
    }
}

/* After a walk. */
static unsigned memo_ends(const struct memo_walk *walk, bool is_far, struct python_frame *frames)
{
    const struct python_memo *memo = walk->memo;
    const unsigned far = is_far ? memo->far_count : 0;
    const unsigned total = walk->shown + far;
    ends_put(walk, memo->first, walk->slot, 0, STACK_INSIDE, frames);
    unsigned slot = walk->slot;
    unsigned index = walk->shown;
    while (index > STACK_INSIDE && total - index < STACK_OUTSIDE) {
        index -= memo->known[--slot].shown;
    }
    if (index >= STACK_INSIDE) {
        ends_put(walk, slot, walk->slot, index, total, frames);
    }
    for (unsigned i = far > STACK_OUTSIDE ? far - STACK_OUTSIDE : 0; i < far; i++) {
        if (walk->shown + i >= STACK_INSIDE) {
            frames[stack_slot(walk->shown + i)] = memo->far[i % STACK_OUTSIDE];
        }
    }
    return total;
}

/* What is farther out than the entries, walked; false: it is no chain. */
static __attribute__((noinline, cold)) bool memo_far(const struct memo_walk *walk)
{
    struct python_memo *memo = walk->memo;
    const bool is_object =
        walk->layout->frames_are_objects || (uint8_t)walk->at[walk->layout->frame_owner] == PYTHON_OWNER_GENERATOR;
    struct python_walk far;
    python_walk_begin(&far, walk->layout, walk->code_type, walk->at);
    memo->far_count = 0;
    while (python_walk_next(&far, &memo->far[memo->far_count % STACK_OUTSIDE])) {
        memo->far_count++;
    }
    memo->far_trust = is_object ? 0 : memo->far_count / FAR_PER_WALK;
    memo->hash_end = 0;
    return !far.is_ring;
}

/* ---- the interface ---- */

static size_t python_memo_bytes(unsigned capacity)
{
    const size_t held = sizeof(const char *) + sizeof(struct known_frame);
    return sizeof(struct python_memo) + (capacity + 1) * held + capacity * (held + sizeof(struct stack_hash));
}

/* NO_MEMO if there is no memory. */
static __attribute__((noinline, cold)) struct python_memo *python_memo_make(unsigned capacity)
{
    struct python_memo *memo = recorder_map(python_memo_bytes(capacity));
    if (memo == NULL) {
        return NO_MEMO;
    }
    memo->capacity = memo->first = capacity;
    memo->hashes = (struct stack_hash *)(memo + 1);
    memo->known = (struct known_frame *)(memo->hashes + capacity);
    memo->new_known = memo->known + capacity + 1;
    memo->frames = (const char **)(memo->new_known + capacity);
    memo->new_frames = memo->frames + capacity + 1;
    return memo;
}

/* No room: begin anew, with all the room that there may be. */
static __attribute__((noinline, cold)) void memo_renew(struct python_memo *memo, const struct python_layout *layout)
{
    const unsigned capacity = layout->frames_are_objects ? ENTRIES_ALL : ENTRIES_DEEP;
    struct python_memo *larger = memo->capacity == ENTRIES_FIRST ? python_memo_make(capacity) : NO_MEMO;
    memo->first = memo->capacity;
    memo->frames[memo->capacity] = NULL;
    memo->hash_end = 0;
    if (larger != NO_MEMO) {
        thread_memo = larger;
        recorder_unmap(memo, python_memo_bytes(memo->capacity));
    }
}

/* False: there is no room, or there was none and is now. */
static inline bool memo_walk_once(struct memo_walk *walk, bool *is_far)
{
    struct python_memo *memo = walk->memo;
    walk->slot = memo->first;
    bool complete = false;
    *is_far = false;
    while (!complete && !*is_far) {
        if (walk->at != memo->frames[walk->slot]) {
            if (!python_memo_meet(walk, &complete)) {
                memo_renew(memo, walk->layout);
                return false;
            }
        } else {
            complete = memo_follow(walk);
            if (!complete && walk->at == memo->frames[walk->slot]) {
                *is_far = walk->slot == memo->capacity;
                complete = !*is_far && !memo_replace(walk);
            }
        }
    }
    if (!*is_far) {
        return true;
    }
    if (walk->shown >= STACK_INSIDE && memo->far_trust > 0) {
        memo->far_trust--;
        return true;
    }
    if (walk->shown < STACK_INSIDE || !memo_far(walk)) {
        memo_renew(memo, walk->layout);
        return false;
    }
    return true;
}

/* False: the frames must be captured without. */
static inline bool python_memo_walk(struct memo_walk *walk, const struct python_layout *layout, const void *code_type,
                                    const char *at, bool *is_far)
{
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        if (__builtin_expect(thread_memo == NULL, 0)) {
            thread_memo = python_memo_make(ENTRIES_FIRST);
        }
        *walk = (struct memo_walk){.memo = thread_memo, .code_type = code_type, .at = at};
        walk_layout(walk, layout);
        if (walk->memo != NO_MEMO && memo_walk_once(walk, is_far)) {
            return true;
        }
    }
    return false;
}

/* Of a stack that is cut: the innermost frames changed, or frames farther out. */
static unsigned memo_hash_ends(const struct memo_walk *walk, bool is_far, const struct stack_cut *cut,
                               struct python_frame *frames)
{
    struct python_memo *memo = walk->memo;
    const unsigned skipped = cut->first_outside - cut->inside;
    struct stack_hash hash = {0};
    unsigned end = memo->hash_end;
    if (end == 0 || memo->hash_skipped != skipped || walk->dirty > end) {
        memo_ends(walk, is_far, frames);
        for (unsigned i = cut->first_outside + cut->outside; i-- > cut->first_outside;) {
            python_hash_captured(&hash, &frames[stack_slot(i)]);
        }
        python_hash_captured(&hash, &(struct python_frame){.instruction = cut->left_out});
        unsigned inside = 0;
        for (end = memo->first; inside + memo->known[end].shown <= cut->inside; end++) {
            inside += memo->known[end].shown;
        }
        memo->hash_end = 0;
        memo->hash_skipped = skipped;
    }
    memo_rehash(walk, end, hash);
    return cut->inside + 1 + cut->outside;
}

unsigned python_memo_hash(const struct python_layout *layout, const void *code_type, const char *at, unsigned depth,
                          struct python_frame *frames, struct stack_hash *hash)
{
    struct memo_walk walk;
    struct stack_cut cut;
    bool is_far;
    if (!python_memo_walk(&walk, layout, code_type, at, &is_far)) {
        return PYTHON_STACK_UNKNOWN;
    }
    struct python_memo *memo = walk.memo;
    unsigned count = walk.shown;
    if (__builtin_expect(count > depth, 0) && stack_is_cut(count + (is_far ? memo->far_count : 0), depth, &cut)) {
        count = memo_hash_ends(&walk, is_far, &cut, frames);
    } else if (walk.dirty > memo->first || memo->hash_end != walk.slot) {
        memo_rehash(&walk, walk.slot, (struct stack_hash){0});
        memo->hash_skipped = 0;
    }
    if (count > 0) {
        *hash = memo->hashes[memo->first];
    }
    return count;
}

unsigned python_memo_inner(const struct python_layout *layout, struct stack_hash hash, unsigned count,
                           const uint64_t *outer, unsigned outer_count, struct python_frame *frames, uint64_t *hashes)
{
    const struct python_memo *memo = thread_memo;
    if (count == 0) {
        return 0;
    }
    if (memo == NULL || memo == NO_MEMO || memo->hash_end == 0 || memo->hash_skipped != 0 ||
        memo->hashes[memo->first].low != hash.low || memo->hashes[memo->first].high != hash.high) {
        return PYTHON_STACK_UNKNOWN;
    }
    unsigned inner = 0;
    for (unsigned slot = memo->first; slot < memo->hash_end; slot++) {
        const struct known_frame *known = &memo->known[slot];
        if (known->kind == PYTHON_FRAME_MARK && inner > 0) {
            frames[inner - 1].is_entry = true;
        }
        if (known->shown != 0) {
            const unsigned depth = count - inner;
            if (depth == 0 || (depth <= outer_count && outer[depth - 1] == memo->hashes[slot].low)) {
                break;
            }
            hashes[inner] = memo->hashes[slot].low;
            python_frame_set(&frames[inner], layout, known->code, known->offset);
            frames[inner].is_entry = has_entered(layout, known);
            inner++;
        }
    }
    return inner;
}

unsigned python_memo_ends(const struct python_layout *layout, const void *code_type, const char *at,
                          struct python_frame *frames)
{
    struct memo_walk walk;
    bool is_far;
    if (!python_memo_walk(&walk, layout, code_type, at, &is_far)) {
        return PYTHON_STACK_UNKNOWN;
    }
    if (walk.dirty > walk.memo->first) {
        walk.memo->hash_end = 0;
    }
    return memo_ends(&walk, is_far, frames);
}

void python_memo_thread_end(void)
{
    struct python_memo *memo = thread_memo;
    thread_memo = NO_MEMO;
    if (memo != NULL && memo != NO_MEMO) {
        recorder_unmap(memo, python_memo_bytes(memo->capacity));
    }
}
