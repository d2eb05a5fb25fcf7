/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack is merged as soon as all its frames are resolved, and its new lines wait here until the store has room: while
 * the program runs nothing may be committed without the positions of the rings, so the store is never filled. Symbols
 * get their numbers from the order of the frames, so that rows can name them before theirs are written. At the end what
 * is left is merged in a thread, some stacks ahead of what the caller hands over. callsite_finish.c ends it.
 */
#include "trace/callsites/callsite_output.h"

#include "base/grown_array.h"
#include "base/thread.h"
#include "base/error.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_reader.h"

#include <pthread.h>
#include <stdlib.h>

#define STEP_LINES 2048U
#define STEP_STACKS 512U
#define PROGRESS_STEP 512U
#define FETCH_AHEAD 8U /* stacks */
#define BATCH_STACKS 512U
#define BATCHES 8U
#define COMMIT_STACKS (64U * BATCH_STACKS) /* so that rows are stored while more are merged */

struct site {
    uint32_t line, depth, symbol, user;
};

/* Stacks that were merged in turn, with their new lines. */
struct batch {
    struct output_row *rows;
    size_t row_capacity;
    uint32_t row_count, row_passed, site_count, site_passed;
    struct site sites[BATCH_STACKS];
};

/* The thread merges, and has the merge and `output->rows` to itself until it ended; batches go round. */
struct ahead {
    struct callsites *callsites;
    pthread_t thread;
    uint32_t stacks;       /* merged */
    pthread_mutex_t mutex; /* for what follows; a batch is the caller's from `made` to `taken` */
    pthread_cond_t changed;
    uint64_t made, taken; /* number n is batches[n % BATCHES] */
    bool must_end, is_over;
    int error;
    struct batch batches[BATCHES];
};

