/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the small tables, one function per table, and of stacks. Symbols get their numbers here, so that equal ones
 * share a row without an index. The collector and callsites_finish call it.
 */
#include "trace/store/store.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/store/schema.h"
#include "trace/store/store_transaction.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int store_meta_text(struct store *store, const char *key, const char *value)
{
    return ROWS_WRITE(store, STATEMENT_META, VALUE(key), VALUE(value));
}

int store_meta_integer(struct store *store, const char *key, int64_t value)
{
    return ROWS_WRITE(store, STATEMENT_META, VALUE(key), VALUE(value));
}

int store_process(struct store *store, const struct store_process *row)
{
    return ROWS_WRITE(store, STATEMENT_PROCESS, VALUE(row->id), VALUE(row->pid), value_least(1, row->parent_pid),
                      value_least(1, row->parent_id), value_least(0, row->rank), VALUE(row->executable),
                      VALUE(row->command_line), VALUE(row->start_ns), value_least(0, row->end_ns),
                      VALUE(row->end_cause), value_least(0, row->exit_status), VALUE(row->exec_path),
                      VALUE(row->unattached), VALUE(row->unattached_bytes), value_least(1, row->peak_rss_bytes),
                      VALUE_NULL, VALUE_NULL);
}

int store_rss(struct store *store, uint32_t process_id, int64_t ts_ns, uint64_t bytes, uint64_t bytes_max)
{
    return ROWS_WRITE(store, STATEMENT_RSS, VALUE(process_id), VALUE(ts_ns), VALUE(bytes), VALUE(bytes_max));
}

/* ---- threads ---- */

#define THREADS_NOTED 1048576 /* rows of others say whose they are themselves */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* Rows that name a thread and nothing else are right as long as it is the same one. */
int store_thread(struct store *store, const struct store_thread *row)
{
    struct store_threads *threads = &store->threads;
    struct thread_ids ids = {.process_id = row->process_id, .pid = row->pid, .tid = row->tid};
    if (row->id < threads->limit && threads->ids[row->id].is_used) {
        ids = threads->ids[row->id];
    }
    int error =
        ROWS_WRITE(store, STATEMENT_THREAD, VALUE(row->id), VALUE(ids.process_id), VALUE(row->ring), VALUE(ids.pid),
                   VALUE(ids.tid), VALUE(row->name), VALUE(row->start_ns), value_least(0, row->end_ns),
                   VALUE(row->emitted), VALUE(row->stored), VALUE(row->spilled), VALUE(row->lost),
                   VALUE(row->lost_bytes), VALUE(row->uncommitted), VALUE(row->unreadable), VALUE(row->damage));
    if (error == VARVE_OK && row->id < THREADS_NOTED && ARRAY_COVER(threads->ids, threads->limit, row->id)) {
        threads->ids[row->id] = ids;
    }
    return error;
}

bool rows_is_thread(struct store *store, uint32_t thread_id, uint32_t process_id, int32_t pid, int32_t tid)
{
    struct thread_ids *ids = thread_id < store->threads.limit ? &store->threads.ids[thread_id] : NULL;
    bool is_same =
        ids != NULL && ids->process_id != 0 && ids->process_id == process_id && ids->pid == pid && ids->tid == tid;
    if (is_same) {
        __atomic_store_n(&ids->is_used, true, __ATOMIC_RELAXED); /* by several threads at the end */
    }
    return is_same;
}

int rows_threads_read(struct store *store, struct varve_message *message)
{
    struct store_threads *threads = &store->threads;
    sqlite3_stmt *query = NULL;
    if (sqlite3_prepare_v2(store->db,
                           "SELECT id, process_id, pid, tid FROM thread WHERE id >= 0 AND id < " TEXT(THREADS_NOTED),
                           -1, &query, NULL) != SQLITE_OK) {
        return schema_error(store->db, store->path, "cannot read", message);
    }
    int result = SQLITE_DONE;
    bool has_memory = true;
    while (has_memory && (result = sqlite3_step(query)) == SQLITE_ROW) {
        size_t id = (size_t)sqlite3_column_int64(query, 0);
        has_memory = id < threads->limit || ARRAY_COVER(threads->ids, threads->limit, id);
        if (has_memory) {
            threads->ids[id] = (struct thread_ids){.process_id = (uint32_t)sqlite3_column_int64(query, 1),
                                                   .pid = sqlite3_column_int(query, 2),
                                                   .tid = sqlite3_column_int(query, 3),
                                                   .is_used = true};
        }
    }
    int error = !has_memory             ? VARVE_ERROR_NO_MEMORY
                : result == SQLITE_DONE ? VARVE_OK
                                        : schema_error(store->db, store->path, "cannot read", message);
    sqlite3_finalize(query);
    return error;
}

