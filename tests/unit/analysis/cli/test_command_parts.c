/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases that lack a part: each table, view and index is dropped in turn, and every command is run about what is
 * left. It answers, or refuses with one line that names the part; nothing in between.
 * Reads damaged input: databases that lack a part.
 * Costs: 4 s, full 10 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 512
#define DATABASE "part.db"

static const char *const scripts[] = {"small.sql", "gpu.sql"};

struct parts {
    int count;
    char type[PARTS_MAX][8];
    char name[PARTS_MAX][64];
};

static void load_parts(struct parts *parts)
{
    sqlite3 *database;
    assert_int_equal(sqlite3_open(DATABASE, &database), SQLITE_OK);
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(database,
                                        "SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE "
                                        "'sqlite_%' ORDER BY type, name",
                                        -1, &statement, NULL),
                     SQLITE_OK);
    for (parts->count = 0; sqlite3_step(statement) == SQLITE_ROW; parts->count++) {
        assert_true(parts->count < PARTS_MAX);
        snprintf(parts->type[parts->count], sizeof(parts->type[0]), "%s", sqlite3_column_text(statement, 0));
        snprintf(parts->name[parts->count], sizeof(parts->name[0]), "%s", sqlite3_column_text(statement, 1));
    }
    sqlite3_finalize(statement);
    sqlite3_close(database);
}

static void check(const char *part, const char *const *arguments)
{
    struct command_outcome outcome = command_run_list(arguments);
    bool is_different = outcome.status == 1 && strcmp(arguments[0], "diff") == 0;
    if (outcome.status == 2) {
        command_refused(outcome, part, arguments[0]);
        return;
    }
    if (outcome.status != 0 && !is_different) {
        fail_msg("%s is missing: %s %s: status %d", part, arguments[0], arguments[1], outcome.status);
    }
    command_outcome_free(&outcome);
}

#define TURNS 5 /* parts after which a command comes again: there are many views of a kind */

static void run_some(const char *part, int turn, bool with_json)
{
    static const char *const others[][6] = {{"diff", DATABASE, "whole.db"},
                                            {"diff", "--events", DATABASE, "whole.db"},
                                            {"replay", DATABASE},
                                            {"export", DATABASE, "-f", "-o", "x.pickle"},
                                            {"query", DATABASE, "SELECT 1"}};
    int number = 0;
    for (size_t i = 0; command_table[i] != NULL; i++) {
        if (command_table[i]->answer != NULL && number++ % TURNS == turn) {
            check(part, (const char *[]){command_table[i]->name, DATABASE, with_json ? "--json" : NULL, NULL});
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (number++ % TURNS == turn) {
            check(part, others[i]);
        }
    }
}

/* Half of the answers as text, half as JSON; the other script does the other halves, and other commands. */
static void drop_each(const char *script, int first_with_json)
{
    static struct parts parts;
    trace_database_make("whole.db", (const char *const[]){script, NULL});
    size_t bytes;
    char *whole = file_read("whole.db", &bytes);
    file_write(DATABASE, whole, bytes);
    load_parts(&parts);
    assert_true(parts.count > 50);
    for (int part = 0; part < parts.count; part += test_is_full() ? 1 : 3) {
        file_write(DATABASE, whole, bytes);
        char sql[160];
        snprintf(sql, sizeof(sql), "PRAGMA synchronous = OFF; DROP %s %s", parts.type[part], parts.name[part]);
        sql_run(DATABASE, sql);
        run_some(parts.name[part], (part + first_with_json) % TURNS, part % 2 == first_with_json);
    }
    free(whole);
    remove("whole.db");
}

TEST(test_each_part)
{
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        drop_each(scripts[i], (int)i);
    }
}

/* One line, with the name of what is missing. */
TEST(test_what_is_said)
{
    remove(DATABASE);
    trace_database_make(DATABASE, (const char *const[]){"small.sql", NULL});
    sql_run(DATABASE, "DROP TABLE oom");
    command_refused(command_run("oom", DATABASE, NULL), "oom",
                    "part.db lacks a part of a trace database (no such table: oom)");
    sql_run(DATABASE, "DELETE FROM domain");
    command_refused(command_run("peak", DATABASE, NULL), "peak", "no rows in domain");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
