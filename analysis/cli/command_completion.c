/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve completion`: scripts that complete command lines in bash, zsh and fish, written from the tables of commands
 * and options, so that they know what this program knows. The build runs it for `cmake --install`.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 80

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

/* ---- what the tables say ---- */

/* Operands that are files; they come first. */
static int file_operands(const struct command *command)
{
    const char *word = command->arguments;
    size_t length = strcspn(word, " ");
    int count = 0;
    while (length > 0 && option_names_file(word, length)) {
        count++;
        word += length + (word[length] == ' ' ? 1 : 0);
        length = strcspn(word, " ");
    }
    return count;
}

static bool takes_value(const struct option_spec *option)
{
    return option->kind != OPTION_FLAG && option->kind != OPTION_MODE;
}

/* Calls `write` for each option of a command, common ones and --help too. */
static void each_option(FILE *out, const struct command *command,
                        void (*write)(FILE *out, const struct command *command, const struct option_spec *option))
{
    const struct option_spec *const lists[] = {command->options, options_common(command)};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const struct option_spec *option = lists[i]; option->kind != OPTION_END; option++) {
            if (option->kind != OPTION_ABSENT) {
                write(out, command, option);
            }
        }
    }
    write(out, command, &option_help);
}

static void command_completion_write_words(FILE *out, const char *const *words, const char *before)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        fprintf(out, "%s%s%s", i > 0 ? " " : "", before, words[i]);
    }
}

/* A help text up to its first remark, within single quotes; `escaped` get a backslash. */
static void write_help(FILE *out, const char *help, const char *escaped)
{
    for (size_t i = 0; help[i] != '\0' && strncmp(help + i, " (", 2) != 0 && help[i] != ';'; i++) {
        if (help[i] == '\'') {
            fputs("’", out);
            continue;
        }
        if (strchr(escaped, help[i]) != NULL) {
            fputc('\\', out);
        }
        fputc(help[i], out);
    }
}

/* ---- bash ---- */

static const char bash_begin[] =
    "# Completion of varve for bash, made by `varve completion bash`.\n"
    "_varve_files()\n"
    "{\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$1\")\n"
    "}\n"
    "\n"
    "_varve()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} option= program= only_operands=\n"
    "    local options= valued= choices= files=0 operands=0 i word\n"
    "\n"
    "    COMPREPLY=()\n";

static const char bash_end[] =
    "    # what the words before the cursor are; bash makes three words of --name=value\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $only_operands || $word != -?* ]]; then\n"
    "            [[ $program ]] && break\n"
    "            operands=$((operands + 1))\n"
    "        elif [[ $word == -- ]]; then\n"
    "            only_operands=1\n"
    "        elif [[ ${COMP_WORDS[i + 1]} == = ]]; then\n"
    "            ((i + 2 >= COMP_CWORD)) && option=$word\n"
    "            ((i + 1 == COMP_CWORD)) && cur=\n"
    "            i=$((i + 2))\n"
    "        elif [[ $valued == *\" $word \"* ]]; then\n"
    "            ((i + 1 == COMP_CWORD)) && option=$word\n"
    "            i=$((i + 1))\n"
    "        fi\n"
    "    done\n"
    "    if [[ $option ]]; then\n"
    "        _varve_value \"$command $option\"\n"
    "    elif ((i < COMP_CWORD)); then # the program of `varve record` and its arguments\n"
    "        if declare -F _comp_command_offset >/dev/null; then\n"
    "            _comp_command_offset \"$i\"\n"
    "        elif declare -F _command_offset >/dev/null; then\n"
    "            _command_offset \"$i\"\n"
    "        else\n"
    "            _varve_files \"$cur\"\n"
    "        fi\n"
    "    elif [[ ! $only_operands && $cur == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
    "    elif [[ $program ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -c -- \"$cur\" | sort -u)\n"
    "    elif [[ $choices ]]; then\n"
    "        ((operands == 0)) && mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$cur\")\n"
    "    elif ((operands < files)); then\n"
    "        _varve_files \"$cur\"\n"
    "    fi\n"
    "}\n"
    "complete -F _varve varve\n";

static void bash_name(FILE *out, const struct command *command, const struct option_spec *option)
{
    (void)command;
    if (option->letter != 0) {
        fprintf(out, "-%c ", option->letter);
    }
    fprintf(out, "--%s ", option->name);
    if (option->kind == OPTION_MODE) {
        char before[NAME_BYTES];
        snprintf(before, sizeof(before), "--%s=", option->name);
        command_completion_write_words(out, option->choices, before);
        fputc(' ', out);
    }
}

static void bash_valued(FILE *out, const struct command *command, const struct option_spec *option)
{
    if (takes_value(option)) {
        bash_name(out, command, option);
    }
}

static void bash_value(FILE *out, const struct command *command, const struct option_spec *option)
{
    if (option->choices == NULL && !option_is_path(option)) {
        return;
    }
    fputs("    ", out);
    if (option->letter != 0) {
        fprintf(out, "'%s -%c' | ", command->name, option->letter);
    }
    fprintf(out, "'%s --%s') ", command->name, option->name);
    if (option->choices != NULL) {
        fputs("mapfile -t COMPREPLY < <(compgen -W '", out);
        command_completion_write_words(out, option->choices, "");
        fputs("' -- \"$cur\") ;;\n", out);
    } else {
        fputs("_varve_files \"$cur\" ;;\n", out);
    }
}

static void bash_command(FILE *out, const struct command *command)
{
    fprintf(out, "    %s)\n        options='", command->name);
    each_option(out, command, bash_name);
    fputs("'\n        valued=' ", out);
    each_option(out, command, bash_valued);
    fputs("'\n", out);
    if (command->takes_command) {
        fputs("        program=1\n", out);
    } else if (command->operand_choices != NULL) {
        fputs("        choices='", out);
        command_completion_write_words(out, command->operand_choices, "");
        fputs("'\n", out);
    } else {
        fprintf(out, "        files=%d\n", file_operands(command));
    }
    fputs("        ;;\n", out);
}

static void write_bash(FILE *out)
{
    fputs(bash_begin, out);
    fputs("    if ((COMP_CWORD == 1)); then\n        mapfile -t COMPREPLY < <(compgen -W '", out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        fprintf(out, "%s ", command_table[i]->name);
    }
    fputs("--help --version' -- \"$cur\")\n        return\n    fi\n    case $command in\n", out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        bash_command(out, command_table[i]);
    }
    fputs("    esac\n", out);
    fputs(bash_end, out);
    fputs("\n_varve_value()\n{\n    case $1 in\n", out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        each_option(out, command_table[i], bash_value);
    }
    fputs("    esac\n}\n", out);
}

/* ---- zsh ---- */

#define ZSH_ESCAPED "\\[]:$`"

