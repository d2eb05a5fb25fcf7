/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve help --man`: the manual page. What is explained at length stands in analysis/varve.1.in; a line @…@ of it is
 * filled in from the tables of commands, options, formats and policies, so that it has what this program has.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"

#include "alloc/alloc.h"
#include "analysis/export/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64
#define NAMES_MAX 64

extern const char manual_template[];

/* The commands that the template has named, each of which it must name once. */
struct named {
    const char *names[NAMES_MAX];
    size_t count;
};

/* ---- words as roff has them ---- */

static void print_word(FILE *out, const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (word[i] == '\\') {
            fputs("\\e", out);
        } else if (word[i] == '-' && (i == 0 || word[i - 1] == '-' || word[i - 1] == '`' || word[i - 1] == '(')) {
            fputs("\\-", out); /* of an option */
        } else {
            fputc(word[i], out);
        }
    }
}

/* Sentence by sentence, a line each; no line begins with what roff takes for a request. */
static void command_manual_print_text(FILE *out, const char *text)
{
    bool is_begin = true;
    if (text == NULL) {
        return;
    }
    while (*text != '\0') {
        size_t word = strcspn(text, " \n");
        if (is_begin && (*text == '.' || *text == '\'')) {
            fputs("\\&", out);
        }
        print_word(out, text, word);
        is_begin = word > 1 && text[word - 1] == '.' && text[word] != '\0';
        text += word;
        text += strspn(text, " \n");
        fputc(is_begin ? '\n' : *text != '\0' ? ' ' : '\n', out);
    }
}

static void print_bold(FILE *out, const char *text)
{
    fputs("\\fB", out);
    for (; *text != '\0'; text++) {
        fputs(*text == '-' ? "\\-" : (const char[]){*text, '\0'}, out);
    }
    fputs("\\fR", out);
}

/* ---- what a line @…@ stands for ---- */

static void command_manual_print_option(FILE *out, const struct option_spec *option)
{
    fputs(".TP\n", out);
    char name[NAME_BYTES];
    if (option->letter != 0) {
        snprintf(name, sizeof(name), "-%c", option->letter);
        print_bold(out, name);
        fputs(", ", out);
    }
    snprintf(name, sizeof(name), "--%s%s", option->name, option->kind == OPTION_MODE ? option->argument : "");
    print_bold(out, name);
    if (option->argument != NULL && option->kind != OPTION_MODE) {
        fprintf(out, " \\fI%s\\fR", option->argument);
    }
    fputc('\n', out);
    command_manual_print_text(out, option->help);
}

static void command_manual_print_options(FILE *out, const struct option_spec *option)
{
    for (; option->kind != OPTION_END; option++) {
        if (option_is_shown(option)) {
            command_manual_print_option(out, option);
        }
    }
}

static void print_use(FILE *out, const struct command *command)
{
    fprintf(out, "\\fBvarve %s\\fR [\\fIOPTIONS\\fR]%s", command->name, command->arguments[0] != '\0' ? " " : "");
    print_word(out, command->arguments, strlen(command->arguments));
    fputc('\n', out);
}

static void print_command(FILE *out, const struct command *command)
{
    fprintf(out, ".SS %s\n", command->name);
    print_use(out, command);
    fputs(".PP\n", out);
    command_manual_print_text(out, command->purpose);
    command_manual_print_options(out, command->options);
}

static void print_policy(FILE *out, const char *policy)
{
    const struct varve_alloc_policy_option *option = varve_alloc_policy_options(policy);
    uint64_t mebi = UINT64_C(1) << 20;
    fputs(".TP\n", out);
    print_bold(out, policy);
    for (; option != NULL && option->name != NULL; option++) {
        bool is_mebi = option->is_bytes && option->initial >= mebi && option->initial % mebi == 0;
        fprintf(out, ", \\fB%s\\fR=%" PRIu64 "%s", option->name, is_mebi ? option->initial / mebi : option->initial,
                is_mebi ? "M" : "");
    }
    fputc('\n', out);
    command_manual_print_text(out, varve_alloc_policy_meaning(policy));
}

static void print_examples(FILE *out)
{
    fputs(".nf\n", out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        const char *line = command_table[i]->examples;
        while (*line != '\0') {
            line += strspn(line, " ");
            size_t length = strcspn(line, "\n");
            for (size_t at = 0; at < length; at++) {
                fputs(line[at] == '-' ? "\\-" : line[at] == '\\' ? "\\e" : (const char[]){line[at], '\0'}, out);
            }
            fputc('\n', out);
            line += length + (line[length] == '\n' ? 1 : 0);
        }
    }
    fputs(".fi\n", out);
}

/* ---- the template ---- */

static bool command_manual_is_named(const struct named *named, const char *name)
{
    for (size_t i = 0; i < named->count; i++) {
        if (strcmp(named->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* `what` is what stands between the @. False: nothing is known under it, or it is a command that has been there. */
static bool fill_in(FILE *out, const char *what, struct named *named)
{
    if (strncmp(what, "command ", 8) == 0) {
        const struct command *command = command_find(what + 8);
        if (command == NULL || command_manual_is_named(named, command->name) || named->count == NAMES_MAX) {
            return false;
        }
        named->names[named->count++] = command->name;
        print_command(out, command);
    } else if (strcmp(what, "policies") == 0) {
        for (const char *const *policy = varve_alloc_policies(); *policy != NULL; policy++) {
            print_policy(out, *policy);
        }
    } else if (strcmp(what, "formats") == 0) {
        for (size_t i = 0; export_formats[i] != NULL; i++) {
            fputs(".TP\n", out);
            print_bold(out, export_formats[i]->name);
            fputc('\n', out);
            command_manual_print_text(out, export_formats[i]->meaning);
        }
    } else if (strcmp(what, "examples") == 0) {
        print_examples(out);
    } else if (strcmp(what, "common options") == 0) {
        command_manual_print_options(out, options_common(&command_report));
        command_manual_print_option(out, &option_help);
    } else if (strcmp(what, "synopsis") == 0) {
        for (size_t i = 0; command_table[i] != NULL; i++) {
            fputs(i > 0 ? ".br\n" : "", out);
            print_use(out, command_table[i]);
        }
    } else {
        return false;
    }
    return true;
}

static const char *first_missing(const struct named *named)
{
    for (size_t i = 0; command_table[i] != NULL; i++) {
        if (!command_manual_is_named(named, command_table[i]->name)) {
            return command_table[i]->name;
        }
    }
    for (const char *const *policy = varve_alloc_policies(); *policy != NULL; policy++) {
        if (varve_alloc_policy_meaning(*policy) == NULL) {
            return *policy;
        }
    }
    for (size_t i = 0; export_formats[i] != NULL; i++) {
        if (export_formats[i]->meaning == NULL) {
            return export_formats[i]->name;
        }
    }
    return NULL;
}

int manual_print(struct command_context *context)
{
    struct named named = {.count = 0};
    context->is_exact = true;
    for (const char *line = manual_template; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        char what[NAME_BYTES];
        if (length > 2 && line[0] == '@' && line[length - 1] == '@') {
            snprintf(what, sizeof(what), "%.*s", (int)length - 2, line + 1);
            if (!fill_in(context->out, what, &named)) {
                return command_fail(context, "varve.1.in: @%s@ stands for nothing, or was there before", what);
            }
        } else {
            fprintf(context->out, "%.*s\n", (int)length, line);
        }
        line += length + (line[length] == '\n' ? 1 : 0);
    }
    const char *missing = first_missing(&named);
    return missing == NULL ? 0 : command_fail(context, "the manual says nothing of %s", missing);
}
