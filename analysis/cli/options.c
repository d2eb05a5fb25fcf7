/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines, read by a command's table of options: --name value, --name=value, -n value, -nvalue, "--"
 * ends the options. One table per command gives parsing and help, so that the two agree. Messages name what
 * was wrong and, for a misspelt name, the nearest one.
 */
#include "analysis/cli/options.h"

#include "analysis/cli/command.h"
#include "analysis/base/number_format.h"
#include "analysis/base/user_config.h"
#include "analysis/query/database.h"
#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 64
#define WORD_MAX 32

/* Edits (insert, delete, replace, swap neighbours) between two words: Damerau's distance without repeats. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t length_a = strlen(a);
    size_t length_b = strlen(b);
    if (length_a > WORD_MAX || length_b > WORD_MAX) {
        return WORD_MAX;
    }
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= length_b; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < best) {
                best = above2[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[length_a % 3][length_b];
}

const char *option_suggest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    size_t nearest_distance = strlen(word) < 4 ? 2 : 3;
    for (; *names != NULL; names++) {
        size_t distance = edit_distance(word, *names);

        /* what somebody began to type is near, however long the rest is */
        if (strlen(word) >= 2 && strncmp(word, *names, strlen(word)) == 0) {
            distance = 1;
        }
        if (distance < nearest_distance) {
            nearest = *names;
            nearest_distance = distance;
        }
    }
    return nearest;
}

const struct option_spec option_help = {"help", 'h', OPTION_FLAG, NULL, "print this help", 0, 0, 0, NULL};

static const struct option_spec common[] = {
    {"hide", 0, OPTION_TEXTS, "PATTERN",
     "frames to pass over for the user's line, beside the built-in ones: functions, or files and modules if it has a "
     "slash; * stands for anything; may be repeated",
     offsetof(struct operands, hidden), 0, 0, NULL},
    {"timeout", 0, OPTION_SECONDS, "SECONDS",
     "how long reading a database may compute: one from elsewhere may never end (default 60; 0: no limit)",
     offsetof(struct operands, timeout_ns), 0, 0, NULL},
    {.kind = OPTION_END},
};

bool option_is_shown(const struct option_spec *option)
{
    return option->kind != OPTION_ABSENT && option->help != NULL;
}

const struct option_spec *options_common(const struct command *command)
{
    return command->answer != NULL || command->hides ? common
           : command->reads_database                 ? &common[1]
                                                     : &common[sizeof(common) / sizeof(common[0]) - 1];
}

static int options_fail_unknown(const struct command *command, const char *word, size_t length,
                                struct varve_message *message)
{
    const char *names[NAMES_MAX] = {"help"};
    size_t count = 1;
    for (const struct option_spec *option = command->options; option->kind != OPTION_END; option++) {
        if (option_is_shown(option) && count + 1 < NAMES_MAX) {
            names[count++] = option->name;
        }
    }
    for (const struct option_spec *option = options_common(command);
         option->kind != OPTION_END && count + 1 < NAMES_MAX; option++) {
        names[count++] = option->name;
    }
    names[count] = NULL;
    char name[WORD_MAX * 2];
    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    const char *nearest = option_suggest(name + strspn(name, "-"), names);
    if (nearest != NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "unknown option '%s'; did you mean --%s?", name,
                                 nearest);
    }
    return varve_message_set(message, VARVE_ERROR_INVALID, "unknown option '%s'; varve help %s lists them", name,
                             command->name);
}

static int parse_integer(const struct option_spec *option, const char *text, int64_t *value_out,
                         struct varve_message *message)
{
    errno = 0;
    char *end;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < option->min || number > option->max) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--%s must be a number from %lld to %lld, not '%s'",
                                 option->name, (long long)option->min, (long long)option->max, text);
    }
    *value_out = number;
    return VARVE_OK;
}

bool option_bytes(const char *text, int64_t *bytes_out)
{
    static const char suffixes[] = "KMGT";
    errno = 0;
    char *end;
    long long number = strtoll(text, &end, 10);
    unsigned shift = 0;
    if (end == text || errno != 0) {
        return false;
    }
    end += *end == ' ';
    const char *suffix = *end != '\0' ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix != NULL) {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
        end += end[1] == 'i' && end[2] == 'B' ? 2 : 1;
    }
    end += *end == 'B';
    if (*end != '\0' || number < 0 || number > INT64_MAX >> shift) {
        return false;
    }
    *bytes_out = number << shift;
    return true;
}

static int options_parse_bytes(const struct option_spec *option, const char *text, int64_t *value_out,
                               struct varve_message *message)
{
    int64_t bytes;
    if (!option_bytes(text, &bytes) || bytes < option->min || bytes > option->max) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--%s must be bytes from %s to %s, such as 4M, not '%s'",
                                 option->name, BYTES(option->min), BYTES(option->max), text);
    }
    *value_out = bytes;
    return VARVE_OK;
}

