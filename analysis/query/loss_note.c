/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of the rings (table thread: emitted = stored + lost + uncommitted), the view data_loss, the ends of the
 * processes and the programs that could not be recorded, as sentences: dropped, still running, killed, not recordable.
 */
#include "analysis/query/loss_note.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "base/error.h"
#include "trace/collect.h"

#include "statements_generated.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#define PROGRAMS_SHOWN 3

void report_loss_load(struct report_loss *loss, struct database *database)
{
    *loss = (struct report_loss){0};
    struct cursor cursor;
    cursor_open(&cursor, database, sql_losses);
    if (cursor_next(&cursor)) {
        assert((size_t)cursor_column_count(&cursor) == sizeof(*loss) / sizeof(int64_t));
        int64_t *const figures = &loss->threads;
        for (int column = 0; column < (int)(sizeof(*loss) / sizeof(int64_t)); column++) {
            figures[column] = cursor_integer(&cursor, column);
        }
    }
    cursor_close(&cursor);
}

/* Nothing that a recorded process emitted before the end of the recording is missing. */
static bool adds_up(const struct report_loss *loss)
{
    return loss->lost == 0 && loss->unattached == 0 && loss->damaged == 0 &&
           (uint64_t)loss->emitted == (uint64_t)loss->stored + (uint64_t)loss->uncommitted;
}

bool report_is_lossless(const struct report_loss *loss)
{
    return adds_up(loss) && loss->stat_rows == 0 && loss->unrecorded == 0 && loss->unattached_processes == 0 &&
           loss->unhooked_heaps == 0 && loss->unhooked_libraries == 0;
}

bool report_has_remarks(const struct report_loss *loss)
{
    return !report_is_lossless(loss) || loss->unread_pythons > 0;
}

/* Each reason once. */
static void print_unread_pythons(FILE *out, struct database *database, const struct report_loss *loss)
{
    fprintf(out, "            no lines of Python in %s process%s: ", format_count(loss->unread_pythons).text,
            format_plural(loss->unread_pythons, "", "es"));
    struct cursor cursor;
    cursor_open(&cursor, database, sql_unread_pythons);
    for (unsigned i = 0; cursor_next(&cursor); i++) {
        fputs(i > 0 ? "; " : "", out);
        format_print_safe(out, cursor_name(&cursor, 0));
    }
    cursor_close(&cursor);
    fprintf(out, " (3.%d to 3.%d are read)\n", REPORT_PYTHON_FIRST, REPORT_PYTHON_LAST);
}

void report_unrecorded_print(FILE *out, struct database *database, const struct report_loss *loss)
{
    if (loss->unrecorded == 0) {
        return;
    }
    fprintf(out, "%s program%s could not be recorded: ", format_count(loss->unrecorded).text,
            format_plural(loss->unrecorded, "", "s"));
    struct cursor cursor;
    cursor_open(&cursor, database, sql_unrecorded_programs);
    cursor_bind_integer(&cursor, 1, PROGRAMS_SHOWN);
    int64_t shown = 0;
    while (cursor_next(&cursor)) {
        fputs(shown++ > 0 ? ", " : "", out);
        format_print_safe(out, cursor_name(&cursor, 0));
        fputs(" (", out);
        format_print_safe(out, cursor_name(&cursor, 1));
        fputs(")", out);
        if (cursor_integer(&cursor, 2) > 1) {
            fprintf(out, " ×%s", format_count(cursor_integer(&cursor, 2)).text);
        }
    }
    cursor_close(&cursor);
    if (loss->unrecorded > shown) {
        fprintf(out, ", and %s more", format_count(loss->unrecorded - shown).text);
    }
}

static void print_killed(FILE *out, const struct report_loss *loss)
{
    if (loss->killed > 0) {
        fprintf(out, "%s process%s killed", format_count(loss->killed).text, format_plural(loss->killed, "", "es"));
        if (loss->killed_by > 0) {
            fprintf(out, " (signal %" PRId64 ")", loss->killed_by);
        }
    }
    if (loss->unknown > 0) {
        fprintf(out, "%s%s process%s ended for an unknown reason (killed?)", loss->killed > 0 ? ", " : "",
                format_count(loss->unknown).text, format_plural(loss->unknown, "", "es"));
    }
}

