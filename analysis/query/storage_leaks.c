/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list is loaded by bytes times score, so that a large doubt comes before a small certainty. What is alive and
 * accused of nothing is counted, too: a process that was killed has not released what it was using.
 */
#include "analysis/query/storage_summary.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/callsite_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_TEXT 6
#define EVIDENCE_COLUMN 7

static void read_leak(struct storage_leak *leak, struct cursor *cursor)
{
    *leak = (struct storage_leak){
        .kind = memory_copy_text(cursor_name(cursor, 1)),
        .score = (double)cursor_integer(cursor, 2) / 1000,
        .storages = cursor_integer(cursor, 3),
        .bytes = cursor_integer(cursor, 4),
        .evidence = memory_copy_text(cursor_name(cursor, 5)),
        .pid = cursor_integer(cursor, 6),
        .callsite = {.id = cursor_integer(cursor, 0)},
    };
    callsite_location_load(&leak->callsite, cursor->database);
}

static void load_kept(struct storage_leaks *leaks, struct database *database, int64_t pid)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_storages_alive);
    cursor_bind_integer(&cursor, 1, pid);
    if (cursor_next(&cursor)) {
        leaks->recorded = cursor_integer(&cursor, 0);
        leaks->kept_storages = cursor_integer(&cursor, 1) - leaks->storages;
        leaks->kept_bytes = cursor_integer(&cursor, 2) - leaks->bytes;
    }
    cursor_close(&cursor);
}

