/* SPDX-License-Identifier: Apache-2.0 */
/* What was recorded, from the table meta and counts of the small tables. */
#include "analysis/query/recording_header.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/database.h"
#include "analysis/query/total_query.h"

#include <stdio.h>
#include <stdlib.h>

#define TITLE "  %-9s "
#define TITLE_COLUMNS 12

static size_t text_columns(void)
{
    return terminal_columns() - TITLE_COLUMNS;
}

static void print_meta(FILE *out, struct database *database, const char *title, const char *key)
{
    char *text = database_meta(database, key);
    if (text != NULL && text[0] != '\0') {
        char cut[4 * TERMINAL_COLUMNS_MAX];
        format_head(cut, sizeof(cut), text, text_columns());
        fprintf(out, TITLE "%s\n", title, cut);
    }
    free(text);
}

static void print_extent(FILE *out, struct database *database, const struct report_loss *loss)
{
    int64_t began = database_meta_integer(database, "start_real_ns", 0);
    char *host = database_meta(database, "host");
    char processes[80];
    report_processes_words(processes, sizeof(processes), report_process_count(database), report_image_count(database));
    fprintf(out, TITLE, "recorded");
    if (began > 0) {
        fprintf(out, "%s", format_time_utc(began / 1000000000).text);
    }
    if (host != NULL && host[0] != '\0') {
        char cut[200];
        format_head(cut, sizeof(cut), host, 30);
        fprintf(out, "%son %s", began > 0 ? " " : "", cut);
    }
    fprintf(out, "%s%s", began > 0 || (host != NULL && host[0] != '\0') ? ", " : "",
            format_duration(report_duration_ns(database)).text);
    fprintf(out, "; %s events, %s, %s thread%s\n", format_count(loss->stored).text, processes,
            format_count(loss->threads).text, loss->threads == 1 ? "" : "s");
    free(host);
}

static void recording_header_print_folded(FILE *out,
                                          void (*print)(FILE *out, struct database *database,
                                                        const struct report_loss *loss),
                                          struct database *database, const struct report_loss *loss)
{
    char *text;
    size_t bytes;
    FILE *lines = memory_stream(&text, &bytes);
    print(lines, database, loss);
    memory_stream_end(lines, &text);
    format_print_folded(out, text, TITLE_COLUMNS);
    free(text);
}

static void print_health(FILE *out, struct database *database, const struct report_loss *loss)
{
    fprintf(out, TITLE, "health");
    report_loss_print(out, database, loss);
    if (!database_is_complete(database)) {
        fprintf(out, TITLE "the recording was cut off before its totals were made; figures may be missing\n",
                "INCOMPLETE");
    }
}

void report_header_print(FILE *out, struct database *database, const struct report_loss *loss)
{
    char cut[4 * TERMINAL_COLUMNS_MAX];
    format_path(cut, sizeof(cut), database_path(database), text_columns());
    fprintf(out, TITLE "%s\n", "trace", cut);
    print_meta(out, database, "command", "command");
    recording_header_print_folded(out, print_extent, database, loss);
    report_attached_words(cut, sizeof(cut), database);
    if (cut[0] != '\0') {
        fprintf(out, TITLE, "attached");
        format_print_wrapped(out, cut, TITLE_COLUMNS);
    }
    report_kept_words(cut, sizeof(cut), database);
    if (cut[0] != '\0') {
        fprintf(out, TITLE, "kept");
        format_print_wrapped(out, cut, TITLE_COLUMNS);
    }
    char *inferred = database_meta(database, "history.inferred");
    if (inferred != NULL) {
        fprintf(out, TITLE, "inferred");
        format_print_wrapped(out, inferred, TITLE_COLUMNS);
    }
    free(inferred);
    if (report_has_no_times(database)) {
        fprintf(out, TITLE "none in the trace: the order of its events stands for them, 1 us each\n", "times");
    }
    terminal_style(out, report_is_lossless(loss) && database_is_complete(database) ? TERMINAL_GOOD : TERMINAL_BAD);
    recording_header_print_folded(out, print_health, database, loss);
    terminal_style(out, TERMINAL_PLAIN);
}

void report_header_json(struct cJSON *object, struct database *database, const struct report_loss *loss)
{
    char *command = database_meta(database, "command");
    char *host = database_meta(database, "host");
    json_text(object, "database", database_path(database));
    json_integer(object, "schema_version", database_schema_version(database));
    json_bool(object, "complete", database_is_complete(database));
    json_text(object, "command", command);
    json_text(object, "host", host);
    report_attached_json(object, database);
    report_kept_json(object, database);
    report_times_json(object, database);
    json_integer(object, "duration_ns", report_duration_ns(database));
    json_integer(object, "processes", report_process_count(database));
    json_integer(object, "images", report_image_count(database));
    json_integer(object, "threads", loss->threads);
    json_integer(object, "events", loss->stored);
    free(command);
    free(host);
}