void report_loss_words(FILE *out, const struct report_loss *loss)
{
    if (report_is_lossless(loss)) {
        fputs("; nothing lost", out);
    }
    if (loss->lost + loss->unattached > 0) {
        fprintf(out, "; LOST %s", format_count(loss->lost + loss->unattached).text);
    }
    if (loss->unattached_processes > 0) {
        fprintf(out, "; %s process%s could not be recorded", format_count(loss->unattached_processes).text,
                format_plural(loss->unattached_processes, "", "es"));
    }
    if (loss->unhooked_heaps > 0) {
        fprintf(out, "; HEAP NOT RECORDED of %s process%s with an allocator linked in",
                format_count(loss->unhooked_heaps).text, format_plural(loss->unhooked_heaps, "", "es"));
    }
    if (loss->unhooked_libraries > 0) {
        fprintf(out, "; %s librar%s NOT RECORDED", format_count(loss->unhooked_libraries).text,
                format_plural(loss->unhooked_libraries, "y", "ies"));
    }
    if (loss->unread_pythons > 0) {
        fprintf(out, "; no lines of Python in %s process%s", format_count(loss->unread_pythons).text,
                format_plural(loss->unread_pythons, "", "es"));
    }
    if (loss->other_rows > 0) {
        fputs("; DATA LOSS, see varve info", out);
    }
    if (loss->running > 0) {
        fprintf(out, "; %s process%s still running when the recording stopped", format_count(loss->running).text,
                format_plural(loss->running, "", "es"));
    }
    if (loss->unrecorded > 0) {
        fprintf(out, "; %s program%s not recorded", format_count(loss->unrecorded).text,
                format_plural(loss->unrecorded, "", "s"));
    }
    if (loss->killed + loss->unknown > 0) {
        fputs("; ", out);
        print_killed(out, loss);
    }
}

static void print_dropped(FILE *out, const struct report_loss *loss)
{
    /* unsigned, as a damaged file may hold any numbers */
    int64_t missing = (int64_t)((uint64_t)loss->emitted - (uint64_t)loss->stored - (uint64_t)loss->lost -
                                (uint64_t)loss->uncommitted);
    fprintf(out,
            "DATA LOSS: %s of %s events (%s) of %s thread%s were dropped\n"
            "            their allocations had %s: all figures are lower bounds\n",
            format_count(loss->lost).text, format_count(loss->emitted).text,
            format_share(loss->lost, loss->emitted).text, format_count(loss->threads_with_loss).text,
            format_plural(loss->threads_with_loss, "", "s"), format_bytes_exact(loss->lost_bytes).text);
    if (missing != 0) {
        fprintf(out, "            the rings' counters do not add up: %s events are unaccounted for\n",
                format_count(missing).text);
    }
}

static void print_interrupted(FILE *out, const struct report_loss *loss)
{
    const struct {
        int64_t count;
        const char *words;
    } parts[] = {{loss->interrupted_by_kill, "that a kill interrupted"},
                 {loss->interrupted_by_exec, "that an exec interrupted"},
                 {loss->interrupted_by_end, "that the end of their process interrupted"},
                 {loss->interrupted_by_stop, "that were under way when the recording stopped"}};
    const char *before = "";
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i].count > 0) {
            fprintf(out, "%s%s %s", before, format_count(parts[i].count).text, parts[i].words);
            before = ", ";
        }
    }
}

static void print_complete(FILE *out, struct database *database, const struct report_loss *loss)
{
    const char *claim = report_is_lossless(loss) ? "nothing lost"
                        : loss->other_rows > 0   ? "DATA LOSS, but of what was recorded"
                                                 : "INCOMPLETE, but of what was recorded";
    fprintf(out, "%s: %s events emitted, all %s", claim, format_count(loss->emitted).text,
            report_keeps_events(database) ? "stored" : "summarised");
    if (loss->not_derived > 0) {
        fprintf(out, " but %s whose sums went with a collector that was killed", format_count(loss->not_derived).text);
    }
    if (loss->uncommitted > 0) {
        fputs(loss->not_derived > 0 ? ", " : " but ", out);
        print_interrupted(out, loss);
    }
    fputc('\n', out);
}

static void print_stats(FILE *out, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_losses_without_words);
    while (cursor_next(&cursor)) {
        fputs("            ", out);
        format_print_safe(out, cursor_name(&cursor, 0));
        fprintf(out, " %s (", format_count(cursor_integer(&cursor, 2)).text);
        format_print_safe(out, cursor_name(&cursor, 1));
        fprintf(out, ", %s entr%s of data_loss)\n", format_count(cursor_integer(&cursor, 3)).text,
                format_plural(cursor_integer(&cursor, 3), "y", "ies"));
    }
    cursor_close(&cursor);
}

