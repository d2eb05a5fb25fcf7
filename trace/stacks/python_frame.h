/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One frame of the interpreter: what lies at its address, and its part of a stack's hash. Inline: python_stack.c
 * reads frames to capture them, python_memo.c those that it does not remember.
 */
#ifndef VARVE_TRACE_STACKS_PYTHON_FRAME_H
#define VARVE_TRACE_STACKS_PYTHON_FRAME_H

#include "trace/guest/stack_ends.h"
#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_layout.h"
#include "trace/stacks/python_pages.h"

#include <stdbool.h>
#include <stdint.h>

/* Values of _PyInterpreterFrame.owner. */
#define PYTHON_OWNER_GENERATOR 1U
#define PYTHON_OWNER_INTERPRETER 3U /* up to 3.13 called FRAME_OWNED_BY_CSTACK */

/// One interpreter frame, by identity only: resolved when a new call site is written.
struct python_frame {
    const void *code; /* the code object */
    const void *name; /* its co_name and co_filename objects: with them a reused address is noticed */
    const void *filename;
    uint32_t instruction; /* offset in the bytecode, in the unit of its version */
    uint32_t first_line;
    bool is_entry; /* the frame that entered the interpreter loop */
};

enum python_frame_kind {
    PYTHON_FRAME_SHOWN,
    PYTHON_FRAME_HIDDEN, /* its function has not begun yet */
    PYTHON_FRAME_MARK,   /* on the C stack: the shown frame before it entered the interpreter loop */
    PYTHON_FRAME_END,    /* there is none, or nothing that can be believed */
};

static inline void python_frame_set(struct python_frame *frame, const struct python_layout *layout, const char *code,
                                    int64_t instruction)
{
    frame->code = code;
    frame->name = python_pointer(code, layout->code_name);
    frame->filename = python_pointer(code, layout->code_filename);
    frame->instruction = (uint32_t)instruction;
    frame->first_line = (uint32_t)python_int(code, layout->code_first_line);
    frame->is_entry = layout->frames_are_objects;
}

/*
 * What lies at `at`; `frame` is filled if it is shown.
 *
 * Up to 3.10 each frame is an object and has an interpreter loop of its own. Later, a frame is left out until
 * its function has begun (cells, generator objects are made before, and the interpreter itself does not show
 * it); so are the frames on the C stack of 3.12, which mark where a loop was entered.
 */
static inline enum python_frame_kind python_frame_read(const struct python_layout *layout, const void *code_type,
                                                       const char *at, struct python_frame *frame)
{
    if (at == NULL || !python_readable(at, layout->frame_bytes)) {
        return PYTHON_FRAME_END;
    }
    uint8_t owner = layout->frames_are_objects ? 0 : (uint8_t)at[layout->frame_owner];
    if (owner == PYTHON_OWNER_INTERPRETER) {
        return PYTHON_FRAME_MARK;
    }
    const char *code = python_code(at, layout->frame_code);
    if (!python_readable(code, layout->code_bytes) || python_pointer(code, PYTHON_OB_TYPE) != code_type) {
        return PYTHON_FRAME_END;
    }
    if (layout->frames_are_objects) {
        int64_t last = python_int(at, layout->frame_instruction);
        python_frame_set(frame, layout, code, last < 0 ? -1 : last * layout->lasti_unit);
        return PYTHON_FRAME_SHOWN;
    }
    int64_t offset = python_pointer(at, layout->frame_instruction) - (code + layout->code_bytecode);
    if (owner != PYTHON_OWNER_GENERATOR && offset < 2 * (int64_t)python_int(code, layout->code_first_traceable)) {
        return PYTHON_FRAME_HIDDEN;
    }
    python_frame_set(frame, layout, code, offset);
    if (layout->has_entry_flag) {
        frame->is_entry = at[layout->frame_entry] != 0;
    }
    return PYTHON_FRAME_SHOWN;
}

/* Add the next frame, outside-in. Two independent chains, and in each only the last of the three steps waits
 * for the frame before. */
static inline void python_hash_frame(struct stack_hash *hash, const void *code, const void *name, const void *filename,
                                     uint64_t position)
{
    const uint64_t a = (uintptr_t)code;
    const uint64_t b = (uintptr_t)name;
    const uint64_t c = (uintptr_t)filename;
    const uint64_t low = stack_hash_mix(a ^ UINT64_C(0xa0761d6478bd642f), b ^ UINT64_C(0x8ebc6af09c88c6e3));
    const uint64_t high = stack_hash_mix(a ^ UINT64_C(0xe7037ed1a0b428db), b ^ UINT64_C(0x589965cc75374cc3));

    hash->low = stack_hash_mix(
        hash->low ^ low, stack_hash_mix(c ^ UINT64_C(0x1d8e4e27c47d124f), position ^ UINT64_C(0xd6e8feb86659fd93)));
    hash->high = stack_hash_mix(
        hash->high ^ high, stack_hash_mix(c ^ UINT64_C(0xeb44accab455d165), position ^ UINT64_C(0x9fb21c651e98df25)));
}

/* Where in its code object a frame stands, as one word. */
static inline uint64_t python_hash_position(uint32_t instruction, bool is_entry)
{
    return (uint64_t)instruction << 1 | is_entry;
}

static inline void python_hash_captured(struct stack_hash *hash, const struct python_frame *frame)
{
    python_hash_frame(hash, frame->code, frame->name, frame->filename,
                      python_hash_position(frame->instruction, frame->is_entry));
}

/* Of captured frames. */
static inline struct stack_hash python_hash_frames(const struct python_frame *frames, unsigned count)
{
    struct stack_hash hash = {0};

    while (count-- > 0) {
        python_hash_captured(&hash, &frames[count]);
    }
    return hash;
}

/// Of `total` frames as python_stack_ends leaves them, those that are kept of a stack (stack_is_cut) in order; the mark
/// between has no code and, for its instruction, how many are left out. Returns how many are there now.
static inline unsigned python_frames_cut(struct python_frame *frames, unsigned total, unsigned depth)
{
    struct stack_cut cut;
    if (total <= depth || !stack_is_cut(total, depth, &cut)) {
        return total;
    }
    frames[cut.inside] = (struct python_frame){.instruction = cut.left_out};
    for (unsigned i = 0; i < cut.outside; i++) {
        frames[cut.inside + 1 + i] = frames[stack_slot(cut.first_outside + i)];
    }
    return cut.inside + 1 + cut.outside;
}

#endif
