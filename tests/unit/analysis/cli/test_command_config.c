/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's files: where they are looked for, which line holds, how options take them, and what is wrong in one line.
 * Reads damaged input: files from anybody.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_text(const char *path, const char *text)
{
    file_write(path, text, strlen(text));
}

/* The user's file in home/.config/varve, the project's in project; inside is where the command is called. */
static void make_folders(const char *users, const char *projects)
{
    static const char *const folders[] = {"home", "home/.config", "home/.config/varve", "project", "project/inside"};
    char home[4096];
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        mkdir(folders[i], 0700);
    }
    assert_non_null(realpath("home", home));
    assert_int_equal(setenv("HOME", home, 1), 0);
    assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
    assert_int_equal(unsetenv("VARVE_CONFIG"), 0);
    write_text("home/.config/varve/config", users);
    write_text("project/varve.ini", projects);
}

TEST_WITH(test_which_line_holds, test_folder_small_setup, test_folder_teardown)
{
    make_folders("[report]\ntop = 1\nhide = map_*\n", "; ours\n[report]\ntop = 2\nhide = x*\n");
    EXPECT(0, "config", "home/.config/varve/config\n", "varve.ini in this folder or above", "top = 1");
    assert_int_equal(chdir("project/inside"), 0);
    EXPECT(0, "config", "project/varve.ini\n", "hide = map_*", "config:3\n", "top = 2", "varve.ini:3\n", "hide = x*",
           "varve.ini:4\n", "!top = 1");
    EXPECT(0, "config --json", "\"is_there\":true", "\"name\":\"top\",\"value\":\"2\"", "\"line\":3",
           "!\"value\":\"1\"");
    EXPECT(0, "report ../../small.db", "; 2 of 3 lines", "!map_weights  ");
    EXPECT(0, "report --top 1 ../../small.db", "; 1 of 3 lines");
    assert_int_equal(setenv("VARVE_CONFIG", "", 1), 0);
    EXPECT(0, "config", "nothing is set");
    EXPECT(0, "report ../../small.db", "map_weights  ");
    assert_int_equal(setenv("VARVE_CONFIG", "nowhere", 1), 0);
    EXPECT(2, "report ../../small.db", "nowhere: cannot be read: No such file");
    assert_int_equal(unsetenv("VARVE_CONFIG"), 0);
    assert_int_equal(chdir("../.."), 0);
}

TEST_WITH(test_kinds_of_options, test_folder_small_setup, test_folder_teardown)
{
    make_folders("[leaks]\njson = yes\ntop = 3\n[record]\ntorch = observe\ncuda = no\nmax-size = 2 GB\nkeep = totals\n",
                 "[leaks]\njson = no\n[report]\ntimeout = 2.5\n");
    EXPECT(0, "leaks small.db", "{\"");
    EXPECT(0, "leaks --json=no small.db", "!{\"");
    assert_int_equal(chdir("project"), 0);
    EXPECT(0, "leaks ../small.db", "!{\"");
    EXPECT(0, "config", "torch = observe");
    assert_int_equal(chdir(".."), 0);
}

TEST_WITH(test_what_is_wrong, test_folder_small_setup, test_folder_teardown)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"[report]\nhtlm = x\n", ":2: unknown option '--htlm'; did you mean --html?"},
        {"[report]\nhtml = /tmp/x\n", ":2: --html is for the command line only"},
        {"[report]\nforce = yes\n", ":2: --force is for the command line only"},
        {"[report]\nall = perhaps\n", ":2: all must be yes or no, not 'perhaps'"},
        {"[report]\n\n\ntop = many\n", ":4: --top must be a number"},
        {"top = 1\n", ":1: neither [SECTION] nor NAME = VALUE"},
        {"[report\n", ":1: neither [SECTION]"},
        {"[report]\njust words\n", ":2: neither [SECTION]"},
        {"[plumbing]\nmethod = x\n", ":2: there are patterns for function, file, module, library, framework and user"},
        {"[plumbing]\nfile =\n", ":2: pattern '': nothing to look for"},
    };
    make_folders("", "");
    assert_int_equal(setenv("VARVE_CONFIG", "wrong", 1), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_text("wrong", cases[i].text);
        command_refused(command_run_line("config"), cases[i].text, cases[i].words);
        command_refused(command_run_line("report small.db"), cases[i].text, cases[i].words);
    }
    write_text("wrong", "[suppressions]\nleaks = x\n");
    EXPECT(2, "config", ":2: a suppression is leak = PATTERN");
    EXPECT(2, "leaks small.db", ":2: a suppression is leak = PATTERN");
    write_text("wrong", "[repotr]\ntop = 1\n[leaks]\ntop = x\n");
    EXPECT(2, "config", ":2: [repotr] is no command, nor plumbing or suppressions");
    EXPECT(0, "report small.db", "Totals"); /* what is wrong elsewhere is not in its way */
    char long_line[400];
    memset(long_line, 'x', sizeof(long_line));
    memcpy(long_line, "[report]\nhide = ", 16);
    long_line[sizeof(long_line) - 2] = '\n';
    long_line[sizeof(long_line) - 1] = '\0';
    write_text("wrong", long_line);
    EXPECT(2, "config", ":2: the line is too long");
    write_text("wrong", "[report]\n  top = 3 ; rows\n  hide = one*\n  hide = two*\n");
    EXPECT(0, "config", "hide = two*");
    assert_int_equal(unsetenv("VARVE_CONFIG"), 0);
}
