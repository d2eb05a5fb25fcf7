/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve check`: each limit holds at the figure that SQL gives and is broken one below it, the exit status says which,
 * and every form of the answer says the same.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Twelve lines of a process of 1000 ms, of which each leaks 16 bytes in each step of its own, 75 of them. */
static const char leaking[] =
    "INSERT INTO process(id, pid, start_ns, end_ns, end_cause) VALUES (1, 10, 0, 1000000000, 'exit');"
    "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 1, 10, 10);"
    "CREATE TEMP TABLE step AS WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 899) SELECT "
    "i FROM s;"
    "INSERT INTO symbol(id, function, file, line, is_python, is_inlined, user_rank) SELECT i + 1, 'leaks_' || (i + 1), "
    "'a.c', i + 1, 0, 0, 4 FROM step WHERE i < 12;"
    "INSERT INTO stack_node(id, symbol_id, pc) SELECT id, id, id FROM symbol;"
    "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) SELECT id, id, 1, id, id FROM symbol;"
    "INSERT INTO allocation(domain, pid, tid, addr, size, requested, alloc_seq, alloc_ns, callsite_id, process_id, "
    "temporary) SELECT 1, 10, 10, (i + 1) * 4096, 16, 16, i + 1, i * 1000000, i % 12 + 1, 1, 0 FROM step;"
    "INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, "
    "peak_bytes, temporary, lifetime_ns) SELECT callsite_id, count(*), 0, sum(size), count(*), sum(size), 0, 0, 0, 0 "
    "FROM allocation GROUP BY callsite_id;"
    "INSERT INTO total_stat SELECT p.id, 1, -1, 900, 0, 14400, 900, 14400, 14400, 900, 900, 899000000, 0, 0 "
    "FROM (SELECT 0 AS id UNION ALL SELECT 1) p;";

static int64_t figure(const char *path, const char *sql)
{
    char line[500];
    snprintf(line, sizeof(line), "query --no-header --csv %s `%s`", path, sql);
    char *text = command_answer(line);
    const int64_t number = strtoll(text, NULL, 10);
    free(text);
    assert_true(number > 0);
    return number;
}

static void expect_edge(const char *option, const char *domain, const char *sql, const char *words)
{
    const int64_t most = figure("small.db", sql);
    char line[200];
    snprintf(line, sizeof(line), "check --domain %s %s %" PRId64 " small.db", domain, option, most);
    EXPECT(0, line, "ok", words, "!broken");
    snprintf(line, sizeof(line), "check --quiet --domain %s %s %" PRId64 " small.db", domain, option, most);
    EXPECT(0, line, "!ok");
    snprintf(line, sizeof(line), "check --domain %s %s %" PRId64 " small.db", domain, option, most - 1);
    EXPECT(1, line, "broken", words, "most by", "!ok ");
}

TEST_WITH(test_figures, test_folder_small_setup, test_folder_teardown)
{
    expect_edge("--peak", "heap", "SELECT sum(peak_bytes) FROM total WHERE domain = 'heap'", "peak (heap)");
    expect_edge("--peak", "mmap", "SELECT sum(peak_bytes) FROM total WHERE domain = 'mmap'", "peak (mmap)");
    expect_edge("--live", "heap", "SELECT sum(live_bytes) FROM total WHERE domain = 'heap'", "live at the end (heap)");
    expect_edge("--allocated", "heap", "SELECT sum(bytes) FROM total WHERE domain = 'heap'", "allocated (heap)");
    expect_edge("--allocations", "heap", "SELECT sum(allocations) FROM total WHERE domain = 'heap'",
                "allocations (heap)");
    EXPECT(1, "check --peak 1 --allocations 1000000 small.db", "broken", "peak", "ok", "allocations");
}

/* Without a domain it is what the program has of this machine's memory, and the line that of either with more. */
TEST_WITH(test_both, test_folder_small_setup, test_folder_teardown)
{
    sql_run("small.db", "INSERT INTO host_peak VALUES (70000000, 69000000, 1000000, 5, 5000)");
    EXPECT(0, "check --peak 70000000 small.db", "ok      peak (heap + mmap): 66.8 MiB");
    EXPECT(1, "check --peak 69999999 small.db", "broken  peak (heap + mmap): 66.8 MiB", "most by map_weights");
    const int64_t live = figure("small.db", "SELECT sum(live_bytes) FROM total WHERE domain IN ('heap', 'mmap')");
    char line[100];
    snprintf(line, sizeof(line), "check --live %" PRId64 " small.db", live);
    EXPECT(0, line, "ok      live at the end (heap + mmap)");
    snprintf(line, sizeof(line), "check --live %" PRId64 " small.db", live - 1);
    EXPECT(1, line, "broken  live at the end (heap + mmap)", "most by");
    EXPECT(0, "check --leak-score 0 small.db", "leak (heap)");
    EXPECT(0, "check --against small.db --growth 0 small.db", "peak (heap + mmap)", "!broken");
    EXPECT(1, "check --peak 1 -d mmap small.db", "peak (mmap)", "!heap");
}

/* Of a recording without a heap it is what the other commands are about. */
TEST_WITH(test_without_heap, test_folder_setup, test_folder_teardown)
{
    trace_database_make("gpu.db", (const char *const[]){"gpu.sql", NULL});
    EXPECT(0, "check --peak 1000G --leak-score 1 gpu.db", "ok      peak (block): ", "leak (block)", "!heap");
    EXPECT(1, "check --peak 1 gpu.db", "broken  peak (block): ");
}

/* Ten of the twelve are named; and at the highest score none is above. */
TEST_WITH(test_leaks, test_folder_small_setup, test_folder_teardown)
{
    EXPECT(0, "check --leak-score 0 small.db", "ok", "leak (heap): score 0.00, limit 0.00");
    trace_database_make("leaks.db", (const char *const[]){"nothing.sql", NULL});
    sql_run("leaks.db", leaking);
    EXPECT(1, "check --leak-score 0.5 leaks.db", "broken  leak (heap): score", "leaks_1", "1.17 KiB in 75 allocations",
           "2 more lines have a score");
    char line[100];
    snprintf(line, sizeof(line), "check --leak-score %.2f leaks.db",
             (double)figure("leaks.db", "SELECT round(100 * max(score)) FROM leak_line") / 100);
    EXPECT(0, line, "ok", "leak (heap)", "!broken");
}

/* Beside itself nothing grows; beside one that has a tenth less of each it is 11.1 %, and what is live at the end, of
 * which that has nothing, 28 % of its peak. */
TEST_WITH(test_growth, test_folder_small_setup, test_folder_teardown)
{
    EXPECT(0, "check --against small.db --growth 0 small.db", "ok", "peak", "live at the end", "allocated",
           "allocations", "!broken");
    trace_database_make("less.db", (const char *const[]){"small.sql", NULL});
    sql_run("less.db", "UPDATE total_stat SET peak_bytes = peak_bytes * 9 / 10, bytes = bytes * 9 / 10, "
                       "allocations = allocations * 9 / 10, live_bytes = 0");
    EXPECT(1, "check --against less.db --growth 11% small.db", "broken", "peak", "in less.db", "broken", "allocated");
    EXPECT(0, "check --against less.db --growth 30 --quiet small.db", "!broken");
}

TEST_WITH(test_forms, test_folder_small_setup, test_folder_teardown)
{
    EXPECT(1, "check --peak 1 --allocated 1G --junit j.xml --github small.db", "broken", "::error ",
           "title=varve check: peak::peak (heap)", "!title=varve check: allocated");
    char *xml = file_read("j.xml", NULL);
    assert_int_equal(text_count(xml, "<testcase "), 2);
    assert_int_equal(text_count(xml, "<failure message=\"peak (heap)"), 1);
    assert_non_null(strstr(xml, "tests=\"2\" failures=\"1\""));
    free(xml);
    EXPECT(1, "check --peak 1 --json small.db", "\"holds\":false", "\"limit\":\"peak\"", "\"most\":1,");
    EXPECT(0, "check --peak 1G --json small.db", "\"holds\":true");
}

TEST_WITH(test_refusals, test_folder_small_setup, test_folder_teardown)
{
    EXPECT(2, "check small.db", "no limit was given");
    EXPECT(2, "check --peak much small.db", "--peak must be bytes");
    EXPECT(2, "check --leak-score 1.01 small.db", "--leak-score wants a number");
    EXPECT(2, "check --leak-score 0.5x small.db", "--leak-score wants a number");
    EXPECT(2, "check --leak-score nan small.db", "--leak-score wants a number");
    EXPECT(2, "check --growth 5% --peak 1 small.db", "--growth goes with --against");
    EXPECT(2, "check --against small.db --growth -5% small.db", "--growth wants a percentage");
    EXPECT(2, "check --against none.db small.db", "none.db: no such file");
    EXPECT(2, "check --peak 1 --junit small.db small.db", "would be lost");
    EXPECT(2, "check --peak 1 --github --json small.db", "mutually exclusive");
    EXPECT(2, "check --peak 1 --domain nothing small.db", "--domain must be one of");
}
