/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of `allocation`, of which there may be a hundred million, in order of their ids, from the scratch file at
 * the end. A thread makes them, into pages of its own, while the totals are added up; nothing that it reads changes any
 * more. collector.c begins, derived_tables.c waits.
 */
#include "trace/store/store.h"

#include "base/error.h"
#include "base/thread.h"
#include "trace/model/domain.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"
#include "trace/store/sqlite_format.h"
#include "trace/store/store_transaction.h"

#include "columns_generated.h"

#include <pthread.h>
#include <string.h>

#define BASE_SAMPLES 64U
#define COOL_ROWS ((uint64_t)1 << 18)
#define PROGRESS_EVERY_NS 50000000

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

/* allocation_row.own_events */
enum own_events { OWN_ALLOC = 1, OWN_FREE = 2, GIVEN_UP = 4, IN_PLACE = 8 };

static int64_t difference(int64_t a, int64_t b)
{
    int64_t result;
    return __builtin_sub_overflow(a, b, &result) ? INT64_MAX : result; /* of a damaged record */
}

/* An address that as many as possible are within four bytes of: of some rows all over the recording. */
static uint64_t address_base(const struct derive *derive)
{
    uint64_t samples[BASE_SAMPLES], base = 0;
    unsigned most = 0;
    if (derive->scratch.count == 0) {
        return 0;
    }
    for (unsigned i = 0; i < BASE_SAMPLES; i++) {
        const uint64_t id = 1 + derive->scratch.count * i / BASE_SAMPLES;
        samples[i] = scratch_peek(&derive->scratch, id)->addr & INT64_MAX;
    }
    for (unsigned i = 0; i < BASE_SAMPLES; i++) {
        unsigned near = 0;
        for (unsigned j = 0; j < BASE_SAMPLES; j++) {
            const int64_t offset = (int64_t)(samples[j] - samples[i]);
            near += offset == (int32_t)offset;
        }
        base = near > most ? samples[i] : base;
        most = near > most ? near : most;
    }
    return base;
}

/* An address that no program has becomes another one where it would be beyond all numbers. */
static int64_t address_offset(const struct store *store, uint64_t addr)
{
    int64_t result;
    return __builtin_sub_overflow((int64_t)addr, (int64_t)store->allocations.addr_base, &result) ? INT64_MIN : result;
}

static int64_t own_events(const struct scratch_row *row)
{
    if (!domain_holds_events(row->domain)) {
        return 0;
    }
    const bool holds_free = row->holds_free && row->free_seq != 0;
    return (row->holds_alloc ? 0 : OWN_ALLOC) | (holds_free || row->free_seq == 0 ? 0 : OWN_FREE) |
           (holds_free && row->is_given_up ? GIVEN_UP : 0) | (row->holds_alloc && row->is_in_place ? IN_PLACE : 0);
}

/* `more` is the block row: what caching allocators and the CUDA API have, NULL of all others. */
static bool allocation_store_row_add(struct store *store, const struct derive *derive, uint64_t id,
                                     const struct scratch_block *more)
{
    const struct scratch_row *row = scratch_peek(&derive->scratch, id);
    const struct derive_thread *thread = &derive->threads[row->thread_id];
    static const struct scratch_block none = {0};
    const struct scratch_block *block = more != NULL ? more : &none;
    bool is_block = row->domain == DOMAIN_BLOCK;
    uint64_t free_seq = row->free_seq;
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
    static const struct column_defaults defaults = COLUMN_DEFAULTS(ALLOCATION_DEFAULTS);
    const int64_t values[ALLOCATION_COLUMNS] = {
        [ALLOCATION_OFFSET] = address_offset(store, row->addr),
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
    unsigned count = record_columns(values, nulls, &defaults, ALLOCATION_COLUMNS);
    return row_pages_add(store->allocations.pages, ROWS_ALLOCATION, id, values, nulls, count);
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

/* Of totals alone, or of those that last. */
static bool row_is_left_out(const struct store *store, const struct derive *derive, uint64_t id,
                            const struct scratch_row *row)
{
    return (store->keep == VARVE_KEEP_TOTALS && id >= derive->forgets_from) ||
           (store->keep_rows == VARVE_KEEP_LASTING && scratch_row_is_short(row));
}

static void allocations_cool(struct derive *derive, uint64_t id, uint64_t block)
{
    scratch_cool(&derive->scratch, id + 1);
    if (derive->blocks.count > 0) {
        scratch_cool(&derive->blocks, block <= derive->blocks.count ? block : derive->blocks.count);
    }
}

static void *allocations_write(void *context)
{
    struct store *store = context;
    struct store_allocations *writing = &store->allocations;
    struct derive *derive = writing->derive;
    uint64_t block = 0;
    bool is_added = true;
    for (uint64_t id = 1; id <= derive->scratch.count && is_added; id++) {
        const struct scratch_row *row = scratch_peek(&derive->scratch, id);
        const struct scratch_block *more = block_follow(derive, id, &block);
        const bool is_left_out = row_is_left_out(store, derive, id, row) && !derive_row_is_left(derive, row);
        is_added = is_left_out || allocation_store_row_add(store, derive, id, more);
        if (id % COOL_ROWS == 0) {
            allocations_cool(derive, id, block > 0 ? block : 1);
            __atomic_store_n(&writing->done, id, __ATOMIC_RELAXED);
        }
    }
    writing->error = is_added ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    return NULL;
}

int allocations_begin(struct store *store, struct derive *derive, struct varve_message *message)
{
    struct store_allocations *writing = &store->allocations;
    if (writing->is_begun) {
        return VARVE_OK;
    }
    if (writing->pages == NULL) {
        VARVE_TRY(store_pages_open(store, &writing->pages, message));
    }
    row_pages_drop(writing->pages, ROWS_ALLOCATION);
    writing->derive = derive;
    writing->addr_base = address_base(derive);
    VARVE_TRY(store_meta_integer(store, "addr_base", (int64_t)writing->addr_base));
    writing->done = 0;
    writing->is_begun = true;
    writing->is_running = thread_start(&writing->thread, allocations_write, store) == 0;
    if (!writing->is_running) {
        allocations_write(store);
    }
    return VARVE_OK;
}

int allocations_finish(struct store *store, store_progress progress, void *context, struct varve_message *message)
{
    struct store_allocations *writing = &store->allocations;
    while (writing->is_running) {
        writing->is_running = !thread_join_within(writing->thread, PROGRESS_EVERY_NS);
        if (progress != NULL) {
            progress(context, "writing allocations", __atomic_load_n(&writing->done, __ATOMIC_RELAXED),
                     writing->derive->scratch.count);
        }
    }
    writing->is_begun = false;
    return writing->error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, writing->error, "%s: no memory for allocations", store->path);
}
