/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables and CSV. A table is aligned by the widest cell of each column among the rows that were added before
 * it is printed; a caller with very many rows prints in portions, and the widths then only grow. All text
 * output of the commands ends here or in a plain fprintf.
 */
#include "analysis/base/table.h"

#include "analysis/base/number_format.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/terminal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMN_GAP "  "
void table_init(struct table *table, const struct table_column *columns, size_t column_count)
{
    assert(column_count > 0);
    *table = (struct table){.columns = columns, .column_count = column_count, .indent = ""};
    table->widths = memory_resize(NULL, column_count * sizeof(table->widths[0]));
    for (size_t i = 0; i < column_count; i++) {
        table->widths[i] = format_width(columns[i].title);
    }
}

void table_add(struct table *table, const char *text)
{
    size_t column = table->cell_count % table->column_count;
    size_t width = format_width(text);
    if (table->cell_count == table->cell_capacity) {
        table->cell_capacity = table->cell_capacity * 2 + 64;
        table->cells = memory_resize(table->cells, table->cell_capacity * sizeof(table->cells[0]));
    }
    table->cells[table->cell_count++] = memory_copy_text(text);
    if (width > table->widths[column]) {
        table->widths[column] = width;
    }
}

#define TEXT_COLUMNS_MIN 10

static size_t line_width(const struct table *table, size_t columns)
{
    size_t width = format_width(table->indent);
    for (size_t i = 0; i < columns; i++) {
        width += table->widths[i] + (i > 0 ? sizeof(COLUMN_GAP) - 1 : 0);
    }
    return width;
}

/* Narrow what is text, the widest column first, then leave out the last columns; returns how many there are. */
static size_t table_fit(struct table *table)
{
    size_t columns = table->column_count;
    size_t width = line_width(table, columns);
    while (table->columns_max > 0 && width > table->columns_max) {
        size_t *widest = NULL;
        size_t excess = width - table->columns_max;
        for (size_t i = 0; i < columns; i++) {
            if (!table->columns[i].is_right && table->widths[i] > TEXT_COLUMNS_MIN &&
                (widest == NULL || table->widths[i] > *widest)) {
                widest = &table->widths[i];
            }
        }
        if (widest != NULL) {
            *widest = *widest - TEXT_COLUMNS_MIN > excess ? *widest - excess : TEXT_COLUMNS_MIN;
        } else if (columns > 1 && !table->keeps_columns) {
            columns--;
        } else {
            break;
        }
        width = line_width(table, columns);
    }
    return columns;
}

static void print_cell(const struct table *table, FILE *out, size_t column, bool is_last, const char *text)
{
    size_t width = format_width(text);
    size_t room = table->widths[column];
    size_t padding = room > width ? room - width : 0;
    if (column > 0) {
        fputs(COLUMN_GAP, out);
    }
    if (table->columns[column].is_right) {
        fprintf(out, "%*s", (int)padding, "");
    }
    if (width > room) {
        char cut[4 * TERMINAL_COLUMNS_MAX + 8];
        format_head(cut, sizeof(cut), text, room);
        fputs(cut, out);
    } else {
        format_print_safe(out, text);
    }
    if (is_last) {
        fputc('\n', out);
    } else if (!table->columns[column].is_right) {
        fprintf(out, "%*s", (int)padding, "");
    }
}

/* The last cell of a row that has anything in it: behind it there are no blanks. */
static size_t last_cell(char *const *row, size_t columns)
{
    while (columns > 1 && row[columns - 1][0] == '\0') {
        columns--;
    }
    return columns - 1;
}

void table_print(struct table *table, FILE *out, bool with_titles)
{
    size_t columns = table_fit(table);
    assert(table->column_count > 0 && table->cell_count % table->column_count == 0);
    if (with_titles) {
        fputs(table->indent, out);
        for (size_t i = 0; i < columns; i++) {
            print_cell(table, out, i, i + 1 == columns, table->columns[i].title);
        }
    }
    for (size_t row = 0; row < table->cell_count; row += table->column_count) {
        size_t last = last_cell(&table->cells[row], columns);
        fputs(table->indent, out);
        for (size_t i = 0; i <= last; i++) {
            print_cell(table, out, i, i == last, table->cells[row + i]);
        }
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        free(table->cells[i]);
    }
    table->cell_count = 0;
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < table->cell_count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    free(table->widths);
    *table = (struct table){0};
}

bool csv_is_plain(const char *text, size_t bytes)
{
    bool is_plain = bytes > 0;
    for (size_t i = 0; i < bytes && is_plain; i++) {
        is_plain = text[i] != '"' && text[i] != ',' && text[i] != '\r' && text[i] != '\n';
    }
    return is_plain;
}

void csv_text(FILE *out, const char *text, size_t bytes)
{
    if (csv_is_plain(text, bytes)) {
        fwrite(text, 1, bytes, out);
        return;
    }
    /* An empty text is quoted, so that it differs from NULL, which is nothing at all. */
    fputc('"', out);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') {
            fputc('"', out);
        }
        fputc(text[i], out);
    }
    fputc('"', out);
}

void csv_field(FILE *out, const char *text)
{
    if (text != NULL) {
        csv_text(out, text, strlen(text));
    }
}
