/* SPDX-License-Identifier: Apache-2.0 */
/* A cell is formatted by the letter of its column; a table without rows is not printed, titles neither. */
#include "analysis/query/query_print.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_COLUMNS 64
#define PATH_COLUMNS 30

void query_print_cell(struct table *table, struct cursor *cursor, int column, char kind)
{
    const int64_t number = cursor_integer(cursor, column);
    char text[4 * TERMINAL_COLUMNS_MAX + 8] = "";
    if (cursor_is_null(cursor, column)) {
        table_add(table, "-");
        return;
    }
    switch (cursor_name(cursor, column)[0] != '\0' ? kind : 't') {
    case 'c':
        snprintf(text, sizeof(text), "%s", format_count(number).text);
        break;
    case 'C':
        snprintf(text, sizeof(text), "%s", format_signed(number, format_count).text);
        break;
    case 'R':
        snprintf(text, sizeof(text), "%s/s", format_count(number).text);
        break;
    case 'b':
        snprintf(text, sizeof(text), "%s", format_bytes(number).text);
        break;
    case 'B':
        snprintf(text, sizeof(text), "%s", format_signed(number, format_bytes).text);
        break;
    case 'r':
        snprintf(text, sizeof(text), "%s/s", format_bytes(number).text);
        break;
    case 'd':
        snprintf(text, sizeof(text), "%s", format_duration(number).text);
        break;
    case 'n':
        snprintf(text, sizeof(text), "%" PRId64, number);
        break;
    case 'p':
        format_path(text, sizeof(text), cursor_name(cursor, column), PATH_COLUMNS);
        break;
    case 'x':
        snprintf(text, sizeof(text), "%#" PRIx64, (uint64_t)number);
        break;
    case '%':
        snprintf(text, sizeof(text), "%.1f %%", (double)number / 10);
        break;
    default:
        format_head(text, sizeof(text), cursor_name(cursor, column), kind == 'w' ? TERMINAL_COLUMNS_MAX : TEXT_COLUMNS);
        break;
    }
    table_add(table, text);
}

int64_t query_print_rows(FILE *out, struct cursor *cursor, const struct query *query, size_t columns_max,
                         int64_t rows_max)
{
    struct table table;
    table_init(&table, query->columns, strlen(query->kinds));
    table.indent = "  ";
    table.columns_max = columns_max;
    int64_t rows = 0;
    while (cursor_next(cursor)) {
        for (int column = 0; rows < rows_max && query->kinds[column] != '\0'; column++) {
            query_print_cell(&table, cursor, column, query->kinds[column]);
        }
        rows++;
    }
    cursor_close(cursor);
    if (rows > 0) {
        table_print(&table, out, true);
    }
    table_free(&table);
    return rows;
}

int64_t query_print(FILE *out, struct database *database, const struct query *query, int64_t bound)
{
    struct cursor cursor;
    cursor_open(&cursor, database, query->sql);
    cursor_bind_integer(&cursor, 1, bound);
    return query_print_rows(out, &cursor, query, terminal_columns(), INT64_MAX);
}

void cursor_json_add(struct cJSON *object, struct cursor *cursor, int first, int count)
{
    for (int column = first; column < first + count; column++) {
        struct value value = cursor_value(cursor, column);
        json_add(object, cursor_column_name(cursor, column), value_json(&value));
    }
}

struct cJSON *cursor_json(struct cursor *cursor, int columns)
{
    struct cJSON *object = json_object();
    cursor_json_add(object, cursor, 0, columns);
    return object;
}

struct cJSON *cursor_rows_json(struct cursor *cursor)
{
    struct cJSON *array = json_array();
    while (cursor_next(cursor)) {
        json_append(array, cursor_json(cursor, cursor_column_count(cursor)));
    }
    cursor_close(cursor);
    return array;
}

struct cJSON *query_json(struct database *database, const char *sql, int64_t bound)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, bound);
    return cursor_rows_json(&cursor);
}
