/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the small tables, one function per table. Symbols get their numbers here, so that equal ones share a row without
 * an index: they are recognized by 128 bits of hash. The collector and callsites_finish call it.
 */
#include "trace/store/rows.h"

#include "trace/base/array.h"
#include "trace/base/index.h"
#include "trace/error.h"
#include "trace/store/schema.h"
#include "trace/store/store.h"
#include "trace/store/transaction.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_WRITE(store, statement, values) \
    rows_write(store, statement, values, sizeof(values) / sizeof((values)[0]))

/* ---- one function per table ---- */

int store_meta_text(struct store *store, const char *key, const char *value)
{
    const struct store_value values[] = {value_text(key), value_text(value)};
    return ROWS_WRITE(store, STATEMENT_META, values);
}

int store_meta_integer(struct store *store, const char *key, int64_t value)
{
    const struct store_value values[] = {value_text(key), VALUE_INTEGER(value)};
    return ROWS_WRITE(store, STATEMENT_META, values);
}

int store_process(struct store *store, const struct store_process *row)
{
    const struct store_value values[] = {
        VALUE_INTEGER(row->id),
        VALUE_INTEGER(row->pid),
        value_not_negative(row->parent_pid > 0 ? row->parent_pid : -1),
        value_not_negative(row->parent_id > 0 ? (int64_t)row->parent_id : -1),
        value_not_negative(row->rank),
        value_text(row->executable),
        value_text(row->command_line),
        VALUE_INTEGER(row->start_ns),
        value_not_negative(row->end_ns),
        value_text(row->end_cause),
        value_not_negative(row->exit_status),
        value_text(row->exec_path),
        VALUE_INTEGER(row->unattached),
        VALUE_INTEGER(row->unattached_bytes),
    };
    return ROWS_WRITE(store, STATEMENT_PROCESS, values);
}

int store_thread(struct store *store, const struct store_thread *row)
{
    const struct store_value values[] = {
        VALUE_INTEGER(row->id),         VALUE_INTEGER(row->process_id),  VALUE_INTEGER(row->ring),
        VALUE_INTEGER(row->pid),        VALUE_INTEGER(row->tid),         value_text(row->name),
        VALUE_INTEGER(row->start_ns),   value_not_negative(row->end_ns), VALUE_INTEGER(row->emitted),
        VALUE_INTEGER(row->stored),     VALUE_INTEGER(row->spilled),     VALUE_INTEGER(row->lost),
        VALUE_INTEGER(row->lost_bytes), VALUE_INTEGER(row->uncommitted), VALUE_INTEGER(row->unreadable),
        value_text(row->damage),
    };
    return ROWS_WRITE(store, STATEMENT_THREAD, values);
}

int store_thread_gone(struct store *store, const struct store_ring_position *position, const char *damage,
                      int64_t end_ns)
{
    const struct store_value values[] = {
        VALUE_INTEGER(position->thread_id),
        VALUE_INTEGER(position->tail + position->spill_tail + position->orphans - position->unreadable),
        VALUE_INTEGER(position->spill_tail),
        VALUE_INTEGER(position->unreadable),
        VALUE_INTEGER(end_ns),
        value_text(damage),
    };
    return ROWS_WRITE(store, STATEMENT_THREAD_GONE, values);
}

int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value)
{
    const struct store_value values[] = {value_text(name), VALUE_INTEGER(idx), value_text(severity),
                                         value_text(source), VALUE_INTEGER(value)};
    return ROWS_WRITE(store, STATEMENT_STAT, values);
}

int store_unrecorded(struct store *store, const char *path, const char *reason, int64_t count)
{
    const struct store_value values[] = {value_text(path), value_text(reason), VALUE_INTEGER(count)};

    return ROWS_WRITE(store, STATEMENT_UNRECORDED, values);
}

int store_unrecorded_finish(struct store *store, int64_t *total_out)
{
    const struct store_value values[] = {VALUE_INTEGER(0)};
    int error = ROWS_WRITE(store, STATEMENT_UNRECORDED_NONE, values);

    if (error != VARVE_OK) {
        return error;
    }
    return schema_query(store->db, store->path, "SELECT coalesce(sum(count), 0) FROM unrecorded_program",
                        total_out, NULL);
}

int store_clock_anchor(struct store *store, uint64_t ticks, int64_t mono_ns, int64_t real_ns)
{
    const struct store_value values[] = {VALUE_INTEGER(ticks), VALUE_INTEGER(mono_ns),
                                         VALUE_INTEGER(real_ns)};
    return ROWS_WRITE(store, STATEMENT_ANCHOR, values);
}

int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite)
{
    const struct store_value values[] = {VALUE_INTEGER(callsite_id), VALUE_INTEGER(process_id),
                                         VALUE_INTEGER(callsite)};
    return ROWS_WRITE(store, STATEMENT_ORIGIN, values);
}

