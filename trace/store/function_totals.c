/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call site is walked outwards once, and adds what it has to each function on its way, to one that is there
 * several times once. SQL can't mark what a walk has passed: it would sort all frames of all call sites, which are 70
 * million of a program that imports PyTorch.
 */
#include "trace/store/function_totals.h"

#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/store/schema.h"

#include "statements_generated.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define FIGURES 8 /* sums of call sites, in the order of sql_function_callsites */

struct function_sums {
    int64_t callsites;
    int64_t figures[FIGURES];
    uint64_t walk; /* the last one that came by */
};

/* By id of a row; what is not there is 0. */
struct id_array {
    uint32_t *values;
    uint64_t limit;
};

struct function_totals {
    sqlite3 *db;
    struct id_array symbols;                  /* its function: the smallest id of symbols that are of the same one */
    struct id_array frames;                   /* the same */
    struct id_array nodes;                    /* the same */
    struct id_array callers;                  /* of nodes: the caller's node */
    struct function_sums *sums[DOMAIN_LIMIT]; /* by function; NULL: nothing of the domain */
    uint64_t walks;
};

static uint32_t id_array_get(const struct id_array *array, uint64_t id)
{
    return id < array->limit ? array->values[id] : 0;
}

/* NULL on failure. */
static sqlite3_stmt *function_prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    return statement;
}

