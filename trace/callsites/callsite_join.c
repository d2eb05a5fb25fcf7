/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small call sites give up their own lines: those that share the same innermost line with one that is kept become one
 * call site, with the number of the first of them, at a line below that one. Lines and their frames are numbered anew,
 * without those that nothing is left of. Called by the collector before the totals are written.
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
    struct callsites_output *output;
    const uint8_t *sizes;
    uint32_t *joined;
    uint32_t *kept; /* of line n: its row, 0: it has none */
    uint32_t *path;
    size_t path_capacity;
    uint32_t frame_count; /* that have rows */
    uint32_t *groups;     /* of row n: the call site of the small ones there, 0: none */
};

/* `frame` 0: that of small call sites. */
static int callsite_join_add_row(struct join *join, uint32_t parent, uint32_t frame)
{
    struct callsites_output *output = join->output;
    uint32_t *row = &output->kept_frames[frame];
    if (!ARRAY_GROW(output->rows, output->row_capacity, (size_t)output->row_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *row = *row != 0 ? *row : ++join->frame_count;
    output->rows[output->row_count++] = (struct output_row){parent, *row};
    return VARVE_OK;
}

/* The lines of a kept call site, from the outermost that is not kept yet inwards. */
static int keep_line(struct join *join, uint32_t line)
{
    struct callsites_output *output = join->output;
    const struct callsites_merge *merge = &output->merge;
    size_t count = 0;
    int error = VARVE_OK;
    for (; line != 0 && join->kept[line] == 0; line = merge->lines[line].parent) {
        if (!ARRAY_GROW(join->path, join->path_capacity, count + 1)) {
            return VARVE_ERROR_NO_MEMORY;
        }
        join->path[count++] = line;
    }
    while (count > 0 && error == VARVE_OK) {
        const uint32_t inner = join->path[--count];
        error =
            callsite_join_add_row(join, join->kept[merge->lines[inner].parent], merge->tree.pairs[inner - 1].second);
        join->kept[inner] = output->row_count;
    }
    return error;
}

static int keep_all(struct join *join)
{
    struct callsites_output *output = join->output;
    int error = VARVE_OK;
    for (uint32_t site = 1; site <= output->site_count && error == VARVE_OK; site++) {
        if (join->sizes[site] == JOIN_LARGE) {
            error = keep_line(join, output->site_lines[site]);
            output->site_rows[site] = join->kept[output->site_lines[site]];
        }
    }
    output->kept_count = output->row_count;
    return error;
}

/* A small call site joins the others below the same line; the first of them gets a line for all. */
static int join_small(struct join *join, uint32_t site)
{
    struct callsites_output *output = join->output;
    uint32_t line = output->site_lines[site];
    while (line != 0 && join->kept[line] == 0) {
        line = output->merge.lines[line].parent;
    }
    uint32_t *group = &join->groups[join->kept[line]];
    int error = VARVE_OK;
    if (*group == 0) {
        *group = site;
        error = callsite_join_add_row(join, join->kept[line], 0);
        output->site_lines[site] = line;
        output->site_rows[site] = output->row_count;
    } else {
        output->site_rows[site] = OUTPUT_LINE_NONE;
    }
    output->joined_count++;
    join->joined[site] = *group;
    return error;
}

static int join_all(struct join *join)
{
    int error = VARVE_OK;
    for (uint32_t site = 1; site <= join->output->site_count && error == VARVE_OK; site++) {
        if (join->sizes[site] == JOIN_SMALL) {
            error = join_small(join, site);
        } else if (join->sizes[site] == JOIN_UNUSED) {
            join->output->site_rows[site] = OUTPUT_LINE_NONE;
        }
    }
    return error;
}

static int join_run(struct join *join)
{
    struct callsites_output *output = join->output;
    output->site_rows = calloc((size_t)output->site_count + 1, sizeof(*output->site_rows));
    output->kept_frames = calloc((size_t)output->merge.line_frames.count + 1, sizeof(*output->kept_frames));
    join->kept = calloc((size_t)output->merge.line_count + 1, sizeof(*join->kept));
    int error = output->site_rows != NULL && output->kept_frames != NULL && join->kept != NULL ? keep_all(join)
                                                                                               : VARVE_ERROR_NO_MEMORY;
    if (error == VARVE_OK) {
        join->groups = calloc((size_t)output->kept_count + 1, sizeof(*join->groups));
        error = join->groups != NULL ? join_all(join) : VARVE_ERROR_NO_MEMORY;
    }
    for (uint32_t id = 1; id <= output->stacks && error == VARVE_OK; id++) {
        output->stack_sites[id] = join->joined[output->stack_sites[id]];
    }
    free(join->kept);
    free(join->path);
    free(join->groups);
    output->is_joined = true;
    return error;
}

/* ---- the rows ---- */

/* A frame of lines that has a row; `frame` 0: that of small call sites, which has the symbol after all others. */
static uint32_t frame_symbol(const struct callsites_output *output, uint32_t frame)
{
    const struct callsites_line_frame *frames = output->merge.line_frames.bytes;
    return frame != 0 ? frames[frame - 1].symbol : resolver_symbol_count(output->resolver) + 1;
}

/* `rows[n]`: the row of symbol n, where a frame, and so a line or a call site, has it. */
static int write_used_symbols(const struct callsites *callsites, struct store *store, uint32_t *rows)
{
    const struct callsites_output *output = callsites->output;
    const uint32_t count = resolver_symbol_count(output->resolver);
    for (uint32_t frame = 0; frame <= output->merge.line_frames.count; frame++) {
        if (output->kept_frames[frame] != 0) {
            rows[frame_symbol(output, frame)] = 1;
        }
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

/* In the order of their rows. */
static int write_kept_frames(const struct callsites_output *output, struct store *store, const uint32_t *symbols)
{
    const uint32_t count = output->merge.line_frames.count;
    uint32_t *of_row = calloc((size_t)count + 2, sizeof(*of_row)), rows = 0;
    int error = of_row != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    for (uint32_t frame = 0; frame <= count && error == VARVE_OK; frame++) {
        of_row[output->kept_frames[frame]] = frame;
        rows += output->kept_frames[frame] != 0;
    }
    for (uint32_t row = 1; row <= rows && error == VARVE_OK; row++) {
        const uint32_t frame = of_row[row];
        error = store_stack_frame(store, row, symbols[frame_symbol(output, frame)],
                                  frame != 0 ? output->merge.frame_pcs[frame - 1] : -1);
    }
    free(of_row);
    return error;
}

static int write_site(const struct callsites_output *output, struct store *store, uint32_t site,
                      const uint32_t *symbols)
{
    const struct callsites_line *lines = output->merge.lines;
    const uint32_t line = output->site_lines[site], row = output->site_rows[site];
    const uint32_t depth = line != 0 ? lines[line].depth : 0;
    if (row > output->kept_count) {
        const uint32_t symbol = symbols[frame_symbol(output, 0)];
        return store_callsite(store, site, row, depth + 1, symbol, symbol);
    }
    return store_callsite(store, site, row, depth, symbols[callsites_line_symbol(lines, line)],
                          symbols[callsites_line_user(lines, line)]);
}

static int callsite_join_write_rows(const struct callsites *callsites, struct store *store, const uint32_t *symbols)
{
    const struct callsites_output *output = callsites->output;
    int error = write_kept_frames(output, store, symbols);
    for (uint32_t i = 0; i < output->row_count && error == VARVE_OK; i++) {
        error = store_stack_node(store, i + 1, output->rows[i].parent, output->rows[i].frame);
    }
    for (uint32_t site = 1; site <= output->site_count && error == VARVE_OK; site++) {
        if (output->site_rows[site] != OUTPUT_LINE_NONE) {
            error = write_site(output, store, site, symbols);
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

int callsites_join(struct callsites *callsites, const uint8_t *sizes, uint32_t *joined, struct varve_message *message)
{
    struct join join = {.output = callsites->output, .sizes = sizes, .joined = joined};
    for (uint32_t site = 0; site <= join.output->site_count; site++) {
        joined[site] = site;
    }
    int error = join_run(&join);
    return error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, error, "call sites could not be put together: %s", varve_strerror(error));
}

uint32_t callsites_row_count(const struct callsites *callsites)
{
    return callsites->output != NULL ? callsites->output->site_count : 0;
}
