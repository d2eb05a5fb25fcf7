/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve leaks`: what was live at a moment, by the line of the user's code, and whether it kept growing; and the
 * storages that look leaked.
 */
#include "analysis/report/leak_list.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/storage_summary.h"
#include "base/error.h"

#include <string.h>

#define STORAGE_DOMAIN "storage" /* no domain of allocations */

struct values {
    struct leak_query query;
    int64_t frames;
    int64_t width;
    bool full_names;
    bool json;
    bool csv;
};

static const struct values defaults = {.query = {.top = 10}, .frames = -1};

static const struct option_spec options[] = {
    {"at", 0, OPTION_TEXT, "TIME",
     "what was live then: a time since the trace began such as 1.5s, 20ms, 7us, 900ns, the number of an event, end, "
     "or exit-of-main: when main() returned or exit() began (default: exit-of-main in each process where it is "
     "known, else end)",
     offsetof(struct values, query.at), 0, 0, NULL},
    {"from", 0, OPTION_TEXT, "TIME", "only what was allocated later than then", offsetof(struct values, query.from), 0,
     0, NULL},
    {"to", 0, OPTION_TEXT, "TIME", "the same as --at", offsetof(struct values, query.to), 0, 0, NULL},
    {"all", 'a', OPTION_FLAG, NULL, "also lines that are no sign of a leak (score 0.00)",
     offsetof(struct values, query.is_all), 0, 0, NULL},
    {"suppress", 0, OPTION_TEXT, "FILE",
     "leave out lines whose stack matches one of its lines leak:PATTERN (a part of a function, file or module; *, ^, "
     "$), as LeakSanitizer does; those of varve config always count",
     offsetof(struct values, query.suppress), 0, 0, NULL},
    {"top", 'n', OPTION_INTEGER, "N", "lines shown (default 10)", offsetof(struct values, query.top), 1, 1000000000,
     NULL},
    {"frames", 0, OPTION_INTEGER, "N", "frames of each stack (default: the stack in a line; with --json all); 0: none",
     offsetof(struct values, frames), 0, 1000, NULL},
    {"domain", 'd', OPTION_TEXT, "NAME", DOMAIN_HELP "; also " STORAGE_DOMAIN, offsetof(struct values, query.domain), 0,
     0, NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only (default: all together)",
     offsetof(struct values, query.pid), 1, INT32_MAX, NULL},
    {"full-names", 0, OPTION_FLAG, NULL, "names of functions uncut", offsetof(struct values, full_names), 0, 0, NULL},
    {"width", 'w', OPTION_INTEGER, "N", "columns (default: those of the terminal, else 100)",
     offsetof(struct values, width), TERMINAL_COLUMNS_MIN, TERMINAL_COLUMNS_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values, with a header", offsetof(struct values, csv), 0, 0, NULL},
    {.kind = OPTION_END},
};

static bool is_of_storages(const struct values *values)
{
    return values->query.domain != NULL && strcmp(values->query.domain, STORAGE_DOMAIN) == 0;
}

static const char *command_leaks_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    const struct leak_query *query = &values->query;
    return values->json && values->csv              ? "--json and --csv are mutually exclusive"
           : query->at != NULL && query->to != NULL ? "--at and --to are mutually exclusive"
           : is_of_storages(values) && (query->at != NULL || query->from != NULL || query->to != NULL)
               ? "--domain " STORAGE_DOMAIN " has no --at, --from or --to"
               : NULL;
}

/* What of storages looks leaked is more than that they were not freed. */
static int answer_storages(struct command_context *context, struct database *database, const struct values *values,
                           struct varve_message *message)
{
    struct storage_leaks leaks;
    int error = storage_leaks_load(&leaks, database, values->query.pid, values->query.top, message);
    if (error == VARVE_OK && values->json) {
        json_print(storage_leaks_json(database, &leaks, values->query.pid, values->frames), context->out);
    } else if (error == VARVE_OK && values->csv) {
        context->is_exact = true;
        storage_leaks_csv(context->out, &leaks);
    } else if (error == VARVE_OK) {
        struct report_loss loss;
        report_loss_load(&loss, database);
        if (report_has_remarks(&loss)) {
            report_loss_print(context->out, database, &loss);
        }
        storage_leaks_print(context->out, database, &leaks, values->query.pid, values->frames);
    }
    storage_leaks_free(&leaks);
    return error;
}

static int command_leaks_answer(struct command_context *context, struct database *database, const void *values_untyped,
                                struct varve_message *message)
{
    const struct values *values = values_untyped;
    if (values->width > 0) {
        terminal_set_columns(values->width);
    }
    terminal_set_full_names(values->full_names);
    if (!values->json && !values->csv) {
        terminal_fold();
    }
    if (is_of_storages(values)) {
        return answer_storages(context, database, values, message);
    }
    struct leak_query query = values->query;
    query.domain = leak_list_domain(database, query.domain);
    struct leak_list list;
    int error = leak_list_load(&list, database, &query, message);
    if (error == VARVE_OK && values->json) {
        json_print(leak_list_json(database, &list, &query, values->frames), context->out);
    } else if (error == VARVE_OK && values->csv) {
        context->is_exact = true;
        leak_list_csv(context->out, &list);
    } else if (error == VARVE_OK) {
        leak_list_print(context->out, database, &list, &query, values->frames);
    }
    leak_list_free(&list);
    return error;
}

const struct command command_leaks = {
    .name = "leaks",
    .arguments = "DB",
    .summary = "what was not freed, and whether it kept growing, by line",
    .purpose =
        "Lists the lines of the user's code whose allocations were live when main() returned or exit() began, or at "
        "another moment, the most leak-like first. Tables that a program makes first and keeps are no leak, nor are "
        "caches that have filled; what grows with the work is. The score, from 0 to 1, says how evenly a line's "
        "allocations grew with the work (what the program did since the line's first), whether they still grew "
        "in the last of it, and how many they are; a sentence gives the figures. With --from and --to: what was "
        "allocated between two moments and still live at the second. Storages (--domain storage) are listed if they "
        "look leaked, with a score from 0 to 1 and why.",
    .examples = "  varve leaks trace.db\n"
                "  varve leaks --from 10s --to 60s trace.db\n"
                "  varve leaks --at end --pid 4711 --top 50 --csv trace.db > leaks.csv\n"
                "  varve leaks --suppress known.txt trace.db\n"
                "  varve leaks --domain storage trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = command_leaks_check,
    .answer = command_leaks_answer,
};
