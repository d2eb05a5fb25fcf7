/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of structs as eponymous-only virtual tables, the source of `INSERT … SELECT`: one statement takes
 * thousands of rows without a bind, a step and a reset for each, which is what makes the writer twice as fast
 * as a prepared statement per row. SQLite calls column_* once per value, so these do nothing but a switch.
 * A value that is not reported is NULL. sqlite_writer.c and sqlite_derive.c set the rows.
 */
#include "trace/sqlite_internal.h"

#include <stdlib.h>

struct rows {
    const char *data;
    size_t count;
};

struct store_vtab {
    struct rows rows[SOURCE_LIMIT];
};

struct source_table {
    sqlite3_vtab base;
    const struct rows *rows;
};

struct source_cursor {
    sqlite3_vtab_cursor base;
    const char *row;
    const char *end;
};

static int table_connect(sqlite3 *db, const struct rows *rows, const char *declaration,
                         sqlite3_vtab **table_out)
{
    struct source_table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        return SQLITE_NOMEM;
    }
    table->rows = rows;
    *table_out = &table->base;
    return sqlite3_declare_vtab(db, declaration);
}

static int table_disconnect(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

static int table_best_index(sqlite3_vtab *base, sqlite3_index_info *info)
{
    const struct source_table *table = (const struct source_table *)base;
    info->estimatedCost = (double)table->rows->count;
    info->estimatedRows = (sqlite3_int64)table->rows->count;
    return SQLITE_OK;
}

static int cursor_open(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor_out)
{
    (void)table;
    struct source_cursor *cursor = calloc(1, sizeof *cursor);
    if (cursor == NULL) {
        return SQLITE_NOMEM;
    }
    *cursor_out = &cursor->base;
    return SQLITE_OK;
}

static int cursor_close(sqlite3_vtab_cursor *cursor)
{
    free(cursor);
    return SQLITE_OK;
}

static int cursor_eof(sqlite3_vtab_cursor *base)
{
    const struct source_cursor *cursor = (const struct source_cursor *)base;
    return cursor->row == cursor->end;
}

static int cursor_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *rowid_out)
{
    const struct source_cursor *cursor = (const struct source_cursor *)base;
    *rowid_out = (sqlite3_int64)(uintptr_t)cursor->row;
    return SQLITE_OK;
}

/* Sizes beyond 63 bits are requests that failed; the largest integer stands for them. */
static inline void result_size(sqlite3_context *context, uint64_t size)
{
    sqlite3_result_int64(context, size > INT64_MAX ? INT64_MAX : (sqlite3_int64)size);
}

static inline void result_number(sqlite3_context *context, uint64_t number)
{
    sqlite3_result_int64(context, (sqlite3_int64)number);
}

/* ---- event ---- */

enum event_use {
    USE_ADDR = 1,
    USE_SIZE = 2,
    USE_REQUESTED = 4,
    USE_ARG = 8,
    USE_DEVICE = 16, /* device, dev_seq, stream, pool: not for what happens in the host's memory */
    USE_CALLSITE = 32,
};

/* sizeof of the description: "" has one byte. The groups differ in their first letters. */
#define USE_DEVICE_OF(group) (#group[0] == 'h' || #group[0] == 'p' ? 0 : USE_DEVICE)
#define USE_CALLSITE_OF(group) (#group[0] == 'p' ? 0 : USE_CALLSITE)
#define USE_ROW(code, NAME, name, group, addr, size, requested, arg, meaning)                \
    [code] = (sizeof(addr) > 1 ? USE_ADDR : 0) | (sizeof(size) > 1 ? USE_SIZE : 0) |         \
             (sizeof(requested) > 1 ? USE_REQUESTED : 0) | (sizeof(arg) > 1 ? USE_ARG : 0) | \
             USE_DEVICE_OF(group) | USE_CALLSITE_OF(group),

/* A kind that is not in the list uses nothing, so that its row is NULL where its meaning is unknown. */
static const uint8_t event_uses[256] = {VARVE_EVENT_LIST(USE_ROW)};

#define EVENT_COLUMNS                                                                                       \
    "CREATE TABLE x(seq, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size, requested, " \
    "arg, cause, callsite_id, thread_id, flags)"

