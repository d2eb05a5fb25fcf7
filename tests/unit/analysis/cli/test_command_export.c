/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve export`: every format of every small database, those that lack what a format is made of too; what goes to standard output
 * is what a file has; options that make no sense together, and places that are taken. What the files hold is for
 * tests/conformance/test_export_*.py.
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const databases[][4] = {{"nothing.sql"},
                                           {"small.sql", "user_lines.sql"},
                                           {"gpu.sql", "user_lines.sql"},
                                           {"storages.sql", "user_lines.sql"},
                                           {"small.sql", "lossy.sql", "user_lines.sql"}};

static void make(const char *const *scripts)
{
    unlink("t.db");
    trace_database_make("t.db", scripts);
}

static void make_small(void)
{
    make(databases[1]);
}

static bool is_protobuf(const char *format)
{
    return strcmp(format, "pprof") == 0 || strcmp(format, "perfetto") == 0;
}

/* A file that is not empty and what standard output gets are the same. */
static void check_format(const char *script, const char *format)
{
    struct command_outcome outcome =
        command_run("export", "t.db", "--to", format, "-o", "file", "--force", NULL);
    char *bytes;
    size_t count;

    if (is_protobuf(format) && !export_has_protobuf()) {
        command_refused(outcome, format, "protobuf-c");
        return;
    }
    if (outcome.status != 0) {
        fail_msg("%s, %s: %s", script, format, outcome.err);
    }
    assert_string_equal(outcome.out, "");
    command_outcome_free(&outcome);
    bytes = file_read("file", &count);
    outcome = command_run("export", "t.db", "--to", format, "-o", "-", NULL);
    assert_int_equal(outcome.status, 0);
    if (!is_protobuf(format)) {
        assert_string_equal(outcome.out, bytes);
    }
    if (strcmp(format, "folded") != 0) {
        assert_true(count > 0);
    }
    command_outcome_free(&outcome);
    free(bytes);
}

TEST(test_every_database)
{
    static const char *const formats[] = {"speedscope", "folded", "pprof", "perfetto"};

    for (size_t i = 0; i < sizeof(databases) / sizeof(databases[0]); i++) {
        make(databases[i]);
        for (size_t k = 0; k < sizeof(formats) / sizeof(formats[0]); k++) {
            check_format(databases[i][0], formats[k]);
        }
    }
}

static void check_view(const char *script, const char *view)
{
    struct command_outcome exported =
        command_run("export", "t.db", "--to", "csv", "--view", view, "-o", "-", NULL);
    char sql[100];
    struct command_outcome queried;

    snprintf(sql, sizeof(sql), "SELECT * FROM %s", view);
    queried = command_run("query", "--csv", "t.db", sql, NULL);
    if (exported.status != 0 || strcmp(exported.out, queried.out) != 0) {
        fail_msg("%s, %s: %s", script, view, exported.err);
    }
    command_outcome_free(&exported);
    command_outcome_free(&queried);
}

TEST(test_csv_is_the_query)
{
    static const char *const views[] = {"events", "allocations", "callsite_total", "timeline",
                                        "help",   "eviction",    "ladder"};

    for (size_t i = 0; i < sizeof(databases) / sizeof(databases[0]); i++) {
        make(databases[i]);
        for (size_t k = 0; k < sizeof(views) / sizeof(views[0]); k++) {
            check_view(databases[i][0], views[k]);
        }
    }
}

TEST(test_folder)
{
    struct command_outcome outcome;
    char *text;

    make_small();
    outcome = command_run("export", "t.db", "--to", "csv", "-o", "tables/", NULL);
    assert_int_equal(outcome.status, 0);
    command_outcome_free(&outcome);
    text = file_read("tables/events.csv", NULL);
    assert_non_null(strstr(text, "seq,ts_ns,pid,tid"));
    free(text);
    command_refused(command_run("export", "t.db", "--to", "csv", "-o", "tables", NULL), "taken",
                    "exists already");
    assert_int_equal(system("rm -r tables"), 0);
}

/* Nothing is written over without --force, and a failure leaves what was there. */
TEST(test_places)
{
    char *text;

    make_small();
    file_write("mine", "mine", 4);
    command_refused(command_run("export", "t.db", "--to", "speedscope", "-o", "mine", NULL), "taken",
                    "--force");
    command_refused(
        command_run("export", "t.db", "--to", "speedscope", "-o", "mine", "-f", "-d", "sky", NULL), "domain",
        "--domain must be");
    command_refused(command_run("export", "t.db", "--to", "speedscope", "-o", "no/where", NULL), "no folder",
                    "no/where");
    command_refused(command_run("export", "mine", "--to", "speedscope", "-o", "new", NULL), "no database",
                    "mine");
    text = file_read("mine", NULL);
    assert_string_equal(text, "mine");
    free(text);
    assert_int_equal(access("new", F_OK), -1);
}

TEST(test_options)
{
    static const struct {
        const char *to, *option, *value, *word;
    } wrong[] = {
        {"speedscope", "--view", "events", "--view is for"},
        {"folded", "--blocks", "3", "--blocks is for"},
        {"csv", "--pid", "3", "--domain and --pid"},
        {"pytorch", "--domain", "block", "--domain and --pid"},
        {"pprof", "--metric", "peak", "--metric is for"},
        {"csv", "--metric", "peak", "--metric is for"},
        {"pdf", "--force", NULL, "pdf"},
    };

    make_small();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        command_refused(command_run("export", "t.db", "--to", wrong[i].to, "-o", "new", wrong[i].option,
                                    wrong[i].value, NULL),
                        wrong[i].to, wrong[i].word);
    }
    command_refused(command_run("export", "t.db", "--to", "speedscope", NULL), "no -o",
                    "-o FILE is required");
    command_refused(command_run("export", "t.db", "--to", "csv", "-o", "-", NULL), "no view", "--view");
    command_refused(command_run("export", "t.db", "--to", "dtr", "-o", "new", NULL), "dtr",
                    "varve_runtime_new_log");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
