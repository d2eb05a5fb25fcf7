/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of `allocation`, of which there may be a hundred million, on their way from the scratch file through the
 * image into the database: in order of their ids, so that SQLite only appends, some way behind the newest, when nearly
 * all are over. One that is not goes there as it is, but as large as it can become: the end replaces it where it is, if
 * it has changed, and no page has to be split. Where many are not, rows wait, four million at most. A recording that is continued begins anew (store_open). collector.c
 * gathers, derived_tables.c finishes.
 */
#include "trace/store/store.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"
#include "trace/store/sqlite_format.h"
#include "trace/store/store_transaction.h"

#include "columns_generated.h"

#include <string.h>

/* One commit per so many keeps the log of the database short. */
#define COMMIT_ROWS ((uint64_t)1 << 18)
#define CHUNK_ROWS 4096U
/* A chunk of which more rows are not over waits for the end, as do those behind it, while they are no more than that. */
#define CHUNK_ROWS_OPEN (CHUNK_ROWS / 16)
#define ROWS_HELD ((uint64_t)1 << 22)
/* Which columns a row of allocation_row has. */
enum allocation_use {
    USE_FREED = 1, /* a free is over when it was requested, even if the block is still pending */
    USE_COMPLETED = 2,
    USE_BLOCK = 4, /* it is of a caching allocator or of the CUDA API */
    USE_SEGMENT = 8,
    USE_API = 16,         /* of the CUDA API */
    USE_OTHERS = 32,      /* who made it is not what its row of `thread` says */
    USE_FREE_THREAD = 64, /* who freed it is another thread */
};

/* allocation_row.own_events: events of it that have rows of their own. */
enum own_events { OWN_ALLOC = 1, OWN_FREE = 2 };

/* What of a live row takes 8 bytes: room for what its end sets. It has all columns, too, as SQLite writes the row
 * that replaces it. */
#define WIDE_COLUMNS (1U << ALLOCATION_SIZE | 1U << ALLOCATION_CALLSITE_ID | 1U << ALLOCATION_PADDING)

static int64_t difference(int64_t a, int64_t b)
{
    int64_t result;
    return __builtin_sub_overflow(a, b, &result) ? INT64_MAX : result; /* of a damaged record */
}

static int64_t own_events(const struct scratch_row *row)
{
    return domain_holds_events(row->domain)
               ? (row->holds_alloc ? 0 : OWN_ALLOC) | (row->holds_free || row->free_seq == 0 ? 0 : OWN_FREE)
               : 0;
}

/* `more` is the block row: what caching allocators and the CUDA API have, NULL of all others. */
static bool allocation_store_row_add(struct store *store, enum image_table table, const struct derive *derive,
                                     uint64_t id, const struct scratch_block *more, bool is_final)
{
    const struct scratch_row *row = scratch_peek(&derive->scratch, id);
    const struct derive_thread *thread = &derive->threads[row->thread_id];
    static const struct scratch_block none = {0};
    const struct scratch_block *block = more != NULL ? more : &none;
    bool is_block = row->domain == DOMAIN_BLOCK;
    uint64_t free_seq = is_final || !row->is_waiting ? row->free_seq : 0;
    uint64_t completed_seq = is_block && more != NULL ? more->completed_seq : free_seq;
    uint64_t requested_seq = free_seq != 0 ? free_seq : row->alloc_seq;
    bool is_thread = rows_is_thread(store, row->thread_id, thread->process_id, thread->pid, thread->tid);
    const int64_t alloc_lag = row->holds_alloc ? row->alloc_lag : 0;
    const bool has_free_thread =
        row->holds_free && free_seq != 0 && row->free_thread != 0 && row->free_thread != row->thread_id;
    const unsigned uses = (free_seq != 0 ? USE_FREED : 0) | (completed_seq != 0 ? USE_COMPLETED : 0) |
                          (more != NULL ? USE_BLOCK : 0) | (block->segment_id != 0 ? USE_SEGMENT : 0) |
                          (more != NULL && !is_block ? USE_API : 0) | (is_thread ? 0 : USE_OTHERS) |
                          (has_free_thread ? USE_FREE_THREAD : 0);
    const int64_t values[ALLOCATION_COLUMNS] = {
        [ALLOCATION_TEMPORARY] = free_seq != 0 && row->temporary,
        [ALLOCATION_LIFETIME_EVENTS] = (int64_t)(free_seq - row->alloc_seq),
        [ALLOCATION_LIFETIME_NS] = difference(row->free_ns, row->alloc_ns),
        [ALLOCATION_PENDING_EVENTS] = (int64_t)(completed_seq - requested_seq),
        [ALLOCATION_LAG] = alloc_lag,
        [ALLOCATION_FREE_LAG_CHANGE] = row->holds_free && free_seq != 0 ? row->free_lag - alloc_lag : 0,
        [ALLOCATION_OWN_EVENTS] = own_events(row),
        [ALLOCATION_FREE_THREAD_ID] = row->free_thread,
        [ALLOCATION_PADDING] = difference((int64_t)row->size, (int64_t)scratch_requested(row)),
        [ALLOCATION_POOL] = is_block ? block->pool : block->pool & 0xfffU,
        ALLOCATION_MEMBERS(COLUMN_VALUE) /* as they are */
    };
    uint32_t nulls = 1U << ALLOCATION_ID ALLOCATION_USES(COLUMN_NULL);
    unsigned count = record_columns(values, nulls, ALLOCATION_DEFAULTS, ALLOCATION_COLUMNS);
    return image_add(store->batch.image, table, id, values, nulls, is_final ? 0 : WIDE_COLUMNS,
                     is_final ? count : ALLOCATION_COLUMNS);
}

