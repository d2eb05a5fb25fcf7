/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines: options in every spelling, values that are out of range, misspelt names with a suggestion,
 * help and version; and that nothing is printed when the output can't be written.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/analysis.h"
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/user_config.h"
#include "analysis/query/database.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    bool flag;
    int64_t number;
    const char *text;
    int64_t bytes;
    int64_t ns;
    int choice;
};

static const char *const choices[] = {"red", "green", NULL};

static const struct option_spec specs[] = {
    {"flag", 'f', OPTION_FLAG, NULL, "", offsetof(struct values, flag), 0, 0, NULL},
    {"number", 'n', OPTION_INTEGER, "N", "", offsetof(struct values, number), -5, 1000, NULL},
    {"text", 't', OPTION_TEXT, "T", "", offsetof(struct values, text), 0, 0, NULL},
    {"bytes", 0, OPTION_BYTES, "B", "", offsetof(struct values, bytes), 16, INT64_C(1) << 40, NULL},
    {"seconds", 0, OPTION_SECONDS, "S", "", offsetof(struct values, ns), 0, 0, NULL},
    {"choice", 0, OPTION_CHOICE, "C", "", offsetof(struct values, choice), 0, 0, choices},
    {"later", 0, OPTION_ABSENT, NULL, "not in this build", 0, 0, 0, NULL},
    {.kind = OPTION_END},
};

static int parse_as(bool takes_command, struct values *values, struct operands *operands, const char *line)
{
    const struct command command = {
        .name = "test",
        .arguments = "A [B]",
        .options = specs,
        .operands_min = 1,
        .operands_max = 2,
        .takes_command = takes_command,
    };
    static char words[512];
    static char *argv[32];
    const struct user_config no_config = {0};
    struct varve_message message = {""};
    int argc = 0;
    snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    *values = (struct values){0};
    int result = options_parse(&command, &no_config, argc, argv, values, operands, &message);
    assert_true((result < 0) == (message.text[0] != '\0'));
    return result;
}

static int parse(struct values *values, struct operands *operands, const char *line)
{
    return parse_as(false, values, operands, line);
}

TEST(test_spellings)
{
    struct operands operands;
    struct values values;
    assert_int_equal(parse(&values, &operands, "a --flag --number 7 -t x b"), 0);
    assert_true(values.flag && values.number == 7);
    assert_string_equal(values.text, "x");
    assert_int_equal(operands.count, 2);
    assert_string_equal(operands.items[1], "b");
    assert_int_equal(parse(&values, &operands, "--number=-5 -tx=y -- -a"), 0);
    assert_true(values.number == -5 && !values.flag);
    assert_string_equal(values.text, "x=y");
    assert_string_equal(operands.items[0], "-a");
    assert_int_equal(parse(&values, &operands, "--text= - --bytes 4K --seconds 2.5 --choice green"), 0);
    assert_string_equal(values.text, "");
    assert_string_equal(operands.items[0], "-");
    assert_true(values.bytes == 4096 && values.ns == INT64_C(2500000000) && values.choice == 1);
    assert_int_equal(parse(&values, &operands, "a --help"), OPTION_HELP_RESULT);
    assert_int_equal(parse(&values, &operands, "-h"), OPTION_HELP_RESULT);
}

TEST(test_wrong_values)
{
    static const char *const wrong[] = {
        "",
        "a b c",
        "a --nosuch",
        "a -x",
        "a --number",
        "a --number 1001",
        "a -n 7x",
        "a -n -6",
        "a --number=",
        "a --flag=1",
        "a --bytes 15",
        "a --bytes 4X",
        "a --bytes -1",
        "a --bytes 2048G",
        "a --bytes 9999999999999999999",
        "a --bytes K",
        "a --seconds x",
        "a --seconds -1",
        "a --seconds inf",
        "a --seconds nan",
        "a --choice blue",
        "a --choice",
        "a --later",
        "a --hel",
        "a --helpx",
        "a --number 99999999999999999999",
    };
    struct operands operands;
    struct values values;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (parse(&values, &operands, wrong[i]) >= 0) {
            fail_msg("'%s' was taken", wrong[i]);
        }
    }
}