static int parse_seconds(const struct option_spec *option, const char *text, int64_t *value_out,
                         struct varve_message *message)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--%s must be seconds, such as 2.5, not '%s'",
                                 option->name, text);
    }
    *value_out = (int64_t)(seconds * 1e9);
    return VARVE_OK;
}

static int parse_choice(const struct option_spec *option, const char *text, int *value_out,
                        struct varve_message *message)
{
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *value_out = i;
            return VARVE_OK;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", option->choices[i]);
    }
    return varve_message_set(message, VARVE_ERROR_INVALID, "--%s must be one of %s, not '%s'", option->name, list,
                             text);
}

static int parse_mode(const struct option_spec *option, const char *text, int *value_out, struct varve_message *message)
{
    *value_out = 1;
    if (text == NULL) {
        return VARVE_OK;
    }
    int choice = 0;
    int error = parse_choice(option, text, &choice, message);
    *value_out = error == VARVE_OK ? choice + 2 : 0;
    return error;
}

bool option_names_file(const char *name, size_t length)
{
    static const char *const names[] = {"DB", "FILE", "DIR", "TRACE", "LOG", "SOURCE", "A", "B"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

bool option_is_path(const struct option_spec *option)
{
    return option->kind == OPTION_TEXT && option_names_file(option->argument, strlen(option->argument));
}

static int parse_flag(const struct option_spec *option, const char *text, bool *value_out,
                      struct varve_message *message)
{
    const bool is_on = strcmp(text, "yes") == 0;
    if (!is_on && strcmp(text, "no") != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s must be yes or no, not '%s'", option->name, text);
    }
    *value_out = is_on;
    return VARVE_OK;
}

static int parse_texts(const struct option_spec *option, const char *text, struct option_texts *texts,
                       struct varve_message *message)
{
    if (texts->count == OPTION_TEXTS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--%s is given more than %d times", option->name,
                                 OPTION_TEXTS_MAX);
    }
    texts->items[texts->count++] = text;
    return VARVE_OK;
}

static int options_parse_value(const struct option_spec *option, const char *text, void *values,
                               struct varve_message *message)
{
    void *field = (char *)values + option->offset;
    switch (option->kind) {
    case OPTION_INTEGER:
        return parse_integer(option, text, field, message);
    case OPTION_TEXT:
        if (text[0] == '\0' && option_is_path(option)) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "--%s needs the name of a file, not ''",
                                     option->name);
        }
        memcpy(field, &text, sizeof(text));
        return VARVE_OK;
    case OPTION_TEXTS:
        return parse_texts(option, text, field, message);
    case OPTION_BYTES:
        return options_parse_bytes(option, text, field, message);
    case OPTION_SECONDS:
        return parse_seconds(option, text, field, message);
    case OPTION_CHOICE:
        return parse_choice(option, text, field, message);
    default:
        return VARVE_ERROR_INVALID;
    }
}

const struct option_spec *option_find(const struct option_spec *options, const char *word, size_t length)
{
    for (const struct option_spec *option = options; option->kind != OPTION_END; option++) {
        bool is_long =
            word[1] == '-' && strlen(option->name) == length - 2 && strncmp(option->name, word + 2, length - 2) == 0;
        if (is_long || (word[1] != '-' && option->letter == word[1])) {
            return option;
        }
    }
    return NULL;
}

/* `is_common_out`: its value belongs to the operands. */
static const struct option_spec *options_find(const struct command *command, const char *word, size_t length,
                                              bool *is_common_out)
{
    const struct option_spec *option = option_find(command->options, word, length);
    *is_common_out = option == NULL;
    return option != NULL ? option : option_find(options_common(command), word, length);
}

/* One option at argv[*index], with its value, wherever that stands. */
static int options_parse_option(const struct command *command, int argc, char *const argv[], int *index, void *values,
                                struct operands *operands, struct varve_message *message)
{
    const char *word = argv[*index];
    bool is_long = word[1] == '-';
    size_t length = is_long ? strcspn(word, "=") : 2;
    const char *value = word[length] == '\0' ? NULL : word + length + (is_long ? 1 : 0);
    bool is_common;
    const struct option_spec *option = options_find(command, word, length, &is_common);
    values = is_common ? operands : values;
    if ((is_long && length == 6 && strncmp(word, "--help", 6) == 0) || strcmp(word, "-h") == 0) {
        return OPTION_HELP_RESULT;
    }
    if (option == NULL) {
        return options_fail_unknown(command, word, length, message);
    }
    if (option->kind == OPTION_ABSENT) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "--%s: %s", option->name, option->help);
    }
    if (option->kind == OPTION_FLAG) {
        if (value != NULL) {
            return parse_flag(option, value, (bool *)((char *)values + option->offset), message);
        }
        *(bool *)((char *)values + option->offset) = true;
        return VARVE_OK;
    }
    if (option->kind == OPTION_MODE) {
        return parse_mode(option, value, (int *)((char *)values + option->offset), message);
    }
    if (value == NULL) {
        if (*index + 1 >= argc) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "--%s needs a value (%s)", option->name,
                                     option->argument);
        }
        value = argv[++*index];
    }
    return options_parse_value(option, value, values, message);
}

