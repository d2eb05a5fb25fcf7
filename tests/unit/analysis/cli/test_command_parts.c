/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Databases that lack a part: each table, view and index is dropped in turn, and every command is run about what is left.
 * It answers, or refuses with one line that names the part; nothing in between.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/command.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 512
#define DATABASE "part.db"

static const struct {
    const char *scripts[3];
} databases[] = {{{"small.sql", NULL}}, {{"gpu.sql", NULL}}, {{"blocks.sql", NULL}}, {{"storages.sql", NULL}}, {{"remat.sql", NULL}}};

struct parts {
    int count;
    char type[PARTS_MAX][8];
    char name[PARTS_MAX][64];
};

static void load_parts(struct parts *parts)
{
    sqlite3 *database;
    sqlite3_stmt *statement;

    assert_int_equal(sqlite3_open(DATABASE, &database), SQLITE_OK);
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
    bool is_refused = outcome.status == 2;

    printf("%d %s: %s %s: %s", outcome.status, part, arguments[0], arguments[1], outcome.err[0] ? outcome.err : "\n");
    if (is_refused) {
        command_refused(outcome, part, "");
        return;
    }
    if (outcome.status != 0 && !(outcome.status == 1 && strcmp(arguments[0], "diff") == 0)) {
        fail_msg("%s is missing: %s %s: status %d", part, arguments[0], arguments[1], outcome.status);
    }
    command_outcome_free(&outcome);
}

static void run_all(const char *part)
{
    for (size_t i = 0; command_table[i] != NULL; i++) {
        if (command_table[i]->answer != NULL) {
            check(part, (const char *[]){command_table[i]->name, DATABASE, NULL});
            check(part, (const char *[]){command_table[i]->name, DATABASE, "--json", NULL});
        }
    }
    check(part, (const char *[]){"diff", DATABASE, "whole.db", NULL});
    check(part, (const char *[]){"diff", "--events", DATABASE, "whole.db", NULL});
    check(part, (const char *[]){"replay", DATABASE, NULL});
    check(part, (const char *[]){"export", DATABASE, "-f", "-o", "x.pickle", NULL});
    check(part, (const char *[]){"query", DATABASE, "SELECT 1", NULL});
}

static void test_each_part(void **state)
{
    static struct parts parts;
    size_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(databases) / sizeof(databases[0]); i++) {
        trace_database_make("whole.db", databases[i].scripts);
        char *whole = file_read("whole.db", &bytes);

        file_write(DATABASE, whole, bytes);
        load_parts(&parts);
        assert_true(parts.count > 50);
        for (int part = 0; part < parts.count; part++) {
            char sql[128];

            file_write(DATABASE, whole, bytes);
            snprintf(sql, sizeof(sql), "DROP %s %s", parts.type[part], parts.name[part]);
            sql_run(DATABASE, sql);
            run_all(parts.name[part]);
        }
        free(whole);
        remove("whole.db");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part),
    };

    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
