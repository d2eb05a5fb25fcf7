/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot is imported as `varve report SNAPSHOT` does it, and what views of that database say becomes rows of the
 * tables that the collector's figures are in. What a snapshot can't know, such as all that was ever asked for, is NULL
 * there. 20,000 blocks take some 0.2 s. Called by top_run.c.
 */
#include "analysis/top/top_torch.h"

#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "analysis/import/imported_snapshot.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/top/top_figures.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/collect.h"

#include "statements_generated.h"

#include <stdlib.h>

#define AGE_MAX_NS INT64_C(300000000000) /* nobody has left another one since */
#define READ_COST 10U                    /* times what one takes pass before the next is read */

static char *rows_of(struct database *database)
{
    char *text = NULL;
    size_t bytes = 0;
    struct cJSON *object = json_object();
    json_add(object, "allocator", query_json(database, sql_top_torch_allocator, 0));
    json_add(object, "total", query_json(database, sql_top_torch_total, 0));
    json_add(object, "callsite_total", query_json(database, sql_top_torch_callsite_total, 0));
    FILE *out = memory_stream(&text, &bytes);
    json_print(object, out);
    memory_stream_end(out, &text);
    return text;
}

/* NULL: it can't be read. */
static char *torch_now_read(const char *path)
{
    struct varve_message ignored = {""};
    struct progress none;
    struct history *history;
    struct imported imported = {NULL, ""};
    char *rows = NULL;
    progress_begin(&none, NULL, false);
    if (imported_read(path, &history, &none, &ignored) == VARVE_OK && history != NULL) {
        if (imported_take(history, path, &imported, &none, &ignored) == VARVE_OK) {
            rows = rows_of(imported.database);
        }
        if (rows != NULL && database_error(imported.database, &ignored) != VARVE_OK) {
            free(rows);
            rows = NULL;
        }
        imported_close(&imported);
    }
    return rows;
}

static void torch_row_add(struct database *figures, int64_t age_ns, bool is_seen)
{
    struct cursor cursor;
    cursor_open(&cursor, figures, sql_top_torch);
    cursor_bind_integer(&cursor, 1, age_ns);
    cursor_bind_integer(&cursor, 2, is_seen);
    cursor_next(&cursor);
    cursor_close(&cursor);
}

void torch_now_add(struct torch_now *now, const struct varve_watch *watch, struct database *figures)
{
    struct varve_watch_torch torch;
    const uint64_t began_ns = monotonic_ns();
    if (!varve_watch_torch(watch, &torch) || torch.age_ns > AGE_MAX_NS) {
        torch_now_free(now);
        return;
    }
    if (torch.written_ns != now->written_ns && began_ns >= now->next_ns) {
        torch_now_free(now);
        now->rows = torch.bytes > 0 ? torch_now_read(torch.path) : NULL;
        now->written_ns = torch.written_ns;
        now->next_ns = monotonic_ns() + READ_COST * (monotonic_ns() - began_ns);
    }
    database_execute(figures, "PRAGMA query_only = 0");
    if (now->rows != NULL) {
        figures_extend(figures, now->rows);
        database_execute(figures, sql_top_torch_process);
    }
    if (now->rows != NULL || torch.bytes == 0) {
        torch_row_add(figures, torch.age_ns + torch.written_ns - now->written_ns, now->rows != NULL);
    }
    database_execute(figures, "PRAGMA query_only = 1");
}

void torch_now_free(struct torch_now *now)
{
    free(now->rows);
    *now = (struct torch_now){0};
}
