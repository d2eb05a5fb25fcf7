/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to trace/symbols/callsites */
/*
 * Native and Python frames into one stack.
 */
#ifndef VARVE_TRACE_SYMBOLS_CALLSITES_MERGE_H
#define VARVE_TRACE_SYMBOLS_CALLSITES_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsites_frame;
struct callsites_stack;

enum callsites_role {
    CALLSITES_ROLE_ALLOCATION = 1,  /* an allocation function or a wrapper of one */
    CALLSITES_ROLE_LOOP = 2,        /* the interpreter loop */
    CALLSITES_ROLE_INTERPRETER = 4, /* in the interpreter's own code */
    CALLSITES_ROLE_RECORDER = 8,    /* in our own library */
    CALLSITES_ROLE_PYTHON = 16,
    CALLSITES_ROLE_UNNAMED = 32, /* native code without a symbol */
    CALLSITES_ROLE_TORCH = 64,   /* PyTorch's own code, native or Python */
};

/* What stands for one frame number: the inlined functions there and the one that they were inlined into. */
struct callsites_resolved {
    uint32_t start, count; /* in symbols[] */
};

struct callsites_line_symbol {
    uint32_t symbol; /* row in the store */
    uint32_t roles;
};

struct callsites_line {
    uint32_t symbol;
    uint32_t roles;
    int64_t pc; /* in the module; -1 for Python */
};

struct callsites_lines {
    struct callsites_line *lines;
    size_t count, capacity;
};

/// The stack as it is shown, innermost first, into `out` (emptied before); false without memory.
bool callsites_merge(const struct callsites_stack *stack, const struct callsites_frame *frames,
                     const struct callsites_resolved *resolved, const struct callsites_line_symbol *symbols,
                     struct callsites_lines *out);

/// The symbol that stands for the whole stack: the innermost that is no allocation function; Python code
/// rather than the interpreter's own, or PyTorch's; 0 for an empty stack.
uint32_t callsites_lines_symbol(const struct callsites_lines *lines);

#endif
