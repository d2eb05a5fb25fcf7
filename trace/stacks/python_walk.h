/* SPDX-License-Identifier: Apache-2.0 */
/* The shown frames of a chain, one after the other, from the innermost outwards. */
#ifndef VARVE_TRACE_STACKS_PYTHON_WALK_H
#define VARVE_TRACE_STACKS_PYTHON_WALK_H

#include "trace/stacks/python_frame.h"

struct python_walk {
    const struct python_layout *layout;
    const void *code_type;
    const char *at;      /* the next frame, shown or not */
    const char *earlier; /* met before: a ring of stale frames comes back to it */
    unsigned steps, steps_to_earlier;
    bool is_ring;
    bool has_next;
    struct python_frame next; /* shown; whether it entered the loop shows in what follows */
};

static inline void python_walk_begin(struct python_walk *walk, const struct python_layout *layout,
                                     const void *code_type, const char *at)
{
    *walk = (struct python_walk){.layout = layout, .code_type = code_type, .at = at, .steps_to_earlier = 1};
}

static inline void python_walk_step(struct python_walk *walk)
{
    if (walk->steps++ == walk->steps_to_earlier) {
        walk->earlier = walk->at;
        walk->steps_to_earlier *= 2;
    }
    walk->at = python_pointer(walk->at, walk->layout->frame_previous);
    if (walk->at != NULL && walk->at == walk->earlier) {
        walk->is_ring = true;
        walk->at = NULL;
    }
}

/// The next shown frame; false: there is none, or the chain is no chain (`is_ring`).
static inline bool python_walk_next(struct python_walk *walk, struct python_frame *frame)
{
    for (;;) {
        struct python_frame read;
        const enum python_frame_kind kind = python_frame_read(walk->layout, walk->code_type, walk->at, &read);
        const bool is_due = walk->has_next && kind != PYTHON_FRAME_HIDDEN;
        if (is_due) {
            *frame = walk->next;
            frame->is_entry = frame->is_entry || kind == PYTHON_FRAME_MARK;
            walk->has_next = false;
        }
        if (kind == PYTHON_FRAME_SHOWN) {
            walk->next = read;
            walk->has_next = true;
        }
        if (kind == PYTHON_FRAME_END) {
            walk->at = NULL;
            return is_due;
        }
        python_walk_step(walk);
        if (is_due) {
            return true;
        }
    }
}

#endif
