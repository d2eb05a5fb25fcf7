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

struct sites_frame;
struct sites_stack;

enum sites_role {
    SITES_ROLE_ALLOCATION = 1,  /* an allocation function or a wrapper of one */
    SITES_ROLE_LOOP = 2,        /* the interpreter loop */
    SITES_ROLE_INTERPRETER = 4, /* in the interpreter's own code */
    SITES_ROLE_RECORDER = 8,    /* in our own library */
    SITES_ROLE_PYTHON = 16,
    SITES_ROLE_UNNAMED = 32, /* native code without a symbol */
    SITES_ROLE_TORCH = 64,   /* PyTorch's own code, native or Python */
};

/* What stands for one frame number: the inlined functions there and the one that they were inlined into. */
struct sites_resolved {
    uint32_t start, count; /* in places[] */
};

struct sites_place {
    uint32_t symbol; /* row in the store */
    uint32_t roles;
};

struct sites_line {
    uint32_t symbol;
    uint32_t roles;
    int64_t pc; /* in the module; -1 for Python */
};

struct sites_lines {
    struct sites_line *lines;
    size_t count, capacity;
};

/// The stack as it is shown, innermost first, into `out` (emptied before); false without memory.
bool sites_merge(const struct sites_stack *stack, const uint32_t *words, const struct sites_frame *frames,
                 const struct sites_resolved *resolved, const struct sites_place *places,
                 struct sites_lines *out);

/// The symbol that stands for the whole stack: the innermost that is no allocation function; Python code
/// rather than the interpreter's own, or PyTorch's; 0 for an empty stack.
uint32_t sites_lines_symbol(const struct sites_lines *lines);

#endif
