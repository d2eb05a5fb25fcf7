/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small call sites give up their own lines: those that share the same innermost line with a stack that is kept become
 * one call site, with the number of the first of them, at a line below that one. The kept stacks are merged once more,
 * so that their lines are numbered without the others', as they are then written. Called by the collector before the
 * totals are written.
 */
#include "base/grown_array.h"
#include "trace/model/derive.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/stack_merge.h"
#include "trace/callsites/callsite_output.h"
#include "trace/callsites/callsite_reader.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdlib.h>

struct join {
    struct callsites *callsites;
    struct callsites_output *output;
    const uint8_t *sizes;
    uint32_t *joined;
    struct callsites_merge kept; /* the lines that are written */
    uint32_t *above;             /* of line n of all: one more than the innermost kept line of its path, 0: not known */
    uint32_t *groups;            /* of kept line n: the call site of the small ones there, 0: none */
};

/* The path of a kept stack in both trees. */
static void mark_path(const struct join *join, uint32_t line, uint32_t kept)
{
    while (line != 0 && join->above[line] == 0) {
        join->above[line] = kept + 1;
        line = join->output->merge.lines[line].parent;
        kept = join->kept.lines[kept].parent;
    }
}

static int keep_stacks(struct join *join)
{
    const struct callsites *callsites = join->callsites;
    int error = VARVE_OK;
    for (uint32_t id = 1; id <= callsites->stacks.count && error == VARVE_OK; id++) {
        uint32_t line = 0;
        if (join->sizes[id] == JOIN_LARGE) {
            error = callsites_merge_stack(&join->kept, callsites->stacks.pairs[id - 1], &line);
        }
        if (error == VARVE_OK && join->sizes[id] == JOIN_LARGE) {
            mark_path(join, join->output->lines[id], line);
            join->output->lines[id] = line;
        }
    }
    return error;
}

/* The innermost kept line of a path, 0: none; remembered for the lines on the way. */
static uint32_t find_above(const struct join *join, uint32_t line)
{
    uint32_t above = 1;
    for (uint32_t at = line; at != 0; at = join->output->merge.lines[at].parent) {
        if (join->above[at] != 0) {
            above = join->above[at];
            break;
        }
    }
    for (uint32_t at = line; at != 0 && join->above[at] == 0; at = join->output->merge.lines[at].parent) {
        join->above[at] = above;
    }
    return above - 1;
}

