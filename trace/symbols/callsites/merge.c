/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stack out of two: the native frames of a thread and the frames of its Python interpreter. The native
 * stack shows the interpreter loop where Python runs; one call of the loop runs a Python function and, since
 * CPython 3.11, what that calls in Python as well. So each frame of the loop stands for the Python frames up
 * to and including the next one that entered the loop. Either stack may be
 * cut at its depth limit, or the loop's name unknown. Every Python frame is shown all the same.
 * Called by finish.c.
 */
#include "trace/symbols/callsites/merge.h"

#include "trace/base/array.h"
#include "trace/format/callsite_file.h"
#include "trace/symbols/callsites/intern.h"

#include <assert.h>

static bool add_line(struct callsites_lines *out, const struct callsites_line_symbol *symbol, int64_t pc)
{
    if (!ARRAY_GROW(out->lines, out->capacity, out->count + 1)) {
        return false;
    }
    out->lines[out->count++] = (struct callsites_line){symbol->symbol, symbol->roles, pc};
    return true;
}

static uint32_t roles_of(const struct callsites_resolved *resolved,
                         const struct callsites_line_symbol *symbols)
{
    uint32_t roles = 0;

    for (uint32_t i = 0; i < resolved->count; i++) {
        roles |= symbols[resolved->start + i].roles;
    }
    return roles;
}

struct merge {
    const uint32_t *frame_ids;
    const struct callsites_frame *frames;
    const struct callsites_resolved *resolved; /* at [frame number - 1] */
    const struct callsites_line_symbol *symbols;
    struct callsites_lines *out;
};

static bool add_frame(const struct merge *merge, uint32_t id)
{
    const struct callsites_frame *frame = &merge->frames[id - 1];
    const struct callsites_resolved *resolved = &merge->resolved[id - 1];

    for (uint32_t i = 0; i < resolved->count; i++) {
        if (!add_line(merge->out, &merge->symbols[resolved->start + i],
                      frame->is_python || frame->position > INT64_MAX ? -1 : (int64_t)frame->position)) {
            return false;
        }
    }
    return true;
}

/* Python frames [from, to) of the stack, up to and including the next entry if `one_loop`; returns where it
 * stopped, or SIZE_MAX without memory. */
static size_t add_python(const struct merge *merge, size_t from, size_t to, bool one_loop)
{
    for (; from < to; from++) {
        if (!add_frame(merge, merge->frame_ids[from])) {
            return SIZE_MAX;
        }
        if (one_loop && (merge->frames[merge->frame_ids[from] - 1].position & CALLSITE_FILE_PYTHON_ENTRY)) {
            return from + 1;
        }
    }
    return from;
}

static bool has_loop(const struct merge *merge, size_t native_count)
{
    for (size_t i = 0; i < native_count; i++) {
        uint32_t id = merge->frame_ids[i];

        if (roles_of(&merge->resolved[id - 1], merge->symbols) & CALLSITES_ROLE_LOOP) {
            return true;
        }
    }
    return false;
}

bool callsites_merge(const struct callsites_stack *stack, const struct callsites_frame *frames,
                     const struct callsites_resolved *resolved, const struct callsites_line_symbol *symbols,
                     struct callsites_lines *out)
{
    const uint32_t *frame_ids = stack->frame_ids;
    const struct merge merge = {frame_ids, frames, resolved, symbols, out};
    size_t native_count = stack->native_count, end = native_count + stack->python_count;
    size_t python = native_count;

    out->count = 0;
    if (!has_loop(&merge, native_count)) {
        python = add_python(&merge, python, end, false);
    }
    for (size_t i = 0; i < native_count && python != SIZE_MAX; i++) {
        uint32_t roles = roles_of(&resolved[frame_ids[i] - 1], symbols);

        if (roles & CALLSITES_ROLE_RECORDER) {
            continue;
        }
        if ((roles & CALLSITES_ROLE_LOOP) && python < end) {
            python = add_python(&merge, python, end, true);
        } else if (!add_frame(&merge, frame_ids[i])) {
            return false;
        }
    }
    if (python != SIZE_MAX) {
        python = add_python(&merge, python, end, false);
    }
    assert(python == SIZE_MAX || python == end);
    return python != SIZE_MAX;
}

/* Did PyTorch call nothing but itself and CUDA, from its first Python frame or the program's down to here? */
static bool is_torch_call(const struct callsites_lines *lines)
{
    bool has_torch = false;

    for (size_t i = 0; i < lines->count; i++) {
        uint32_t roles = lines->lines[i].roles;

        if (roles & CALLSITES_ROLE_PYTHON) {
            return has_torch || (roles & CALLSITES_ROLE_TORCH);
        }
        if (!(roles & (CALLSITES_ROLE_TORCH | CALLSITES_ROLE_ALLOCATION | CALLSITES_ROLE_INTERPRETER))) {
            return false;
        }
        has_torch = has_torch || (roles & CALLSITES_ROLE_TORCH);
    }
    return false;
}

/* The innermost Python line, the program's own rather than PyTorch's; NULL if there is none. */
static const struct callsites_line *python_line(const struct callsites_lines *lines, bool is_torch_passed)
{
    const struct callsites_line *first = NULL;

    for (size_t i = 0; i < lines->count; i++) {
        const struct callsites_line *line = &lines->lines[i];

        if (!(line->roles & CALLSITES_ROLE_PYTHON)) {
            continue;
        }
        if (!is_torch_passed || !(line->roles & CALLSITES_ROLE_TORCH)) {
            return line;
        }
        first = first ? first : line;
    }
    return first;
}

uint32_t callsites_lines_symbol(const struct callsites_lines *lines)
{
    const struct callsites_line *chosen = NULL;

    if (is_torch_call(lines)) {
        return python_line(lines, true)->symbol;
    }
    for (size_t i = 0; i < lines->count && !chosen; i++) {
        if (!(lines->lines[i].roles & CALLSITES_ROLE_ALLOCATION)) {
            chosen = &lines->lines[i];
        }
    }
    /* Nothing but allocation functions: the outermost says most. */
    if (!chosen && lines->count) {
        chosen = &lines->lines[lines->count - 1];
    }
    /* Where Python called into code that says nothing, the Python line does. */
    if (chosen && (chosen->roles & (CALLSITES_ROLE_INTERPRETER | CALLSITES_ROLE_UNNAMED))) {
        const struct callsites_line *python = python_line(lines, false);

        chosen = python ? python : chosen;
    }
    return chosen ? chosen->symbol : 0;
}
