/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any words as a command line, read by the tables of all sub-commands; nothing is run. What begins
 * with @ is a line of a file of settings. A line that is refused comes with one line of reason, one that is taken has
 * its operands in number and its values in range.
 */
#include "fuzz/target.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/user_config.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 24

static void check_values(const struct command *command, const unsigned char *values, const unsigned char *defaults)
{
    for (const struct option_spec *option = command->options; option != NULL && option->kind != OPTION_END; option++) {
        int64_t number;
        int choice;
        if (option->kind == OPTION_INTEGER && option->min < option->max) {
            memcpy(&number, values + option->offset, sizeof(number));
            check(memcmp(values + option->offset, defaults + option->offset, sizeof(number)) == 0 ||
                  (number >= option->min && number <= option->max));
        } else if (option->kind == OPTION_CHOICE) {
            memcpy(&choice, values + option->offset, sizeof(choice));
            for (int i = 0; i <= choice; i++) {
                check(memcmp(values + option->offset, defaults + option->offset, sizeof(choice)) == 0 ||
                      option->choices[i] != NULL);
            }
        }
    }
}

static void check_taken(const struct command *command, const struct operands *operands)
{
    bool is_of_database = command->answer != NULL; /* which is its one operand */
    check(operands->count >= (is_of_database ? 1 : command->operands_min));
    check(command->takes_command ||
          (operands->count <= (is_of_database ? 1 : command->operands_max) && operands->count <= OPERANDS_MAX));
}

/* Takes the settings out of the words; returns how many of these are left. */
static int take_settings(const struct command *command, int count, char **words, struct user_config *config)
{
    static struct config_entry entries[WORDS_MAX];
    static char section[32], empty[1];
    int left = 0;
    snprintf(section, sizeof(section), "%s", command->name);
    *config = (struct user_config){.files = {{"settings", true}}, .entries = entries};
    for (int i = 0; i < count; i++) {
        if (words[i][0] != '@') {
            words[left++] = words[i];
            continue;
        }
        char *value = strchr(words[i], '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        entries[config->count++] =
            (struct config_entry){section, words[i] + 1, value != NULL ? value : empty, &config->files[0], (unsigned)i};
    }
    words[left] = NULL;
    return left;
}

static void parse(const struct command *command, int count, char **words)
{
    size_t bytes = command->values_bytes == 0 ? 1 : command->values_bytes; /* exact, so that ASan knows the end */
    unsigned char *values = calloc(1, bytes), *defaults = calloc(1, bytes);
    struct operands operands = {0};
    struct varve_message message = {""};
    check(values != NULL && defaults != NULL);
    if (command->defaults != NULL) {
        memcpy(values, command->defaults, command->values_bytes);
        memcpy(defaults, command->defaults, command->values_bytes);
    }
    char *own[WORDS_MAX + 1];
    struct user_config config;
    memcpy(own, words, sizeof(own));
    count = take_settings(command, count, own, &config);
    int code = options_parse(command, &config, count, own, values, &operands, &message);
    check(code == VARVE_OK || code == OPTION_HELP_RESULT || code == OPTION_USAGE_RESULT || code == VARVE_ERROR_INVALID);
    check(code != VARVE_ERROR_INVALID || message.text[0] != '\0');
    if (code == VARVE_OK) {
        check_taken(command, &operands);
        check_values(command, values, defaults);
    }
    free(defaults);
    free(values);
}

/* Words end with a NUL or a new line; the first byte chooses the command, or says all. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words[WORDS_MAX + 1] = {NULL};
    char *text = malloc(size + 1);
    size_t commands = 0;
    int count = 0;
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    while (command_table[commands] != NULL) {
        commands++;
    }
    for (size_t at = 1; at < size && count < WORDS_MAX; count++) {
        words[count] = text + at;
        at += strcspn(text + at, "\n");
        text[at++] = '\0';
    }
    for (size_t i = 0; i < commands; i++) {
        if (size > 0 && (data[0] % (commands + 1) == i || data[0] % (commands + 1) == commands)) {
            parse(command_table[i], count, words);
        }
    }
    if (count > 0) {
        const char *names[] = {"record", "report", "recover", NULL};
        option_suggest(words[0], names);
        command_find(words[0]);
    }
    free(text);
    return 0;
}
