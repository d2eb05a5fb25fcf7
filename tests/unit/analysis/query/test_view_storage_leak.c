/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which storages the view storage_leak accuses, of what, and how surely: one rule a test, each with what lies just
 * beyond it.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <string.h>

#define LEAK_CYCLE "106"
#define LEAK_HELD "107"
#define LEAK_UNTOUCHED "108"

/* Processes 1 exited, 2 was killed, 3 became another program, 4 goes on, of 5 nothing is known. */
static const char processes[] =
    "INSERT INTO process(id, pid, end_cause) VALUES (1, 101, 'exit'), (2, 102, 'signal'), (3, 103, 'exec'), (4, 104, "
    "'running'),"
    " (5, 105, NULL);";

static int make(void **state)
{
    int error = test_folder_setup(state);
    trace_database_make("t.db", (const char *const[]){"nothing.sql", NULL});
    sql_run("t.db", processes);
    return error;
}

#define RULE(name) TEST_WITH(name, make, test_folder_teardown)

/* A storage of 1000 bytes at call site 7, created at event `id`; `columns` and `values` are more of it. */
static void storage(int process, int id, const char *columns, const char *values)
{
    char sql[1000];
    snprintf(
        sql, sizeof(sql),
        "INSERT INTO storage(id, number, kind, addr, size, callsite_id, thread_id, process_id, pid, tid, create_seq, "
        "create_ns%s)"
        " VALUES (%d, %d, 1, 64, 1000, 7, 1, %d, 100 + %d, 1, %d, %d%s)",
        columns, id, id, process, process, id, id, values);
    sql_run("t.db", sql);
}

static void told(int process, int id, const char *cause)
{
    char values[100];
    snprintf(values, sizeof(values), ", 900, %s, 2", cause);
    storage(process, id, ", leak_seq, leak_cause, leak_references", values);
}

static void view(int process, int id, int base, int bytes)
{
    storage(process, id, "", "");
    char sql[200];
    snprintf(sql, sizeof(sql), "UPDATE storage SET kind = 2, base_id = %d, size = %d WHERE id = %d", base, bytes, id);
    sql_run("t.db", sql);
}

static void expect_query(const char *sql, const char *expected)
{
    struct command_outcome outcome = command_run("query", "--csv", "t.db", sql, NULL);
    if (outcome.status != 0 || strcmp(strchr(outcome.out, '\n') + 1, expected) != 0) {
        fail_msg("%s: %s%s, expected %s", sql, outcome.out, outcome.err, expected);
    }
    command_outcome_free(&outcome);
}

static void expect(const char *expected)
{
    expect_query("SELECT storage_id, kind, round(score, 3) FROM storage_leak ORDER BY storage_id", expected);
}

RULE(test_exit)
{
    for (int process = 1; process <= 5; process++) {
        storage(process, process, "", "");
        storage(process, 10 + process, ", destroy_seq, destroy_ns", ", 500, 500");
        view(process, 20 + process, process, 1000);
    }
    expect("1,alive at the end,0.9\n");
    expect_query("SELECT id FROM storage_kept ORDER BY id", "2\n3\n4\n5\n");
    expect_query("SELECT evidence FROM storage_leak",
                 "not released before the process exited; nothing was copied into it or out of it\n");
    sql_run("t.db", "UPDATE storage SET reads = 1, last_use_ns = 5 WHERE id = 1");
    expect_query("SELECT evidence FROM storage_leak", "not released before the process exited\n");
}

RULE(test_told)
{
    told(2, 1, LEAK_CYCLE);
    told(2, 2, LEAK_UNTOUCHED);
    told(2, 3, "0");
    told(1, 4, LEAK_CYCLE);
    told(1, 5, LEAK_UNTOUCHED);
    expect("1,cycle,1.0\n2,untouched,0.5\n3,alive at the end,0.9\n4,cycle,1.0\n5,untouched,0.9\n");
    expect_query(
        "SELECT evidence FROM storage_leak WHERE storage_id = 3",
        "\"alive when nothing should be, with 2 references to it; nothing was copied into it or out of it\"\n");
    sql_run("t.db", "UPDATE storage SET destroy_seq = 950, destroy_ns = 950 WHERE id IN (1, 4)");
    sql_run("t.db", "UPDATE storage SET leak_seq = NULL, leak_cause = NULL WHERE id = 2"); /* it was used since */
    expect("3,alive at the end,0.9\n5,untouched,0.9\n");
}