/* All 0, for ids up to the one in a column of `limits`. */
static int id_array_make(struct id_array *array, sqlite3_stmt *limits, int column)
{
    array->limit = (uint64_t)sqlite3_column_int64(limits, column) + 1;
    array->values = calloc(array->limit < UINT32_MAX ? (size_t)array->limit : SIZE_MAX, sizeof(array->values[0]));
    return array->values != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

static int function_totals_begin(struct function_totals *totals)
{
    sqlite3_stmt *limits = function_prepare(totals->db, sql_function_limits);
    int result = limits != NULL && sqlite3_step(limits) == SQLITE_ROW ? SQLITE_OK : SQLITE_ERROR;
    result = result == SQLITE_OK ? id_array_make(&totals->symbols, limits, 0) : result;
    result = result == SQLITE_OK ? id_array_make(&totals->frames, limits, 1) : result;
    result = result == SQLITE_OK ? id_array_make(&totals->nodes, limits, 2) : result;
    result = result == SQLITE_OK ? id_array_make(&totals->callers, limits, 2) : result;
    sqlite3_finalize(limits);
    return result;
}

typedef int take_row(struct function_totals *totals, sqlite3_stmt *row, uint64_t id);

static int each_row(struct function_totals *totals, const char *sql, take_row *take)
{
    sqlite3_stmt *row = function_prepare(totals->db, sql);
    int result = row != NULL ? SQLITE_ROW : SQLITE_ERROR;
    while (result == SQLITE_ROW && (result = sqlite3_step(row)) == SQLITE_ROW) {
        int taken = take(totals, row, (uint64_t)sqlite3_column_int64(row, 0));
        result = taken == SQLITE_OK ? SQLITE_ROW : taken;
    }
    sqlite3_finalize(row);
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

static int take_symbol(struct function_totals *totals, sqlite3_stmt *row, uint64_t id)
{
    if (id < totals->symbols.limit) {
        totals->symbols.values[id] = (uint32_t)sqlite3_column_int64(row, 1);
    }
    return SQLITE_OK;
}

static int take_stack_frame(struct function_totals *totals, sqlite3_stmt *row, uint64_t id)
{
    if (id < totals->frames.limit) {
        totals->frames.values[id] = id_array_get(&totals->symbols, (uint64_t)sqlite3_column_int64(row, 1));
    }
    return SQLITE_OK;
}

static int take_node(struct function_totals *totals, sqlite3_stmt *row, uint64_t id)
{
    uint64_t caller = (uint64_t)sqlite3_column_int64(row, 1);
    if (id < totals->nodes.limit) {
        totals->callers.values[id] = caller < id ? (uint32_t)caller : 0; /* every walk ends */
        totals->nodes.values[id] = id_array_get(&totals->frames, (uint64_t)sqlite3_column_int64(row, 2));
    }
    return SQLITE_OK;
}

static int take_callsite(struct function_totals *totals, sqlite3_stmt *row, uint64_t node)
{
    uint64_t domain = (uint64_t)sqlite3_column_int64(row, 1);
    int64_t figures[FIGURES];
    if (domain >= DOMAIN_LIMIT) {
        return SQLITE_OK;
    }
    if (totals->sums[domain] == NULL) {
        totals->sums[domain] = calloc((size_t)totals->symbols.limit, sizeof(*totals->sums[domain]));
    }
    if (totals->sums[domain] == NULL) {
        return SQLITE_NOMEM;
    }
    for (int i = 0; i < FIGURES; i++) {
        figures[i] = sqlite3_column_int64(row, 2 + i);
    }
    totals->walks++;
    for (; node != 0 && node < totals->nodes.limit; node = totals->callers.values[node]) {
        struct function_sums *sums = &totals->sums[domain][totals->nodes.values[node]];
        if (sums->walk != totals->walks) {
            sums->walk = totals->walks;
            sums->callsites++;
            for (int i = 0; i < FIGURES; i++) {
                sums->figures[i] = (int64_t)((uint64_t)sums->figures[i] + (uint64_t)figures[i]);
            }
        }
    }
    return SQLITE_OK;
}

static int write_function(sqlite3_stmt *row, uint64_t function, unsigned domain, const struct function_sums *sums)
{
    sqlite3_bind_int64(row, 1, (sqlite3_int64)function);
    sqlite3_bind_int64(row, 2, domain);
    sqlite3_bind_int64(row, 3, sums->callsites);
    for (int i = 0; i < FIGURES; i++) {
        sqlite3_bind_int64(row, 4 + i, sums->figures[i]);
    }
    (void)sqlite3_step(row);
    return sqlite3_reset(row);
}

/* In the order of the key. Function 0 is that of frames that have none. */
static int write_all(const struct function_totals *totals)
{
    sqlite3_stmt *row = schema_prepare(totals->db, schema_row_sql(sql_row_insert, "function_stat", 3 + FIGURES));
    int result = row != NULL ? SQLITE_OK : SQLITE_ERROR;
    for (uint64_t function = 1; function < totals->symbols.limit && result == SQLITE_OK; function++) {
        for (unsigned domain = 0; domain < DOMAIN_LIMIT && result == SQLITE_OK; domain++) {
            const struct function_sums *sums = totals->sums[domain] != NULL ? &totals->sums[domain][function] : NULL;
            result = sums != NULL && sums->callsites > 0 ? write_function(row, function, domain, sums) : SQLITE_OK;
        }
    }
    sqlite3_finalize(row);
    return result;
}

int function_totals_write(sqlite3 *db, const char *path, struct varve_message *message)
{
    struct function_totals totals = {.db = db};
    int result = sqlite3_exec(db, "DELETE FROM function_stat", NULL, NULL, NULL);
    result = result == SQLITE_OK ? function_totals_begin(&totals) : result;
    result = result == SQLITE_OK ? each_row(&totals, sql_function_symbols, take_symbol) : result;
    result = result == SQLITE_OK ? each_row(&totals, sql_function_frames, take_stack_frame) : result;
    result = result == SQLITE_OK ? each_row(&totals, sql_function_nodes, take_node) : result;
    result = result == SQLITE_OK ? each_row(&totals, sql_function_callsites, take_callsite) : result;
    result = result == SQLITE_OK ? write_all(&totals) : result;
    for (unsigned i = 0; i < DOMAIN_LIMIT; i++) {
        free(totals.sums[i]);
    }
    free(totals.symbols.values);
    free(totals.frames.values);
    free(totals.nodes.values);
    free(totals.callers.values);
    return result == SQLITE_OK      ? VARVE_OK
           : result == SQLITE_NOMEM ? varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for stacks")
                                    : schema_error(db, path, "cannot add up functions", message);
}