/* A small call site joins the others below the same line; the first of them gets a line for all. */
static int join_small(struct join *join, uint32_t id)
{
    struct callsites_output *output = join->output;
    const uint32_t above = find_above(join, output->lines[id]);
    uint32_t *group = &join->groups[above];
    if (*group == 0) {
        *group = id;
        output->group_count++;
        output->lines[id] = join->kept.line_count + output->group_count;
        if (!ARRAY_GROW(output->rows, output->row_capacity, (size_t)output->row_count + 1)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        output->rows[output->row_count++] = (struct output_row){above, resolver_symbol_count(output->resolver) + 1, -1};
    } else {
        output->lines[id] = OUTPUT_LINE_NONE;
    }
    output->joined_count++;
    join->joined[id] = *group;
    return VARVE_OK;
}

static int join_all(struct join *join)
{
    int error = VARVE_OK;
    for (uint32_t id = 1; id <= join->callsites->stacks.count && error == VARVE_OK; id++) {
        if (join->sizes[id] == JOIN_SMALL) {
            error = join_small(join, id);
        } else if (join->sizes[id] == JOIN_UNUSED) {
            join->output->lines[id] = OUTPUT_LINE_NONE;
        }
    }
    return error;
}

static int join_run(struct join *join)
{
    struct callsites_output *output = join->output;
    output_merge_set(join->callsites, &join->kept, true);
    callsites_merge_forget(&output->merge); /* lines are enough */
    join->above = calloc((size_t)output->merge.line_count + 1, sizeof(*join->above));
    int error = join->above != NULL ? callsites_merge_extend(&join->kept) : VARVE_ERROR_NO_MEMORY;
    VARVE_THEN(error, keep_stacks(join));
    if (error == VARVE_OK) {
        join->groups = calloc((size_t)join->kept.line_count + 1, sizeof(*join->groups));
        error = join->groups != NULL ? join_all(join) : VARVE_ERROR_NO_MEMORY;
    }
    free(join->above);
    free(join->groups);
    callsites_merge_close(&output->merge);
    output->merge = join->kept;
    output->is_joined = true;
    return error;
}

/* ---- the rows ---- */

static bool is_group(const struct callsites_output *output, uint32_t line)
{
    return line > output->merge.line_count;
}

static uint32_t site_symbol(const struct callsites_output *output, uint32_t line)
{
    return is_group(output, line) ? output->rows[line - 1].symbol : callsites_line_symbol(output->merge.lines, line);
}

static uint32_t site_user(const struct callsites_output *output, uint32_t line)
{
    return is_group(output, line) ? output->rows[line - 1].symbol : callsites_line_user(output->merge.lines, line);
}

static uint32_t site_depth(const struct callsites_output *output, uint32_t line)
{
    const uint32_t above = is_group(output, line) ? output->rows[line - 1].parent : line;
    return (above != 0 ? output->merge.lines[above].depth : 0) + is_group(output, line);
}

/* `rows[n]`: the row of symbol n, where a line or a call site has it. */
static int write_used_symbols(const struct callsites *callsites, struct store *store, uint32_t *rows)
{
    const struct callsites_output *output = callsites->output;
    const uint32_t count = resolver_symbol_count(output->resolver);
    for (uint32_t i = 0; i < output->row_count; i++) {
        rows[output->rows[i].symbol] = 1;
    }
    for (uint32_t number = 1; number <= count + 1; number++) {
        struct store_symbol symbol = {.function = "(smaller call sites)", .rank = VARVE_FRAME_NAMED};
        if (rows[number] == 0) {
            continue;
        }
        if (number <= count) {
            resolver_symbol(output->resolver, number, &symbol);
        }
        rows[number] = store_symbol(store, &symbol);
        if (rows[number] == 0) {
            return VARVE_ERROR_DATABASE;
        }
    }
    return VARVE_OK;
}

static int callsite_join_write_rows(const struct callsites *callsites, struct store *store, const uint32_t *symbols)
{
    const struct callsites_output *output = callsites->output;
    int error = VARVE_OK;
    for (uint32_t i = 0; i < output->row_count && error == VARVE_OK; i++) {
        const struct output_row *row = &output->rows[i];
        error = store_stack_node(store, i + 1, row->parent, symbols[row->symbol], row->pc);
    }
    for (uint32_t id = 1; id <= callsites->stacks.count && error == VARVE_OK; id++) {
        const uint32_t line = output->lines[id];
        if (line != OUTPUT_LINE_NONE) {
            error = store_callsite(store, id, line, site_depth(output, line), symbols[site_symbol(output, line)],
                                   symbols[site_user(output, line)]);
        }
    }
    return error;
}

int join_write(const struct callsites *callsites, struct store *store)
{
    const struct callsites_output *output = callsites->output;
    uint32_t *symbols = calloc((size_t)resolver_symbol_count(output->resolver) + 2, sizeof(*symbols));
    int error = symbols != NULL ? write_used_symbols(callsites, store, symbols) : VARVE_ERROR_NO_MEMORY;
    VARVE_THEN(error, callsite_join_write_rows(callsites, store, symbols));
    if (error == VARVE_OK && output->joined_count > 0) {
        error = store_stat(store, CALLSITES_STAT_JOINED, -1, "info", "sites", output->joined_count);
    }
    free(symbols);
    return error;
}

/* ---- the interface ---- */

int callsites_hold(struct callsites *callsites, struct varve_message *message)
{
    int error = output_open(callsites, message);
    if (error == VARVE_OK) {
        callsites->output->is_held = true;
    }
    return error;
}

int callsites_join(struct callsites *callsites, const uint8_t *sizes, uint32_t *joined, store_progress progress,
                   void *context, struct varve_message *message)
{
    int error = callsites_hurry(callsites, message);
    struct join join = {.callsites = callsites, .output = callsites->output, .sizes = sizes, .joined = joined};
    for (uint32_t id = 0; id <= callsites->stacks.count; id++) {
        joined[id] = id;
    }
    VARVE_THEN(error, output_wait(callsites, progress, context));
    VARVE_THEN(error, output_merge_rest(callsites, progress, context));
    VARVE_THEN(error, join_run(&join));
    return error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, error, "call sites could not be put together: %s", varve_strerror(error));
}

uint32_t callsites_count(const struct callsites *callsites)
{
    return callsites->stacks.count;
}
