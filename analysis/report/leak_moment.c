/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moments are times, for an allocation has its times whatever was kept of the events. The views of the database are
 * about its default moments. For others leak_moment becomes a temporary view, and the views above it are made again,
 * from their own text, as temporary ones, in which its name means the new one: so the definitions are those
 * of the database.
 */
#include "analysis/report/leak_moment.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/segment_query.h"
#include "analysis/query/query_selection.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <string.h>

static int parse_at(struct leak_moment *moment, struct database *database, const char *option, const char *text,
                    struct varve_message *message)
{
    if (text == NULL) {
        moment->at = LEAK_AT_DEFAULT;
    } else if (strcmp(text, "end") == 0) {
        moment->at = LEAK_AT_END;
    } else if (strcmp(text, "exit-of-main") == 0) {
        moment->at = LEAK_AT_EXIT_OF_MAIN;
    } else {
        moment->at = LEAK_AT_TIME;
        return moment_parse(database, option, "'end', 'exit-of-main', ", text, &moment->at_ns, message);
    }
    return VARVE_OK;
}

/* The moments asked for, from those of the database; of a process that has ended nothing is live any more. */
static void make_views(struct database *database, const struct leak_moment *moment, int64_t pid)
{
    const char *end = moment->at == LEAK_AT_END ? "exit_ns" : "end_ns";
    const char *at = moment->at == LEAK_AT_END ? "9223372036854775807" : "at_ns";
    char time[24];
    char condition[160] = "1";
    snprintf(time, sizeof(time), "%" PRId64, moment->at_ns);
    if (moment->at == LEAK_AT_TIME) {
        end = at = time;
        snprintf(condition, sizeof(condition), "begin_ns <= %s AND exit_ns >= %s", time, time);
    } else if (moment->at == LEAK_AT_EXIT_OF_MAIN) {
        snprintf(condition, sizeof(condition), "moment = 'exit of main'");
    }
    char sql[900];
    snprintf(sql, sizeof(sql),
             "CREATE TEMP VIEW leak_moment AS SELECT process_id, pid, max(begin_ns, %" PRId64
             ") AS begin_ns, %s AS end_ns, %" PRId64
             " AS from_ns, %s AS at_ns, %s AS moment, exit_ns FROM main.leak_moment"
             " WHERE (%" PRId64 " = 0 OR pid = %" PRId64 ") AND %s > %" PRId64 " AND %s",
             moment->from_ns, end, moment->from_ns, at,
             moment->at == LEAK_AT_TIME  ? "'time'"
             : moment->at == LEAK_AT_END ? "iif(moment = 'exec', moment, 'end')"
                                         : "moment",
             pid, pid, end, moment->from_ns, condition);
    /* --hide has made all views of the file temporary */
    database_execute(database, sql_leak_views_dropped);
    database_execute(database, sql);
    database_copy_views(database, "leak_tenth");
    database_copy_views(database, "leak_line");
    database_execute(database, "PRAGMA query_only = 1");
}

static void leak_moment_load_processes(struct leak_moment *moment, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_leak_moments);
    if (cursor_next(&cursor)) {
        moment->processes = cursor_integer(&cursor, 0);
        moment->at_main = cursor_integer(&cursor, 1);
        moment->at_end = cursor_integer(&cursor, 2);
        moment->replaced = cursor_integer(&cursor, 3);
        moment->first_ns = cursor_integer(&cursor, 4);
        moment->last_ns = cursor_integer(&cursor, 5);
    }
    cursor_close(&cursor);
}

/* No process is left for the question: why. */
static int leak_moment_refuse(const struct leak_moment *moment, struct database *database,
                              struct varve_message *message)
{
    if (moment->at == LEAK_AT_EXIT_OF_MAIN) {
        return varve_message_set(
            message, VARVE_ERROR_NOT_FOUND,
            "%s: no exit of main was recorded after the beginning of the time asked for; --at end is known",
            database_path(database));
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             "%s: no recorded process ran then%s; varve info lists them", database_path(database),
                             moment->at == LEAK_AT_TIME ? "" : " or later");
}

