/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve query`: SQL that could write is refused before anything runs, wrong SQL gives one line, and the
 * three formats give back every value.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void assert_query(const char *option, const char *sql, const char *expected)
{
    struct command_outcome outcome = command_run("query", option, "small.db", sql, NULL);
    if (outcome.status != 0 || strcmp(outcome.out, expected) != 0) {
        fail_msg("%s: status %d, '%s' instead of '%s', said '%s'", sql, outcome.status, outcome.out, expected,
                 outcome.err);
    }
    command_outcome_free(&outcome);
}

TEST(test_writing_is_refused)
{
    static const char *const writing[] = {
        "DELETE FROM event",
        "INSERT INTO meta VALUES ('a', 1)",
        "UPDATE event SET size = 0",
        "REPLACE INTO meta VALUES ('complete', 0)",
        "WITH x AS (SELECT 1) INSERT INTO meta SELECT 'a', 1",
        "CREATE TABLE x(y)",
        "CREATE TEMP TABLE x(y)",
        "CREATE TEMP VIEW x AS SELECT 1",
        "CREATE INDEX x ON event_row(size)",
        "DELETE FROM event_row",
        "DROP TABLE event_row",
        "DROP VIEW event",
        "ALTER TABLE meta ADD COLUMN x",
        "VACUUM",
        "VACUUM INTO 'copy.db'",
        "ATTACH 'other.db' AS other",
        "DETACH main",
        "REINDEX",
        "ANALYZE",
        "BEGIN IMMEDIATE",
        "PRAGMA user_version = 9",
        "PRAGMA user_version(9)",
        "PRAGMA application_id = 9",
        "PRAGMA journal_mode = WAL",
        "PRAGMA journal_mode(WAL)",
        "PRAGMA writable_schema = 1",
        "PRAGMA query_only = 0",
        "PRAGMA wal_checkpoint",
        "PRAGMA optimize",
        "PRAGMA incremental_vacuum",
        "PRAGMA temp_store_directory = '.'",
        "SELECT 1; DELETE FROM event",
        "SELECT 1; ATTACH 'other.db' AS other; SELECT 2",
    };
    size_t bytes;
    char *before = file_read("small.db", &bytes);
    for (size_t i = 0; i < sizeof(writing) / sizeof(writing[0]); i++) {
        command_refused(command_run("query", "small.db", writing[i], NULL), writing[i], "refused");
    }
    size_t bytes_after;
    char *after = file_read("small.db", &bytes_after);

    assert_int_equal(bytes_after, bytes);
    assert_memory_equal(after, before, bytes);
    free(before);
    free(after);
    struct stat status;
    assert_int_not_equal(stat("copy.db", &status), 0);
    assert_int_not_equal(stat("other.db", &status), 0);
}

TEST(test_reading_is_allowed)
{
    assert_query("--no-header", "PRAGMA user_version", "8\n");
    assert_query("--no-header", "SELECT name FROM pragma_table_info('meta') ORDER BY 1 LIMIT 1", "key\n");
    assert_query("--no-header", "SELECT sum(value) FROM json_each('[1, 2, 39]')", "42\n");
    assert_query("--no-header", "BEGIN; SELECT 1; COMMIT", "1\n");
    assert_query("--no-header", "PRAGMA integrity_check", "ok\n");
    assert_query("--no-header",
                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) "
                 "SELECT sum(i) FROM n",
                 "15\n");
}

TEST(test_wrong_sql)
{
    static const char *const wrong[][2] = {
        {"SELEC 1", "SELEC"},
        {"SELECT nowhere FROM event", "nowhere"},
        {"SELECT * FROM nowhere", "nowhere"},
        {"SELECT size FROM", "FROM"},
        {"SELECT 'unfinished", "unfinished"},
        {"", "no SQL"},
        {" ; ;\n", "no SQL"},
        {"SELECT writefile('x', 'y')", "writefile"},
        {"SELECT sum(9223372036854775807) FROM event", "overflow"},
        {"SELECT load_extension('x')", "not authorized"},
        {"SELECT 1; SELEC 2", "SELEC"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        static const char *const options[] = {"--csv", "--json", "--null=-"};
        for (size_t j = 0; j < sizeof(options) / sizeof(options[0]); j++) {
            command_refused(command_run("query", options[j], "small.db", wrong[i][0], NULL), wrong[i][0], wrong[i][1]);
        }
    }
}

TEST(test_values)
{
    static const char sql[] = "SELECT 9223372036854775807 AS big, -1.5 AS r, NULL AS n, x'00ff' AS b, '' AS e, "
                              "'a\"b,c' AS t, CAST(x'41ff42' AS TEXT) AS bad, char(10, 27) AS control, 1 AS big";
    assert_query("--json", sql,
                 "[{\"big\":9223372036854775807,\"r\":-1.5,\"n\":null,\"b\":\"00ff\",\"e\":\"\",\"t\":\"a\\\"b,c\","
                 "\"bad\":\"A\\ufffdB\",\"control\":\"\\u000a\\u001b\",\"big_2\":1}\n]\n");
    assert_query("--csv", sql,
                 "big,r,n,b,e,t,bad,control,big\n"
                 "9223372036854775807,-1.5,,X'00ff',\"\",\"a\"\"b,c\",A\xff"
                 "B,\"\n\033\",1\n");
    assert_query("--null=nil", "SELECT NULL AS n, 'x' AS x, char(10, 27) AS c, 7 AS seven",
                 "  n  x  c   seven\nnil  x   ?      7\n");
}

TEST(test_several_statements)
{
    assert_query("--csv", "SELECT 1 AS a; -- a remark\nSELECT 2 AS b WHERE 0;; SELECT 3 AS c;", "a\n1\n\nb\n\nc\n3\n");
    assert_query("--json", "SELECT 1 AS a; SELECT 2 AS b WHERE 0; /* the end */", "[{\"a\":1}\n]\n[]\n");
}

/* More rows than a table is aligned by: all of them arrive, in order. */
TEST(test_many_rows)
{
    char *rows = command_answer(
        "query --no-header small.db `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12345) "
        "SELECT i, 'row ' || i FROM n`");
    const char *line = rows;
    int number, again;
    for (int i = 1; i <= 12345; i++, line += strcspn(line, "\n") + 1) {
        assert_int_equal(sscanf(line, "%d row %d", &number, &again), 2);
        assert_int_equal(number, i);
        assert_int_equal(again, i);
    }
    assert_string_equal(line, "");
    free(rows);
}