int store_device(struct store *store, unsigned device, const char *name, uint64_t total_bytes)
{
    const struct store_value values[] = {VALUE_INTEGER(device), value_text(name),
                                         value_not_negative(total_bytes > 0 ? (int64_t)total_bytes : -1),
                                         VALUE_NULL};
    return ROWS_WRITE(store, STATEMENT_DEVICE, values);
}

int store_stream(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t handle)
{
    const struct store_value values[] = {VALUE_INTEGER(process_id), VALUE_INTEGER(device),
                                         VALUE_INTEGER(number), VALUE_INTEGER(handle)};
    return ROWS_WRITE(store, STATEMENT_STREAM, values);
}

int store_pool(struct store *store, uint32_t process_id, unsigned device, unsigned number,
               uint64_t capture_id, uint64_t user_id, bool is_small)
{
    const struct store_value values[] = {VALUE_INTEGER(process_id), VALUE_INTEGER(device),
                                         VALUE_INTEGER(number),     VALUE_INTEGER(capture_id),
                                         VALUE_INTEGER(user_id),    VALUE_INTEGER(is_small)};
    return ROWS_WRITE(store, STATEMENT_POOL, values);
}

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex)
{
    const struct store_value values[] = {VALUE_INTEGER(id), value_text(path), value_text(build_id_hex)};
    return ROWS_WRITE(store, STATEMENT_MODULE, values);
}

int store_callsite(struct store *store, uint32_t id, uint32_t depth, uint32_t symbol_id)
{
    const struct store_value values[] = {VALUE_INTEGER(id), VALUE_INTEGER(depth),
                                         value_not_negative(symbol_id > 0 ? (int64_t)symbol_id : -1)};
    return ROWS_WRITE(store, STATEMENT_CALLSITE, values);
}

int store_callsite_frame(struct store *store, uint32_t callsite_id, uint32_t depth, uint32_t symbol_id,
                         int64_t pc)
{
    const struct store_value values[] = {VALUE_INTEGER(callsite_id), VALUE_INTEGER(depth),
                                         VALUE_INTEGER(symbol_id), value_not_negative(pc)};
    return ROWS_WRITE(store, STATEMENT_FRAME, values);
}

/* ---- symbols ---- */

/* The hash of a text, by what the ones before gave; of none another one than of an empty one. */
static uint64_t text_hash(const char *text, uint64_t seed)
{
    return index_hash(text, text != NULL ? strlen(text) : 0, seed + (text != NULL));
}

static struct symbol_hash symbol_hash(const struct store_symbol *symbol)
{
    const uint64_t numbers =
        (uint64_t)symbol->line << 2 | (uint64_t)symbol->is_python << 1 | symbol->is_inlined;
    struct symbol_hash hash;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t seed = text_hash(symbol->module, index_hash(&numbers, sizeof(numbers), i));
        hash.words[i] = text_hash(symbol->function, text_hash(symbol->file, seed));
    }
    return hash;
}

struct symbol_key {
    const struct store_symbols *symbols;
    const struct symbol_hash *hash;
};

static bool symbol_is_equal(const void *context, uint64_t number)
{
    const struct symbol_key *key = context;
    return memcmp(&key->symbols->hashes[number - 1], key->hash, sizeof(*key->hash)) == 0;
}

uint32_t store_symbol(struct store *store, const struct store_symbol *symbol)
{
    const struct symbol_hash hash = symbol_hash(symbol);
    struct store_symbols *symbols = &store->symbols;
    const struct symbol_key key = {.symbols = symbols, .hash = &hash};
    struct index_slot *slot = index_find_equal(&symbols->index, hash.words[0], symbol_is_equal, &key);
    if (slot == NULL || !ARRAY_GROW(symbols->hashes, symbols->capacity, symbols->index.count + 1)) {
        return 0;
    }
    if (slot->number != 0) {
        return symbols->first + (uint32_t)slot->number;
    }
    uint32_t id = store->symbol_last + 1;
    const struct store_value values[] = {
        VALUE_INTEGER(id),
        value_text(symbol->function),
        value_text(symbol->file),
        value_not_negative(symbol->line > 0 ? (int64_t)symbol->line : -1),
        value_text(symbol->module),
        VALUE_INTEGER(symbol->is_python),
        VALUE_INTEGER(symbol->is_inlined),
    };
    if (ROWS_WRITE(store, STATEMENT_SYMBOL, values) != VARVE_OK) {
        return 0;
    }
    if (symbols->index.count == 0) {
        symbols->first = store->symbol_last;
    }
    store->symbol_last = id;
    symbols->hashes[symbols->index.count] = hash;
    index_fill(&symbols->index, slot, hash.words[0], symbols->index.count + 1);
    return id;
}

void rows_forget_symbols(struct store *store)
{
    /* Numbers already given may be in the database or not: go on after them. */
    index_free(&store->symbols.index);
    free(store->symbols.hashes);
    store->symbols = (struct store_symbols){0};
}
