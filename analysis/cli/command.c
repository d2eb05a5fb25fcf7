/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From argv to a sub-command: finds it, reads its options by its table, collects its output and lets it out
 * only when the command succeeded. Adding a command: README.md.
 */
#include "analysis/cli/command.h"

#include "analysis/analysis.h"
#include "analysis/cli/options.h"
#include "analysis/history/history_read.h"
#include "analysis/import/imported_snapshot.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/output_file.h"
#include "analysis/base/progress.h"
#include "analysis/base/terminal.h"
#include "analysis/base/user_config.h"
#include "analysis/page/page.h"
#include "analysis/query/database.h"
#include "analysis/query/hidden_lines.h"
#include "base/error.h"
#include "trace/record.h"
#include "trace/writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VARVE_VERSION
#define VARVE_VERSION "unknown"
#endif

const struct command *const command_table[] = {
#define COMMAND_ADDRESS(name) &command_##name,
    COMMAND_LIST(COMMAND_ADDRESS)
#undef COMMAND_ADDRESS
        NULL,
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; command_table[i] != NULL; i++) {
        if (strcmp(command_table[i]->name, name) == 0) {
            return command_table[i];
        }
    }
    return NULL;
}

void command_say(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char text[8192 + 256]; /* two paths and what is said of them */
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    format_print_lines(out, text);
}

void command_progress(struct command_context *context, struct progress *progress, bool quiet)
{
    progress_begin(progress, context->err, context->err_is_terminal && !quiet);
}

int command_fail(struct command_context *context, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char line[1024];
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(context->err, "varve%s%s: ", context->name[0] != '\0' ? " " : "", context->name);
    format_print_safe(context->err, line);
    fputc('\n', context->err);
    return EXIT_STATUS_FAILED;
}

void command_say_inferred(struct command_context *context, const char *path, const struct history *history)
{
    char words[HISTORY_WORDS_BYTES];
    history_inferred_words(history, words, sizeof(words));
    if (words[0] != '\0') {
        command_say(context->err, "varve %s: %s: %s\n", context->name, path, words);
    }
}

void command_say_imported(struct command_context *context, struct database *database)
{
    char *words = database_meta(database, "history.inferred");
    if (words != NULL) {
        command_say(context->err, "varve %s: %s: %s\n", context->name, database_path(database), words);
    }
    free(words);
}

void command_say_hidden(struct command_context *context, size_t all)
{
    if (all > 0) {
        fprintf(context->err,
                "varve %s: the patterns hide every frame of all %s call sites; their innermost frames are shown\n",
                context->name, COUNT(all));
    }
}

int command_hide(struct command_context *context, struct database *database, const struct operands *operands,
                 struct varve_message *message)
{
    size_t all;
    int error = database_hide(database, operands->hidden.items, (size_t)operands->hidden.count, &all, message);
    if (error == VARVE_OK) {
        command_say_hidden(context, all);
    }
    return error;
}

static int command_fail_unknown(struct command_context *context, const char *name)
{
    const char *names[sizeof(command_table) / sizeof(command_table[0])];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        names[i] = command_table[i] == NULL ? NULL : command_table[i]->name;
    }
    const char *nearest = option_suggest(name, names);
    if (nearest != NULL) {
        return command_fail(context, "there is no command '%s'; did you mean %s?", name, nearest);
    }
    return command_fail(context, "there is no command '%s'; varve help lists them", name);
}

static int finish_output(struct command_context *context)
{
    if (fflush(context->out) != 0 || ferror(context->out)) {
        return command_fail(context, "the output could not be written: %s", strerror(errno));
    }
    return 0;
}

/* Of a snapshot: the database that it is imported into. */
static int open_database(const struct command *command, const char *path, struct imported *imported,
                         struct progress *progress, struct varve_message *message)
{
    struct history *history;
    int error = imported_read(path, &history, progress, message);
    if (error == VARVE_OK && history == NULL) {
        enum database_use use = command->takes_cut_off ? DATABASE_ANY : DATABASE_DERIVED;
        return database_open(path, use, &imported->database, message);
    }
    VARVE_THEN(error, imported_take(history, path, imported, progress, message));
    return error;
}

static int run_about_database(const struct command *command, struct command_context *context, const void *values,
                              const struct operands *operands)
{
    struct varve_message message = {""};
    struct imported imported = {NULL, ""};
    struct progress progress;
    command_progress(context, &progress, false);
    int error = open_database(command, operands->items[0], &imported, &progress, &message);
    if (error == VARVE_OK) {
        database_watch(imported.database, &progress, "reading");
        command_say_imported(context, imported.database);
        error = command_hide(context, imported.database, operands, &message);
        VARVE_THEN(error, command->answer(context, imported.database, values, &message));
        error = error == VARVE_OK ? database_error(imported.database, &message) : error;
    }
    progress_end(&progress);
    imported_close(&imported);
    return error == VARVE_OK ? context->status : command_fail(context, "%s", message.text);
}