TEST(test_standard_input)
{
    static const char sql[] = "SELECT count(*) AS n\nFROM event;\n-- the end\n";
    file_write("question.sql", sql, strlen(sql));
    assert_non_null(freopen("question.sql", "re", stdin));
    assert_query("--csv", "-", "n\n266\n");
    file_write("question.sql", "SELECT 1;\0 SELECT 2", 19);
    assert_non_null(freopen("question.sql", "re", stdin));
    EXPECT(2, "query small.db -", "NUL");
}

TEST(test_misspelt)
{
    EXPECT(2, "query small.db `SELECT * FROM callsit_total`", "no such table: callsit_total",
           "did you mean callsite_total?");
    EXPECT(2, "query small.db `SELECT t.user_funtion FROM callsite_total t`", "no such column: t.user_funtion",
           "did you mean user_function?");
    /* a name is looked for in the tables that the SQL names: this one is of others */
    EXPECT(2, "query small.db `SELECT bytes_askd FROM meta`", "no such column: bytes_askd, in:");
    EXPECT(2, "query small.db `SELECT * FROM qqqqqqqqqq`", "no such table: qqqqqqqqqq, in:");
}

TEST(test_schema)
{
    EXPECT(0, "query --schema small.db", "views\n",
           "  peak_time             when the most bytes were live, per domain and device\n", "\ntables\n");
    EXPECT(0, "query --schema small.db PEAK",
           "view peak: what was live at the peak of all processes together, per call site and domain\n",
           "  bytes                 bytes live then\n");
    EXPECT(0, "query --schema --csv small.db mark", "name,type,meaning\nid,integer,",
           "begin_ns,integer,when it began\n");
    EXPECT(0, "query --schema --json small.db", "{\"name\":\"total\",\"type\":\"view\"");
    EXPECT(2, "query --schema small.db totl", "no such table: totl; did you mean total?");
    EXPECT(2, "query --schema small.db `x' OR 1 OR '`", "no such table: x' OR 1 OR '");
    sql_run("small.db", "CREATE TABLE \"it's %s\"(a)");
    EXPECT(2, "query --schema small.db `it's %s`", "no such table: it's %s");
    sql_run("small.db", "DROP TABLE \"it's %s\"");
    EXPECT(2, "query --schema --examples small.db", "mutually exclusive");
}

TEST(test_vertical)
{
    assert_query("--vertical", "SELECT 1 AS a, NULL AS longer, char(10, 27) || 'x' AS c UNION ALL SELECT 2, x'ff', 'y'",
                 "row 1\n  a       1\n  longer  NULL\n  c        ?x\n\n"
                 "row 2\n  a       2\n  longer  X'ff'\n  c       y\n");
    EXPECT(2, "query --vertical --csv small.db `SELECT 1`", "mutually exclusive");
}

/* What it prints is SQL that it takes. */
TEST(test_examples)
{
    char *examples = command_answer("query --examples small.db");
    assert_non_null(strstr(examples, "\n-- 10. "));
    command_expect(0, command_run("query", "--csv", "small.db", examples, NULL), "the examples",
                   (const char *const[]){"user_function,", "up_to_bytes,", "freed_by,", NULL});
    free(examples);
    EXPECT(2, "query --examples small.db `SELECT 1`", "unexpected argument 'SELECT 1'");
}

TEST_FILE(test_folder_small_setup, test_folder_teardown)
