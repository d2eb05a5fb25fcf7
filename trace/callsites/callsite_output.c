/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack is merged as soon as all its frames are resolved; then its new lines and its site are rows. Symbols get their
 * numbers from the order of the frames, so that rows can name them before theirs are written. callsite_finish.c ends
 * it.
 */
#include "trace/callsites/callsite_output.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_reader.h"

#include <stdlib.h>

#define STEP_LINES 2048U
#define STEP_STACKS 512U
#define PROGRESS_STEP 512U
#define FETCH_AHEAD 8U /* stacks */

/* What a row of `callsite` has. */
struct site {
    uint32_t line, depth, symbol, user;
};

/* What was read and resolved since the last time. */
static int merge_extend(struct callsites *callsites)
{
    struct callsites_output *output = callsites->output;
    struct callsites_merge *merge = &output->merge;
    merge->nodes = &callsites->nodes;
    merge->frames = callsites->frames.bytes;
    merge->frame_count = output->resolved.count;
    merge->resolved = output->resolved.frames;
    merge->symbols = output->resolved.symbols;
    merge->symbol_count = output->resolved.symbol_count;
    return callsites_merge_extend(merge);
}

/* The site of a line, which may be a new one: it follows from the numbers of the stacks which. */
static uint32_t site_find(struct callsites_output *output, uint32_t line)
{
    if (!ARRAY_COVER(output->line_sites, output->line_site_capacity, line)) {
        return 0;
    }
    if (output->line_sites[line] == 0 &&
        ARRAY_GROW(output->site_lines, output->site_line_capacity, (size_t)output->site_count + 2)) {
        output->site_lines[++output->site_count] = line;
        output->line_sites[line] = output->site_count;
    }
    return output->line_sites[line];
}

/* The next stack, if its frames are resolved; false if not, or on an error. */
static bool stack_merge_next(struct callsites *callsites, int *error)
{
    struct callsites_output *output = callsites->output;
    const uint32_t id = output->stacks + 1;
    uint32_t line = 0;
    if (id > callsites->stacks.count || !callsites_merge_knows(&output->merge, callsites->stacks.pairs[id - 1])) {
        return false;
    }
    if (id + FETCH_AHEAD <= callsites->stacks.count) {
        pairs_fetch(&output->merge.done, callsites->stacks.pairs[id + FETCH_AHEAD - 1]);
    }
    *error = callsites_merge_stack(&output->merge, callsites->stacks.pairs[id - 1], &line);
    if (*error == VARVE_OK && (!ARRAY_COVER(output->stack_sites, output->stack_site_capacity, id) ||
                               (output->stack_sites[id] = site_find(output, line)) == 0)) {
        *error = VARVE_ERROR_NO_MEMORY;
    }
    output->stacks += *error == VARVE_OK;
    return *error == VARVE_OK;
}

static struct site site_of(const struct callsites_output *output, uint32_t line)
{
    return (struct site){line, line != 0 ? output->merge.lines[line].depth : 0,
                         callsites_line_symbol(output->merge.lines, line),
                         callsites_line_user(output->merge.lines, line)};
}

static int pass_site(struct callsites_output *output, struct store *store, const struct site *site)
{
    int error = store_callsite(store, output->site_passed + 1, site->line, site->depth, site->symbol, site->user);
    output->site_passed += error == VARVE_OK;
    return error;
}

/* New lines, and then sites. */
static int pass_waiting(struct callsites_output *output, struct store *store)
{
    int error = VARVE_OK;
    if (output->is_held) {
        return VARVE_OK;
    }
    while (output->lines_passed < output->merge.line_count && error == VARVE_OK) {
        const struct pair *line = &output->merge.tree.pairs[output->lines_passed];
        error = store_stack_node(store, output->lines_passed + 1, line->first, line->second);
        output->lines_passed += error == VARVE_OK;
    }
    while (output->site_passed < output->site_count && error == VARVE_OK) {
        const struct site site = site_of(output, output->site_lines[output->site_passed + 1]);
        error = pass_site(output, store, &site);
    }
    return error;
}

