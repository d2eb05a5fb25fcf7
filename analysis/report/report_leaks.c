/* SPDX-License-Identifier: Apache-2.0 */
/* What the user has suppressed, and the sentence of a line, are no matter of SQL: so the list becomes a table here. */
#include "analysis/report/report_leaks.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/report/leak_list.h"
#include "analysis/query/query_selection.h"
#include "base/error.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 200

static void add_line(struct cursor *cursor, const struct leak_line *line)
{
    char score[16];
    snprintf(score, sizeof(score), "%.2f", line->score);
    cursor_bind_text(cursor, 1, score);
    cursor_bind_integer(cursor, 2, line->row.id);
    cursor_bind_text(cursor, 3, line->domain);
    cursor_bind_integer(cursor, 4, line->together.bytes >= 0 ? line->together.bytes : line->bytes[LEAK_TENTHS - 1]);
    cursor_bind_integer(cursor, 5, line->live[LEAK_TENTHS - 1]);
    cursor_bind_text(cursor, 6, line->evidence);
    cursor_next(cursor);
    cursor_reset(cursor);
}

struct leak_list *report_leaks_load(struct database *database)
{
    struct leak_list *list = memory_resize(NULL, sizeof(*list));
    struct varve_message message;
    struct leak_query query = {.top = LINES_MAX};
    const char *domain = selection_default_domain(database);
    query.domain = strcmp(domain, "heap") != 0 ? domain : NULL;
    (void)!leak_list_load(list, database, &query, &message); /* an error: there are no lines */
    return list;
}

void report_leaks_put(struct database *database, struct leak_list *list)
{
    database_execute(database, sql_leak_list_made);
    struct cursor cursor;
    cursor_open(&cursor, database, "INSERT INTO temp.leak_list VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
    for (size_t i = 0; i < list->count; i++) {
        add_line(&cursor, &list->rows[i]);
    }
    cursor_close(&cursor);
    database_execute(database, "PRAGMA query_only = 1");
    leak_list_free(list);
    free(list);
}

bool report_leaks_make(struct database *database)
{
    if (!database_has_own(database, "leak_list")) {
        report_leaks_put(database, report_leaks_load(database));
    }
    return database_integer(database, "SELECT EXISTS (SELECT 1 FROM temp.leak_list)", 0) != 0;
}