static void event_column_rare(sqlite3_context *context, const struct event *event, int column)
{
    if (!(event_uses[event->kind] & USE_DEVICE)) {
        return;
    }
    switch (column) {
    case 4:
        result_number(context, event->device);
        break;
    case 5:
        result_number(context, event->dev_seq);
        break;
    case 7:
        result_number(context, event->stream);
        break;
    default:
        result_number(context, event->pool);
        break;
    }
}

static int event_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
    const struct event *event = (const struct event *)((const struct source_cursor *)base)->row;
    unsigned uses = event_uses[event->kind];
    switch (column) {
    case 0:
        result_number(context, event->seq);
        break;
    case 1:
        sqlite3_result_int64(context, event->ts_ns);
        break;
    case 2:
        sqlite3_result_int64(context, event->pid);
        break;
    case 3:
        sqlite3_result_int64(context, event->tid);
        break;
    case 6:
        sqlite3_result_int64(context, event->kind);
        break;
    case 9:
        if (event->id != 0) {
            result_number(context, event->id);
        }
        break;
    case 10:
        if (uses & USE_ADDR) {
            result_number(context, event->addr);
        }
        break;
    case 11:
        if (uses & USE_SIZE) {
            result_size(context, event->size);
        }
        break;
    case 12:
        if (uses & USE_REQUESTED) {
            result_size(context, event->requested);
        }
        break;
    case 13:
        if (uses & USE_ARG) {
            result_number(context, event->arg);
        }
        break;
    case 14:
        sqlite3_result_int64(context, event->cause);
        break;
    case 15:
        if (uses & USE_CALLSITE) {
            sqlite3_result_int64(context, event->callsite);
        }
        break;
    case 16:
        sqlite3_result_int64(context, event->thread_id);
        break;
    case 17:
        sqlite3_result_int64(context, event->flags);
        break;
    default:
        event_column_rare(context, event, column);
        break;
    }
    return SQLITE_OK;
}

/* ---- allocation: the columns in the order of the statement in sqlite_rows.c ---- */

#define ALLOCATION_COLUMNS                                                                                 \
    "CREATE TABLE x(id, domain, pid, tid, addr, size, requested, alloc_seq, free_seq, alloc_ns, free_ns, " \
    "callsite_id, source, process_id, temporary)"

static int allocation_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
    const struct store_allocation *row =
        (const struct store_allocation *)((const struct source_cursor *)base)->row;
    switch (column) {
    case 0:
        result_number(context, row->id);
        break;
    case 1:
        sqlite3_result_int64(context, row->domain);
        break;
    case 2:
        sqlite3_result_int64(context, row->pid);
        break;
    case 3:
        sqlite3_result_int64(context, row->tid);
        break;
    case 4:
        result_number(context, row->addr);
        break;
    case 5:
        result_size(context, row->size);
        break;
    case 6:
        result_size(context, row->requested);
        break;
    case 7:
        result_number(context, row->alloc_seq);
        break;
    case 8:
        if (row->free_seq != 0) {
            result_number(context, row->free_seq);
        }
        break;
    case 9:
        sqlite3_result_int64(context, row->alloc_ns);
        break;
    case 10:
        if (row->free_seq != 0) {
            sqlite3_result_int64(context, row->free_ns);
        }
        break;
    case 11:
        sqlite3_result_int64(context, row->callsite);
        break;
    case 12:
        sqlite3_result_int64(context, row->source);
        break;
    case 13:
        sqlite3_result_int64(context, row->process_id);
        break;
    default:
        sqlite3_result_int64(context, row->temporary);
        break;
    }
    return SQLITE_OK;
}

/* ---- callsite_stat and sample: all their columns in the order of the tables ---- */

#define CALLSITE_STAT_COLUMNS                                                                       \
    "CREATE TABLE x(callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, " \
    "peak_allocations, peak_bytes, temporary, lifetime_ns)"