static void zsh_option(FILE *out, const struct command *command, const struct option_spec *option)
{
    const char *assign = option->kind == OPTION_MODE ? "=-" : takes_value(option) ? "=" : "";
    (void)command;
    fputs("            ", out);
    if (option->letter != 0) {
        fprintf(out, "'(-%c --%s)'{-%c%s,--%s%s}'[", option->letter, option->name, option->letter,
                takes_value(option) ? "+" : "", option->name, assign);
    } else {
        fprintf(out, "'--%s%s[", option->name, assign);
    }
    write_help(out, option->help, ZSH_ESCAPED);
    fputc(']', out);
    if (takes_value(option) || option->kind == OPTION_MODE) {
        fprintf(out, "%s:", option->kind == OPTION_MODE ? ":" : "");
        write_help(out, option->argument, ZSH_ESCAPED);
        fputc(':', out);
    }
    if (option->choices != NULL) {
        fputc('(', out);
        command_completion_write_words(out, option->choices, "");
        fputc(')', out);
    } else if (option_is_path(option)) {
        fputs("_files", out);
    }
    fputs("' \\\n", out);
}

static void zsh_command(FILE *out, const struct command *command)
{
    int files = file_operands(command);
    fprintf(out, "        %s)\n            _arguments -S %s\\\n", command->name,
            command->takes_command ? "-A '-*' " : "");
    each_option(out, command, zsh_option);
    if (command->takes_command) {
        fputs("            '(-)1:program: _command_names -e' \\\n            '*::argument: _normal'\n", out);
    } else if (command->operand_choices != NULL) {
        fputs("            '1: :(", out);
        command_completion_write_words(out, command->operand_choices, "");
        fputs(")'\n", out);
    } else {
        for (int i = 1; i <= files; i++) {
            fprintf(out, "            '%d:file:_files' \\\n", i);
        }
        fputs("            '*: :'\n", out);
    }
    fputs("            ;;\n", out);
}

