/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned tables for people, and CSV for programs. */
#ifndef VARVE_ANALYSIS_BASE_TABLE_H
#define VARVE_ANALYSIS_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table_column {
    const char *title;
    bool is_right; /* aligned to the right: numbers */
};

struct table {
    const struct table_column *columns;
    size_t column_count;
    size_t *widths;
    char **cells; /* row after row */
    size_t cell_count, cell_capacity;
    const char *indent;
    /* of a line: text is cut, and the last columns are left out where that does not do; 0: no limit */
    size_t columns_max;
    bool keeps_columns; /* no column is left out: lines may be wider */
};

void table_init(struct table *table, const struct table_column *columns, size_t column_count);
void table_add(struct table *table, const char *text); /* copied; the next cell of the row */
/// Print what was added since the last call (with titles if asked) and empty the table; widths only grow.
void table_print(struct table *table, FILE *out, bool with_titles);
void table_free(struct table *table);

bool csv_is_plain(const char *text, size_t bytes);        /* it stands as it is */
void csv_text(FILE *out, const char *text, size_t bytes); /* quoted where RFC 4180 wants it */
void csv_field(FILE *out, const char *text);              /* the same of all of it; NULL: nothing */

#endif