static int callsite_stat_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
    const struct store_callsite_stat *row =
        (const struct store_callsite_stat *)((const struct source_cursor *)base)->row;
    const uint64_t values[] = {
        row->callsite,   row->domain,           row->allocations,          row->frees,
        row->bytes,      row->live_allocations, row->live_bytes,           row->peak_allocations,
        row->peak_bytes, row->temporary,        (uint64_t)row->lifetime_ns};
    result_number(context, values[column]);
    return SQLITE_OK;
}

#define SAMPLE_COLUMNS \
    "CREATE TABLE x(process_id, domain, device, seq, ts_ns, allocated, allocated_max, live)"

static int sample_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column)
{
    const struct store_sample *row = (const struct store_sample *)((const struct source_cursor *)base)->row;
    const uint64_t values[] = {row->process_id, row->domain,        0,        row->seq, (uint64_t)row->ts_ns,
                               row->allocated,  row->allocated_max, row->live};
    result_number(context, values[column]);
    return SQLITE_OK;
}

/* ---- one module per source: what differs is the struct, its columns and its declaration ---- */

#define SOURCE_LIST(X)                                                                 \
    X(EVENT, event, struct event, EVENT_COLUMNS)                                       \
    X(ALLOCATION, allocation, struct store_allocation, ALLOCATION_COLUMNS)             \
    X(CALLSITE_STAT, callsite_stat, struct store_callsite_stat, CALLSITE_STAT_COLUMNS) \
    X(SAMPLE, sample, struct store_sample, SAMPLE_COLUMNS)

#define SOURCE_MODULE(NAME, name, type, declaration)                                                \
    static int name##_connect(sqlite3 *db, void *context, int argc, const char *const *argv,        \
                              sqlite3_vtab **table_out, char **error_out)                           \
    {                                                                                               \
        (void)argc, (void)argv, (void)error_out;                                                    \
        return table_connect(db, &((struct store_vtab *)context)->rows[SOURCE_##NAME], declaration, \
                             table_out);                                                            \
    }                                                                                               \
    static int name##_filter(sqlite3_vtab_cursor *base, int plan, const char *plan_text, int argc,  \
                             sqlite3_value **argv)                                                  \
    {                                                                                               \
        (void)plan, (void)plan_text, (void)argc, (void)argv;                                        \
        struct source_cursor *cursor = (struct source_cursor *)base;                                \
        const struct rows *rows = ((struct source_table *)base->pVtab)->rows;                       \
        cursor->row = rows->data;                                                                   \
        cursor->end = rows->data + rows->count * sizeof(type);                                      \
        return SQLITE_OK;                                                                           \
    }                                                                                               \
    static int name##_next(sqlite3_vtab_cursor *base)                                               \
    {                                                                                               \
        ((struct source_cursor *)base)->row += sizeof(type);                                        \
        return SQLITE_OK;                                                                           \
    }                                                                                               \
    static const sqlite3_module name##_module = {                                                   \
        .xConnect = name##_connect,                                                                 \
        .xBestIndex = table_best_index,                                                             \
        .xDisconnect = table_disconnect,                                                            \
        .xOpen = cursor_open,                                                                       \
        .xClose = cursor_close,                                                                     \
        .xFilter = name##_filter,                                                                   \
        .xNext = name##_next,                                                                       \
        .xEof = cursor_eof,                                                                         \
        .xColumn = name##_column,                                                                   \
        .xRowid = cursor_rowid,                                                                     \
    };
SOURCE_LIST(SOURCE_MODULE)

int vtab_register(sqlite3 *db, struct store_vtab **vtab_out)
{
    struct store_vtab *vtab = calloc(1, sizeof *vtab);
    if (vtab == NULL) {
        return SQLITE_NOMEM;
    }
    int result = SQLITE_OK;
#define SOURCE_REGISTER(NAME, name, type, declaration)                             \
    if (result == SQLITE_OK) {                                                     \
        result = sqlite3_create_module(db, "source_" #name, &name##_module, vtab); \
    }
    SOURCE_LIST(SOURCE_REGISTER)
    *vtab_out = vtab;
    return result;
}

void vtab_free(struct store_vtab *vtab)
{
    free(vtab);
}

void vtab_set_rows(struct store_vtab *vtab, enum store_source source, const void *rows, size_t count)
{
    vtab->rows[source] = (struct rows){.data = rows, .count = count};
}
