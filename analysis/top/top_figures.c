/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's document (trace/collector/live_figures.c) has the rows; here they become tables in memory, so that
 * pages are sorted, cut and grouped by SQL, also while the picture is paused. top_run.c calls it.
 */
#include "analysis/top/top_figures.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/collect.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Arrays of the document. Columns have the names and meanings of those of the views of a trace database; ..._per_s:
 * since the moment before, NULL where there was none. What a row has not is NULL. */
static const struct {
    const char *name, *columns;
} tables[] = {
    {"recording", /* one row; is_over: no event will follow; waiting: in rings, not taken yet */
     "number command pid attached_pid is_over duration_ns events events_per_s waiting lost rss_bytes processes"
     " processes_running threads"},
    {"total", "domain device allocations frees bytes live_allocations live_bytes peak_bytes peak_allocations peak_ns"
              " temporary failed allocations_per_s bytes_per_s"},
    {"allocator", /* caching allocators; cached: of segments without any block in use */
     "pid rank device segments reserved active allocated requested cached unused_share"},
    {"process_total", "id pid rank command_line threads rss_bytes heap_bytes device_bytes allocations_per_s"},
    {"callsite_total", /* those that lead in their domain by live bytes, bytes, or bytes since the moment before */
     "callsite_id domain user_function user_file user_line user_module function file line module is_named allocations"
     " frees bytes live_allocations live_bytes peak_allocations peak_bytes temporary allocations_per_s bytes_per_s"},
    {"torch", /* a row if PyTorch was asked for its memory (top_torch.c); is_seen: rows of it are in other tables */
     "age_ns is_seen"},
};

/* `verb`: what becomes of the rows, up to the name of the table. */
static void figures_table_fill(struct database *figures, const char *verb, const char *name, const char *columns,
                               const char *document)
{
    char *sql = NULL;
    size_t bytes = 0;
    FILE *text = memory_stream(&sql, &bytes);
    fprintf(text, "%s SELECT ", verb);
    for (const char *column = columns; *column != '\0';) {
        const int length = (int)strcspn(column, " ");
        fprintf(text, "%sjson_extract(value, '$.%.*s') AS %.*s", column == columns ? "" : ", ", length, column, length,
                column);
        column += length + (column[length] == ' ');
    }
    fprintf(text, " FROM json_each(?1, '$.%s')", name);
    memory_stream_end(text, &sql);
    struct cursor cursor;
    cursor_open(&cursor, figures, sql);
    cursor_bind_text(&cursor, 1, document);
    cursor_next(&cursor);
    cursor_close(&cursor);
    free(sql);
}

/* `*number_out`: of its moment. */
static int document_check(struct database *figures, const char *document, int64_t *number_out,
                          struct varve_message *message)
{
    struct cursor cursor;
    cursor_open(&cursor, figures, sql_top_version);
    cursor_bind_text(&cursor, 1, document);
    const bool is_ours = cursor_next(&cursor) && !cursor_is_null(&cursor, 0);
    const int64_t version = is_ours ? cursor_integer(&cursor, 0) : 0;
    *number_out = is_ours ? cursor_integer(&cursor, 1) : 0;
    cursor_close(&cursor);
    if (!is_ours) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%.300s does not hold figures of a recording",
                                 database_path(figures));
    }
    return version == VARVE_LIVE_VERSION
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_VERSION,
                                   "%.300s: figures of another version of varve (%lld, this one reads %d)",
                                   database_path(figures), (long long)version, VARVE_LIVE_VERSION);
}

static int tables_make(struct database *figures, const char *document, struct varve_message *message)
{
    database_execute(figures, "PRAGMA query_only = 0");
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char verb[64];
        snprintf(verb, sizeof(verb), "CREATE TEMP TABLE %s AS", tables[i].name);
        figures_table_fill(figures, verb, tables[i].name, tables[i].columns, document);
    }
    database_execute(figures, sql_top_line_total);
    database_execute(figures, "PRAGMA query_only = 1");
    return database_error(figures, message);
}

void figures_extend(struct database *figures, const char *document)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char verb[64];
        snprintf(verb, sizeof(verb), "INSERT INTO %s", tables[i].name);
        figures_table_fill(figures, verb, tables[i].name, tables[i].columns, document);
    }
}

int figures_open(const char *path, const void *bytes, size_t count, int64_t known, struct database **figures_out,
                 struct varve_message *message)
{
    struct database *figures;
    int64_t number = 0;
    *figures_out = NULL;
    int error = database_open_memory(path, &figures, message);
    if (error != VARVE_OK) {
        return error;
    }
    char *document = memory_resize(NULL, count + 1);
    memcpy(document, bytes, count);
    document[count] = '\0';
    error = document_check(figures, document, &number, message);
    if (error == VARVE_OK && number != known) {
        error = tables_make(figures, document, message);
    }
    free(document);
    if (error != VARVE_OK || number == known) {
        database_close(figures);
        return error;
    }
    *figures_out = figures;
    return VARVE_OK;
}