/* What follows the program's name is the program's, however it looks. */
TEST(test_command_of_another)
{
    struct operands operands;
    struct values values;
    assert_int_equal(parse_as(true, &values, &operands, "-f prog -t --help -- x"), 0);
    assert_true(values.flag && values.text == NULL);
    assert_string_equal(operands.rest[0], "prog");
    assert_string_equal(operands.rest[3], "--");
    assert_null(operands.rest[5]);
    assert_int_equal(parse_as(true, &values, &operands, "-- -f"), 0);
    assert_string_equal(operands.rest[0], "-f");
    assert_true(parse_as(true, &values, &operands, "-f --") < 0);
    assert_true(parse_as(true, &values, &operands, "--nosuch -- prog") < 0);
}

TEST(test_suggestions)
{
    static const char *const names[] = {"report", "record", "recover", "query", "leaks", "peak", NULL};
    /* Two letters at most are wrong, missing or too many, of three letters one; two that changed places are one. */
    static const struct {
        const char *word, *name;
        bool is_near;
    } pairs[] = {
        {"abcdef", "abcdef", true},   {"abcxef", "abcdef", true},     {"axcxef", "abcdef", true},
        {"axcxex", "abcdef", false},  {"abdcef", "abcdef", true},     {"bacdfe", "abcdef", true},
        {"badcfe", "abcdef", false},  {"badcef", "abcdef", true},     {"abef", "abcdef", true},
        {"cdef", "abcdef", true},     {"xcef", "abcdef", false},      {"abcdefgh", "abcdef", true},
        {"xyabcdef", "abcdef", true}, {"xyabcdeff", "abcdef", false}, {"aabbcc", "abc", false},
        {"abx", "abc", true},         {"axx", "abc", false},          {"acb", "abc", true},
    };
    assert_string_equal(option_suggest("reprot", names), "report");
    assert_string_equal(option_suggest("leak", names), "leaks");
    assert_string_equal(option_suggest("qu", names), "query");
    assert_null(option_suggest("frobnicate", names));
    assert_null(option_suggest("", names));
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const char *const one[] = {pairs[i].name, NULL};
        if ((option_suggest(pairs[i].word, one) != NULL) != pairs[i].is_near) {
            fail_msg("%s and %s", pairs[i].word, pairs[i].name);
        }
    }
}

TEST(test_no_command)
{
    struct command_outcome outcome = command_run(NULL, NULL);
    assert_int_equal(outcome.status, 2);
    assert_string_equal(outcome.out, "");
    assert_non_null(strstr(outcome.err, "usage: varve COMMAND"));
    for (size_t i = 0; command_table[i] != NULL; i++) {
        assert_non_null(strstr(outcome.err, command_table[i]->summary));
    }
    command_outcome_free(&outcome);
}

TEST(test_help)
{
    struct command_outcome outcome = command_run("help", NULL);
    assert_int_equal(outcome.status, 0);
    for (size_t i = 0; command_table[i] != NULL; i++) {
        struct command_outcome one = command_run(command_table[i]->name, "--help", NULL);
        struct command_outcome same = command_run("help", command_table[i]->name, NULL);
        char listed[160];
        int examples = 0;
        snprintf(listed, sizeof(listed), "\n  %-10s %s\n", command_table[i]->name, command_table[i]->summary);
        assert_non_null(strstr(outcome.out, listed));
        assert_int_equal(one.status, 0);
        assert_string_equal(one.out, same.out);
        char use[64];
        snprintf(use, sizeof(use), "\n  varve %s", command_table[i]->name);
        for (char *example = one.out; (example = strstr(example, use)) != NULL; example++) {
            examples++;
        }
        if (examples < 2 || strncmp(one.out, "usage: ", 7) != 0) {
            fail_msg("the help of %s has %d examples", command_table[i]->name, examples);
        }
        command_outcome_free(&one);
        command_outcome_free(&same);
    }
    command_outcome_free(&outcome);
    outcome = command_run("--version", NULL);
    assert_int_equal(outcome.status, 0);
    assert_true(strncmp(outcome.out, "varve ", 6) == 0);
    command_outcome_free(&outcome);
}

