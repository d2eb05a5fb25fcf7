/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve leaks`: its moments, and the score of lines that are made by hand: one that leaks in each step, a table made
 * first, a cache that has filled, a queue that swings, a buffer that is made anew ever larger, and what exec replaced.
 * What recordings give is in tests/conformance/test_planted_leaks.py. And which storages the view storage_leak accuses,
 * of what, and how surely: one rule a test, each with what lies just beyond it.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <string.h>

/* A process of 1000 ms whose main ends after 900, and one that exec replaced. i: the step, one each ms. */
static const char lines[] =
    "INSERT INTO process(id, pid, start_ns, end_ns, end_cause, main_end_ns) VALUES (1, 10, 0, 1000000000, 'exit', "
    "900000000),"
    " (2, 11, 0, 1000000000, 'exec', NULL);"
    "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 1, 10, 10), (2, 2, 1, 11, 11);"
    "INSERT INTO symbol(id, function, file, line, is_python, is_inlined, user_rank) VALUES (1, 'leak', 'a.c', 1, 0, "
    "0, 4),"
    " (2, 'table', 'a.c', 2, 0, 0, 4), (3, 'cache', 'a.c', 3, 0, 0, 4), (4, 'queue', 'a.c', 4, 0, 0, 4),"
    " (5, 'buffer', 'a.c', 5, 0, 0, 4), (6, 'replaced', 'a.c', 6, 0, 0, 4), (7, 'late', 'a.c', 7, 0, 0, 4);"
    "INSERT INTO stack_node(id, symbol_id, pc) SELECT id, id, id FROM symbol;"
    "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) SELECT id, id, 1, id, id FROM symbol;"
    "CREATE TEMP TABLE step AS WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 899) SELECT "
    "i FROM s;"
    "CREATE TEMP TABLE made(site, process_id, size, alloc_ns, free_ns);"
    "INSERT INTO made SELECT 1, 1, 16, i, CASE WHEN i % 2 THEN i + 20 END FROM step;"
    "INSERT INTO made SELECT 2, 1, 1000, i, NULL FROM step WHERE i < 50;"
    "INSERT INTO made SELECT 3, 1, 100, i, CASE WHEN i < 600 THEN i + 300 END FROM step;"
    "INSERT INTO made SELECT 4, 1, 100, i, (i / 70 + 1) * 70 FROM step WHERE i < 840;"
    "INSERT INTO made SELECT 4, 1, 100, i, NULL FROM step WHERE i >= 840;"
    "INSERT INTO made SELECT 5, 1, i * 10, i, CASE WHEN i < 890 THEN i + 10 END FROM step WHERE i % 10 = 0;"
    "INSERT INTO made SELECT 6, 2, 16, i, NULL FROM step;"
    "INSERT INTO made SELECT 7, 1, 16, i, NULL FROM step WHERE i >= 500;"
    "INSERT INTO made VALUES (7, 1, 4096, 895, 950), (7, 1, 64, 950, NULL);"
    "INSERT INTO allocation(domain, pid, tid, addr, size, requested, alloc_seq, free_requested_seq, "
    "free_completed_seq, alloc_ns,"
    "    free_ns, callsite_id, process_id, temporary)"
    "    SELECT 1, 9 + process_id, 9 + process_id, rowid * 4096, size, size, rowid * 10, iif(free_ns IS NULL, NULL, "
    "rowid * 10 + 1),"
    "        iif(free_ns IS NULL, NULL, rowid * 10 + 1), alloc_ns * 1000000, free_ns * 1000000, site, process_id, 0 "
    "FROM made;"
    "INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes, "
    "peak_allocations,"
    "    peak_bytes, temporary, lifetime_ns) SELECT coalesce(callsite_id, 0), count(*), "
    "count(free_ns), sum(size), sum(free_ns IS NULL),"
    "    sum(iif(free_ns IS NULL, size, 0)), 0, 0, 0, 0 FROM allocation GROUP BY callsite_id";

static int setup(void **state)
{
    int error = test_folder_setup(state);
    trace_database_make("made.db", (const char *const[]){"nothing.sql", NULL});
    sql_run("made.db", lines);
    return error;
}

/* The rows of a query, as CSV without its head. */
static void expect_rows(const char *path, const char *sql, const char *expected)
{
    struct command_outcome outcome = command_run("query", "--csv", "--no-header", path, sql, NULL);
    if (outcome.status != 0 || strcmp(outcome.out, expected) != 0) {
        fail_msg("%s: %s%s, expected %s", sql, outcome.out, outcome.err, expected);
    }
    command_outcome_free(&outcome);
}

TEST(test_score)
{
    expect_rows(
        "made.db",
        "SELECT user_function, pattern, by_bytes, score > 0.8, score < 0.2 FROM leak_line ORDER BY user_function",
        "buffer,growing,1,0,0\ncache,stopped,0,0,1\nlate,growing,0,1,0\nleak,growing,0,1,0\nqueue,mixed,0,0,1\n"
        "replaced,growing,0,0,1\ntable,early,0,0,1\n");
}

/* The views against their definitions over the allocations themselves; a line's time begins with its first. */
TEST(test_series)
{
    expect_rows(
        "made.db",
        "SELECT count(*) FROM leak_line l JOIN callsite c ON c.user_symbol_id = l.user_symbol_id WHERE "
        "l.live_allocations <>"
        " (SELECT count(*) FROM allocation a WHERE a.callsite_id = c.id AND a.alloc_ns <= iif(a.process_id = 1, "
        "900000000, 1e18)"
        "  AND (a.free_ns IS NULL OR a.free_ns > iif(a.process_id = 1, 900000000, 1e18)))"
        " OR l.live_5 <> (SELECT count(*) FROM allocation a JOIN (SELECT callsite_id AS of, (min(alloc_ns)"
        "    + iif(process_id = 1, 900000000, 1000000000)) / 2 AS half FROM allocation GROUP BY 1)"
        "  ON of = a.callsite_id WHERE a.callsite_id = c.id AND a.alloc_ns < half AND coalesce(a.free_ns >= half, 1))",
        "0\n");
}

TEST(test_moments)
{
    EXPECT(0, "leaks --at=exit-of-main --top=100 made.db", "when main() returned or exit() began", "leak  a.c:1");
    EXPECT(0, "leaks --at=end --top=100 made.db",
           "live at the end of each process; 1 process image was replaced by exec", "leak  a.c:1");
    EXPECT(0, "leaks --at=500ms --top=100 made.db", "live 500 ms after the start", "261 allocations live");
    EXPECT(0, "leaks --from=800ms --top=100 made.db",
           "allocated later than 800 ms after the start and live when main()", "59 allocations live");
    EXPECT(0, "leaks --pid=11 --all --top=100 made.db", "replaced by exec", "replaced  a.c:6");
    /* both make views anew */
    EXPECT(0, "leaks --hide leak --at=500ms --top=100 made.db", "261 allocations live");
}

/* ---- storages ---- */

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

static void expect(const char *expected)
{
    expect_rows("t.db", "SELECT storage_id, kind, round(score, 3) FROM storage_leak ORDER BY storage_id", expected);
}

RULE(test_exit)
{
    for (int process = 1; process <= 5; process++) {
        storage(process, process, "", "");
        storage(process, 10 + process, ", destroy_seq, destroy_ns", ", 500, 500");
        view(process, 20 + process, process, 1000);
    }
    expect("1,alive at the end,0.9\n");
    expect_rows("t.db", "SELECT id FROM storage_kept ORDER BY id", "2\n3\n4\n5\n");
    expect_rows("t.db", "SELECT evidence FROM storage_leak",
                "not released before the process exited; nothing was copied into it or out of it\n");
    sql_run("t.db", "UPDATE storage SET reads = 1, last_use_ns = 5 WHERE id = 1");
    expect_rows("t.db", "SELECT evidence FROM storage_leak", "not released before the process exited\n");
}

RULE(test_told)
{
    told(2, 1, LEAK_CYCLE);
    told(2, 2, LEAK_UNTOUCHED);
    told(2, 3, "0");
    told(1, 4, LEAK_CYCLE);
    told(1, 5, LEAK_UNTOUCHED);
    expect("1,cycle,1.0\n2,untouched,0.5\n3,alive at the end,0.9\n4,cycle,1.0\n5,untouched,0.9\n");
    expect_rows("t.db", "SELECT evidence FROM storage_leak WHERE storage_id = 3",
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
    expect_rows("t.db", "SELECT evidence FROM storage_leak WHERE storage_id = 1",
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
    expect_rows(
        "t.db",
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
    expect_rows("t.db", "SELECT DISTINCT evidence FROM storage_leak",
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
    expect_rows("t.db", "SELECT mark_id, callsite_id, storages, left_over FROM storage_growth ORDER BY 1, 2",
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
    expect_rows("t.db", "SELECT DISTINCT evidence FROM storage_leak WHERE kind = 'growth'",
                "one of 8 of this call site that the tracker found\n");
}

/* A process may be gone from a damaged database; codes may be unknown. */
RULE(test_damage)
{
    storage(9, 1, ", dtype, base_id, allocation_id", ", 99, 77, 78");
    told(9, 2, "255");
    expect("2,alive at the end,0.9\n");
    expect_rows("t.db", "SELECT id, kind, dtype, segment_id, is_alive FROM storages ORDER BY id",
                "1,storage,,,1\n2,storage,,,1\n");
}

RULE(test_selection)
{
    storage(1, 1, "", "");
    told(2, 2, LEAK_CYCLE);
    EXPECT(0, "leaks --domain storage --pid 102 --csv t.db", ",cycle,1.000,1,1000,", "!alive at the end");
}

TEST_FILE(setup, test_folder_teardown)
