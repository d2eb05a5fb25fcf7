/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack is merged as soon as all its frames are resolved, and its new lines and its site wait here until the store
 * has room: while the program runs nothing may be committed without the positions of the rings, so the store is never
 * filled. Symbols get their numbers from the order of the frames, so that rows can name them before theirs are written.
 * At the end what is left is merged in a thread, some stacks ahead of what the caller hands over. callsite_finish.c
 * ends it.
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
#include <time.h>

#define STEP_LINES 2048U
#define STEP_STACKS 512U
#define PROGRESS_STEP 512U
#define FETCH_AHEAD 8U /* stacks */
#define BATCH_STACKS 512U
#define BATCHES 8U
#define READ_PAUSE_NS 1000000
#define COMMIT_STACKS (64U * BATCH_STACKS) /* so that rows are stored while more are merged */

/* What a row of `callsite` has. */
struct site {
    uint32_t line, depth, symbol, user;
};

/* Stacks that were merged in turn, with their new lines and sites. */
struct batch {
    struct output_row *rows;
    size_t row_capacity;
    uint32_t row_count, row_passed, site_count, site_passed, stack_count;
    uint32_t stacks; /* merged by then */
    struct site sites[BATCH_STACKS];
};

/* The thread merges, and has the merge, stacks, sites and `output->rows` to itself until it ended; batches go round. */
struct ahead {
    struct callsites *callsites;
    pthread_t thread;
    pthread_mutex_t mutex; /* for what follows; a batch is the caller's from `made` to `taken` */
    pthread_cond_t changed;
    uint64_t made, taken; /* number n is batches[n % BATCHES] */
    bool must_end, is_over;
    int error;
    struct batch batches[BATCHES];
};

static int callsite_output_add_row(void *context, uint32_t parent, uint32_t frame)
{
    struct callsites_output *output = context;
    if (!ARRAY_GROW(output->rows, output->row_capacity, (size_t)output->row_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    output->rows[output->row_count++] = (struct output_row){parent, frame};
    return VARVE_OK;
}

static int add_nothing(void *context, uint32_t parent, uint32_t frame)
{
    (void)context;
    (void)parent;
    (void)frame;
    return VARVE_OK;
}

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
    merge->add = output->is_held ? add_nothing : callsite_output_add_row;
    merge->context = output;
    return callsites_merge_extend(merge);
}

static bool has_room(const struct store *store, bool is_end)
{
    return is_end || store_has_room(store);
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

/* Lines that wait; true if none is left. */
static bool pass_rows(struct callsites_output *output, struct store *store, bool is_end, int *error)
{
    while (output->row_passed < output->row_count && has_room(store, is_end)) {
        const struct output_row *row = &output->rows[output->row_passed];
        *error = store_stack_node(store, output->row_first + output->row_passed + 1, row->parent, row->frame);
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

/* Lines and sites that wait, if there is room; true if none is left. */
static bool pass_waiting(struct callsites_output *output, struct store *store, bool is_end, int *error)
{
    if (output->is_held) {
        return true;
    }
    bool is_passed = pass_rows(output, store, is_end, error);
    while (is_passed && output->site_passed < output->site_count && has_room(store, is_end)) {
        const struct site site = site_of(output, output->site_lines[output->site_passed + 1]);
        *error = pass_site(output, store, &site);
        is_passed = *error == VARVE_OK;
    }
    return is_passed && output->site_passed == output->site_count;
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
           output->stacks - stacks < STEP_STACKS && pass_waiting(output, store, false, &error) &&
           stack_merge_next(callsites, &error)) {
    }
    if (error == VARVE_OK) {
        pass_waiting(output, store, false, &error);
    }
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

int callsites_merge_read(struct callsites *callsites, struct varve_message *message)
{
    int error = callsites->stacks.count > 0 ? output_open(callsites, message) : VARVE_OK;
    while (error == VARVE_OK && callsites->stacks.count > 0 && callsites->output->stacks < callsites->stacks.count) {
        struct callsites_output *output = callsites->output;
        error = resolver_step(output->resolver, callsites, &output->resolved);
        VARVE_THEN(error, merge_extend(callsites));
        while (error == VARVE_OK && stack_merge_next(callsites, &error)) {
        }
        if (error == VARVE_OK && resolver_is_alone(output->resolver)) {
            error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no thread can be had that looks names up");
        }
        nanosleep(&(struct timespec){0, READ_PAUSE_NS}, NULL);
    }
    return error;
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
    batch->site_count = batch->site_passed = batch->row_passed = batch->stack_count = 0;
    rows_swap(output, batch);
    output->row_count = 0;
    bool has_more = true;
    while (batch->stack_count < BATCH_STACKS && has_more) {
        const uint32_t sites = output->site_count;
        has_more = stack_merge_next(ahead->callsites, error);
        batch->stack_count += has_more;
        if (output->site_count > sites) {
            batch->sites[batch->site_count++] = site_of(output, output->site_lines[output->site_count]);
        }
    }
    batch->stacks = output->stacks;
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
        error = store_stack_node(store, output->row_first + 1, row->parent, row->frame);
        batch->row_passed += error == VARVE_OK;
        output->row_first += error == VARVE_OK;
    }
    while (batch->site_passed < batch->site_count && error == VARVE_OK) {
        error = pass_site(output, store, &batch->sites[batch->site_passed]);
        batch->site_passed += error == VARVE_OK;
    }
    return error;
}

/* Lines that were not handed over wait again, as their sites do. */
static int batches_return(struct ahead *ahead)
{
    struct callsites_output *output = ahead->callsites->output;
    for (; ahead->taken < ahead->made; ahead->taken++) {
        const struct batch *batch = &ahead->batches[ahead->taken % BATCHES];
        for (uint32_t i = batch->row_passed; i < batch->row_count; i++) {
            const struct output_row *row = &batch->rows[i];
            if (callsite_output_add_row(output, row->parent, row->frame) != VARVE_OK) {
                return VARVE_ERROR_NO_MEMORY;
            }
        }
    }
    return VARVE_OK;
}

static bool ahead_start(struct ahead *ahead, struct callsites *callsites)
{
    ahead->callsites = callsites;
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
        if (error == VARVE_OK && batch->stacks >= commit_at) {
            error = store_commit(store, NULL, 0, NULL);
            commit_at = batch->stacks + COMMIT_STACKS;
        }
        if (progress != NULL) {
            progress(context, "call sites", batch->stacks, callsites->stacks.count);
        }
    }
    int merge_error = ahead_end(ahead);
    ahead_free(ahead);
    return error == VARVE_OK ? merge_error : error;
}

int output_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context)
{
    struct callsites_output *output = callsites->output;
    int error = output->is_merged ? VARVE_OK : merge_extend(callsites);
    if (error == VARVE_OK && pass_waiting(output, store, true, &error) && !output->is_held &&
        callsites->stacks.count - output->stacks > BATCH_STACKS) {
        error = pass_ahead(callsites, store, progress, context);
    }
    while (error == VARVE_OK && stack_merge_next(callsites, &error)) {
        if (progress != NULL && output->stacks % PROGRESS_STEP == 0) {
            progress(context, "call sites", output->stacks, callsites->stacks.count);
        }
    }
    if (error == VARVE_OK) {
        pass_waiting(output, store, true, &error);
    }
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