static void write_zsh(FILE *out)
{
    fputs("#compdef varve\n"
          "# Completion of varve for zsh, made by `varve completion zsh`.\n"
          "_varve()\n"
          "{\n"
          "    local context state line\n"
          "    local -a commands\n"
          "    typeset -A opt_args\n"
          "\n"
          "    commands=(\n",
          out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        fprintf(out, "        '%s:", command_table[i]->name);
        write_help(out, command_table[i]->summary, "\\:");
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    _arguments -C '(- *)'{-h,--help}'[list the commands]' '(- *)'{-V,--version}'[print the version]' \\\n"
          "        '1: :->command' '*:: :->arguments' && return\n"
          "    case $state in\n"
          "    command) _describe -t commands command commands ;;\n"
          "    arguments)\n"
          "        case $words[1] in\n",
          out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        zsh_command(out, command_table[i]);
    }
    fputs("        esac\n"
          "        ;;\n"
          "    esac\n"
          "}\n"
          "\n"
          "if [ \"$funcstack[1]\" = _varve ]; then # called, as a file of $fpath\n"
          "    _varve \"$@\"\n"
          "else # sourced\n"
          "    compdef _varve varve\n"
          "fi\n",
          out);
}

/* ---- fish ---- */

#define FISH_ESCAPED "\\"

static void fish_option(FILE *out, const struct command *command, const struct option_spec *option)
{
    fprintf(out, "complete -c varve -n '__varve_is %s' -l %s", command->name, option->name);
    if (option->letter != 0) {
        fprintf(out, " -s %c", option->letter);
    }
    if (takes_value(option)) {
        fputs(option_is_path(option) ? " -r -F" : " -x", out);
    }
    if (option->choices != NULL) {
        fputs(" -a '", out);
        command_completion_write_words(out, option->choices, "");
        fputc('\'', out);
    }
    fputs(" -d '", out);
    write_help(out, option->help, FISH_ESCAPED);
    fputs("'\n", out);
}

static void fish_command(FILE *out, const struct command *command)
{
    fprintf(out, "complete -c varve -n 'not __varve_is' -a %s -d '", command->name);
    write_help(out, command->summary, FISH_ESCAPED);
    fputs("'\n", out);
    each_option(out, command, fish_option);
    if (command->takes_command) {
        fprintf(out, "complete -c varve -n '__varve_is %s' -a '(__fish_complete_subcommand --fcs-skip=2 - ",
                command->name);
        each_option(out, command, bash_valued);
        fputs(")'\n", out);
    } else if (command->operand_choices != NULL) {
        fprintf(out, "complete -c varve -n '__varve_is %s' -a '", command->name);
        command_completion_write_words(out, command->operand_choices, "");
        fputs("'\n", out);
    } else if (file_operands(command) > 0) {
        fprintf(out, "complete -c varve -n '__varve_is %s' -F\n", command->name);
    }
}

static void write_fish(FILE *out)
{
    fputs("# Completion of varve for fish, made by `varve completion fish`.\n"
          "function __varve_is --description 'is that the command, or is there any'\n"
          "    set -l words (commandline -opc)\n"
          "    if set -q argv[1]\n"
          "        test \"$words[2]\" = $argv[1]\n"
          "    else\n"
          "        set -q words[2]\n"
          "    end\n"
          "end\n"
          "\n"
          "complete -c varve -f\n"
          "complete -c varve -n 'not __varve_is' -l help -s h -d 'list the commands'\n"
          "complete -c varve -n 'not __varve_is' -l version -s V -d 'print the version'\n",
          out);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        fish_command(out, command_table[i]);
    }
}

static int command_completion_run(struct command_context *context, const void *values, const struct operands *operands)
{
    static void (*const writers[])(FILE * out) = {write_bash, write_zsh, write_fish};
    (void)values;
    for (size_t i = 0; shells[i] != NULL; i++) {
        if (strcmp(operands->items[0], shells[i]) == 0) {
            writers[i](context->out);
            return 0;
        }
    }
    return command_fail(context, "there is no completion for '%s': bash, zsh or fish", operands->items[0]);
}

static const struct option_spec options[] = {{.kind = OPTION_END}};

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
    .operand_choices = shells,
    .operands_min = 1,
    .operands_max = 1,
    .run = command_completion_run,
};
