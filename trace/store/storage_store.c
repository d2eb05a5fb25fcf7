/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of `storage` on their way from the scratch file through the image into the database: in order of their ids,
 * some way behind the newest. One that is alive then goes there as it is, and the end replaces it if it was destroyed
 * since, or used. A recording that is continued begins anew (store_open). collector.c gathers, derived_tables.c
 * finishes.
 */
#include "trace/store/store.h"

#include "base/error.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/store/sqlite_format.h"
#include "trace/store/store_transaction.h"

#include "columns_generated.h"

/* One commit per so many keeps the log of the database short. */
#define COMMIT_ROWS ((uint64_t)1 << 18)

/* Which columns a row of storage has. */
enum storage_use {
    USE_KNOWN = 1, /* of a view: what it is a view of */
    USE_DESTROYED = 2,
    USE_DEVICE = 4,
    USE_ALLOCATION = 8,
    USE_BASE = 16,
    USE_COPIED = 32,
    USE_LEAK = 64,
};

static int64_t storage_store_clamp(uint64_t value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value; /* of a damaged record */
}

static unsigned storage_use(const struct scratch_storage *row)
{
    bool is_known = row->kind != STORAGE_VIEW || row->base != 0;
    bool is_copied = row->writes + (uint64_t)row->reads > 0;
    return (is_known ? USE_KNOWN : 0) | (row->destroy_seq != 0 ? USE_DESTROYED : 0) |
           (row->is_of_device ? USE_DEVICE : 0) | (row->allocation_id != 0 ? USE_ALLOCATION : 0) |
           (row->base != 0 ? USE_BASE : 0) | (is_copied ? USE_COPIED : 0) | (row->leak_seq != 0 ? USE_LEAK : 0);
}

static bool storage_store_row_add(struct store *store, enum image_table table, const struct derive *derive, uint64_t id)
{
    const struct scratch_storage *row = derive_storage_row(derive, id);
    const struct derive_thread *thread = &derive->threads[row->thread_id];
    const unsigned uses = storage_use(row);
    const int64_t values[STORAGE_COLUMNS] = {
        [STORAGE_SIZE] = storage_store_clamp(row->size),
        [STORAGE_ELEMENTS] = storage_store_clamp(row->elements),
        [STORAGE_LEAK_REFERENCES] = storage_store_clamp(row->leak_references),
        STORAGE_MEMBERS(COLUMN_VALUE) /* as they are */
    };
    uint32_t nulls = 1U << STORAGE_ID STORAGE_USES(COLUMN_NULL);
    return image_add(store->batch.image, table, id, values, nulls, 0,
                     record_columns(values, nulls, STORAGE_DEFAULTS, STORAGE_COLUMNS));
}

/* The next row goes into the image, whether it is final or not; false if there is no space, or its call site has no row
 * yet. */
static bool storage_store_row_pass(struct store *store, const struct derive *derive, bool is_end)
{
    uint64_t id = store->storages_passed + 1;
    struct scratch_storage *row = derive_storage_row(derive, id);
    bool is_left_out = store->keep == VARVE_KEEP_TOTALS && row->destroy_seq != 0;
    if (!is_left_out && !is_end && !rows_has_callsite(store, row->callsite)) {
        return false;
    }
    if (!is_left_out && !storage_store_row_add(store, IMAGE_STORAGE, derive, id)) {
        return false;
    }
    row->is_stored = is_end || row->destroy_seq != 0;
    store->storages_passed = id;
    return true;
}

bool storages_gather(struct store *store, struct derive *derive, uint64_t behind)
{
    if (store->keep == VARVE_KEEP_TOTALS || store->is_private) {
        return true;
    }
    while (store->storages_passed + behind < derive->storages.count &&
           image_rows(store->batch.image, IMAGE_STORAGE) < COMMIT_ROWS &&
           storage_store_row_pass(store, derive, false)) {
    }
    return store->storages_passed + behind >= derive->storages.count;
}

/* ---- the end ---- */

/* Commit what the image holds; rows before `id` are not needed soon. */
static int storage_store_part_commit(struct store *store, struct derive *derive, uint64_t id,
                                     struct varve_message *message)
{
    int error = store_commit(store, NULL, 0, message);
    if (derive->storages.count > 0) {
        scratch_cool(&derive->storages.lines, 2 * id + 1);
    }
    return error;
}

/* Rows up to `last` that were not final when they were passed. */
static int storage_store_changes_write(struct store *store, struct derive *derive, uint64_t last,
                                       struct varve_message *message)
{
    int error = VARVE_OK;
    for (uint64_t id = 1; id <= last && error == VARVE_OK; id++) {
        struct scratch_storage *row = derive_storage_row(derive, id);
        if (row->is_stored) {
            continue;
        }
        while (error == VARVE_OK && !storage_store_row_add(store, IMAGE_STORAGE_AGAIN, derive, id)) {
            error = storage_store_part_commit(store, derive, id - 1, message);
        }
        row->is_stored = error == VARVE_OK;
        if (error == VARVE_OK && image_rows(store->batch.image, IMAGE_STORAGE_AGAIN) >= COMMIT_ROWS) {
            error = storage_store_part_commit(store, derive, id, message);
        }
    }
    return error;
}

int storages_finish(struct store *store, struct derive *derive, struct varve_message *message)
{
    uint64_t count = derive->storages.count;
    int error = VARVE_OK;
    while (store->storages_passed < count && error == VARVE_OK) {
        uint64_t end = store->storages_passed + COMMIT_ROWS;
        while (store->storages_passed < count && store->storages_passed < end &&
               storage_store_row_pass(store, derive, true)) {
        }
        error = storage_store_part_commit(store, derive, store->storages_passed, message);
    }
    VARVE_THEN(error, storage_store_changes_write(store, derive, count, message));
    return error == VARVE_OK ? storage_store_part_commit(store, derive, count, message) : error;
}
