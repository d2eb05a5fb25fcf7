/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A query as a table for people, or as JSON with the names of its columns as keys: a section of an answer is one
 * statement.
 */
#ifndef VARVE_ANALYSIS_QUERY_QUERY_PRINT_H
#define VARVE_ANALYSIS_QUERY_QUERY_PRINT_H

#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct cursor;
struct database;
struct table;
struct table_column;

struct query {
    const char *sql; /* ?1: the bound number */
    const struct table_column *columns;
    /* a letter for each column: t text, w wide text, p path (its end), c count, b bytes, C and B the same with their
     * sign, r and R bytes and count per second, d duration, n plain number, x address, % tenths of a percent; an empty
     * text is an empty cell in each */
    const char *kinds;
};

/// Returns the number of rows; prints nothing if there are none.
int64_t query_print(FILE *out, struct database *database, const struct query *query, int64_t bound);
/// The same of a cursor over the query's statement, to which all is bound, and which is closed. columns_max: of a line;
/// 0: no limit. rows_max: that are printed, of all that are counted.
int64_t query_print_rows(FILE *out, struct cursor *cursor, const struct query *query, size_t columns_max,
                         int64_t rows_max);
/// One cell of that.
void query_print_cell(struct table *table, struct cursor *cursor, int column, char kind);
/// The first columns of the row that a cursor stands on, with their names as keys.
struct cJSON *cursor_json(struct cursor *cursor, int columns);
/// `count` columns from `first` on become members of an object.
void cursor_json_add(struct cJSON *object, struct cursor *cursor, int first, int count);
/// All rows of a cursor, which is closed.
struct cJSON *cursor_rows_json(struct cursor *cursor);
struct cJSON *query_json(struct database *database, const char *sql, int64_t bound);

#endif