/* ---- the small tables ---- */

int store_thread_gone(struct store *store, const struct store_ring_position *position, const char *damage,
                      int64_t end_ns)
{
    return ROWS_WRITE(store, STATEMENT_THREAD_GONE, VALUE(position->thread_id), VALUE(ring_position_stored(position)),
                      VALUE(position->spill_tail), VALUE(position->unreadable), VALUE(end_ns), VALUE(damage));
}

int store_thread_cut(struct store *store, uint32_t thread_id, uint64_t events)
{
    return ROWS_WRITE(store, STATEMENT_THREAD_CUT, VALUE(thread_id), VALUE(events));
}

int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value)
{
    return ROWS_WRITE(store, STATEMENT_STAT, VALUE(name), VALUE(idx), VALUE(severity), VALUE(source), VALUE(value));
}

int store_unrecorded(struct store *store, const char *path, const char *reason, int64_t count)
{
    return ROWS_WRITE(store, STATEMENT_UNRECORDED, VALUE(path), VALUE(reason), VALUE(count));
}

int store_unrecorded_finish(struct store *store, int64_t *total_out)
{
    int error = ROWS_WRITE(store, STATEMENT_UNRECORDED_NONE, VALUE(0));
    VARVE_THEN(error, store_sync(store, NULL));
    if (error != VARVE_OK) {
        return error;
    }
    return schema_query(store->db, store->path, "SELECT coalesce(sum(count), 0) FROM unrecorded_program", total_out,
                        NULL);
}

int store_clock_anchor(struct store *store, uint64_t ticks, int64_t mono_ns, int64_t real_ns)
{
    return ROWS_WRITE(store, STATEMENT_ANCHOR, VALUE(ticks), VALUE(mono_ns), VALUE(real_ns));
}

int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                          uint32_t count)
{
    return ROWS_WRITE(store, STATEMENT_ORIGIN, VALUE(callsite_id), VALUE(process_id), VALUE(callsite), VALUE(count));
}

int store_device(struct store *store, unsigned device, const char *name, uint64_t total_bytes)
{
    return ROWS_WRITE(store, STATEMENT_DEVICE, VALUE(device), VALUE(name), value_least(1, total_bytes), VALUE_NULL);
}

int store_stream(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t handle)
{
    return ROWS_WRITE(store, STATEMENT_STREAM, VALUE(process_id), VALUE(device), VALUE(number), VALUE(handle));
}

int store_pool(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t capture_id,
               uint64_t user_id, bool is_small)
{
    return ROWS_WRITE(store, STATEMENT_POOL, VALUE(process_id), VALUE(device), VALUE(number), VALUE(capture_id),
                      VALUE(user_id), VALUE(is_small));
}

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex)
{
    return ROWS_WRITE(store, STATEMENT_MODULE, VALUE(id), VALUE(path), VALUE(build_id_hex));
}

int store_stack_frame(struct store *store, uint32_t id, uint32_t symbol_id, int64_t pc)
{
    const int64_t values[] = {symbol_id, pc};
    return functions_frame(&store->functions, id, symbol_id) &&
                   row_pages_add(store->pages, ROWS_STACK_FRAME, id, values, (unsigned)(pc < 0) << 1, pc < 0 ? 1 : 2)
               ? VARVE_OK
               : VARVE_ERROR_NO_MEMORY;
}

