/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <stdlib.h>
#include <string.h>

/* The user's line of each call site: a join would be made for each allocation. */
struct page_lines {
    int64_t *of_callsite; /* symbol.id */
    int64_t limit;
};

static void page_lines_load(struct page_lines *lines, struct database *database)
{
    lines->limit = database_number_limit(database, "callsite");
    size_t bytes = (size_t)lines->limit * sizeof(lines->of_callsite[0]);
    lines->of_callsite = memory_resize(NULL, bytes);
    memset(lines->of_callsite, 0, bytes);
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT id, coalesce(user_symbol_id, symbol_id, 0) FROM callsite WHERE id > 0");
    while (cursor_next(&cursor)) {
        if (cursor_integer(&cursor, 0) < lines->limit) {
            lines->of_callsite[cursor_integer(&cursor, 0)] = cursor_integer(&cursor, 1);
        }
    }
    cursor_close(&cursor);
}

static void page_lines_free(struct page_lines *lines)
{
    free(lines->of_callsite);
    *lines = (struct page_lines){0};
}

static int64_t non_negative(int64_t number)
{
    return number < 0 ? 0 : number;
}

void page_allocations_visit(struct database *database, page_allocation_visitor *visit, void *context)
{
    struct page_lines lines;
    struct cursor cursor;
    page_lines_load(&lines, database);
    cursor_open(&cursor, database, sql_page_allocations);
    cursor_bind_integer(&cursor, 1, PAGE_NEVER);
    while (cursor_next(&cursor)) {
        int64_t callsite = cursor_integer(&cursor, 10);
        struct page_allocation allocation = {
            .domain = cursor_integer(&cursor, 0),
            .process_id = cursor_integer(&cursor, 1),
            .device = cursor_integer(&cursor, 2),
            .stream = cursor_integer(&cursor, 3),
            .addr = (uint64_t)cursor_integer(&cursor, 4),
            .size = (uint64_t)non_negative(cursor_integer(&cursor, 5)),
            .alloc_seq = cursor_integer(&cursor, 6),
            .alloc_ns = cursor_integer(&cursor, 7),
            .free_seq = cursor_integer(&cursor, 8),
            .free_ns = cursor_integer(&cursor, 9),
            .line = callsite > 0 && callsite < lines.limit ? lines.of_callsite[callsite] : 0,
            .callsite = callsite > 0 && callsite < lines.limit ? callsite : 0,
            .thread = cursor_integer(&cursor, 11),
        };
        visit(context, &allocation);
    }
    cursor_close(&cursor);
    page_lines_free(&lines);
}
