/* SPDX-License-Identifier: Apache-2.0 */
/* The user's line of each call site is read before: a join would be made five million times. */
#include "analysis/query/page/allocations.h"

#include "analysis/base/memory.h"
#include "analysis/query/db.h"

#include <stdlib.h>
#include <string.h>

struct lines {
    int64_t *of_callsite;
    int64_t limit;
};

static void lines_load(struct lines *lines, struct database *database)
{
    lines->limit = database_number_limit(database, "SELECT max(id), count(*) FROM callsite WHERE id > 0");
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

static int64_t non_negative(int64_t number)
{
    return number < 0 ? 0 : number;
}

void page_allocations_visit(struct database *database, page_allocation_visitor *visit, void *context)
{
    struct lines lines;
    lines_load(&lines, database);
    struct cursor cursor;
    cursor_open(&cursor, database,
                "SELECT domain, process_id, device, stream, addr, size, alloc_seq, alloc_ns, "
                "coalesce(free_requested_seq, free_completed_seq), free_ns, callsite_id "
                "FROM allocation WHERE domain <> 7");
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
            .free_seq = cursor_is_null(&cursor, 8) ? PAGE_NEVER : cursor_integer(&cursor, 8),
            .free_ns = cursor_is_null(&cursor, 9) ? PAGE_NEVER : cursor_integer(&cursor, 9),
            .line = callsite > 0 && callsite < lines.limit ? lines.of_callsite[callsite] : 0,
        };
        visit(context, &allocation);
    }
    cursor_close(&cursor);
    free(lines.of_callsite);
}