/* A letter means one thing in all commands, and an option that has one has it in all: -f is --force everywhere. */
TEST(test_letters)
{
    const char *meanings[128] = {['h'] = "help"};
    for (size_t i = 0; command_table[i] != NULL; i++) {
        for (const struct option_spec *option = command_table[i]->options; option->kind != OPTION_END; option++) {
            if (option->letter != 0 && meanings[option->letter & 127] == NULL) {
                meanings[option->letter & 127] = option->name;
            }
        }
    }
    for (size_t i = 0; command_table[i] != NULL; i++) {
        for (const struct option_spec *option = command_table[i]->options; option->kind != OPTION_END; option++) {
            for (int letter = 'A'; letter <= 'z'; letter++) {
                bool is_meaning = meanings[letter] != NULL && strcmp(meanings[letter], option->name) == 0;
                if (option->kind != OPTION_ABSENT && is_meaning != (option->letter == letter)) {
                    fail_msg("varve %s: --%s has -%c; -%c is --%s elsewhere", command_table[i]->name, option->name,
                             option->letter != 0 ? option->letter : ' ', letter, meanings[letter]);
                }
            }
        }
    }
    assert_string_equal(meanings['f'], "force");
    assert_string_equal(meanings['o'], "output");
    assert_string_equal(meanings['q'], "quiet");
    assert_string_equal(meanings['n'], "top");
}

/* The manual has each command in a section of its own with its options, each policy, and nothing left to fill in. */
TEST(test_manual)
{
    struct command_outcome outcome = command_run("help", "--man", NULL);
    const char *page = outcome.out;
    assert_int_equal(outcome.status, 0);
    assert_null(strstr(page, "\n@"));
    for (size_t i = 0; command_table[i] != NULL; i++) {
        const struct command *command = command_table[i];
        char heading[64];
        snprintf(heading, sizeof(heading), "\n.SS %s\n", command->name);
        const char *section = strstr(page, heading);
        assert_non_null(section);
        const char *end = strstr(section + 1, "\n.S");
        for (const struct option_spec *option = command->options; option->kind != OPTION_END; option++) {
            char written[80];
            size_t length = (size_t)snprintf(written, sizeof(written), "\\-\\-");
            for (const char *letter = option->name; *letter != '\0'; letter++) {
                length += (size_t)snprintf(written + length, sizeof(written) - length, *letter == '-' ? "\\-" : "%c",
                                           *letter);
            }
            const char *found = strstr(section, written);

            if (option_is_shown(option) && (found == NULL || found > end)) {
                fail_msg("the manual does not name --%s of %s", option->name, command->name);
            }
        }
    }
    assert_non_null(strstr(page, "\n.TP\n\\fBrmm\\-pool\\fR, \\fBinitial\\fR=0, \\fBmaximum\\fR=0\n"));
    command_outcome_free(&outcome);
    command_refused(command_run("help", "--man", "report", NULL), "help", "report is one too many");
}

TEST(test_output_that_fails)
{
    char *argv[] = {(char[]){"varve"}, (char[]){"help"}, NULL};
    FILE *full = fopen("/dev/full", "we");
    char *text = NULL;
    size_t bytes;
    FILE *err = open_memstream(&text, &bytes);
    assert_non_null(full);
    assert_non_null(err);
    assert_int_equal(varve_command_run(2, argv, full, err), 2);
    fclose(err);
    fclose(full);
    assert_non_null(strstr(text, "could not be written"));
    free(text);
}

TEST(test_missing_preload)
{
    assert_int_equal(setenv("VARVE_PRELOAD", "/nonexistent/libvarve_preload.so", 1), 0);
    EXPECT(2, "record true", "/nonexistent/libvarve_preload.so");
    assert_int_equal(unsetenv("VARVE_PRELOAD"), 0);
}

TEST(test_doctor)
{
    static const char *const keys[] = {"kernel",      "clock",       "shared_memory", "disk",    "sqlite",
                                       "python",      "elfutils",    "page",          "gpu",     "top_screen",
                                       "cuda",        "cupti",       "pytorch",       "exports", "cuda_toolkit",
                                       "varve_cupti", "varve_torch", "varve_replace"};
    char *text = command_answer("doctor"), *json = command_answer("doctor --json");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char quoted[64];
        snprintf(quoted, sizeof(quoted), "{\"key\":\"%s\",\"state\":\"", keys[i]);
        assert_non_null(strstr(text, keys[i]));
        assert_non_null(strstr(json, quoted));
    }
    free(text);
    free(json);
}