void report_loss_print(FILE *out, struct database *database, const struct report_loss *loss)
{
    if (adds_up(loss)) {
        print_complete(out, database, loss);
    } else if (loss->lost > 0 || (loss->unattached == 0 && loss->damaged == 0)) {
        print_dropped(out, loss);
    } else {
        fprintf(out, "DATA LOSS: not all of %s events is here\n", format_count(loss->emitted + loss->unattached).text);
    }
    if (loss->damaged > 0) {
        fprintf(out, "            %s ring%s missing, cut or damaged: what else they held is not known\n",
                format_count(loss->damaged).text, format_plural(loss->damaged, " is", "s are"));
    }
    if (loss->unattached > 0) {
        fprintf(out, "            %s event%s found no ring: no memory, file descriptor, permission or disk space\n",
                format_count(loss->unattached).text, format_plural(loss->unattached, "", "s"));
    }
    if (loss->frees_unknown > 0) {
        fprintf(out, "            %s free%s of blocks whose allocation was lost: in no total either\n",
                format_count(loss->frees_unknown).text, format_plural(loss->frees_unknown, "", "s"));
    }
    if (loss->unattached_processes > 0) {
        fprintf(out, "            %s process%s could not be recorded: no session page for it, or it was deleted\n",
                format_count(loss->unattached_processes).text, format_plural(loss->unattached_processes, "", "es"));
    }
    if (loss->unhooked_libraries > 0) {
        fprintf(out, "            %s librar%s not recorded: what is freed there counts as live here\n",
                format_count(loss->unhooked_libraries).text,
                format_plural(loss->unhooked_libraries, "y is", "ies are"));
    }
    if (loss->running > 0) {
        fprintf(out, "            %s process%s still running when the recording stopped\n",
                format_count(loss->running).text, format_plural(loss->running, "", "es"));
    }
    if (loss->unrecorded > 0) {
        fputs("            ", out);
        report_unrecorded_print(out, database, loss);
        fputc('\n', out);
    }
    if (loss->killed + loss->unknown > 0) {
        fputs("            ", out);
        print_killed(out, loss);
        fputs(adds_up(loss) ? ": what was recorded up to then is here\n" : "\n", out);
    }
    if (loss->unread_pythons > 0) {
        print_unread_pythons(out, database, loss);
    }
    if (loss->stat_rows > 0) {
        print_stats(out, database);
    }
}

/* NULL: the recording went to LTTng alone, or can't be read; what the collector counted must do then. */
static struct database *open_result(const struct varve_collect_result *result, struct report_loss *loss)
{
    struct varve_message message = {""};
    *loss = (struct report_loss){.lost = (int64_t)result->lost,
                                 .emitted = (int64_t)result->lost,
                                 .running = (int64_t)result->running,
                                 .unattached_processes = (int64_t)result->unattached,
                                 .unhooked_heaps = (int64_t)result->own_allocators,
                                 .unrecorded = (int64_t)result->unrecorded,
                                 .unrecorded_runs = (int64_t)result->unrecorded};
    struct database *database = NULL;
    if (result->database_path[0] == '\0' ||
        database_open(result->database_path, DATABASE_ANY, &database, &message) != VARVE_OK) {
        return NULL;
    }
    report_loss_load(loss, database);
    return database;
}

void report_result_words(FILE *out, const struct varve_collect_result *result)
{
    struct report_loss loss;
    struct database *database = open_result(result, &loss);
    report_loss_words(out, &loss);
    if (database != NULL) {
        database_close(database);
    }
}

void report_result_interrupted(FILE *out, const struct varve_collect_result *result)
{
    struct report_loss loss;
    struct database *database = open_result(result, &loss);
    if (database != NULL && loss.uncommitted > 0) {
        fputs("; without ", out);
        print_interrupted(out, &loss);
    }
    if (database != NULL) {
        database_close(database);
    }
}

void report_result_programs(FILE *out, const struct varve_collect_result *result)
{
    struct report_loss loss;
    struct database *database = open_result(result, &loss);
    if (loss.unrecorded > 0 && database == NULL) {
        fprintf(out, "varve: %s program%s could not be recorded\n", format_count(loss.unrecorded).text,
                format_plural(loss.unrecorded, "", "s"));
    } else if (loss.unrecorded > 0) {
        fputs("varve: ", out);
        report_unrecorded_print(out, database, &loss);
        fputs("; varve info lists them\n", out);
    }
    if (database != NULL) {
        database_close(database);
    }
}

struct cJSON *report_loss_json(struct database *database, const struct report_loss *loss)
{
    struct cJSON *object = json_object();
    json_bool(object, "nothing_lost", report_is_lossless(loss));
    json_integer(object, "emitted", loss->emitted);
    json_integer(object, "stored", loss->stored);
    json_integer(object, "spilled", loss->spilled);
    json_integer(object, "lost", loss->lost);
    json_integer(object, "lost_bytes", loss->lost_bytes);
    json_integer(object, "uncommitted", loss->uncommitted);
    json_integer(object, "threads_with_loss", loss->threads_with_loss);
    json_integer(object, "unattached", loss->unattached);
    json_integer(object, "processes_running", loss->running);
    json_integer(object, "processes_killed", loss->killed);
    json_integer(object, "processes_gone", loss->unknown);
    json_integer(object, "pythons_unread", loss->unread_pythons);
    json_integer(object, "programs_unrecorded", loss->unrecorded);
    json_integer(object, "programs_unrecorded_runs", loss->unrecorded_runs);
    json_add(object, "data_loss", loss->stat_rows > 0 ? query_json(database, sql_losses_listed, 0) : json_array());
    return object;
}