static int callsite_output_add_row(void *context, uint32_t line, uint32_t parent, uint32_t symbol, int64_t pc)
{
    struct callsites_output *output = context;
    (void)line;
    if (!ARRAY_GROW(output->rows, output->row_capacity, (size_t)output->row_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    output->rows[output->row_count++] = (struct output_row){parent, symbol, pc};
    return VARVE_OK;
}

static int add_nothing(void *context, uint32_t line, uint32_t parent, uint32_t symbol, int64_t pc)
{
    (void)context;
    (void)line;
    (void)parent;
    (void)symbol;
    (void)pc;
    return VARVE_OK;
}

void output_merge_set(const struct callsites *callsites, struct callsites_merge *merge, bool has_rows)
{
    struct callsites_output *output = callsites->output;
    merge->nodes = &callsites->nodes;
    merge->frames = callsites->frames.bytes;
    merge->frame_count = output->resolved.count;
    merge->resolved = output->resolved.frames;
    merge->symbols = output->resolved.symbols;
    merge->add = has_rows ? callsite_output_add_row : add_nothing;
    merge->context = output;
}

/* What was read and resolved since the last time. */
static int merge_extend(struct callsites *callsites)
{
    struct callsites_output *output = callsites->output;
    output_merge_set(callsites, &output->merge, !output->is_held);
    return callsites_merge_extend(&output->merge);
}

static bool has_room(const struct store *store, bool is_end)
{
    return is_end || store_has_room(store);
}

/* Lines that wait; true if none is left. */
static bool pass_rows(struct callsites_output *output, struct store *store, bool is_end, int *error)
{
    while (output->row_passed < output->row_count && has_room(store, is_end)) {
        const struct output_row *row = &output->rows[output->row_passed];
        *error = store_stack_node(store, output->row_first + output->row_passed + 1, row->parent, row->symbol, row->pc);
        if (*error != VARVE_OK) {
            return false;
        }
        output->row_passed++;
    }
    if (output->row_passed < output->row_count) {
        return false;
    }
    output->row_first += output->row_count;
    output->row_count = output->row_passed = 0;
    return true;
}

/* Stack `id`, if its frames are resolved; false if not, or on an error. */
static bool merge_stack(struct callsites *callsites, uint32_t id, uint32_t *line_out, int *error)
{
    struct callsites_output *output = callsites->output;
    if (id > callsites->stacks.count || !callsites_merge_knows(&output->merge, callsites->stacks.pairs[id - 1])) {
        return false;
    }
    if (id + FETCH_AHEAD <= callsites->stacks.count) {
        pairs_fetch(&output->merge.done, callsites->stacks.pairs[id + FETCH_AHEAD - 1]);
    }
    *error = callsites_merge_stack(&output->merge, callsites->stacks.pairs[id - 1], line_out);
    return *error == VARVE_OK;
}

static bool hold_stack(struct callsites *callsites, int *error)
{
    struct callsites_output *output = callsites->output;
    uint32_t line = 0;
    if (!merge_stack(callsites, output->stacks + 1, &line, error)) {
        return false;
    }
    if (!ARRAY_COVER(output->lines, output->line_capacity, output->stacks + 1)) {
        *error = VARVE_ERROR_NO_MEMORY;
        return false;
    }
    output->lines[++output->stacks] = line;
    return true;
}

static struct site site_of(const struct callsites_output *output, uint32_t line)
{
    return (struct site){line, line != 0 ? output->merge.lines[line].depth : 0,
                         callsites_line_symbol(output->merge.lines, line),
                         callsites_line_user(output->merge.lines, line)};
}

static int pass_site(struct callsites_output *output, struct store *store, const struct site *site)
{
    int error = store_callsite(store, output->stacks + 1, site->line, site->depth, site->symbol, site->user);
    output->stacks += error == VARVE_OK;
    return error;
}

/* Merged and handed over, if the store has room. */
static bool pass_stack(struct callsites *callsites, struct store *store, bool is_end, int *error)
{
    struct callsites_output *output = callsites->output;
    uint32_t line = 0;
    if (!merge_stack(callsites, output->stacks + 1, &line, error)) {
        return false;
    }
    if (!pass_rows(output, store, is_end, error) || !has_room(store, is_end)) {
        return false; /* merged again, it has the same line, and no new ones */
    }
    struct site site = site_of(output, line);
    *error = pass_site(output, store, &site);
    return *error == VARVE_OK;
}

static void close_output(struct callsites_output *output)
{
    resolver_close(output->resolver);
    callsites_merge_close(&output->merge);
    free(output->resolved.frames);
    free(output->resolved.symbols);
    free(output->rows);
    free(output->lines);
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
    while (error == VARVE_OK && output->resolved.count > 0 && output->merge.line_count - lines < STEP_LINES &&
           output->stacks - stacks < STEP_STACKS &&
           (output->is_held ? hold_stack(callsites, &error) : pass_stack(callsites, store, false, &error))) {
    }
    *more_out = output->merge.line_count - lines >= STEP_LINES || output->stacks - stacks >= STEP_STACKS;
    output->is_streamed = !output->is_held && (output->is_streamed || output->stacks + output->merge.line_count > 0);
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
    output_merge_set(callsites, &output->merge, !output->is_held);
    uint32_t line = 0;
    if (callsites_merge_stack(&output->merge, callsites->stacks.pairs[callsite - 1], &line) != VARVE_OK) {
        return false; /* merged before, it has the line that it had, and no new ones */
    }
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

int output_merge_rest(struct callsites *callsites, store_progress progress, void *context)
{
    struct callsites_output *output = callsites->output;
    int error = merge_extend(callsites);
    if (error == VARVE_OK && !ARRAY_COVER(output->lines, output->line_capacity, callsites->stacks.count)) {
        error = VARVE_ERROR_NO_MEMORY;
    }
    while (error == VARVE_OK && hold_stack(callsites, &error)) {
        if (progress != NULL && output->stacks % PROGRESS_STEP == 0) {
            progress(context, "call sites", output->stacks, callsites->stacks.count);
        }
    }
    return error;
}

/* An end that failed, and is repeated whole: what it had handed over is gone. */
static void rows_restart(struct callsites_output *output)
{
    callsites_merge_close(&output->merge);
    output->merge = (struct callsites_merge){0};
    output->row_first = output->row_count = output->row_passed = 0;
    output->stacks = 0;
}

/* ---- the end: merging in a thread ---- */

/* Its rows are those of the output meanwhile. */
static void rows_swap(struct callsites_output *output, struct batch *batch)
{
    struct output_row *rows = output->rows;
    const size_t capacity = output->row_capacity;
    output->rows = batch->rows;
    output->row_capacity = batch->row_capacity;
    batch->rows = rows;
    batch->row_capacity = capacity;
}

/* True if it is the last one. */
static bool batch_fill(struct ahead *ahead, struct batch *batch, int *error)
{
    struct callsites_output *output = ahead->callsites->output;
    batch->site_count = batch->site_passed = batch->row_passed = 0;
    rows_swap(output, batch);
    output->row_count = 0;
    bool has_more = true;
    while (batch->site_count < BATCH_STACKS && has_more) {
        uint32_t line = 0;
        has_more = merge_stack(ahead->callsites, ahead->stacks + 1, &line, error);
        if (has_more) {
            ahead->stacks++;
            batch->sites[batch->site_count++] = site_of(output, line);
        }
    }
    batch->row_count = output->row_count;
    output->row_count = 0;
    rows_swap(output, batch);
    return !has_more;
}

static void *callsite_output_merge_run(void *context)
{
    struct ahead *ahead = context;
    pthread_mutex_lock(&ahead->mutex);
    while (!ahead->must_end && !ahead->is_over) {
        if (ahead->made - ahead->taken == BATCHES) {
            pthread_cond_wait(&ahead->changed, &ahead->mutex);
            continue;
        }
        pthread_mutex_unlock(&ahead->mutex);
        int error = VARVE_OK;
        bool is_over = batch_fill(ahead, &ahead->batches[ahead->made % BATCHES], &error);
        pthread_mutex_lock(&ahead->mutex);
        ahead->made++;
        ahead->is_over = is_over;
        ahead->error = error;
        pthread_cond_signal(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

/* The next batch, NULL after the last one; it is given back with the next call. */
static struct batch *callsite_output_batch_take(struct ahead *ahead, bool gives_back)
{
    pthread_mutex_lock(&ahead->mutex);
    ahead->taken += gives_back;
    pthread_cond_signal(&ahead->changed);
    while (ahead->taken == ahead->made && !ahead->is_over) {
        pthread_cond_wait(&ahead->changed, &ahead->mutex);
    }
    struct batch *batch = NULL;
    if (ahead->taken < ahead->made) {
        batch = &ahead->batches[ahead->taken % BATCHES];
    }
    pthread_mutex_unlock(&ahead->mutex);
    return batch;
}

static int batch_pass(struct callsites_output *output, struct store *store, struct batch *batch)
{
    int error = VARVE_OK;
    while (batch->row_passed < batch->row_count && error == VARVE_OK) {
        const struct output_row *row = &batch->rows[batch->row_passed];
        error = store_stack_node(store, output->row_first + 1, row->parent, row->symbol, row->pc);
        batch->row_passed += error == VARVE_OK;
        output->row_first += error == VARVE_OK;
    }
    while (batch->site_passed < batch->site_count && error == VARVE_OK) {
        error = pass_site(output, store, &batch->sites[batch->site_passed]);
        batch->site_passed += error == VARVE_OK;
    }
    return error;
}

/* Lines of what was merged and not handed over wait again; their stacks are merged once more, without new ones. */
static int batches_return(struct ahead *ahead)
{
    struct callsites_output *output = ahead->callsites->output;
    for (; ahead->taken < ahead->made; ahead->taken++) {
        const struct batch *batch = &ahead->batches[ahead->taken % BATCHES];
        for (uint32_t i = batch->row_passed; i < batch->row_count; i++) {
            const struct output_row *row = &batch->rows[i];
            if (callsite_output_add_row(output, 0, row->parent, row->symbol, row->pc) != VARVE_OK) {
                return VARVE_ERROR_NO_MEMORY;
            }
        }
    }
    return VARVE_OK;
}

static bool ahead_start(struct ahead *ahead, struct callsites *callsites)
{
    ahead->callsites = callsites;
    ahead->stacks = callsites->output->stacks;
    pthread_mutex_init(&ahead->mutex, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    return thread_start(&ahead->thread, callsite_output_merge_run, ahead) == 0;
}

static int ahead_end(struct ahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    ahead->must_end = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    pthread_join(ahead->thread, NULL);
    int error = batches_return(ahead);
    return error == VARVE_OK ? ahead->error : error;
}

static void ahead_free(struct ahead *ahead)
{
    for (unsigned i = 0; i < BATCHES; i++) {
        free(ahead->batches[i].rows);
    }
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
}

/* As many stacks as there are; nothing waits in the output before. */
static int pass_ahead(struct callsites *callsites, struct store *store, store_progress progress, void *context)
{
    struct ahead *ahead = calloc(1, sizeof(*ahead));
    uint64_t commit_at = (uint64_t)callsites->output->stacks + COMMIT_STACKS;
    if (ahead == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (!ahead_start(ahead, callsites)) {
        ahead_free(ahead);
        return VARVE_OK; /* the caller does without */
    }
    struct batch *batch = NULL;
    int error = VARVE_OK;
    while (error == VARVE_OK && (batch = callsite_output_batch_take(ahead, batch != NULL)) != NULL) {
        error = batch_pass(callsites->output, store, batch);
        if (error == VARVE_OK && callsites->output->stacks >= commit_at) {
            error = store_commit(store, NULL, 0, NULL);
            commit_at = callsites->output->stacks + COMMIT_STACKS;
        }
        if (progress != NULL) {
            progress(context, "call sites", callsites->output->stacks, callsites->stacks.count);
        }
    }
    int merge_error = ahead_end(ahead);
    ahead_free(ahead);
    return error == VARVE_OK ? merge_error : error;
}

int output_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context)
{
    struct callsites_output *output = callsites->output;
    if (!output->is_streamed) {
        rows_restart(output);
    }
    int error = merge_extend(callsites);
    if (error == VARVE_OK && pass_rows(output, store, true, &error) &&
        callsites->stacks.count - output->stacks > BATCH_STACKS) {
        error = pass_ahead(callsites, store, progress, context);
    }
    while (error == VARVE_OK && pass_stack(callsites, store, true, &error)) {
        if (progress != NULL && output->stacks % PROGRESS_STEP == 0) {
            progress(context, "call sites", output->stacks, callsites->stacks.count);
        }
    }
    return error;
}
