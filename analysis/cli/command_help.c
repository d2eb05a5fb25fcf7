/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve help` and the --help of every command: purpose, options with their defaults, two examples; all from
 * the command's own table. Fits 100 columns.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OPTION_COLUMN 26

struct help_values {
    bool man;
};

static void command_help_print_option(FILE *out, const struct option_spec *option)
{
    char letter[8] = "";
    if (option->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    }
    char left[128];
    int length = snprintf(left, sizeof(left), "  %s--%s%s%s", letter, option->name,
                          option->argument != NULL && option->kind != OPTION_MODE ? " " : "",
                          option->argument != NULL ? option->argument : "");
    if (length + 2 > OPTION_COLUMN) {
        fprintf(out, "%s\n%*s", left, OPTION_COLUMN, "");
    } else {
        fprintf(out, "%-*s", OPTION_COLUMN, left);
    }
    format_print_wrapped(out, option->help, OPTION_COLUMN);
}

void help_print_usage(FILE *out, const struct command *command)
{
    fprintf(out, "usage: varve %s [OPTIONS]%s%s\n", command->name, command->arguments[0] != '\0' ? " " : "",
            command->arguments);
}

void help_print_command(FILE *out, const struct command *command)
{
    help_print_usage(out, command);
    fputc('\n', out);
    format_print_wrapped(out, command->purpose, 0);
    fputs("\noptions:\n", out);
    for (const struct option_spec *option = command->options; option->kind != OPTION_END; option++) {
        if (option_is_shown(option)) {
            command_help_print_option(out, option);
        }
    }
    for (const struct option_spec *option = options_common(command); option->kind != OPTION_END; option++) {
        command_help_print_option(out, option);
    }
    command_help_print_option(out, &option_help);
    fprintf(out, "\nexamples:\n%s", command->examples);
}

void help_print(FILE *out)
{
    format_print_wrapped(
        out,
        "varve records every memory allocation of a program into an SQLite database, and shows where the "
        "memory went.",
        0);
    fputs("\nusage: varve COMMAND [OPTIONS] …\n\n", out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        fprintf(out, "  %-10s %s\n", command_table[i]->name, command_table[i]->summary);
    }
    fputs("\nvarve help COMMAND explains one of them; varve --version prints the version.\n"
          "\n"
          "first steps:\n"
          "  varve record -o trace.db -- ./program --its-options\n"
          "  varve report trace.db\n",
          out);
}

static int command_help_run(struct command_context *context, const void *values, const struct operands *operands)
{
    if (((const struct help_values *)values)->man) {
        return operands->count == 0
                   ? manual_print(context)
                   : command_fail(context, "--man is about all commands; %s is one too many", operands->items[0]);
    }
    if (operands->count == 0) {
        help_print(context->out);
        return 0;
    }
    const struct command *command = command_find(operands->items[0]);
    if (command == NULL) {
        return command_fail(context, "there is no command '%s'; varve help lists them", operands->items[0]);
    }
    help_print_command(context->out, command);
    return 0;
}

static const struct option_spec options[] = {
    {"man", 0, OPTION_FLAG, NULL, "the manual page, as roff: varve help --man | man -l -",
     offsetof(struct help_values, man), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const char *const names[] = {
#define COMMAND_NAME(name) #name,
    COMMAND_LIST(COMMAND_NAME)
#undef COMMAND_NAME
        NULL,
};

const struct command command_help = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "explain a command",
    .purpose = "Lists the commands, or explains one of them.",
    .examples = "  varve help\n  varve help record\n",
    .options = options,
    .values_bytes = sizeof(struct help_values),
    .operand_choices = names,
    .operands_max = 1,
    .run = command_help_run,
};
