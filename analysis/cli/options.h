/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of sub-commands: the kinds of them, and the reading of a command line into a command's values and operands.
 */
#ifndef VARVE_ANALYSIS_CLI_OPTIONS_H
#define VARVE_ANALYSIS_CLI_OPTIONS_H

#include "analysis/cli/command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_entry;
struct user_config;
struct varve_message;

enum option_kind {
    OPTION_END = 0,
    OPTION_FLAG,    /* bool */
    OPTION_INTEGER, /* int64_t within min…max */
    OPTION_TEXT,    /* const char *, borrowed from argv */
    OPTION_TEXTS,   /* struct option_texts: may be given several times */
    OPTION_BYTES,   /* int64_t; suffixes K, M, G */
    OPTION_SECONDS, /* int64_t in ns; decimals allowed */
    OPTION_CHOICE,  /* int: index into choices */
    OPTION_MODE,    /* int: 1 for --name, 2 + index into choices for --name=choice */
    OPTION_ABSENT,  /* known, but not in this build: help says what is missing */
};

struct option_spec {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum option_kind kind;
    const char *argument; /* name of its value in the help text; NULL for a flag */
    const char *help;     /* NULL: of programs, and not shown */
    size_t offset;        /* of its field in the command's values */
    int64_t min, max;
    const char *const *choices; /* ends with NULL */
};

#define OPTION_HELP_RESULT 1        /* options_parse: --help was given */
#define OPTION_USAGE_RESULT (-1000) /* options_parse: an argument is missing, or there is one too many */

/// Read what the user's files say of the command, which values may borrow from, and then a command line (without the
/// command's name). Returns OPTION_HELP_RESULT, 0, VARVE_ERROR_INVALID, or OPTION_USAGE_RESULT: an error whose reason
/// is followed by the usage line.
int options_parse(const struct command *command, const struct user_config *config, int argc, char *const argv[],
                  void *values, struct operands *operands, struct varve_message *message);
/// May the option of that name, without dashes, be given several times?
bool options_is_list(const struct command *command, const char *name);
/// One line of these files. Errors: VARVE_ERROR_INVALID, with its place.
int options_set(const struct command *command, const struct config_entry *entry, void *values,
                struct operands *operands, struct varve_message *message);
/// The option that the first `length` bytes of a word name with its dashes; NULL: none of `options`.
const struct option_spec *option_find(const struct option_spec *options, const char *word, size_t length);
bool option_is_shown(const struct option_spec *option); /* in help, manual and completion */
/// A size as OPTION_BYTES takes them: 500, 24M, 24 MiB or 24 MB, which are the same. False: it is none.
bool option_bytes(const char *text, int64_t *bytes_out);
/// Is it a file, by the name that the help gives an operand or a value?
bool option_names_file(const char *name, size_t length);
bool option_is_path(const struct option_spec *option); /* its value is the path of a file */
/// The nearest of `names` (ends with NULL), or NULL if none is near.
const char *option_suggest(const char *word, const char *const *names);

extern const struct option_spec option_help; /* --help, of every command */

/// Options that this command has in common with others, whose values are in `operands`; ends with OPTION_END.
const struct option_spec *options_common(const struct command *command);

#endif
