/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As text a stack is cut to what people look for: it begins at the call site's own frame (allocation functions lie
 * within), ends before the start-up code, and shows a few frames of what is between; or it is one line. As
 * JSON it is complete.
 */
#include "analysis/query/callsite_query.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "trace/writer.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT "       "
#define FUNCTION_COLUMNS_MIN 12
#define CHAIN_INDENT "      "
#define CALLERS 2
#define NAME_COLUMNS_MIN 24 /* of a name that is cut: rather fewer names */

void stack_load(struct stack *stack, struct database *database, int64_t callsite_id)
{
    *stack = (struct stack){0};
    struct cursor cursor;
    cursor_open(&cursor, database, sql_frames_of_callsite);
    cursor_bind_integer(&cursor, 1, callsite_id);
    size_t capacity = 0;
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
            .rank = cursor_integer(&cursor, 8),
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

static bool callsite_stack_same_location(const struct stack_frame *a, const struct stack_frame *b)
{
    return a->line == b->line && (a->function != NULL || a->pc == b->pc) &&
           memory_same_text(a->function, b->function) && memory_same_text(a->file, b->file) &&
           memory_same_text(a->module, b->module);
}

/* Recursion is one line, and so is a run of frames of which only the module is known. */
static bool same_line(const struct stack_frame *a, const struct stack_frame *b)
{
    return callsite_stack_same_location(a, b) ||
           (a->function == NULL && b->function == NULL && memory_same_text(a->module, b->module));
}

/* The frame that has a location; 0 if none has. */
static size_t find_frame(const struct stack *stack, const struct group_location *location)
{
    for (size_t i = 0; i < stack->count; i++) {
        const struct stack_frame wanted = {
            .function = location->function,
            .file = location->file,
            .module = location->module,
            .line = location->line,
            .pc = stack->frames[i].pc,
        };
        if (callsite_stack_same_location(&stack->frames[i], &wanted)) {
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
        if (strncmp(function, names[i], strcspn(function, "@")) == 0 && strlen(names[i]) == strcspn(function, "@")) {
            return true;
        }
    }
    return false;
}

/* The frames from `begin` on, without the start-up code. */
static size_t find_end(const struct stack *stack, size_t begin)
{
    size_t end = begin + 1;
    while (end < stack->count && !is_startup(stack->frames[end].function)) {
        end++;
    }
    return end < stack->count ? end : stack->count;
}

/* ---- a frame in a line ---- */

static void callsite_stack_print_frame(FILE *out, const struct stack_frame *frame, size_t times)
{
    size_t left = terminal_columns() - sizeof(INDENT) + 1;
    char unknown[64] = "(unknown)";
    char location[4 * TERMINAL_COLUMNS_MAX] = "";
    if (frame->file != NULL) {
        char file[4 * TERMINAL_COLUMNS_MAX];
        format_path(file, sizeof(file), frame->file, left * 2 / 5);
        snprintf(location, sizeof(location), frame->line > 0 ? "  %s:%" PRId64 : "  %s", file, frame->line);
    }
    char module[400] = "";
    char repeated[400] = "";
    if (frame->module != NULL && !frame->is_python) {
        char base[120];
        format_head(base, sizeof(base), format_base_name(frame->module), left / 4 < 28 ? left / 4 : 28);
        snprintf(module, sizeof(module), "  (%s)", base);
        if (frame->function == NULL && times > 1) {
            snprintf(repeated, sizeof(repeated), " and %zu more unresolved frame%s in it", times - 1,
                     times == 2 ? "" : "s");
        }
    }
    if (frame->function == NULL && frame->pc >= 0) {
        snprintf(unknown, sizeof(unknown), "0x%" PRIx64, (uint64_t)frame->pc);
    }
    if (times > 1 && frame->function != NULL) {
        snprintf(repeated, sizeof(repeated), "  %zu times", times);
    }
    size_t others = format_width(location) + format_width(module) + format_width(repeated);
    left = others + FUNCTION_COLUMNS_MIN < left ? left - others : FUNCTION_COLUMNS_MIN;
    fputs(INDENT, out);
    format_print_function(out, frame->function != NULL ? frame->function : unknown, left);
    fprintf(out, "%s%s%s\n", location, module, repeated);
}

void stack_print(FILE *out, const struct stack *stack, const struct callsite_row *row, int64_t limit)
{
    size_t at = find_frame(stack, &row->innermost);
    size_t end = find_end(stack, at);
    if (stack->count == 0) {
        fputs(INDENT "(the frames are missing)\n", out);
        return;
    }
    int64_t shown = 0;
    for (; at < end && shown < limit; shown++) {
        size_t first = at++;
        while (at < end && same_line(&stack->frames[first], &stack->frames[at])) {
            at++;
        }
        callsite_stack_print_frame(out, &stack->frames[first], at - first);
    }
    if (at < end) {
        fprintf(out, INDENT "… and %zu more\n", end - at);
    }
}

void stack_print_all(FILE *out, const struct stack *stack)
{
    if (stack->count == 0) {
        fputs(INDENT "(the frames are missing)\n", out);
    }
    for (size_t at = 0; at < stack->count;) {
        size_t first = at++;
        while (at < stack->count && callsite_stack_same_location(&stack->frames[first], &stack->frames[at])) {
            at++;
        }
        callsite_stack_print_frame(out, &stack->frames[first], at - first);
    }
}

/* ---- a stack in a line ---- */

struct link {
    const struct stack_frame *frame;
    size_t times;
};

/* Below a function of a run-time library, which is the user's line where there is no other, others of
 * it say something. */
static bool is_plumbing(const struct stack_frame *frame, const struct stack_frame *user)
{
    return frame->rank == VARVE_FRAME_PLUMBING ||
           (frame->rank == VARVE_FRAME_RUNTIME && user->rank > VARVE_FRAME_RUNTIME);
}

/* The next callers of frame `at` with names, of its own language; returns how many there are, and
 * whether more follow. */
static size_t callsite_stack_find_callers(const struct stack *stack, size_t at, struct link *links, bool *has_more)
{
    const struct stack_frame *own = &stack->frames[at];
    size_t end = find_end(stack, at);
    *has_more = false;
    size_t count = 0;
    for (size_t i = at + 1; i < end; i++) {
        const struct stack_frame *frame = &stack->frames[i];
        const struct stack_frame *before = count > 0 ? links[count - 1].frame : own;
        if (frame->function == NULL || frame->is_python != own->is_python || is_plumbing(frame, own)) {
            continue;
        }
        if (memory_same_text(before->function, frame->function) && memory_same_text(before->file, frame->file)) {
            if (count > 0) {
                links[count - 1].times++;
            }
            continue;
        }
        if (count == CALLERS) {
            *has_more = true;
            break;
        }
        links[count++] = (struct link){.frame = frame, .times = 1};
    }
    return count;
}

/* The frames that a chain is made of. */
struct chain {
    struct link links[CALLERS + 3]; /* outermost first */
    bool has_gap[CALLERS + 3];      /* frames are left out before it */
    size_t count, callers;          /* callers: how many of the links call the user's line */
};

static void add_link(struct chain *chain, const struct stack_frame *frame, size_t times, bool has_gap)
{
    chain->has_gap[chain->count] = has_gap;
    chain->links[chain->count++] = (struct link){.frame = frame, .times = times};
}

/* Callers of the user's line, that line, what it called, and the innermost frame. */
static void make_chain(struct chain *chain, const struct stack *stack, const struct callsite_row *row)
{
    struct link callers[CALLERS];
    size_t user = find_frame(stack, &row->user);
    size_t innermost = find_frame(stack, &row->innermost);
    bool has_more;
    size_t count = callsite_stack_find_callers(stack, user, callers, &has_more);
    size_t called = user;
    *chain = (struct chain){.callers = count};
    while (count > 0) {
        count--;
        add_link(chain, callers[count].frame, callers[count].times, chain->count == 0 && has_more);
    }
    add_link(chain, &stack->frames[user], 1, false);
    for (size_t i = user; i > innermost && called == user; i--) {
        const struct stack_frame *frame = &stack->frames[i - 1];
        called = !is_plumbing(frame, &stack->frames[user]) && frame->function != NULL ? i - 1 : called;
    }
    if (called < user) {
        add_link(chain, &stack->frames[called], 1, called + 1 < user);
    }
    if (innermost < called) {
        add_link(chain, &stack->frames[innermost], 1, innermost + 1 < called);
    }
}

/* As text, no name wider than `columns`. Owner: the caller, by free. */
static char *write_chain(const struct chain *chain, size_t columns)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    for (size_t i = 0; i < chain->count; i++) {
        const struct stack_frame *frame = chain->links[i].frame;
        char unknown[400];
        format_unresolved(unknown, sizeof(unknown), frame->module);
        fputs(i > 0 ? " → " : "", out);
        fputs(chain->has_gap[i] ? "… → " : "", out);
        format_print_function(out, frame->function != NULL ? frame->function : unknown, columns);
        if (chain->links[i].times > 1) {
            fprintf(out, " (%zu times)", chain->links[i].times);
        }
    }
    memory_stream_end(out, &text);
    return text;
}

/* Without the outermost caller. False: none is left. */
static bool shorten_chain(struct chain *chain)
{
    if (chain->callers == 0) {
        return false;
    }
    chain->callers--;
    chain->count--;
    memmove(chain->links, chain->links + 1, chain->count * sizeof(chain->links[0]));
    memmove(chain->has_gap, chain->has_gap + 1, chain->count * sizeof(chain->has_gap[0]));
    chain->has_gap[0] = true;
    return true;
}

/* In `columns`, or wider where names would be cut to a few letters. Code without a name at the inner end says least,
 * and goes first. Owner: the caller, by free. */
static char *fit_chain(struct chain *chain, size_t columns)
{
    char *text = write_chain(chain, columns);
    if (!terminal_has_full_names() && format_width(text) > columns && chain->count > chain->callers + 1 &&
        chain->links[chain->count - 1].frame->function == NULL) {
        chain->count--;
        free(text);
        text = write_chain(chain, columns);
    }
    if (terminal_has_full_names() || format_width(text) <= columns) {
        return text;
    }
    free(text);
    size_t each = columns / chain->count;
    return write_chain(chain, each < NAME_COLUMNS_MIN + 5 ? NAME_COLUMNS_MIN : each - 5);
}

void stack_print_chain(FILE *out, const struct stack *stack, const struct callsite_row *row)
{
    size_t columns = terminal_columns() - sizeof(CHAIN_INDENT) + 1;
    if (stack->count == 0) {
        return;
    }
    struct chain chain;
    make_chain(&chain, stack, row);
    if (chain.count == 1) {
        return;
    }
    char *text = fit_chain(&chain, columns);
    while (!terminal_has_full_names() && format_width(text) > columns && shorten_chain(&chain)) {
        free(text);
        text = fit_chain(&chain, columns);
    }
    if (terminal_has_full_names()) {
        fprintf(out, CHAIN_INDENT "%s\n", text);
    } else if (chain.count > 1) {
        char cut[4 * TERMINAL_COLUMNS_MAX + 8];
        format_head(cut, sizeof(cut), text, columns);
        fprintf(out, CHAIN_INDENT "%s\n", cut);
    }
    free(text);
}

struct cJSON *stack_json(struct database *database, int64_t callsite_id, int64_t limit)
{
    struct cJSON *array = json_array();
    struct stack stack;
    stack_load(&stack, database, callsite_id);
    for (size_t i = 0; i < stack.count && (limit < 0 || (int64_t)i < limit); i++) {
        const struct stack_frame *frame = &stack.frames[i];
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
    stack_free(&stack);
    return array;
}