RULE(test_held)
{
    told(2, 1, LEAK_HELD);
    view(2, 11, 1, 300);
    view(2, 12, 1, 199);
    told(2, 2, LEAK_HELD); /* half of it is shown */
    view(2, 13, 2, 500);
    storage(1, 3, "", "");
    view(1, 14, 3, 100);
    storage(2, 4, "", ""); /* its process was killed, and nobody said that views alone hold it */
    view(2, 15, 4, 100);
    storage(1, 5, "", ""); /* the view is gone */
    view(1, 16, 5, 100);
    sql_run("t.db", "UPDATE storage SET destroy_seq = 600, destroy_ns = 600 WHERE id = 16");
    expect("1,held by views,0.501\n2,alive at the end,0.9\n3,held by views,0.9\n5,alive at the end,0.9\n");
    expect_query("SELECT evidence FROM storage_leak WHERE storage_id = 1",
                 "\"2 views show 499 of its 1000 bytes, and nobody else refers to it\"\n");
    sql_run("t.db", "UPDATE storage SET size = 0 WHERE id IN (1, 3)");
    expect("1,alive at the end,0.9\n2,alive at the end,0.9\n3,alive at the end,0.9\n5,alive at the end,0.9\n");
}

/* `count` storages at a call site, from event `first` on. */
static void many(int process, int first, int count, int callsite)
{
    char sql[400];
    snprintf(
        sql, sizeof(sql),
        "WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO storage(id, "
        "number, kind, "
        "addr, size, callsite_id, thread_id, process_id, pid, tid, create_seq, create_ns) SELECT i, i, 1, 64, 1000, "
        "%d, 1, %d, "
        "100 + %d, 1, i, i FROM n",
        first, first + count - 1, callsite, process, process);
    sql_run("t.db", sql);
}

static void expect_groups(const char *expected)
{
    expect_query(
        "SELECT callsite_id, kind, storages, bytes, round(score, 3) FROM storage_leak_callsite ORDER BY callsite_id",
        expected);
}

RULE(test_growth)
{
    sql_run(
        "t.db",
        "INSERT INTO mark(id, name, process_id, begin_seq, end_seq) VALUES (1, 'work', 2, 100, 199),"
        " (2, 'work', 2, 200, 299), (3, 'work', 2, 300, 399), (4, 'open', 2, 400, NULL), (5, 'other', 4, 100, 299)");
    many(2, 110, 8, 1); /* in one of three phases */
    expect_groups("");
    many(2, 210, 1, 1); /* in two of them */
    expect_groups("1,growth,9,9000,0.889\n");
    expect_query("SELECT DISTINCT evidence FROM storage_leak",
                 "\"one of 9 of this call site that 2 of 3 phases \"\"work\"\" left\"\n");
    many(2, 410, 7, 2);
    expect_groups("1,growth,9,9000,0.889\n");
    many(2, 420, 1, 2); /* in one that never ended, which is alone of its name */
    expect_groups("1,growth,9,9000,0.889\n2,growth,8,8000,0.875\n");
    many(2, 50, 20, 3);  /* before all phases */
    many(4, 300, 20, 4); /* after that of its process */
    expect_groups("1,growth,9,9000,0.889\n2,growth,8,8000,0.875\n");
    sql_run("t.db", "UPDATE storage SET destroy_seq = 999, destroy_ns = 999 WHERE id IN (210, 411)");
    expect_groups("");
    expect_query("SELECT mark_id, callsite_id, storages, left_over FROM storage_growth ORDER BY 1, 2",
                 "1,1,8,8\n2,1,1,0\n4,2,7,7\n");
}

RULE(test_growth_told)
{
    for (int i = 1; i <= 7; i++) {
        told(2, i, i % 2 ? "0" : LEAK_UNTOUCHED);
    }
    told(2, 20, LEAK_CYCLE);
    expect_groups("7,alive at the end,4,4000,0.9\n7,cycle,1,1000,1.0\n7,untouched,3,3000,0.5\n");
    told(2, 8, "0");
    expect_groups("7,cycle,1,1000,1.0\n7,growth,8,8000,0.875\n");
    expect_query("SELECT DISTINCT evidence FROM storage_leak WHERE kind = 'growth'",
                 "one of 8 of this call site that the tracker found\n");
}

/* A process may be gone from a damaged database; codes may be unknown. */
RULE(test_damage)
{
    storage(9, 1, ", dtype, base_id, allocation_id", ", 99, 77, 78");
    told(9, 2, "255");
    expect("2,alive at the end,0.9\n");
    expect_query("SELECT id, kind, dtype, segment_id, is_alive FROM storages ORDER BY id",
                 "1,storage,,,1\n2,storage,,,1\n");
}

RULE(test_selection)
{
    storage(1, 1, "", "");
    told(2, 2, LEAK_CYCLE);
    EXPECT(0, "leaks --domain storage --pid 102 --csv t.db", ",cycle,1.000,1,1000,", "!alive at the end");
}