static void close_output(struct callsites_output *output)
{
    resolver_close(output->resolver);
    callsites_merge_close(&output->merge);
    free(output->resolved.frames);
    free(output->resolved.symbols);
    free(output->rows);
    free(output->stack_sites);
    free(output->line_sites);
    free(output->site_lines);
    free(output->site_rows);
    free(output->kept_frames);
    free(output);
}

int output_open(struct callsites *callsites, struct varve_message *message)
{
    if (callsites->output == NULL) {
        callsites->output = calloc(1, sizeof(*callsites->output));
        callsites->output_close = close_output;
    }
    if (callsites->output == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    return callsites->output->resolver == NULL ? resolver_open(&callsites->output->resolver, message) : VARVE_OK;
}

static int callsite_output_step(struct callsites *callsites, struct store *store, bool *more_out)
{
    struct callsites_output *output = callsites->output;
    const uint32_t lines = output->merge.line_count;
    const uint32_t stacks = output->stacks;
    int error = resolver_step(output->resolver, callsites, &output->resolved);
    if (error == VARVE_OK && output->resolved.count > 0) {
        error = merge_extend(callsites);
    }
    output->is_begun = output->is_begun || !output->is_held; /* nobody has written them yet */
    while (error == VARVE_OK && output->resolved.count > 0 && output->merge.line_count - lines < STEP_LINES &&
           output->stacks - stacks < STEP_STACKS && stack_merge_next(callsites, &error)) {
    }
    VARVE_THEN(error, pass_waiting(output, store));
    *more_out = output->merge.line_count - lines >= STEP_LINES || output->stacks - stacks >= STEP_STACKS;
    return error;
}

void callsites_step(struct callsites *callsites, struct store *store, bool *more_out)
{
    *more_out = false;
    if (callsites->frames.count > 0 && output_open(callsites, NULL) == VARVE_OK &&
        callsites->output->error == VARVE_OK) {
        callsites->output->error = callsite_output_step(callsites, store, more_out);
    }
}

bool callsites_symbols(struct callsites *callsites, uint32_t callsite, struct store_symbol *user_out,
                       struct store_symbol *symbol_out)
{
    struct callsites_output *output = callsites->output;
    if (output == NULL || output->error != VARVE_OK || callsite == 0 || callsite > output->stacks ||
        !resolver_rests(output->resolver)) {
        return false;
    }
    const uint32_t line = output->site_lines[output->stack_sites[callsite]];
    uint32_t symbol = callsites_line_symbol(output->merge.lines, line);
    uint32_t user = callsites_line_user(output->merge.lines, line);
    *symbol_out = *user_out = (struct store_symbol){0};
    if (symbol != 0) {
        resolver_symbol(output->resolver, symbol, symbol_out);
        *user_out = *symbol_out;
    }
    if (user != 0) {
        resolver_symbol(output->resolver, user, user_out);
    }
    return true;
}

int callsites_hurry(struct callsites *callsites, struct varve_message *message)
{
    int error = output_open(callsites, message);
    struct callsites_output *output = callsites->output;
    VARVE_THEN(error, output->error);
    if (error == VARVE_OK && !output->is_hurrying) {
        error = resolver_hurry(output->resolver, callsites, &output->resolved);
        output->is_hurrying = error == VARVE_OK;
    }
    return error;
}

int output_wait(struct callsites *callsites, store_progress progress, void *context)
{
    return resolver_wait(callsites->output->resolver, &callsites->output->resolved, progress, context);
}

uint32_t callsites_row(const struct callsites *callsites, uint32_t number)
{
    const struct callsites_output *output = callsites->output;
    if (number == 0) {
        return 0;
    }
    return output != NULL && number <= output->stacks ? output->stack_sites[number] : UINT32_MAX;
}

const uint32_t *callsites_rows(const struct callsites *callsites, size_t *limit_out)
{
    static const uint32_t none[1] = {0};
    const struct callsites_output *output = callsites->output;
    const bool is_any = output != NULL && output->stacks > 0;
    *limit_out = is_any ? (size_t)output->stacks + 1 : 1;
    return is_any ? output->stack_sites : none;
}

int output_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context)
{
    struct callsites_output *output = callsites->output;
    int error = output->is_merged ? VARVE_OK : merge_extend(callsites);
    while (error == VARVE_OK && stack_merge_next(callsites, &error)) {
        if (output->stacks % PROGRESS_STEP == 0) {
            error = pass_waiting(output, store);
            if (progress != NULL) {
                progress(context, "call sites", output->stacks, callsites->stacks.count);
            }
        }
    }
    VARVE_THEN(error, pass_waiting(output, store));
    if (error == VARVE_OK && !output->is_merged) { /* what others need more now */
        output->is_merged = true;
        callsites_merge_forget(&output->merge);
        pairs_free(&callsites->nodes);
    }
    return error;
}

