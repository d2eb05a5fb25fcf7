/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `storage`, in order of their ids, from the scratch file at the end. derived_tables.c calls it. */
#include "trace/store/store.h"

#include "base/error.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/store/sqlite_format.h"
#include "trace/store/store_transaction.h"

#include "columns_generated.h"

#define COOL_ROWS ((uint64_t)1 << 18)

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

static bool storage_store_row_add(struct store *store, const struct derive *derive, uint64_t id)
{
    const struct scratch_storage *row = derive_storage_row(derive, id);
    const struct derive_thread *thread = &derive->threads[row->thread_id];
    const unsigned uses = storage_use(row);
    static const struct column_defaults defaults = COLUMN_DEFAULTS(STORAGE_DEFAULTS);
    const int64_t values[STORAGE_COLUMNS] = {
        [STORAGE_SIZE] = storage_store_clamp(row->size),
        [STORAGE_ELEMENTS] = storage_store_clamp(row->elements),
        [STORAGE_LEAK_REFERENCES] = storage_store_clamp(row->leak_references),
        STORAGE_MEMBERS(COLUMN_VALUE) /* as they are */
    };
    uint32_t nulls = 1U << STORAGE_ID STORAGE_USES(COLUMN_NULL);
    return row_pages_add(store->pages, ROWS_STORAGE, id, values, nulls,
                         record_columns(values, nulls, &defaults, STORAGE_COLUMNS));
}

int storages_finish(struct store *store, struct derive *derive, struct varve_message *message)
{
    for (uint64_t id = 1; id <= derive->storages.count; id++) {
        const bool is_left_out = store->keep == VARVE_KEEP_TOTALS && derive_storage_row(derive, id)->destroy_seq != 0;
        if (!is_left_out && !storage_store_row_add(store, derive, id)) {
            return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "%s: no memory for storages", store->path);
        }
        if (id % COOL_ROWS == 0) {
            scratch_cool(&derive->storages.lines, 2 * id + 1);
        }
    }
    return VARVE_OK;
}
