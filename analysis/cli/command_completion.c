/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve completion`: a script that completes command lines in bash, zsh or fish. The scripts ask this command, with
 * --words, what may stand in place of the last word: a line each, with a tab and what it is, by the tables of commands
 * and options; or one line that says what else completes it: ":files" and the part of the word before the name of the
 * file, ":program" and the index of the word that is it, ":value" and what it is called.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

extern const char completion_bash[], completion_zsh[], completion_fish[];

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

struct completion_values {
    bool words;
};

/* By its name in the usage line, of which the last may be repeated: A [B], TRACE…, SOURCE [FILE…]. */
static bool is_file_operand(const struct command *command, int index)
{
    const char *word = command->arguments;
    for (const char *next = strchr(word, ' '); index > 0 && next != NULL; next = strchr(word, ' ')) {
        word = next + 1;
        index--;
    }
    word += word[0] == '[' ? 1 : 0;
    return (index == 0 || strstr(word, "…") != NULL) &&
           option_names_file(word, strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
}

/* A help text up to its first remark. */
static void print_candidate(FILE *out, const char *dashes, const char *word, const char *help)
{
    const char *remark = strstr(help, " (");
    size_t length = strcspn(help, ";");
    length = remark != NULL && (size_t)(remark - help) < length ? (size_t)(remark - help) : length;
    fprintf(out, "%s%s\t%.*s\n", dashes, word, (int)length, help);
}

static void print_choices(FILE *out, const char *before, size_t bytes, const char *const *choices)
{
    for (size_t i = 0; choices[i] != NULL; i++) {
        fprintf(out, "%.*s%s\n", (int)bytes, before, choices[i]);
    }
}

static void print_commands(FILE *out)
{
    for (size_t i = 0; command_table[i] != NULL; i++) {
        print_candidate(out, "", command_table[i]->name, command_table[i]->summary);
    }
    fputs("-h\tlist the commands\n--help\tlist the commands\n-V\tprint the version\n--version\tprint the version\n",
          out);
}

static size_t name_bytes(const char *word)
{
    return word[1] == '-' ? strcspn(word, "=") : 2;
}

/* NULL: it names none. */
static const struct option_spec *option_of_word(const struct command *command, const char *word)
{
    if (word[0] != '-' || word[1] == '\0') {
        return NULL;
    }
    const struct option_spec *option = option_find(command->options, word, name_bytes(word));
    return option != NULL ? option : option_find(options_common(command), word, name_bytes(word));
}

static bool takes_value(const struct option_spec *option)
{
    return option != NULL && option_is_shown(option) && option->kind != OPTION_FLAG && option->kind != OPTION_MODE;
}

static bool is_given(const struct option_spec *option, const struct command *command, int last, char *const words[])
{
    for (int i = 1; i < last && option->kind != OPTION_TEXTS; i++) {
        if (option_of_word(command, words[i]) == option) {
            return true;
        }
    }
    return false;
}

static void print_option(FILE *out, const struct option_spec *option)
{
    if (option->letter != 0) {
        print_candidate(out, "-", (const char[]){option->letter, '\0'}, option->help);
    }
    print_candidate(out, "--", option->name, option->help);
    for (size_t i = 0; option->kind == OPTION_MODE && option->choices[i] != NULL; i++) {
        fprintf(out, "--%s=%s\n", option->name, option->choices[i]);
    }
}

static void command_completion_print_options(FILE *out, const struct command *command, int last, char *const words[])
{
    const struct option_spec *const lists[] = {command->options, options_common(command)};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const struct option_spec *option = lists[i]; option->kind != OPTION_END; option++) {
            if (option_is_shown(option) && !is_given(option, command, last, words)) {
                print_option(out, option);
            }
        }
    }
    print_option(out, &option_help);
}

/* Of an option, or NULL; `before`: so many bytes of `word` stand before the value. */
static void print_value(FILE *out, const struct option_spec *option, const char *word, size_t before)
{
    if (option != NULL && option->choices != NULL) {
        print_choices(out, word, before, option->choices);
    } else if (takes_value(option) && option_is_path(option)) {
        fprintf(out, ":files\t%.*s\n", (int)before, word);
    } else if (takes_value(option)) {
        fprintf(out, ":value\t%s\n", option->argument);
    }
}

static void print_operand(FILE *out, const struct command *command, int index, int last)
{
    if (command->operand_choices != NULL && index == 0) {
        print_choices(out, "", 0, command->operand_choices);
    } else if (command->takes_command && command->operand_choices == NULL) {
        fprintf(out, ":program\t%d\n", last + 1);
    } else if (is_file_operand(command, index)) {
        fputs(":files\t\n", out);
    }
}

static void print_words(FILE *out, const struct command *command, int last, char *const words[])
{
    bool only_operands = false;
    int operands = 0;
    for (int i = 1; i < last; i++) {
        const struct option_spec *option = only_operands ? NULL : option_of_word(command, words[i]);
        if (only_operands || words[i][0] != '-' || words[i][1] == '\0') {
            if (command->takes_command) {
                print_operand(out, command, 1, i);
                return;
            }
            operands++;
            continue;
        }
        only_operands = strcmp(words[i], "--") == 0;

        /* words up to its value: bash makes three of --name=value */
        bool is_alone = words[i][name_bytes(words[i])] == '\0';
        int behind = strcmp(words[i + 1], "=") == 0 ? 2 : takes_value(option) && is_alone ? 1 : 0;
        if (behind > 0 && i + behind >= last) {
            print_value(out, option, "", 0);
            return;
        }
        i += behind;
    }
    const char *word = words[last];
    if (only_operands || word[0] != '-') {
        print_operand(out, command, operands, last);
    } else if (word[1] == '\0' || word[name_bytes(word)] == '\0') {
        command_completion_print_options(out, command, last, words);
    } else {
        print_value(out, option_of_word(command, word), word, name_bytes(word) + (word[1] == '-' ? 1 : 0));
    }
}

static int command_completion_run(struct command_context *context, const void *values, const struct operands *operands)
{
    static const char *const scripts[] = {completion_bash, completion_zsh, completion_fish};
    char *const *words = operands->rest;
    int last = operands->count - 1;
    if (((const struct completion_values *)values)->words) {
        const struct command *command = command_find(words[0]);
        context->is_exact = true;
        if (last == 0) {
            print_commands(context->out);
        } else if (command != NULL) {
            print_words(context->out, command, last, words);
        }
        return 0;
    }
    for (size_t i = 0; last == 0 && shells[i] != NULL; i++) {
        if (strcmp(words[0], shells[i]) == 0) {
            fputs(scripts[i], context->out);
            return 0;
        }
    }
    return command_fail(context, "there is no completion for '%s': bash, zsh or fish", words[last]);
}

static const struct option_spec options[] = {
    {"words", 0, OPTION_FLAG, NULL, NULL, offsetof(struct completion_values, words), 0, 0, NULL}, /* of the scripts */
    {.kind = OPTION_END},
};

const struct command command_completion = {
    .name = "completion",
    .arguments = "SHELL",
    .summary = "print a script that completes command lines in bash, zsh or fish",
    .purpose =
        "Prints a script by which a shell (bash, zsh or fish) completes the commands of varve, their options, values "
        "and files. An installed varve has the three where shells look for them.",
    .examples = "  varve completion bash > ~/.local/share/bash-completion/completions/varve\n"
                "  varve completion fish > ~/.config/fish/completions/varve.fish\n",
    .options = options,
    .values_bytes = sizeof(struct completion_values),
    .operand_choices = shells,
    .operands_min = 1,
    .takes_command = true,
    .run = command_completion_run,
};
