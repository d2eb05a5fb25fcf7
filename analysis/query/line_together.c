/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/query/line_together.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/query/total_query.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>

struct together_line {
    struct together of[TOGETHER_OF_COUNT];
};

struct together_lines {
    struct together_line *items;
    size_t count, capacity;
    struct map found; /* symbol to index */
};

void together_prepare(struct database *database)
{
    if (!database_has_own(database, "line_total")) {
        database_execute(database, sql_line_total_made);
        database_copy_views(database, "line_together");
        database_execute(database, "PRAGMA query_only = 1");
    }
}

bool together_is_there(struct database *database)
{
    return report_figure(database, "python", 0) != 0;
}

struct together together_read(struct cursor *cursor, int column)
{
    return (struct together){.heap_bytes = cursor_integer(cursor, column),
                             .python_bytes = cursor_integer(cursor, column + 1),
                             .bytes = cursor_integer(cursor, column + 2)};
}

struct together_lines *together_load(struct database *database)
{
    struct together_lines *lines = NULL;
    struct cursor cursor;
    if (!together_is_there(database)) {
        return NULL;
    }
    together_prepare(database);
    cursor_open(&cursor, database, sql_lines_together);
    while (cursor_next(&cursor)) {
        if (lines == NULL) {
            lines = memory_resize(NULL, sizeof(*lines));
            *lines = (struct together_lines){0};
        }
        lines->items = memory_grow(lines->items, &lines->capacity, lines->count, sizeof(lines->items[0]));
        for (int of = 0; of < TOGETHER_OF_COUNT; of++) {
            lines->items[lines->count].of[of] = together_read(&cursor, 1 + 3 * of);
        }
        map_put(&lines->found, (uint64_t)cursor_integer(&cursor, 0), lines->count++);
    }
    cursor_close(&cursor);
    return lines;
}

void together_free(struct together_lines *lines)
{
    if (lines != NULL) {
        free(lines->items);
        map_free(&lines->found);
    }
    free(lines);
}

struct together together_of_line(const struct together_lines *lines, int64_t symbol_id, enum together_of of)
{
    uint64_t found = lines != NULL ? map_find(&lines->found, (uint64_t)symbol_id) : MAP_NONE;
    const struct together *together = found != MAP_NONE ? &lines->items[found].of[of] : NULL;
    return together != NULL && together->heap_bytes > 0 && together->python_bytes > 0 ? *together : TOGETHER_NONE;
}

void together_words(char *text, size_t bytes, const struct together *together)
{
    text[0] = '\0';
    if (together->bytes >= 0) {
        snprintf(text, bytes, " (heap %s, python %s)", format_bytes(together->heap_bytes).text,
                 format_bytes(together->python_bytes).text);
    }
}

void together_json(struct cJSON *object, const struct together *together)
{
    json_integer_or_null(object, "heap_bytes", together->heap_bytes);
    json_integer_or_null(object, "python_bytes", together->python_bytes);
    json_integer_or_null(object, "together_bytes", together->bytes);
}
