/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As text a stack is cut to what people look for: it begins at the call site's own frame (allocation functions lie within),
 * ends before the start-up code, and shows a few frames of what is between. As JSON it is complete.
 */
#include "analysis/query/stack.h"

#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/base/memory.h"
#include "analysis/query/callsites.h"
#include "analysis/query/db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_COLUMNS 98
#define FILE_COLUMNS 40
#define FUNCTION_COLUMNS_MIN 24

void stack_load(struct stack *stack, struct database *database, int64_t callsite_id)
{
    size_t capacity = 0;
    struct cursor cursor;

    *stack = (struct stack){0};
    cursor_open(
        &cursor, database,
        "SELECT depth, function, file, line, module, is_python, is_inlined, coalesce(pc, -1) FROM frame "
        "WHERE callsite_id = ?1 ORDER BY depth");
    cursor_bind_integer(&cursor, 1, callsite_id);
    while (cursor_next(&cursor)) {
        stack->frames = memory_grow(stack->frames, &capacity, stack->count, sizeof(stack->frames[0]));
        stack->frames[stack->count++] = (struct stack_frame){
            .depth = cursor_integer(&cursor, 0),
            .function = memory_copy_text(cursor_text(&cursor, 1)),
            .file = memory_copy_text(cursor_text(&cursor, 2)),
            .line = cursor_integer(&cursor, 3),
            .module = memory_copy_text(cursor_text(&cursor, 4)),
            .is_python = cursor_integer(&cursor, 5) != 0,
            .is_inlined = cursor_integer(&cursor, 6) != 0,
            .pc = cursor_integer(&cursor, 7),
        };
    }
    cursor_close(&cursor);
}

void stack_free(struct stack *stack)
{
    for (size_t i = 0; i < stack->count; i++) {
        free(stack->frames[i].function);
        free(stack->frames[i].file);
        free(stack->frames[i].module);
    }
    free(stack->frames);
    *stack = (struct stack){0};
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_location(const struct stack_frame *a, const struct stack_frame *b)
{
    return a->line == b->line && (a->function != NULL || a->pc == b->pc) &&
           same_text(a->function, b->function) && same_text(a->file, b->file) &&
           same_text(a->module, b->module);
}

/* Recursion is one line, and so is a run of frames of which only the module is known. */
static bool same_line(const struct stack_frame *a, const struct stack_frame *b)
{
    return same_location(a, b) ||
           (a->function == NULL && b->function == NULL && same_text(a->module, b->module));
}

static size_t find_begin(const struct stack *stack, const struct callsite_row *row)
{
    for (size_t i = 0; i < stack->count; i++) {
        const struct stack_frame location = {
            .function = row->function,
            .file = row->file,
            .module = row->module,
            .line = row->line,
            .pc = stack->frames[i].pc,
        };

        if (same_location(&stack->frames[i], &location)) {
            return i;
        }
    }
    return 0;
}

static bool is_startup(const char *function)
{
    static const char *const names[] = {
        "_start",
        "__libc_start_main",
        "__libc_start_main_impl",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "_dl_start_user",
    };

    for (size_t i = 0; function != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(function, names[i], strcspn(function, "@")) == 0 &&
            strlen(names[i]) == strcspn(function, "@")) {
            return true;
        }
    }
    return false;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void stack_print_frame(FILE *out, const char *indent, const struct stack_frame *frame, size_t times)
{
    char function[512];
    char repeated[48] = "";
    char location[256] = "";
    char module[128] = "";
    char unknown[64] = "(unknown)";
    size_t left = LINE_COLUMNS - format_width(indent);
    size_t others;

    if (frame->file != NULL) {
        char file[200];

        format_tail(file, sizeof(file), frame->file, FILE_COLUMNS);
        snprintf(location, sizeof(location), frame->line > 0 ? "  %s:%" PRId64 : "  %s", file, frame->line);
    }
    if (frame->module != NULL && !frame->is_python) {
        char base[100];

        format_head(base, sizeof(base), base_name(frame->module), 28);
        snprintf(module, sizeof(module), "  (%s)", base);
    }
    if (frame->function == NULL && frame->pc >= 0) {
        snprintf(unknown, sizeof(unknown), "0x%" PRIx64, (uint64_t)frame->pc);
    }
    if (times > 1) {
        snprintf(repeated, sizeof(repeated), frame->function != NULL ? "  %zu times" : "  and %zu more such",
                 frame->function != NULL ? times : times - 1);
    }
    others = format_width(location) + format_width(module) + format_width(repeated);
    left = others + FUNCTION_COLUMNS_MIN < left ? left - others : FUNCTION_COLUMNS_MIN;
    format_head(function, sizeof(function), frame->function != NULL ? frame->function : unknown, left);
    fprintf(out, "%s%s%s%s%s\n", indent, function, location, module, repeated);
}

void stack_print(FILE *out, const struct stack *stack, const struct callsite_row *row, int64_t limit)
{
    static const char indent[] = "       ";
    size_t begin = find_begin(stack, row);
    size_t end = stack->count;
    int64_t shown = 0;
    size_t at = begin;

    if (stack->count == 0) {
        fprintf(out, "%s(the frames are missing)\n", indent);
        return;
    }
    for (size_t i = begin + 1; i < end; i++) {
        end = is_startup(stack->frames[i].function) ? i : end;
    }
    for (; at < end && shown < limit; shown++) {
        size_t first = at++;

        while (at < end && same_line(&stack->frames[first], &stack->frames[at])) {
            at++;
        }
        stack_print_frame(out, indent, &stack->frames[first], at - first);
    }
    if (at < end) {
        fprintf(out, "%s… and %zu more\n", indent, end - at);
    }
}

/* A frame without a name says little; its nearest caller with one says more. */
void stack_print_unnamed(FILE *out, const struct stack *stack, const struct callsite_row *row)
{
    size_t at = find_begin(stack, row);

    if (at >= stack->count) {
        fputs("       (the frames are missing)\n", out);
        return;
    }
    stack_print_frame(out, "       ", &stack->frames[at], 1);
    while (at < stack->count && stack->frames[at].function == NULL) {
        at++;
    }
    if (at < stack->count && !is_startup(stack->frames[at].function)) {
        stack_print_frame(out, "       … called from ", &stack->frames[at], 1);
    }
}

struct cJSON *stack_json(const struct stack *stack, int64_t limit)
{
    struct cJSON *array = json_array();

    for (size_t i = 0; i < stack->count && (limit < 0 || (int64_t)i < limit); i++) {
        const struct stack_frame *frame = &stack->frames[i];
        struct cJSON *object = json_object();

        json_integer(object, "depth", frame->depth);
        json_text(object, "function", frame->function);
        json_text(object, "file", frame->file);
        json_integer_or_null(object, "line", frame->line > 0 ? frame->line : -1);
        json_text(object, "module", frame->module);
        json_integer_or_null(object, "pc", frame->pc);
        json_bool(object, "is_python", frame->is_python);
        json_bool(object, "is_inlined", frame->is_inlined);
        json_append(array, object);
    }
    return array;
}