/* The block row of allocation `id`, if it has one; they come in the same order. */
static const struct scratch_block *block_follow(const struct derive *derive, uint64_t id, uint64_t *block)
{
    *block = *block == 0 ? 1 : *block;
    while (*block <= derive->blocks.count) {
        const struct scratch_block *more = scratch_block((struct scratch_row *)&derive->blocks.rows[*block - 1]);
        if (more->id >= id) {
            return more->id == id ? more : NULL;
        }
        ++*block;
    }
    return NULL;
}

/* No later event changes it. What the CUDA API frees may come back when the call failed; such rows wait for the end. */
static bool allocation_store_is_over(const struct scratch_row *row, const struct scratch_block *more)
{
    if (row->domain == DOMAIN_BLOCK) {
        return row->free_seq != 0 && more != NULL && more->completed_seq != 0;
    }
    return row->free_seq != 0 && !row->is_waiting && more == NULL;
}

/* What is freed so soon is over when its row is due (ALLOCATIONS_BEHIND). */
static bool row_is_left_out(const struct store *store, const struct derive *derive, uint64_t id,
                            const struct scratch_row *row)
{
    bool is_short = domain_holds_events(row->domain) && row->free_seq != 0 && !row->is_waiting &&
                    row->free_seq - row->alloc_seq <= VARVE_SHORT_EVENTS;
    return (store->keep == VARVE_KEEP_TOTALS && id >= derive->forgets_from) ||
           (store->keep_rows == VARVE_KEEP_LASTING && is_short);
}

/* The next row goes into the image, whether it is over or not; false if there is no space or memory, or its call site
 * has no row yet. */
static bool allocation_store_row_pass(struct store *store, struct derive *derive, bool is_end)
{
    struct store_allocations *state = &store->allocations;
    uint64_t id = state->passed + 1;
    struct scratch_row *row = &derive->scratch.rows[id - 1];
    const struct scratch_block *more = block_follow(derive, id, &state->block);
    bool is_final = is_end || allocation_store_is_over(row, more);
    if (row_is_left_out(store, derive, id, row) && !derive_row_is_left(derive, row)) {
        row->is_stored = true; /* as far as it ever is */
        state->passed = id;
        return true;
    }
    if (!is_end && !rows_has_callsite(store, row->callsite)) {
        return false;
    }
    size_t chunk = id / CHUNK_ROWS;
    if (chunk >= state->chunk_limit && !ARRAY_COVER(state->is_open, state->chunk_limit, chunk)) {
        return false;
    }
    if (!allocation_store_row_add(store, IMAGE_ALLOCATION, derive, id, more, is_final)) {
        return false;
    }
    state->is_open[chunk] |= !is_final;
    row->is_stored = is_final;
    state->passed = id;
    return true;
}

/* The last row that may go: of totals those from before they were all that is kept. */
static uint64_t gather_last(const struct store *store, const struct derive *derive, uint64_t behind)
{
    const uint64_t last = derive->scratch.count > behind ? derive->scratch.count - behind : 0;
    const uint64_t kept = derive->forgets_from > 0 ? derive->forgets_from - 1 : 0;
    return store->keep == VARVE_KEEP_TOTALS && kept < last ? kept : last;
}

/* Where the next chunk begins: should it wait? What is written before it is over is written twice, and leaves a hole. */
static bool chunk_is_held(const struct store *store, const struct derive *derive)
{
    const uint64_t first = store->allocations.passed + 1;
    if (first % CHUNK_ROWS != 0 || derive->scratch.count - first > ROWS_HELD) {
        return false;
    }
    unsigned open = 0;
    for (uint64_t id = first; id < first + CHUNK_ROWS && id <= derive->scratch.count; id++) {
        const struct scratch_row *row = scratch_peek(&derive->scratch, id);
        open += row->free_seq == 0 || row->is_waiting;
    }
    return open > CHUNK_ROWS_OPEN;
}

