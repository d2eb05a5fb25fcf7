/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve top`: which recording is meant, and whether its figures go to a screen, or once to the output.
 * top/ does the rest.
 */
#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/top/top_page.h"
#include "analysis/top/top_run.h"
#include "analysis/top/top_screen.h"
#include "base/error.h"
#include "trace/collect.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDINGS_MAX 8 /* named in a line */
#define ROWS_DEFAULT 20
#define EVERY_NS_MIN INT64_C(1000000000)
#define ALLOCATORS_ONCE 16

struct values {
    int64_t top;
    int64_t every_ns;
    const char *domain;
    int sort;
    bool once;
    bool json;
};

static const struct values defaults = {.every_ns = EVERY_NS_MIN};

static const struct option_spec options[] = {
    {"once", 0, OPTION_FLAG, NULL, "print one screen as text and end; without a terminal that is the default",
     offsetof(struct values, once), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "print one JSON object and end", offsetof(struct values, json), 0, 0, NULL},
    {"every", 0, OPTION_SECONDS, "SECONDS", "between two pictures (default 1; figures come once a second)",
     offsetof(struct values, every_ns), 0, 0, NULL},
    {"top", 'n', OPTION_INTEGER, "N", "rows of a list (default: on a screen all that there are, else 20)",
     offsetof(struct values, top), 1, 100000, NULL},
    {"sort", 0, OPTION_CHOICE, "ORDER", "lines by live bytes (default), bytes allocated, or bytes per second",
     offsetof(struct values, sort), 0, 0, page_order_names},
    {"domain", 'd', OPTION_TEXT, "NAME", "lines of this domain only", offsetof(struct values, domain), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* ---- which recording ---- */

static bool command_top_is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Those that a process records, or is recorded in; `pid` 0: all of this user. */
static int command_top_find(int32_t pid, char **path_out, struct varve_message *message)
{
    char *paths[RECORDINGS_MAX] = {NULL};
    const size_t count = varve_watch_find(pid, paths, RECORDINGS_MAX);
    char text[400] = "";
    int error = VARVE_OK;
    if (count == 1) {
        *path_out = memory_copy_text(paths[0]);
    } else if (count == 0 && pid != 0) {
        error = varve_message_set(
            message, VARVE_ERROR_NOT_FOUND,
            "process %" PRId32 " records nothing, nor is it recorded, as far as this user may see", pid);
    } else if (count == 0) {
        error = varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                  "nothing is being recorded by this user; varve record starts a recording");
    } else {
        for (size_t i = 0; i < count; i++) {
            const size_t used = strlen(text);
            snprintf(text + used, sizeof(text) - used, "%s%s", i > 0 ? ", " : "", paths[i]);
        }
        error = varve_message_set(message, VARVE_ERROR_INVALID, "several recordings are under way, name one: %s", text);
    }
    for (size_t i = 0; i < count; i++) {
        free(paths[i]);
    }
    return error;
}

static int no_recording(const char *name, struct varve_message *message)
{
    if (access(name, F_OK) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%.300s is not being recorded: varve report shows what is in a finished database",
                                 name);
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             "no recording %.200s is under way (there is no %.200s.d, nor a process of that number)",
                             name, name);
}

/* A database's name, its directory's, or a process; NULL: the only one. Owner of the path: the caller, by free. */
static int directory_of(const char *name, char **path_out, struct varve_message *message)
{
    *path_out = NULL;
    if (name == NULL) {
        return command_top_find(0, path_out, message);
    }
    size_t bytes = strlen(name) + sizeof(".d");
    *path_out = memory_resize(NULL, bytes);
    snprintf(*path_out, bytes, "%s.d", name);
    if (command_top_is_folder(*path_out)) {
        return VARVE_OK;
    }
    snprintf(*path_out, bytes, "%s", name);
    if (command_top_is_folder(name)) {
        return VARVE_OK;
    }
    free(*path_out);
    *path_out = NULL;
    char *end;
    long pid = strtol(name, &end, 10);
    if (*end == '\0' && end != name && pid > 0 && pid <= INT32_MAX && access(name, F_OK) != 0) {
        return command_top_find((int32_t)pid, path_out, message);
    }
    return no_recording(name, message);
}

/* ---- what becomes of it ---- */

static const char *const state_keys[] = {"recording", "finishing", "ended", "dead"};

static void command_top_print_json(FILE *out, const struct top *top, const struct page *page)
{
    struct cJSON *object = json_object();
    json_text(object, "directory", varve_watch_directory(top->watch));
    json_text(object, "state", state_keys[varve_watch_state(top->watch)]);
    json_add(object, "figures", page_json(top->figures, page));
    json_print(object, out);
}

static void command_top_print_text(FILE *out, const struct top *top, struct page *page)
{
    page->allocators = ALLOCATORS_ONCE;
    page_head(out, top->figures, page);
    fputc('\n', out);
    page->list = PAGE_PROCESSES;
    page_list(out, top->figures, page);
    fputc('\n', out);
    page->list = PAGE_LINES;
    page_list(out, top->figures, page);
}

static int print_once(struct command_context *context, struct top *top, struct page *page, bool is_json,
                      struct varve_message *message)
{
    int error = top_wait(top, message);
    if (error != VARVE_OK) {
        return error;
    }
    char state[4352];
    top_state(top, state, sizeof(state));
    page->state = state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    if (is_json) {
        command_top_print_json(out, top, page);
    } else {
        command_top_print_text(out, top, page);
    }
    memory_stream_end(out, &text);
    error = database_error(top->figures, message);
    if (error == VARVE_OK) {
        fwrite(text, 1, bytes, context->out);
    }
    page->state = NULL;
    free(text);
    return error;
}

/* The signal that ended it, once more, now that the terminal is as it was. */
static void end_by(int number)
{
    if (number != 0) {
        raise(number);
    }
}

static const char *command_top_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->every_ns < EVERY_NS_MIN ? "--every is at least 1 second: figures come no faster" : NULL;
}

static int command_top_run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    const int descriptor = fileno(context->out);
    const bool is_once = values->once || values->json || descriptor < 0 || !isatty(descriptor) || !isatty(0);
    struct page page = {.columns = terminal_columns(),
                        .domain = values->domain,
                        .order = (enum page_order)values->sort,
                        .top = values->top != 0 ? values->top
                               : is_once        ? ROWS_DEFAULT
                                                : INT32_MAX};
    struct varve_message message = {""};
    struct top top = {0};
    int number = 0;
    if (!is_once && screen_missing() != NULL) {
        return command_fail(context, "%s", screen_missing());
    }
    char *path = NULL;
    int error = directory_of(operands->count > 0 ? operands->items[0] : NULL, &path, &message);
    VARVE_THEN(error, varve_watch_open(path, &top.watch, &message));
    VARVE_THEN(error, is_once ? print_once(context, &top, &page, values->json, &message)
                              : top_show(&top, &page, values->every_ns, &number, &message));
    top_close(&top);
    free(path);
    end_by(number);
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_top = {
    .name = "top",
    .arguments = "[DB | DIR | PID]",
    .summary = "watch a recording under way",
    .purpose =
        "Shows what a program that is being recorded has live, where it was allocated, and how fast more comes, once "
        "a second, until q is pressed; h shows the keys. The recording is named by its database (that of varve "
        "record -o), the directory DB.d, or the number of a process: varve record's or one that it records; the only "
        "one of this user need not be named. The program does nothing for it: figures are the collector's, which "
        "writes them down only while somebody watches. Lines are the user's, with those of their call sites that "
        "lead in their domain by live bytes, by bytes allocated, or by bytes over the last second, a hundred each.",
    .examples = "  varve top\n"
                "  varve top trace.db\n"
                "  varve top --json trace.db | jq .figures.totals\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_max = 1,
    .streams = true, /* onto a screen */
    .check = command_top_check,
    .run = command_top_run,
};
