/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve export`: every format of every small database, those that lack what a format is made of too; what goes to
 * standard output is what a file has. What the files hold is for tests/conformance/test_export_*.py.
 * Costs: 2 s
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

static bool is_protobuf(const char *format)
{
    return strcmp(format, "pprof") == 0 || strcmp(format, "perfetto") == 0;
}

/* A file that is not empty and what standard output gets are the same. */
static void check_format(const char *script, const char *format)
{
    struct command_outcome outcome = command_run("export", "t.db", "--to", format, "-o", "file", "--force", NULL);
    if (is_protobuf(format) && export_format_pprof.refusal != NULL) {
        command_refused(outcome, format, "protobuf-c");
        return;
    }
    if (outcome.status != 0) {
        fail_msg("%s, %s: %s", script, format, outcome.err);
    }
    assert_string_equal(outcome.out, "");
    command_outcome_free(&outcome);
    size_t count;
    char *bytes = file_read("file", &count);
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
    struct command_outcome exported = command_run("export", "t.db", "--to", "csv", "--view", view, "-o", "-", NULL);
    char sql[100];
    snprintf(sql, sizeof(sql), "SELECT * FROM %s", view);
    struct command_outcome queried = command_run("query", "--csv", "t.db", sql, NULL);
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
    make(databases[1]);
    EXPECT(0, "export t.db --to csv -o tables/", "");
    char *text = file_read("tables/events.csv", NULL);

    assert_non_null(strstr(text, "seq,ts_ns,pid,tid"));
    free(text);
    EXPECT(2, "export t.db --to csv -o tables", "exists already");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
