/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table `help` names every table, view and column of a database, once, and nothing that is not there. (Databases
 * that were recorded or imported: assert_documented in tests/recording.py.)
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/query.h"
#include "trace/error.h"
#include "trace/store/schema.h"

#include <sqlite3.h>

/* Every name that there is, and '' for the table or view itself. */
#define THERE                                                                                                          \
    "SELECT s.name, c.name AS column FROM sqlite_schema s JOIN pragma_table_info(s.name) c"                            \
    "    WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite%' UNION ALL SELECT name, '' FROM sqlite_schema" \
    "    WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"

static int enter(void **state)
{
    struct varve_message message = {""};
    sqlite3 *db = NULL;
    *state = NULL;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK || schema_create(db, "memory", &message) != VARVE_OK) {
        return -1;
    }
    *state = db;
    return 0;
}

static int leave(void **state)
{
    return sqlite3_close(*state);
}

static void expect_no_rows(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    if (sqlite3_step(query) == SQLITE_ROW) {
        fail_msg("%s.%s, among others: %s", (const char *)sqlite3_column_text(query, 0),
                 (const char *)sqlite3_column_text(query, 1), sql);
    }
    sqlite3_finalize(query);
}

TEST(test_both_ways)
{
    assert_true(query_integer(*state, "SELECT count(*) FROM (" THERE ")") > 800);
    expect_no_rows(*state, THERE " EXCEPT SELECT name, column FROM help");
    expect_no_rows(*state, "SELECT name, column FROM help EXCEPT SELECT * FROM (" THERE ")");
}

/* A meaning is a phrase that fits a line or two, and says nothing that only a look at the source would explain. */
TEST(test_meanings)
{
    expect_no_rows(*state, "SELECT name, column FROM help WHERE length(trim(meaning)) < 2 OR length(meaning) > 250");
    expect_no_rows(*state, "SELECT name, column FROM help WHERE meaning <> trim(meaning) OR meaning LIKE '%.'");
    /* a name of a table in the words is one that is there */
    expect_no_rows(*state,
                   "SELECT name, column FROM help WHERE meaning LIKE '%read it as %' AND NOT EXISTS (SELECT 1 FROM"
                   " sqlite_schema s WHERE meaning LIKE '%read it as ' || s.name || '%')");
}

TEST_FILE(enter, leave)
