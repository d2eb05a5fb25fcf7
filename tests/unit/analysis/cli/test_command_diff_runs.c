/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff` of two runs, and of two moments of one, made by hand: which lines are the same, what is new, gone, grown
 * and shrunk by each of the figures, the sums of domains and size classes, and limits.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

/* Heap blocks (number of the call site, size, alloc_seq, free_seq): the peak is at event 6 of ten. */
static const char common_sql[] =
    "INSERT INTO meta VALUES ('complete', 1), ('duration_ns', 10000);"
    "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family');"
    "INSERT INTO process(id, pid) VALUES (1, 500);"
    "INSERT INTO thread(id, process_id, ring, pid, tid, emitted, stored) VALUES (1, 1, 1, 500, 500, 10, 10);"
    "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 10) "
    "INSERT INTO event(seq, ts_ns, pid, tid, kind, thread_id, flags, ring_seq) SELECT seq, seq * 1000, 500, 500, 32, "
    "1, 0, "
    "seq FROM n;"
    "CREATE TABLE made(site, size, alloc, freed);";

static const char derive_sql[] =
    "INSERT INTO allocation(domain, pid, tid, addr, size, alloc_seq, free_requested_seq, free_completed_seq, alloc_ns, "
    "callsite_id, process_id) SELECT 1, 500, 500, 4096, size, alloc, freed, freed, alloc * 1000, site, 1 FROM made;"
    "INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes, "
    "peak_allocations, "
    "peak_bytes, temporary, lifetime_ns) SELECT site, count(*), count(freed), sum(size), "
    "count(*) - count(freed), "
    "coalesce(sum(size) FILTER (WHERE freed IS NULL), 0), count(*) FILTER (WHERE alloc <= 6 AND coalesce(freed, 99) "
    "> 6), "
    "coalesce(sum(size) FILTER (WHERE alloc <= 6 AND coalesce(freed, 99) > 6), 0), 0, 0 FROM made GROUP BY site;"
    "INSERT INTO total_stat SELECT p, 1, 0, sum(allocations), sum(frees), sum(bytes), sum(live_allocations), "
    "sum(live_bytes), "
    "sum(peak_bytes), sum(peak_allocations), 6, 6000, 0, 0 FROM callsite_stat, (SELECT 0 AS p UNION SELECT 1) GROUP "
    "BY p;"
    "DROP TABLE made;";

/* Two places, called load and keep, with one caller; other pcs and modules than in B. */
static const char a_sql[] =
    "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES (1, 'main', 'main.c', 12, "
    "'/a', 0, 0),"
    "    (2, 'load', 'load.c', 7, '/a', 0, 0), (3, 'keep', 'keep.c', 8, '/a', 0, 0), (4, 'old', 'old.c', 9, '/a', 0, "
    "0);"
    "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 1, 32), (2, 1, 2, 64), (3, 1, 3, 72), (4, "
    "1, 4, 80);"
    "INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES (1, 2, 2, 2), (2, 3, 2, 3), (3, 4, 2, 4);"
    "INSERT INTO made VALUES (1, 100, 1, NULL), (1, 100, 2, 3), (2, 1000, 4, NULL), (3, 64, 5, 8);";

/* load is two call sites of the same lines, keep shrank, old is gone, fresh is new. */
static const char b_sql[] =
    "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES (11, 'main', 'main.c', 12, "
    "'/b', 0, 0),"
    "    (12, 'load', 'load.c', 7, '/b', 0, 0), (13, 'keep', 'keep.c', 8, '/b', 0, 0), (14, 'fresh', 'new.c', 9, "
    "'/b', 0, 0);"
    "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 11, 3), (2, 1, 12, 6), (3, 1, 12, 7), (4, "
    "1, 13, 8),"
    "    (5, 1, 14, 9);"
    "INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES (5, 2, 2, 12), (6, 3, 2, 12), (7, 4, 2, 13), (8, 5, "
    "2, 14);"
    "INSERT INTO made VALUES (5, 100, 1, NULL), (6, 5000, 2, NULL), (7, 900, 4, NULL), (8, 64, 7, NULL), (8, 64, 8, "
    "NULL);";

static void make(const char *path, const char *sql)
{
    trace_database_make(path, (const char *const[]){NULL});
    sql_run(path, common_sql);
    sql_run(path, sql);
    sql_run(path, derive_sql);
}

static int enter(void **state)
{
    *state = test_folder_enter();
    make("a.db", a_sql);
    make("b.db", b_sql);
    return 0;
}

TEST(test_peak)
{
    EXPECT(0, "diff a.db b.db", "A  a.db", "B  b.db", "heap  at the peak        1.14 KiB  5.86 KiB",
           "heap  allocated          1.23 KiB  5.98 KiB  +4.75 KiB                 4     5      +1\n",
           "heap  live at the end", "heap, at the peak, by line: 0 new, 1 gone, 1 grew, 1 shrank\n",
           "   +4.88 KiB     100 B  4.98 KiB          +1        load  load.c:7\n",
           "      -100 B    1000 B     900 B           0        keep  keep.c:8\n",
           "       -64 B      64 B       0 B          -1  gone  old  old.c:9\n", "size up to",
           "8.00 KiB         0 B  4.88 KiB");
}

TEST(test_other_orders)
{
    EXPECT(0, "diff --metric leaked a.db b.db", "0 new, 0 gone, 1 grew, 0 shrank", "+1        load",
           "noise: 2 lines with fewer than 8 blocks more or less, +28 B in all (--all lists them)");
    EXPECT(0, "diff --metric leaked --all a.db b.db", "1 new, 1 gone, 1 grew, 1 shrank", "+2  new   fresh  new.c:9");
    EXPECT(0, "diff --metric leaked --json a.db b.db", "\"noise\":2,\"noise_bytes\":28,");
    EXPECT(0, "diff --metric=allocated --frames=2 b.db a.db", "  -4.79 KiB",
           "load  load.c:7\n       load  load.c:7  (a)\n       main", "-128 B", "gone  fresh");
    EXPECT(0, "diff --metric=count --top=1 a.db b.db", "heap, allocations, by line: 1 new, 1 gone, 0 grew, 0 shrank\n",
           "+128 B       0 B     128 B          +2  new   fresh", "… 1 more lines (--all has all)",
           "more size classes (--all has all)");
    EXPECT(0, "diff --all --metric=count a.db b.db", "new   fresh", "gone  old", "load", "keep");
    EXPECT(0, "diff a.db a.db", "heap, at the peak, by line: no change");
}

/* Lines are those of the user, whatever allocates within them, and one for all stacks that lead there. */
TEST(test_by)
{
    make("c.db", a_sql);
    make("d.db", a_sql);
    sql_run(
        "d.db",
        "UPDATE symbol SET line = line + 1; UPDATE symbol SET user_rank = 0 WHERE id = 3;"
        "UPDATE callsite SET user_symbol_id = 1 WHERE id = 2; UPDATE symbol SET function = NULL, file = NULL, line = "
        "NULL, "
        "module = '/elsewhere/a' WHERE id = 4");
    EXPECT(0, "diff --by=line c.db d.db", "3 new, 3 gone, 0 grew", "gone  keep  keep.c:8", "new   main  main.c:13",
           "gone  load  load.c:7", "new   load  load.c:8", "new   unresolved code in a", "gone  old  old.c:9");
    EXPECT(0, "diff --by=function c.db d.db", "2 new, 2 gone, 0 grew", "gone  keep  keep.c\n", "new   main  main.c\n");
    EXPECT(0, "diff --by=module c.db d.db", "heap, at the peak, by module: no change");
    EXPECT(0, "diff --by=module --all c.db d.db", "1.14 KiB  1.14 KiB           0        /a\n");
    EXPECT(0, "diff --by=stack a.db b.db", "by stack: 0 new, 1 gone, 1 grew, 1 shrank",
           "load  load.c:7\n       load  load.c:7  (b)\n       main");
    sql_run("d.db", "UPDATE process SET peak_rss_bytes = 2048");
    sql_run("c.db", "UPDATE process SET peak_rss_bytes = 4096");
    EXPECT(0, "diff c.db d.db", "RSS   at its peak        4.00 KiB  2.00 KiB  -2.00 KiB");
}

TEST(test_json)
{
    EXPECT(0, "diff --json a.db b.db", "{\"a\":{\"database\":\"a.db\",\"seq\":null,", "\"rss_peak_bytes\":null,",
           "\"by\":\"line\",\"metric\":\"peak\",\"domains\":[{\"domain\":\"heap\",",
           ("\"a\":{\"bytes\":1264,\"allocations\":4,\"live_bytes\":1100,\"live_allocations\":2,\"peak_bytes\":1164,"
            "\"peak_allocations\":3}"),
           "\"change\":{\"bytes\":4864,", "\"sizes_all\":3,\"sizes\":[{\"size_max\":8192,",
           "\"entries_all\":3,\"new\":0,\"gone\":1,\"grew\":1,\"shrank\":1",
           "{\"state\":\"grew\",\"callsite_a\":1,\"callsite_b\":5,", "\"function\":\"load\"", "\"state\":\"shrank\"",
           "\"state\":\"gone\",\"callsite_a\":3,\"callsite_b\":null");
    EXPECT(0, "diff --json --by=stack a.db b.db", "\"by\":\"stack\"", "\"frames\":[{\"depth\":0");
}

TEST(test_moments)
{
    EXPECT(0, "diff --from=3 --to=9us a.db", "A  a.db, up to event 3 at 3.00 us", "B  a.db, up to event 9 at 9.00 us",
           "allocated", "live ", "heap, live, by line: 1 new, 0 gone",
           "+1000 B       0 B    1000 B          +1  new   keep");
    EXPECT(0, "diff --json --to 6 a.db", "\"seq\":0,", "\"seq\":6,\"ts_ns\":6000", "\"metric\":\"leaked\"",
           "\"peak_bytes\":null", "\"live_bytes\":1164,");
}

TEST_FILE(enter, test_folder_teardown)
