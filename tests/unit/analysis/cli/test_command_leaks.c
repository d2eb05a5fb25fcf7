/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve leaks`: its moments, and the score of lines that are made by hand: one that leaks in each step, a table made
 * first, a cache that has filled, a queue that swings, a buffer that is made anew ever larger, and what exec replaced.
 * What recordings give is in tests/conformance/test_planted_leaks.py.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

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
    "INSERT INTO callsite_stat(callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, "
    "peak_allocations,"
    "    peak_bytes, temporary, lifetime_ns) SELECT callsite_id, 1, count(*), count(free_ns), sum(size), sum(free_ns "
    "IS NULL),"
    "    sum(iif(free_ns IS NULL, size, 0)), 0, 0, 0, 0 FROM allocation GROUP BY callsite_id";

static int setup(void **state)
{
    int error = test_folder_setup(state);
    trace_database_make("made.db", (const char *const[]){"nothing.sql", NULL});
    sql_run("made.db", lines);
    return error;
}

static void expect_rows(const char *sql, const char *expected)
{
    struct command_outcome outcome = command_run("query", "--csv", "made.db", sql, NULL);
    assert_int_equal(outcome.status, 0);
    assert_string_equal(strchr(outcome.out, '\n') + 1, expected);
    command_outcome_free(&outcome);
}

TEST(test_score)
{
    expect_rows(
        "SELECT user_function, pattern, by_bytes, score > 0.8, score < 0.2 FROM leak_line ORDER BY user_function",
        "buffer,growing,1,0,0\ncache,stopped,0,0,1\nlate,growing,0,1,0\nleak,growing,0,1,0\nqueue,mixed,1,0,1\n"
        "replaced,growing,0,0,1\ntable,early,0,0,1\n");
}

/* The views against their definitions over the allocations themselves. */
TEST(test_series)
{
    expect_rows(
        "SELECT count(*) FROM leak_line l JOIN callsite c ON c.user_symbol_id = l.user_symbol_id WHERE "
        "l.live_allocations <>"
        " (SELECT count(*) FROM allocation a WHERE a.callsite_id = c.id AND a.alloc_ns <= iif(a.process_id = 1, "
        "900000000, 1e18)"
        "  AND (a.free_ns IS NULL OR a.free_ns > iif(a.process_id = 1, 900000000, 1e18)))"
        " OR l.live_5 <> (SELECT count(*) FROM allocation a WHERE a.callsite_id = c.id"
        "  AND a.alloc_ns < iif(a.process_id = 1, 450000000, 500000000)"
        "  AND (a.free_ns IS NULL OR a.free_ns >= iif(a.process_id = 1, 450000000, 500000000)))",
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
    EXPECT(0, "leaks --pid=11 --top=100 made.db", "replaced by exec", "replaced  a.c:6");
    /* both make views anew */
    EXPECT(0, "leaks --hide leak --at=500ms --top=100 made.db", "261 allocations live");
}

TEST_FILE(setup, test_folder_teardown)
