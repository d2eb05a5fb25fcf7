/* SPDX-License-Identifier: Apache-2.0 */
/* Python code that torch.compile wrote → the line of the model that it was made from. */
#ifndef VARVE_TRACE_CALLSITES_COMPILED_CODE_H
#define VARVE_TRACE_CALLSITES_COMPILED_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct compiled_mark;

/* Zero at first. The last file that was asked for: who asks in the order of functions reads each once. */
struct compiled {
    char *path;
    char *text; /* texts of marks[] are parts of it */
    struct compiled_mark *marks;
    size_t mark_count, mark_capacity;
};

struct compiled_line {
    const char *file, *function; /* function NULL: not said */
    uint32_t line;
};

/// What the closest comment above line `line` of the file, in the same function, says: `# File: model.py:12 in f`.
/// False: it cannot be read, or says nothing. Texts are borrowed until the next call.
bool compiled_find(struct compiled *compiled, const char *path, uint32_t line, struct compiled_line *found);
void compiled_free(struct compiled *compiled);

#endif
