/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables and CSV. A table is aligned by the widest cell of each column among the rows that were added before
 * it is printed; a caller with very many rows prints in portions, and the widths then only grow. All text
 * output of the commands ends here or in a plain fprintf.
 */
#include "analysis/output/table.h"

#include "analysis/output/format.h"
#include "analysis/base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMN_GAP "  "
#define TEXT_COLUMNS_MIN 8

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
    if (width > table->widths[column] && !table->is_fitted) {
        table->widths[column] = width;
    }
}

static void print_cell(const struct table *table, FILE *out, size_t column, const char *text)
{
    size_t width = format_width(text);

    if (table->is_fitted && width > table->widths[column] && !table->columns[column].is_right) {
        size_t bytes = table->widths[column] * 4 + 8;
        char *cut = memory_resize(NULL, bytes);

        format_head(cut, bytes, text, table->widths[column]);
        print_cell(table, out, column, cut);
        free(cut);
        return;
    }
    size_t padding = table->widths[column] > width ? table->widths[column] - width : 0;

    if (column > 0) {
        fputs(COLUMN_GAP, out);
    }
    if (table->columns[column].is_right) {
        fprintf(out, "%*s", (int)padding, "");
    }
    format_print_safe(out, text);
    if (column + 1 == table->column_count) {
        fputc('\n', out);
    } else if (!table->columns[column].is_right) {
        fprintf(out, "%*s", (int)padding, "");
    }
}

void table_print(struct table *table, FILE *out, bool with_titles)
{
    assert(table->column_count > 0 && table->cell_count % table->column_count == 0);
    if (with_titles) {
        fputs(table->indent, out);
        for (size_t i = 0; i < table->column_count; i++) {
            print_cell(table, out, i, table->columns[i].title);
        }
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        if (i % table->column_count == 0) {
            fputs(table->indent, out);
        }
        print_cell(table, out, i % table->column_count, table->cells[i]);
        free(table->cells[i]);
    }
    table->cell_count = 0;
}

/* What a line takes if no text has more than `most` columns, its title aside. */
static size_t line_width(const struct table *table, size_t most)
{
    size_t sum = strlen(table->indent) + (table->column_count - 1) * strlen(COLUMN_GAP);

    for (size_t i = 0; i < table->column_count; i++) {
        size_t title = format_width(table->columns[i].title);
        size_t limit = title > most ? title : most;

        sum += table->columns[i].is_right || table->widths[i] < limit ? table->widths[i] : limit;
    }
    return sum;
}

void table_fit(struct table *table, size_t columns)
{
    size_t most = columns;

    while (most > TEXT_COLUMNS_MIN && line_width(table, most) > columns) {
        most--;
    }
    for (size_t i = 0; i < table->column_count; i++) {
        size_t title = format_width(table->columns[i].title);
        size_t limit = title > most ? title : most;

        if (!table->columns[i].is_right && table->widths[i] > limit) {
            table->widths[i] = limit;
        }
    }
    table->is_fitted = true;
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

void csv_text(FILE *out, const char *text, size_t bytes)
{
    bool is_plain = bytes > 0;

    for (size_t i = 0; i < bytes && is_plain; i++) {
        is_plain = strchr("\",\r\n", text[i]) == NULL || text[i] == '\0';
    }
    if (is_plain) {
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
