/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve compare` and `varve frontier` as commands: their layouts, what is one answer and what an array, and what they
 * refuse. Figures are compared with replays by tests/conformance/test_compare.py.
 * Runs threads: plays.
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACES VARVE_SOURCE_DIR "/tests/conformance/pytorch/"

static const char small[] = TRACES "multistream_record.pickle.xz";
static const char other[] = TRACES "cudagraph_private_pool.pickle.xz";

static char *answer(struct command_outcome outcome)
{
    if (outcome.status != 0 || outcome.err[0] != '\0') {
        fail_msg("status %d, said: %s", outcome.status, outcome.err);
    }
    free(outcome.err);
    return outcome.out;
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;

    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        count++;
    }
    return count;
}

TEST(test_one_and_many)
{
    static const char *const commands[] = {"compare", "frontier"};

    for (size_t i = 0; i < 2; i++) {
        char *one = answer(command_run(commands[i], "--policies", "first-fit", "--json", small, NULL));
        char *many = answer(command_run(commands[i], "--policies", "first-fit,pytorch", "--conf", "",
                                        "--conf", "expandable_segments:True", "--json", small, other, NULL));

        assert_int_equal(one[0], '{');
        assert_int_equal(many[0], '[');
        assert_int_equal(count_of(many, "\"policy\":"), 8);
        assert_int_equal(count_of(many, "\"conf\":\"expandable_segments:True\""), 4);
        assert_int_equal(strncmp(many, "[{\"trace\":", 10), 0);
        assert_true(strstr(many, "\"policy\":\"pytorch\"") < strstr(many, "\"policy\":\"first-fit\""));
        free(one);
        free(many);
    }
}

/* Each line has as many fields as the first. */
TEST(test_csv)
{
    char *compare = answer(
        command_run("compare", "--csv", "--policies", "pytorch,none", "--memory-limit=100M", small, NULL));
    char *frontier = answer(command_run("frontier", "--csv", "--policies", "pytorch,none", small, NULL));
    char *texts[] = {compare, frontier};

    for (size_t i = 0; i < 2; i++) {
        char *save = NULL;
        char *line = strtok_r(texts[i], "\r\n", &save);
        size_t fields = count_of(line, ","), lines = 0;

        assert_int_equal(strncmp(line, "trace,policy,conf,", 18), 0);
        while ((line = strtok_r(NULL, "\r\n", &save)) != NULL) {
            assert_int_equal(count_of(line, ","), fields);
            lines++;
        }
        assert_int_equal(lines, 2);
        free(texts[i]);
    }
}

TEST(test_tables)
{
    char *compare = answer(command_run("compare", "--policies", "pytorch,none", small, NULL));
    char *frontier = answer(command_run("frontier", small, NULL));

    assert_non_null(strstr(compare, "multistream_record"));
    assert_non_null(strstr(compare, "peak reserved"));
    assert_non_null(strstr(compare, "GMLake"));
    assert_int_equal(count_of(compare, "\n  none "), 2);
    assert_non_null(strstr(frontier, "\n  pytorch "));
    assert_null(strstr(frontier, "none"));
    free(compare);
    free(frontier);
}

TEST(test_what_is_refused)
{
    command_refused(command_run("compare", "--policies", "nosuch", small, NULL), "unknown policy",
                    "first-fit");
    command_refused(command_run("frontier", "--policy", "nosuch", small, NULL), "unknown policy",
                    "first-fit");
    command_refused(command_run("compare", "--policies", "pytorch:nosuch=1", small, NULL), "unknown option",
                    "nosuch");
    command_refused(command_run("compare", "--conf", "nosuch:1", small, NULL), "unknown setting", "nosuch");
    command_refused(command_run("compare", "--memory-limit", "1K", small, NULL), "too small a limit",
                    "largest request");
    command_refused(command_run("compare", "--capacity", "1K", small, NULL), "too small a device",
                    "largest request");
    command_refused(command_run("compare", "--capacity", "many", small, NULL), "no size", "--capacity");
    command_refused(command_run("compare", "--json", "--csv", small, NULL), "two layouts", "exclusive");
    command_refused(command_run("frontier", "--policy", "none", "--policies", "none", small, NULL), "both",
                    "exclusive");
    command_refused(command_run("compare", "small.db", NULL), "a heap's database", "no events");
    command_refused(command_run("frontier", "small.db", NULL), "a heap's database", "no events");
    command_refused(command_run("frontier", "nosuch.pickle", NULL), "no file", "nosuch.pickle");
    command_refused(command_run("compare", small, "small.db", NULL), "one of two", "small.db");
}

TEST_FILE(test_folder_small_setup, test_folder_teardown)