static int command_finish(const struct command *command, struct command_context *context, const void *values,
                          const struct operands *operands)
{
    const char *wrong = command->check != NULL ? command->check(values) : NULL;
    if (wrong != NULL) {
        return command_fail(context, "%s", wrong);
    }
    return command->answer != NULL ? run_about_database(command, context, values, operands)
                                   : command->run(context, values, operands);
}

int command_page(struct command_context *context, const char *path, bool force, const char *const *inputs, int count,
                 output_writer *write, const void *subject, struct varve_message *message)
{
    const bool is_file = strcmp(path, "-") != 0;
    VARVE_TRY(page_check(message));
    if (is_file) {
        VARVE_TRY(output_check(path, force, inputs, count, message));
    }
    context->is_exact = !is_file;
    return is_file ? output_file(path, force, write, subject, message) : write(subject, context->out, message);
}

/* Nothing is printed unless all of it is right. */
static int run_buffered(const struct command *command, struct command_context *context, const void *values,
                        const struct operands *operands)
{
    FILE *out = context->out;
    char *text = NULL;
    size_t bytes = 0;
    context->out = memory_stream(&text, &bytes);
    terminal_collect(context->out);
    int status = command_finish(command, context, values, operands);
    if (status == EXIT_STATUS_FAILED) {
        fclose(context->out); /* its line is out already, whatever else fails */
    } else {
        memory_stream_end(context->out, &text);
    }
    context->out = out;
    if (status != EXIT_STATUS_FAILED && context->is_exact) {
        fwrite(text, 1, bytes, out);
    } else if (status != EXIT_STATUS_FAILED) {
        terminal_print(out, text); /* names in it came from elsewhere */
    }
    free(text);
    return status;
}

static int run_words(const struct command *command, struct command_context *context, const struct user_config *config,
                     int argc, char *const argv[], void *values)
{
    struct operands operands;
    struct varve_message message = {""};
    switch (options_parse(command, config, argc, argv, values, &operands, &message)) {
    case VARVE_OK:
        break;
    case OPTION_HELP_RESULT:
        help_print_command(context->out, command);
        return finish_output(context);
    case OPTION_USAGE_RESULT:
        command_fail(context, "%s", message.text);
        help_print_usage(context->err, command);
        return EXIT_STATUS_FAILED;
    default:
        return command_fail(context, "%s", message.text);
    }
    database_set_timeout(operands.timeout_ns);
    int status = command->streams ? command_finish(command, context, values, &operands)
                                  : run_buffered(command, context, values, &operands);
    const int finished = status == 0 || status == context->status ? finish_output(context) : 0;
    return finished != 0 ? finished : status;
}

void *command_values(const struct command *command)
{
    void *values = memory_resize(NULL, command->values_bytes + 1); /* one more: a command may have none */
    if (command->defaults != NULL) {
        memcpy(values, command->defaults, command->values_bytes);
    } else {
        memset(values, 0, command->values_bytes);
    }
    return values;
}

static int run_command(const struct command *command, struct command_context *context, int argc, char *const argv[])
{
    struct user_config config;
    struct varve_message message = {""};
    void *values = command_values(command);
    const int error = user_config_load(&config, &message);
    const int status = error == VARVE_OK ? run_words(command, context, &config, argc, argv, values)
                                         : command_fail(context, "%s", message.text);
    user_config_free(&config);
    free(values);
    return status;
}

int varve_command_run(int argc, char *const argv[], FILE *out, FILE *err)
{
    struct command_context context = {.out = out, .err = err, .name = ""};
    const char *name = argc > 1 ? argv[1] : "";
    int descriptor = fileno(err);
    terminal_begin(out);
    context.err_is_terminal = descriptor >= 0 && isatty(descriptor);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        fprintf(out, "varve %s (schema %d, transport %u, SQLite %s)\n", VARVE_VERSION, VARVE_DATABASE_SCHEMA_VERSION,
                VARVE_TRANSPORT_VERSION, database_library_version());
        return finish_output(&context);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        help_print(out);
        return finish_output(&context);
    }
    if (argc < 2) {
        help_print(err);
        return EXIT_STATUS_FAILED;
    }
    if (name[0] == '-') {
        return command_fail(&context, "unknown option '%s'; the command comes first: varve help", name);
    }
    const struct command *command = command_find(name);
    if (command == NULL) {
        return command_fail_unknown(&context, name);
    }
    context.name = command->name;
    return run_command(command, &context, argc - 2, argv + 2);
}