int store_frame_address(struct store *store, uint32_t id, uint32_t frame_id, int64_t pc)
{
    const int64_t values[] = {frame_id, pc};
    return row_pages_add(store->pages, ROWS_FRAME_ADDRESS, id, values, 0, 2) ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

int store_stack_node(struct store *store, uint32_t id, uint32_t parent_id, uint32_t frame_id)
{
    if (parent_id >= id) {
        return VARVE_ERROR_INVALID;
    }
    const int64_t values[] = {frame_id, (int64_t)id - parent_id};
    bool is_root = parent_id == 0;
    return functions_node(&store->functions, id, parent_id, frame_id) &&
                   row_pages_add(store->pages, ROWS_STACK_NODE, id, values, (unsigned)is_root << 1,
                                 !is_root && values[1] == 1 ? 1 : 2)
               ? VARVE_OK
               : VARVE_ERROR_NO_MEMORY;
}

int store_callsite(struct store *store, uint32_t id, uint32_t node_id, uint32_t depth, uint32_t symbol_id,
                   uint32_t user_symbol_id)
{
    const int64_t values[] = {node_id, depth, symbol_id, user_symbol_id};
    const uint32_t nulls = (node_id == 0) | (symbol_id == 0) << 2 | (user_symbol_id == 0) << 3;
    return functions_callsite(&store->functions, id, node_id) &&
                   row_pages_add(store->pages, ROWS_CALLSITE, id, values, nulls, user_symbol_id == 0 ? 3 : 4)
               ? VARVE_OK
               : VARVE_ERROR_NO_MEMORY;
}

/* ---- symbols ---- */

/* The hash of a text, by what the ones before gave; of none another one than of an empty one. */
static uint64_t text_hash(const char *text, uint64_t seed)
{
    return index_hash(text, text != NULL ? strlen(text) : 0, seed + (text != NULL));
}

struct wide_hash symbol_hash(const struct store_symbol *symbol)
{
    const uint64_t numbers = (uint64_t)symbol->line << 2 | (uint64_t)symbol->is_python << 1 | symbol->is_inlined;
    struct wide_hash hash;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t seed = text_hash(symbol->module, index_hash(&numbers, sizeof(numbers), i));
        hash.words[i] = text_hash(symbol->function, text_hash(symbol->file, seed));
    }
    return hash;
}

uint32_t store_symbol(struct store *store, const struct store_symbol *symbol)
{
    const struct wide_hash hash = symbol_hash(symbol);
    struct store_symbols *symbols = &store->symbols;
    struct index_slot *slot = hash_numbers_find(&symbols->numbers, &hash);
    if (slot == NULL || slot->number != 0) {
        return slot != NULL ? symbols->first + (uint32_t)slot->number : 0;
    }
    uint32_t id = store->symbol_last + 1;
    int error = ROWS_WRITE(store, STATEMENT_SYMBOL, VALUE(id), VALUE(symbol->function), VALUE(symbol->file),
                           value_least(1, symbol->line), VALUE(symbol->module), VALUE(symbol->is_python),
                           VALUE(symbol->is_inlined), VALUE(symbol->rank));
    if (error != VARVE_OK || !functions_symbol(&store->functions, id, symbol)) {
        return 0;
    }
    if (symbols->numbers.index.count == 0) {
        symbols->first = store->symbol_last;
    }
    store->symbol_last = id;
    hash_numbers_add(&symbols->numbers, slot, &hash);
    return id;
}

int store_symbols_begin(struct store *store, struct varve_message *message)
{
    int error = writer_execute(store, "DELETE FROM symbol; DELETE FROM module", message);
    if (error == VARVE_OK) {
        row_pages_drop(store->pages, ROWS_STACK_FRAME);
        row_pages_drop(store->pages, ROWS_FRAME_ADDRESS);
        hash_numbers_free(&store->symbols.numbers);
        functions_drop_symbols(&store->functions);
        store->symbol_last = 0;
    }
    return error;
}

int store_callsites_begin(struct store *store, struct varve_message *message)
{
    row_pages_drop(store->pages, ROWS_STACK_NODE);
    row_pages_drop(store->pages, ROWS_CALLSITE);
    functions_drop_stacks(&store->functions);
    return store_symbols_begin(store, message);
}