int leak_moment_make(struct leak_moment *moment, struct database *database, const char *at, const char *from,
                     const char *to, int64_t pid, struct varve_message *message)
{
    *moment = (struct leak_moment){.from_ns = -1, .only_live = report_keeps_only_live(database)};
    int error = parse_at(moment, database, to != NULL ? "to" : "at", to != NULL ? to : at, message);
    if (error == VARVE_OK && from != NULL) {
        error = moment_parse(database, "from", "", from, &moment->from_ns, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (moment->at == LEAK_AT_TIME && moment->from_ns >= moment->at_ns) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--from must be before --to");
    }
    if (moment->at != LEAK_AT_DEFAULT || moment->from_ns >= 0 || pid != 0) {
        make_views(database, moment, pid);
    }
    leak_moment_load_processes(moment, database);
    if (moment->processes == 0 && database_error(database, NULL) == VARVE_OK &&
        (moment->at == LEAK_AT_TIME || moment->at == LEAK_AT_EXIT_OF_MAIN || moment->from_ns >= 0)) {
        return leak_moment_refuse(moment, database, message);
    }
    return VARVE_OK;
}

static void print_processes(FILE *out, const char *of, int64_t count, const struct leak_moment *moment)
{
    if (moment->processes - moment->replaced > 1) {
        fprintf(out, " %s %s process%s", of, format_count(count).text, count == 1 ? "" : "es");
    }
}

static void print_when(FILE *out, const struct leak_moment *moment)
{
    if (moment->processes - moment->replaced == 1 && moment->at_main == 1) {
        fprintf(out, ", %s after the start", format_duration(moment->last_ns).text);
    }
}

/* Where the end of main counts. */
static void print_ends(FILE *out, const struct leak_moment *moment)
{
    if (moment->at_main > 0) {
        fputs("when main() returned or exit() began", out);
        print_processes(out, "in", moment->at_main, moment);
        print_when(out, moment);
    }
    if (moment->at_end > 0 || moment->at_main == 0) {
        fprintf(out, "%sat the end", moment->at_main > 0 ? ", " : "");
        print_processes(out, "of", moment->at_end, moment);
        fputs(", as no exit of main was recorded", out);
    }
}

void leak_moment_words(FILE *out, const struct leak_moment *moment)
{
    if (moment->from_ns >= 0) {
        fprintf(out, "allocated later than %s after the start and live ", format_duration(moment->from_ns).text);
    } else {
        fputs("live ", out);
    }
    if (moment->at == LEAK_AT_TIME) {
        fprintf(out, "%s after the start", format_duration(moment->at_ns).text);
    } else if (moment->at == LEAK_AT_END) {
        fputs(moment->processes > 1 ? "at the end of each process" : "at the end", out);
    } else {
        print_ends(out, moment);
    }
    if (moment->replaced > 0) {
        fprintf(out, "; %s process image%s replaced by exec", format_count(moment->replaced).text,
                moment->replaced == 1 ? " was" : "s were");
    }
}

struct cJSON *leak_moment_json(const struct leak_moment *moment)
{
    struct cJSON *object = json_object();
    json_text(object, "at",
              moment->at == LEAK_AT_TIME                  ? "time"
              : moment->at_main > 0 && moment->at_end > 0 ? "mixed"
              : moment->at_main > 0                       ? "exit of main"
                                                          : "end");
    json_integer(object, "processes", moment->processes);
    json_integer(object, "at_exit_of_main", moment->at_main);
    json_integer(object, "at_end", moment->at_end);
    json_integer(object, "replaced_by_exec", moment->replaced);
    json_integer_or_null(object, "from_ns", moment->from_ns);
    json_integer(object, "first_ns", moment->first_ns);
    json_integer(object, "last_ns", moment->last_ns);
    return object;
}
