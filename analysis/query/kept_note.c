/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording did not keep on purpose, from the table meta: rows `keep`, and `kept_events` where the database had
 * its largest size. Databases without these have everything. Called by the header of reports, and by what reads events.
 */
#include "analysis/query/loss_note.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/collect.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LARGE_BYTES 200000000               /* above it, it is said how it could be smaller */
#define MAX_SIZE_BYTES (INT64_C(200) << 20) /* for --max-size */

/* Those that have rows, before the database had its largest size; -1: it had not. */
static int64_t kept_events(struct database *database)
{
    return database_meta_integer(database, "kept_events", -1);
}

static bool keeps(struct database *database, const char *what)
{
    char *keep = database_meta(database, "keep");
    bool is_it = keep != NULL && strcmp(keep, what) == 0;
    free(keep);
    return is_it;
}

bool report_keeps_events(struct database *database)
{
    return kept_events(database) < 0 && !keeps(database, "allocations") && !keeps(database, "totals");
}

bool report_keeps_only_live(struct database *database)
{
    return keeps(database, "totals");
}

bool report_keeps_allocations(struct database *database, const char *domain)
{
    const bool is_short = domain == NULL || strcmp(domain, "heap") == 0 || strcmp(domain, "python") == 0;
    return kept_events(database) < 0 && !keeps(database, "totals") && !(is_short && keeps(database, "lasting"));
}

static int64_t joined_callsites(struct database *database)
{
    return database_integer_named(database, "SELECT value FROM stats WHERE name = ?1", "callsites_joined", 0);
}

void report_kept_words(char *text, size_t bytes, struct database *database)
{
    int64_t count = kept_events(database);
    int64_t joined = joined_callsites(database);
    text[0] = '\0';
    if (keeps(database, "totals")) {
        snprintf(text, bytes,
                 "totals and what is live; no events, and no allocations that were freed (--keep totals)%s%s%s",
                 joined > 0 ? "; " : "", joined > 0 ? format_count(joined).text : "",
                 joined > 0 ? " smaller call sites were put together" : "");
    } else if (count >= 0) {
        snprintf(text, bytes, "totals of all events; rows of the first %s only (--max-size)", format_count(count).text);
    } else if (keeps(database, "lasting")) {
        snprintf(text, bytes,
                 "everything but rows of what of heap and Python was freed within %u events; totals are of all (--keep "
                 "lasting)",
                 VARVE_SHORT_EVENTS);
    } else if (keeps(database, "allocations")) {
        snprintf(text, bytes, "allocations and totals; no events (--keep allocations)");
    }
}

void report_kept_json(struct cJSON *object, struct database *database)
{
    char *keep = database_meta(database, "keep");
    int64_t count = kept_events(database);
    int64_t joined = joined_callsites(database);
    json_text(object, "keep", keep != NULL ? keep : "events");
    if (count >= 0) {
        json_integer(object, "kept_events", count);
    }
    if (joined > 0) {
        json_integer(object, "callsites_joined", joined);
    }
    free(keep);
}

void report_result_size(FILE *out, const struct varve_collect_result *result)
{
    struct stat status;
    struct varve_message message;
    struct database *database = NULL;
    if (result->database_path[0] == '\0' || stat(result->database_path, &status) != 0 ||
        status.st_size <= LARGE_BYTES ||
        database_open(result->database_path, DATABASE_ANY, &database, &message) != VARVE_OK) {
        return;
    }
    const int64_t bytes = report_keeps_only_live(database) ? 0 : database_integer(database, sql_bytes_of_totals, 0);
    if (bytes > 0 && bytes < status.st_size / 2) {
        /* rows are nearly all that it has beyond */
        const double part = (double)(MAX_SIZE_BYTES - bytes) / (double)(status.st_size - bytes);
        fprintf(out, "varve: the database has %s; with --keep totals it would have about %s",
                format_bytes(status.st_size).text, format_bytes(bytes).text);
        if (part >= 0.01 && part < 0.9) {
            fprintf(out, ", with --max-size %" PRId64 "M that size, and rows of about the first %.0f %% of the events",
                    MAX_SIZE_BYTES >> 20, 100 * part);
        }
        fputc('\n', out);
    }
    database_close(database);
}

bool report_has_no_times(struct database *database)
{
    char *times = database_meta(database, "history.times");
    bool has_none = times != NULL && strcmp(times, "order") == 0;
    free(times);
    return has_none;
}

void report_times_print(FILE *out, struct database *database)
{
    if (report_has_no_times(database)) {
        fputs("  the trace has no times: the order of its events stands for them, 1 us each\n", out);
    }
}

void report_times_json(struct cJSON *object, struct database *database)
{
    if (report_has_no_times(database)) {
        json_text(object, "times", "order");
    }
}

int report_require_events(struct database *database, bool of_heap, struct varve_message *message)
{
    char words[240];
    report_kept_words(words, sizeof(words), database);
    return words[0] == '\0' || (!of_heap && keeps(database, "lasting"))
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%s has not the events that this needs: it has %s",
                                   database_path(database), words);
}