bool allocations_gather(struct store *store, struct derive *derive, uint64_t behind)
{
    const uint64_t last = store->is_private ? 0 : gather_last(store, derive, behind);
    while (store->allocations.passed < last && image_rows(store->batch.image, IMAGE_ALLOCATION) < COMMIT_ROWS &&
           (behind == 0 || !chunk_is_held(store, derive)) && allocation_store_row_pass(store, derive, false)) {
    }
    return store->allocations.passed >= last;
}

/* ---- the end ---- */

struct finish {
    struct store *store;
    struct derive *derive;
    store_progress progress;
    void *context;
    struct varve_message *message;
};

/* Commit what the image holds; rows before `id` are not needed soon. */
static int allocation_store_part_commit(const struct finish *finish, uint64_t id)
{
    int error = store_commit(finish->store, NULL, 0, finish->message);
    scratch_cool(&finish->derive->scratch, id + 1);
    if (finish->derive->blocks.count > 0) {
        uint64_t block = finish->store->allocations.block;
        scratch_cool(&finish->derive->blocks,
                     block <= finish->derive->blocks.count ? block : finish->derive->blocks.count);
    }
    if (finish->progress != NULL) {
        finish->progress(finish->context, "writing allocations", id, finish->derive->scratch.count);
    }
    return error;
}

static int rest_pass(const struct finish *finish)
{
    struct store_allocations *state = &finish->store->allocations;
    uint64_t count = finish->derive->scratch.count;
    int error = VARVE_OK;
    while (state->passed < count && error == VARVE_OK) {
        uint64_t before = state->passed;
        while (state->passed < count && state->passed < before + COMMIT_ROWS &&
               allocation_store_row_pass(finish->store, finish->derive, true)) {
        }
        bool has_rows = state->passed > before || image_rows(finish->store->batch.image, IMAGE_ALLOCATION) > 0;
        error = has_rows ? allocation_store_part_commit(finish, state->passed)
                         : varve_message_set(finish->message, VARVE_ERROR_NO_MEMORY, "%s: no memory for allocations",
                                             finish->store->path);
    }
    return error;
}

/* Rows that were not final, from the first of a chunk on; one that is live still is as it was. `*id` is the next one;
 * false if the image is full. */
static bool chunk_replace(const struct finish *finish, uint64_t *id, uint64_t *block)
{
    uint64_t end = (*id / CHUNK_ROWS + 1) * CHUNK_ROWS;
    end = end <= finish->derive->scratch.count ? end : finish->derive->scratch.count + 1;
    for (; *id < end; ++*id) {
        struct scratch_row *row = &finish->derive->scratch.rows[*id - 1];
        if (!row->is_stored) {
            const struct scratch_block *more = block_follow(finish->derive, *id, block);
            bool has_changed = row->free_seq != 0 || domain_is_api(row->domain);
            if (has_changed &&
                !allocation_store_row_add(finish->store, IMAGE_ALLOCATION_AGAIN, finish->derive, *id, more, true)) {
                return false;
            }
            row->is_stored = true;
        }
    }
    return true;
}

static int allocation_store_changes_write(const struct finish *finish)
{
    const struct store_allocations *state = &finish->store->allocations;
    uint64_t block = 0;
    int error = VARVE_OK;
    for (size_t chunk = 0; chunk < state->chunk_limit && error == VARVE_OK; chunk++) {
        uint64_t id = chunk > 0 ? chunk * CHUNK_ROWS : 1;
        bool is_done = state->is_open[chunk] == 0;
        while (!is_done && error == VARVE_OK) {
            is_done = chunk_replace(finish, &id, &block);
            if (!is_done || image_rows(finish->store->batch.image, IMAGE_ALLOCATION_AGAIN) >= COMMIT_ROWS) {
                error = allocation_store_part_commit(finish, id - 1);
            }
        }
    }
    return error == VARVE_OK ? allocation_store_part_commit(finish, finish->derive->scratch.count) : error;
}

int allocations_finish(struct store *store, struct derive *derive, store_progress progress, void *context,
                       struct varve_message *message)
{
    const struct finish finish = {
        .store = store, .derive = derive, .progress = progress, .context = context, .message = message};
    int error = rest_pass(&finish);
    return error == VARVE_OK ? allocation_store_changes_write(&finish) : error;
}
