/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sub-command: its name, help, options and function, and the table of all of them. command.c finds the command that a
 * line names, runs it and sends what it printed to the output at the end; options.c reads its options, command_help.c
 * prints its help. One thread calls all of it. Errors: 0 or a negative enum varve_error with the reason in a struct
 * varve_message; a command turns them into one line and EXIT_STATUS_FAILED.
 */
#ifndef VARVE_ANALYSIS_CLI_COMMAND_H
#define VARVE_ANALYSIS_CLI_COMMAND_H

#include "analysis/base/output_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXIT_STATUS_FAILED 2
#define OPERANDS_MAX 64
#define OPTION_TEXTS_MAX 64

struct database;
struct history;
struct option_spec;
struct progress;
struct varve_message;

/* Values of an option that may be given several times, borrowed from argv. */
struct option_texts {
    int count;
    const char *items[OPTION_TEXTS_MAX];
};

struct operands {
    int count;
    const char *items[OPERANDS_MAX];
    int64_t timeout_ns;         /* --timeout: of a command that reads databases */
    struct option_texts hidden; /* --hide: of a command about one database */
    char *const *rest;          /* of a command that takes another command line: that one, NULL at its end */
};

struct command_context {
    FILE *out; /* of commands that do not stream: without control characters in the end, unless is_exact */
    FILE *err;
    const char *name;     /* of the sub-command, for messages */
    bool err_is_terminal; /* progress may be drawn */
    bool is_exact;        /* the answer is for programs, byte by byte: CSV */
    int status;           /* of the command where `answer` ends without an error */
};

/* A sub-command: what it is called with, what its help says, and the function that does it. */
struct command {
    const char *name;
    const char *arguments; /* after the options, in the usage line */
    const char *summary;   /* one line of `varve help` */
    const char *purpose;   /* paragraphs of `varve help NAME` */
    const char *examples;
    const struct option_spec *options;
    const void *defaults; /* of the values, copied before the command line is read */
    size_t values_bytes;
    int operands_min, operands_max;
    const char *const *operand_choices; /* what completion offers as its operand, NULL at the end; or NULL */
    bool takes_command;                 /* operands are another command line: options end at the first */
    bool reads_database;                /* takes --timeout */
    bool hides;                         /* takes --hide, as those with `answer` do: it calls command_hide */
    bool streams; /* writes as it goes, and filters itself; others at the end, or nothing on failure */
    const char *(*check)(const void *values); /* what is wrong with the options together, NULL if nothing is; or NULL */
    bool takes_cut_off; /* `answer` is also about recordings that were cut off before their totals were made */
    int (*run)(struct command_context *context, const void *values, const struct operands *operands);
    /* Instead of `run`, of a command about one database, its only operand (with --timeout): it is opened before and
     * closed afterwards, and what goes wrong while it is read is an error of the command. Returns 0 or an error with
     * its reason in `message`. */
    int (*answer)(struct command_context *context, struct database *database, const void *values,
                  struct varve_message *message);
};

/* All of them, in the order of the help. */
/* clang-format off */
#define COMMAND_LIST(X) \
    X(record) X(attach) X(detach) X(top) X(recover) X(import) X(export) X(replay) X(compare) X(frontier) X(bound) \
    X(advise) X(dtr) X(report) X(leaks) X(peak) X(tree) X(flamegraph) X(timeline) X(segments) X(oom) X(query) \
    X(diff) X(check) X(info) X(doctor) X(config) X(completion) X(help)
/* clang-format on */

#define COMMAND_EXTERN(name) extern const struct command command_##name;
COMMAND_LIST(COMMAND_EXTERN)
#undef COMMAND_EXTERN

extern const struct command *const command_table[]; /* ends with NULL */

const struct command *command_find(const char *name);
/// Values of a command, as its defaults are. Owner: the caller, by free.
void *command_values(const struct command *command);
/// Write a page of HTML (page/page.h) to the file `path`, which may not be one of the `count` inputs; "-": to the
/// answer, byte by byte. Errors: those of page_check, output_check, output_file and `write`.
int command_page(struct command_context *context, const char *path, bool force, const char *const *inputs, int count,
                 output_writer *write, const void *subject, struct varve_message *message);
/// Begin `progress` on the error stream of the command: drawn if that is a terminal and the command is not `quiet`.
void command_progress(struct command_context *context, struct progress *progress, bool quiet);
/// Print "varve NAME: message" to context->err and return EXIT_STATUS_FAILED.
int command_fail(struct command_context *context, const char *format, ...) __attribute__((format(printf, 2, 3)));
/// A line on context->err if something of the history was inferred or could not be read: the answer rests on it.
void command_say_inferred(struct command_context *context, const char *path, const struct history *history);
/// The same of a database that was imported.
void command_say_imported(struct command_context *context, struct database *database);
/// Choose the user's lines of a database anew by --hide and the settings of the user; says so if
/// nothing is left.
int command_hide(struct command_context *context, struct database *database, const struct operands *operands,
                 struct varve_message *message);
/// Patterns hide every frame of `all` call sites, which are all of them; 0: they do not.
void command_say_hidden(struct command_context *context, size_t all);
/// fprintf of what may have names from elsewhere in it, to a stream that nobody filters: not the context's
/// `out`.
void command_say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* command_help.c */

void help_print(FILE *out);
void help_print_usage(FILE *out, const struct command *command); /* one line */
void help_print_command(FILE *out, const struct command *command);

/* command_manual.c */

int manual_print(struct command_context *context); /* the manual page, as roff; returns the exit status */

#endif
