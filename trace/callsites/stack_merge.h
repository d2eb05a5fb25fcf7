/* SPDX-License-Identifier: Apache-2.0 */
/* The trees of native and of Python frames into one tree of what is shown. */
#ifndef VARVE_TRACE_CALLSITES_STACK_MERGE_H
#define VARVE_TRACE_CALLSITES_STACK_MERGE_H

#include "trace/callsites/callsite_intern.h"
#include "trace/callsites/callsite_pairs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum callsites_role {
    CALLSITES_ROLE_ALLOCATION = 1,  /* an allocation function or a wrapper of one */
    CALLSITES_ROLE_LOOP = 2,        /* the interpreter loop */
    CALLSITES_ROLE_INTERPRETER = 4, /* in the interpreter's own code */
    CALLSITES_ROLE_RECORDER = 8,    /* in our own library */
    CALLSITES_ROLE_PYTHON = 16,
    CALLSITES_ROLE_UNNAMED = 32, /* native code without a symbol */
    CALLSITES_ROLE_TORCH = 64,   /* PyTorch's own code, native or Python */
    CALLSITES_ROLE_CUT = 128,    /* the mark of frames that are not kept */
};

#define CALLSITES_RANK_SHIFT 8 /* above the roles of a symbol: its enum varve_frame_rank */

/* What stands for one frame number: the inlined functions there and the one that they were inlined into. */
struct callsites_resolved {
    uint32_t start, count; /* in symbols[] */
    uint64_t place; /* of native code without a name: where its function begins, or, if that is not known, it is */
};

struct callsites_line_symbol {
    uint32_t symbol; /* row in the store */
    uint32_t roles;
};

/* A node of the merged tree: a line of a stack. */
struct callsites_line {
    uint32_t parent; /* the line outside of it, with a smaller number; 0: none */
    uint32_t symbol;
    uint16_t roles;
    uint16_t depth; /* lines from here outwards; UINT16_MAX: that many or more */
    uint32_t user;  /* the user's line of the stack from here outwards: its number, 0: it has none */
};

/* A frame of lines: a function and line of source, of code without a name a function. */
struct callsites_line_frame {
    uint64_t place; /* as struct callsites_resolved has it, of code without a name; else 0 */
    uint32_t symbol;
    uint32_t zero;
};

struct callsites_merge {
    /* to be set first, and again before callsites_merge_extend; borrowed */
    const struct pairs *nodes;
    const struct callsites_frame *frames; /* of number n at [n - 1], as resolved */
    size_t frame_count; /* those that are resolved: no node beyond the first of another frame is read */
    const struct callsites_resolved *resolved;
    const struct callsites_line_symbol *symbols;
    size_t symbol_count;
    /* the rest is zero */
    struct callsites_line *lines; /* of number n at [n] */
    size_t line_capacity;
    uint32_t line_count;
    struct pairs tree;           /* line n is the pair n: the line outside of it, its frame */
    struct interned line_frames; /* struct callsites_line_frame, by number */
    int64_t *frame_pcs;          /* of the frame n of lines at [n - 1]: its lowest address, -1: none */
    size_t frame_pc_capacity;
    uint32_t *place_frames; /* of symbols[n] at [n]: the frame of lines, 0: no line has it */
    size_t place_count, place_capacity;
    uint32_t *roles; /* of frame n at [n - 1] */
    size_t role_count, role_capacity;
    uint32_t
        *loops; /* of node n at [n - 1]: native frames of the loop, or Python frames that entered it, in its path */
    uint32_t node_count; /* all of whose frames are resolved */
    size_t loop_capacity;
    struct pairs done;   /* pairs of nodes, see stack_merge.c */
    uint32_t *done_line; /* of pair n at [n - 1] */
    size_t done_capacity;
    struct pair *path;
    size_t path_capacity;
};

/// After the fields above are set, and whenever they have grown. Errors: VARVE_ERROR_NO_MEMORY. callsites_merge_close
/// is due in any case.
int callsites_merge_extend(struct callsites_merge *merge);
/// May callsites_merge_stack be called for it yet?
bool callsites_merge_knows(const struct callsites_merge *merge, struct pair stack);
/// The innermost line of a stack, 0 if it has none. Errors: VARVE_ERROR_NO_MEMORY.
int callsites_merge_stack(struct callsites_merge *merge, struct pair stack, uint32_t *line_out);
/// No stack will be merged any more: only the lines and their frames stay.
void callsites_merge_forget(struct callsites_merge *merge);
void callsites_merge_close(struct callsites_merge *merge);

/// The symbol that stands for the whole stack of a line: the innermost that is no allocation function; Python code
/// rather than the interpreter's own, or PyTorch's; 0 for line 0.
uint32_t callsites_line_symbol(const struct callsites_line *lines, uint32_t line);
/// The symbol of the user's line, by enum varve_frame_rank; of a stack of nothing but plumbing as
/// callsites_line_symbol.
uint32_t callsites_line_user(const struct callsites_line *lines, uint32_t line);

#endif