/* ---- frames ---- */

struct address {
    uint64_t pc;
    uint32_t frame; /* its row */
};

static int compare_addresses(const void *left, const void *right)
{
    const struct address *a = left, *b = right;
    if (a->frame != b->frame) {
        return a->frame < b->frame ? -1 : 1;
    }
    return a->pc < b->pc ? -1 : a->pc > b->pc;
}

/* All of frames that have rows, each once, in order; returns how many. */
static size_t addresses_gather(const struct callsites *callsites, struct address *addresses)
{
    const struct callsites_output *output = callsites->output;
    const struct callsites_frame *frames = callsites->frames.bytes;
    size_t count = 0;
    for (uint32_t i = 0; i < output->resolved.count; i++) {
        const struct callsites_resolved *resolved = &output->resolved.frames[i];
        for (uint32_t k = resolved->start; k < resolved->start + resolved->count; k++) {
            const uint32_t frame = output->merge.place_frames[k];
            const uint32_t row = frame != 0 && output->is_joined ? output->kept_frames[frame] : frame;
            if (row != 0 && output->merge.frame_pcs[frame - 1] >= 0 && frames[i].position <= INT64_MAX) {
                addresses[count++] = (struct address){frames[i].position, row};
            }
        }
    }
    qsort(addresses, count, sizeof(*addresses), compare_addresses);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || compare_addresses(&addresses[kept - 1], &addresses[i]) != 0) {
            addresses[kept++] = addresses[i];
        }
    }
    return kept;
}

static int write_addresses(const struct callsites *callsites, struct store *store)
{
    struct address *addresses = malloc((callsites->output->resolved.symbol_count + 1) * sizeof(*addresses));
    if (addresses == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    const size_t count = addresses_gather(callsites, addresses);
    int error = VARVE_OK;
    uint32_t id = 0;
    for (size_t i = 0; i < count && error == VARVE_OK; i++) {
        if ((i > 0 && addresses[i - 1].frame == addresses[i].frame) ||
            (i + 1 < count && addresses[i + 1].frame == addresses[i].frame)) {
            error = store_frame_address(store, ++id, addresses[i].frame, (int64_t)addresses[i].pc);
        }
    }
    free(addresses);
    return error;
}

int output_write_frames(const struct callsites *callsites, struct store *store)
{
    const struct callsites_merge *merge = &callsites->output->merge;
    const struct callsites_line_frame *frames = merge->line_frames.bytes;
    int error = VARVE_OK;
    for (uint32_t i = 0; i < merge->line_frames.count && error == VARVE_OK && !callsites->output->is_joined; i++) {
        error = store_stack_frame(store, i + 1, frames[i].symbol, merge->frame_pcs[i]);
    }
    return error == VARVE_OK ? write_addresses(callsites, store) : error;
}