int storage_leaks_load(struct storage_leaks *leaks, struct database *database, int64_t pid, int64_t top,
                       struct varve_message *message)
{
    *leaks = (struct storage_leaks){0};
    int error = VARVE_OK;
    if (pid != 0) {
        error = selection_check_pid(database, pid, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    struct cursor cursor;
    cursor_open(&cursor, database, sql_storage_leaks);
    cursor_bind_integer(&cursor, 1, pid);
    while (cursor_next(&cursor)) {
        leaks->count_all++;
        leaks->storages += cursor_integer(&cursor, 3);
        leaks->bytes += cursor_integer(&cursor, 4);
        if (leaks->count_all <= top) {
            leaks->rows = memory_resize(leaks->rows, (leaks->count + 1) * sizeof(leaks->rows[0]));
            read_leak(&leaks->rows[leaks->count++], &cursor);
        }
    }
    cursor_close(&cursor);
    load_kept(leaks, database, pid);
    return VARVE_OK;
}

void storage_leaks_free(struct storage_leaks *leaks)
{
    for (size_t i = 0; i < leaks->count; i++) {
        callsite_location_free(&leaks->rows[i].callsite);
        free(leaks->rows[i].kind);
        free(leaks->rows[i].evidence);
    }
    free(leaks->rows);
    *leaks = (struct storage_leaks){0};
}

/* ---- printing ---- */

static void print_kept(FILE *out, const struct storage_leaks *leaks)
{
    if (leaks->kept_storages > 0) {
        fprintf(out, "%s storage%s with %s %s alive, and nothing says that %s leaked: a process that\n",
                format_count(leaks->kept_storages).text, format_plural(leaks->kept_storages, "", "s"),
                format_bytes_exact(leaks->kept_bytes).text, leaks->kept_storages == 1 ? "was" : "were",
                leaks->kept_storages == 1 ? "it is" : "they are");
        fputs("is killed has no time to release what it uses (view storage_kept)\n", out);
    }
}

static void print_leak(FILE *out, const struct storage_leak *leak, size_t number)
{
    fprintf(out, "%4zu.  ", number);
    format_print_safe(out, leak->kind);
    fprintf(out, ", score %.2f: %s in %s storage%s  [#%" PRId64 "]\n%*s", leak->score,
            format_bytes_exact(leak->bytes).text, format_count(leak->storages).text,
            format_plural(leak->storages, "", "s"), leak->callsite.id, EVIDENCE_COLUMN, "");
    char evidence[600];
    snprintf(evidence, sizeof(evidence), "%s%s", leak->storages > 1 ? "the largest: " : "", leak->evidence);
    format_print_wrapped(out, evidence, EVIDENCE_COLUMN);
}

void storage_leaks_print(FILE *out, struct database *database, const struct storage_leaks *leaks, int64_t pid,
                         int64_t frames)
{
    char who[64] = "all processes together";
    if (pid > 0) {
        snprintf(who, sizeof(who), "process %" PRId64, pid);
    }
    if (leaks->recorded == 0) {
        fprintf(out, "storage, %s: no storage was created\n", who);
        return;
    }
    if (leaks->count_all == 0) {
        fprintf(out, "storage, %s: nothing looks leaked\n", who);
    } else {
        fprintf(out, "storage, %s: %s in %s storage%s look%s leaked,\n%s group%s by call site and kind\n", who,
                format_bytes_exact(leaks->bytes).text, format_count(leaks->storages).text,
                format_plural(leaks->storages, "", "s"), leaks->storages == 1 ? "s" : "",
                format_count(leaks->count_all).text, format_plural(leaks->count_all, "", "s"));
    }
    for (size_t i = 0; i < leaks->count; i++) {
        print_leak(out, &leaks->rows[i], i + 1);
        callsite_stack_print(out, database, &leaks->rows[i].callsite, frames < 0 ? FRAMES_TEXT : frames);
    }
    if (leaks->count_all > (int64_t)leaks->count) {
        fprintf(out, "       and %s more\n", format_count(leaks->count_all - (int64_t)leaks->count).text);
    }
    print_kept(out, leaks);
}

static struct cJSON *leak_json(struct database *database, const struct storage_leak *leak, int64_t frames)
{
    struct cJSON *object = json_object();
    json_integer(object, "callsite_id", leak->callsite.id);
    json_integer(object, "pid", leak->pid);
    json_text(object, "kind", leak->kind);
    json_real(object, "score", leak->score);
    json_integer(object, "storages", leak->storages);
    json_integer(object, "bytes", leak->bytes);
    json_text(object, "evidence", leak->evidence);
    callsite_location_json(object, &leak->callsite);
    json_add(object, "frames", stack_json(database, leak->callsite.id, frames));
    return object;
}

struct cJSON *storage_leaks_json(struct database *database, const struct storage_leaks *leaks, int64_t pid,
                                 int64_t frames)
{
    struct cJSON *object = json_object();
    struct cJSON *kept = json_object();
    struct cJSON *callsites = json_array();
    struct report_loss loss;
    report_loss_load(&loss, database);
    json_text(object, "database", database_path(database));
    json_text(object, "domain", "storage");
    json_integer_or_null(object, "pid", pid > 0 ? pid : -1);
    json_integer(object, "bytes", leaks->bytes);
    json_integer(object, "storages", leaks->storages);
    json_bool(object, "nothing_lost", report_is_lossless(&loss));
    json_integer(kept, "storages", leaks->kept_storages);
    json_integer(kept, "bytes", leaks->kept_bytes);
    json_add(object, "kept", kept);
    json_integer(object, "callsites_all", leaks->count_all);
    for (size_t i = 0; i < leaks->count; i++) {
        json_append(callsites, leak_json(database, &leaks->rows[i], frames));
    }
    json_add(object, "callsites", callsites);
    return object;
}

void storage_leaks_csv(FILE *out, const struct storage_leaks *leaks)
{
    fputs("callsite_id,domain,kind,score,storages,bytes,evidence,pid,function,file,line,module\n", out);
    for (size_t i = 0; i < leaks->count; i++) {
        const struct storage_leak *leak = &leaks->rows[i];
        fprintf(out, "%" PRId64 ",storage,", leak->callsite.id);
        csv_field(out, leak->kind);
        fprintf(out, ",%.3f,%" PRId64 ",%" PRId64 ",", leak->score, leak->storages, leak->bytes);
        csv_field(out, leak->evidence);
        fprintf(out, ",%" PRId64 ",", leak->pid);
        callsite_location_csv(out, &leak->callsite.innermost);
        fputc('\n', out);
    }
}