/* ---- the user's files ---- */

static int options_set_one(const struct option_spec *option, const char *text, void *values,
                           struct varve_message *message)
{
    void *field = (char *)values + option->offset;
    switch (option->kind) {
    case OPTION_ABSENT: /* a file serves several builds */
        return VARVE_OK;
    case OPTION_FLAG:
        return parse_flag(option, text, field, message);
    case OPTION_MODE:
        *(int *)field = 0;
        return strcmp(text, "no") == 0 ? VARVE_OK
                                       : parse_mode(option, strcmp(text, "yes") == 0 ? NULL : text, field, message);
    default:
        return options_parse_value(option, text, values, message);
    }
}

bool options_is_list(const struct command *command, const char *name)
{
    char word[WORD_MAX * 2];
    bool is_common;
    snprintf(word, sizeof(word), "--%s", name);
    const struct option_spec *option = options_find(command, word, strlen(word), &is_common);
    return option != NULL && option->kind == OPTION_TEXTS;
}

/* What would write somewhere, or replace something, is said each time. */
static bool may_be_set(const struct option_spec *option)
{
    return !option_is_path(option) && strcmp(option->name, "force") != 0;
}

int options_set(const struct command *command, const struct config_entry *entry, void *values,
                struct operands *operands, struct varve_message *message)
{
    char word[WORD_MAX * 2];
    struct varve_message why = {""};
    snprintf(word, sizeof(word), "--%s", entry->key);
    bool is_common;
    const struct option_spec *option = options_find(command, word, strlen(word), &is_common);
    values = is_common ? operands : values;
    int error = VARVE_OK;
    if (option == NULL) {
        error = options_fail_unknown(command, word, strlen(word), &why);
    } else if (!may_be_set(option)) {
        error = varve_message_set(&why, VARVE_ERROR_INVALID, "%s is for the command line only", word);
    } else {
        error = options_set_one(option, entry->value, values, &why);
    }
    return error == VARVE_OK ? VARVE_OK : user_config_refuse(entry, why.text, message);
}

static int options_set_all(const struct command *command, const struct user_config *config, void *values,
                           struct operands *operands, struct varve_message *message)
{
    int error = VARVE_OK;
    const struct config_entry *entry = NULL;
    while (error == VARVE_OK && (entry = user_config_next(config, command->name, entry)) != NULL) {
        error = options_set(command, entry, values, operands, message);
    }
    return error;
}

/* The name of operand `index` in the usage line, where "[--]" is none. */
static void argument_name(const struct command *command, int index, char *name, size_t bytes)
{
    const char *word = command->arguments;
    size_t length = strcspn(word, " ");
    while (word[length] != '\0' && (index > 0 || strncmp(word, "[--]", length) == 0)) {
        index -= strncmp(word, "[--]", length) == 0 ? 0 : 1;
        word += length + 1;
        length = strcspn(word, " ");
    }
    snprintf(name, bytes, "%.*s", (int)length, word);
}

static int check_operands(const struct command *command, const struct operands *operands, struct varve_message *message)
{
    if (operands->count < (command->answer != NULL ? 1 : command->operands_min)) {
        char name[WORD_MAX];
        argument_name(command, operands->count, name, sizeof(name));
        varve_message_set(message, VARVE_ERROR_INVALID, "missing argument %s", name);
        return OPTION_USAGE_RESULT;
    }
    return VARVE_OK;
}

static int parse_words(const struct command *command, int argc, char *const argv[], void *values,
                       struct operands *operands, struct varve_message *message)
{
    bool only_operands = false;
    for (int index = 0; index < argc; index++) {
        const char *word = argv[index];
        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
            continue;
        }
        /* "-- " begins a comment of SQL, not an option */
        if (only_operands || word[0] != '-' || word[1] == '\0' || strncmp(word, "-- ", 3) == 0) {
            if (command->takes_command) {
                operands->rest = &argv[index];
                operands->count = argc - index;
                break;
            }
            if (operands->count == (command->answer != NULL ? 1 : command->operands_max)) {
                varve_message_set(message, VARVE_ERROR_INVALID, "unexpected argument '%s'", word);
                return OPTION_USAGE_RESULT;
            }
            operands->items[operands->count++] = word;
            continue;
        }
        int result = options_parse_option(command, argc, argv, &index, values, operands, message);

        if (result != VARVE_OK) {
            return result;
        }
    }
    return check_operands(command, operands, message);
}

int options_parse(const struct command *command, const struct user_config *config, int argc, char *const argv[],
                  void *values, struct operands *operands, struct varve_message *message)
{
    *operands = (struct operands){.rest = &argv[argc], .timeout_ns = DATABASE_TIMEOUT_NS};
    VARVE_TRY(options_set_all(command, config, values, operands, message));
    return parse_words(command, argc, argv, values, operands, message);
}
