/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff --events` on one trace made by hand and on copies of it with one change each: what must be equal, what
 * must not, and what is said of it. Random changes are those of test_command_diff_random.c.
 * Costs: 3 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two processes of one pid, three rings, 300 events in turn: event `seq` is number (seq + 2) / 3 of its ring.
 * Rounds of five: an allocation, its free, a mapping, a block, a split. */
static const char base_sql[] =
    "INSERT INTO meta VALUES ('complete', 1), ('trace_id', 4711);"
    "INSERT INTO process(id, pid, parent_pid, executable, command_line) VALUES"
    "    (1, 500, 499, '/bin/first', 'first one'), (2, 500, 1, '/bin/second', 'second');"
    "INSERT INTO thread(id, process_id, ring, pid, tid, name, emitted, stored) VALUES"
    "    (1, 1, 1, 500, 500, NULL, 100, 100), (2, 1, 2, 500, 501, 'worker', 100, 100),"
    "    (3, 2, 1, 500, 500, NULL, 100, 100);"
    "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES"
    "    (1, 'main', 'analysis/cli/main.c', 12, '/bin/first', 0, 0), (2, 'load', 'load.c', 7, '/bin/first', 0, 0),"
    "    (3, 'parse', 'load.c', 40, '/bin/first', 0, 1), (4, 'train', 'train.py', 5, NULL, 1, 0),"
    "    (5, NULL, NULL, NULL, '/lib/x.so', 0, 0);"
    "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 1, 32), (2, 1, 2, 64), (3, 1, 2, 70),"
    "    (4, 3, 3, 72), (5, NULL, 4, NULL), (6, NULL, 1, 33), (7, 6, 5, 9);"
    "INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES (1, 2, 2, 2), (2, 4, 3, 3), (3, 5, 1, 4), (4, 7, 2, 5);"
    "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 300),"
    "    e AS (SELECT seq, (seq + 2) / 3 AS number, (seq - 1) % 3 + 1 AS ring,"
    "        CASE (seq - 1) / 3 % 5 WHEN 0 THEN 32 WHEN 1 THEN 33 WHEN 2 THEN 35 WHEN 3 THEN 1 ELSE 4 END AS "
    "kind FROM n)"
    "INSERT INTO event(seq, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size, requested, "
    "arg,"
    "    cause, callsite_id, thread_id, flags, ring_seq)"
    "    SELECT seq, seq * 1000, 500, CASE ring WHEN 2 THEN 501 ELSE 500 END, CASE WHEN kind < 16 THEN 0 END,"
    "        CASE WHEN kind < 16 THEN seq END, kind, CASE WHEN kind < 16 THEN 1 END, CASE WHEN kind < 16 "
    "THEN 2 END,"
    "        CASE kind WHEN 33 THEN seq - 3 WHEN 4 THEN ring ELSE seq END, 1048576 + seq * 64,"
    "        CASE kind WHEN 33 THEN 64 + seq - 3 ELSE 64 + seq END, CASE WHEN kind <> 33 THEN 64 END,"
    "        CASE WHEN kind <> 33 THEN 0 END, CASE kind WHEN 33 THEN 25 WHEN 32 THEN 16 ELSE 0 END, 1 + "
    "number % 4,"
    "        ring, 0, number FROM e;";

static char *base;
static size_t base_bytes;

/* a.db is the trace; b.db becomes the same with `sql`. */
static void copy_make(const char *sql)
{
    file_write("b.db", base, base_bytes);
    if (sql != NULL) {
        sql_run("b.db", sql);
    }
}

/* What `varve diff --events OPTION a.db b.db` says of a copy with `sql`, in any order. */
static void expect(const char *sql, const char *option, int status, const char *const *words)
{
    copy_make(sql);
    struct command_outcome outcome = command_run("diff", "--events", option, "a.db", "b.db", NULL);
    for (; *words != NULL; words++) {
        if (strstr(outcome.out, *words) == NULL && strstr(outcome.err, *words) == NULL) {
            fail_msg("%s: no '%s' in: %s%s", sql, *words, outcome.out, outcome.err);
        }
    }
    command_expect(status, outcome, sql != NULL ? sql : "(a copy)", words);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EXPECT_TEXT(status, sql, ...) expect(sql, "--limit=20", status, WORDS(__VA_ARGS__))
#define EXPECT_JSON(status, sql, ...) expect(sql, "--json", status, WORDS(__VA_ARGS__))

static int enter(void **state)
{
    *state = test_folder_enter();
    trace_database_make("a.db", WORDS(NULL));
    sql_run("a.db", base_sql);
    base = file_read("a.db", &base_bytes);
    return 0;
}

static int leave(void **state)
{
    free(base);
    test_folder_leave(*state);
    return 0;
}

/* ---- equal ---- */

TEST(test_equal)
{
    EXPECT(0, "diff --events a.db a.db", "equal: 300 events in 3 rings\n", "nothing lost");
    EXPECT_TEXT(0, NULL, "equal: 300 events in 3 rings\n");
    EXPECT_JSON(0, NULL, "{\"equal\":true,\"run\":\"same\",",
                "\"in_both\":300,\"only_in_a\":0,\"only_in_b\":0,\"differing\":0",
                "{\"kind\":\"split\",\"in_both\":60,", "\"fields\":{}", "\"differences_all\":0,\"differences\":[]",
                "\"tables_all\":0,\"tables\":[]");
    expect(NULL, "--quiet", 0, WORDS(NULL));
}

/* Rows in another order, rings and tables numbered otherwise: the same trace. */
TEST(test_renumbered)
{
    /* one ring after the other, the last one first */
    EXPECT_JSON(0,
                "CREATE TEMP TABLE t AS SELECT row_number() OVER (ORDER BY thread_id DESC, seq) AS place, * "
                "FROM event;"
                "DELETE FROM event; UPDATE t SET seq = place; ALTER TABLE t DROP COLUMN place; "
                "INSERT INTO event SELECT * FROM t",
                "\"equal\":true", "\"in_both\":300");
    EXPECT_JSON(0, "UPDATE thread SET id = 50 - id; UPDATE event SET thread_id = 50 - thread_id", "\"equal\":true");
    EXPECT_JSON(0, "UPDATE event SET id = 100000 - id WHERE kind <> 4; UPDATE event SET id = 7 - id WHERE kind = 4",
                "\"equal\":true");
    EXPECT_JSON(0, "UPDATE event SET callsite_id = 14 - callsite_id; UPDATE callsite SET id = 14 - id",
                "\"equal\":true", "\"callsites\":4,\"callsites_differing\":0");
    EXPECT_JSON(0, "UPDATE symbol SET id = 90 - id; UPDATE stack_node SET symbol_id = 90 - symbol_id",
                "\"equal\":true");
    /* nodes in another order, with gaps, and with what could be shared there twice */
    EXPECT_JSON(
        0,
        "DELETE FROM stack_node; INSERT INTO stack_node VALUES (3, NULL, 1, 33), (4, NULL, 4, NULL), (9, 3, 5, 9),"
        " (10, NULL, 1, 32), (11, NULL, 1, 32), (20, 11, 2, 70), (21, 10, 2, 64), (30, 20, 3, 72);"
        "UPDATE callsite SET node_id = CASE id WHEN 1 THEN 21 WHEN 2 THEN 30 WHEN 3 THEN 4 ELSE 9 END",
        "\"equal\":true", "\"callsites_differing\":0");
    EXPECT_JSON(0,
                "INSERT INTO symbol SELECT 9, function, file, line, module, is_python, is_inlined, user_rank FROM "
                "symbol WHERE id = 1;"
                "INSERT INTO stack_node VALUES (8, NULL, 9, 32), (9, 8, 2, 70), (10, 9, 3, 72);"
                "UPDATE callsite SET node_id = 10 WHERE id = 2",
                "\"equal\":true");
}

/* ---- missing events ---- */

TEST(test_missing)
{
    EXPECT_TEXT(1, "DELETE FROM event WHERE thread_id = 1 AND ring_seq = 1",
                "differ: 1 event only in A, 0 only in B; of 299",
                "1 difference\n  process 1 ring 1: 1 only in A (heap_alloc)\n");
    EXPECT_TEXT(1, "DELETE FROM event WHERE thread_id = 3 AND ring_seq BETWEEN 40 AND 60",
                "differ: 21 events only in A, 0 only in B; of 279 in both 0 differ\n",
                "  process 2 ring 1: 40 to 60 only in A (21 events: split 5, heap_alloc 4, heap_free 4, mmap 4,\n"
                "      alloc 4)\n");
    EXPECT_TEXT(1, "DELETE FROM event WHERE thread_id = 2 AND ring_seq >= 99",
                "  process 1 ring 2: 99 to 100 only in A (2 events: alloc 1, split 1)\n");
    EXPECT_TEXT(1, "DELETE FROM event WHERE thread_id = 2", "100 events only in A",
                "process 1 ring 2: 1 to 100 only in A");
    EXPECT_JSON(1,
                "DELETE FROM event WHERE thread_id = 1 AND ring_seq BETWEEN 5 AND 7 OR thread_id = 2 AND ring_seq IN "
                "(5, 7, 8)",
                "\"in_both\":294,\"only_in_a\":6,", "\"differences_all\":3",
                "{\"what\":\"only_in_a\",\"process_id\":1,\"ring\":1,\"first\":5,\"last\":7,\"seq\":13,",
                "\"kinds\":{\"split\":1,\"heap_alloc\":1,\"heap_free\":1}}",
                "\"ring\":2,\"first\":5,\"last\":5,\"seq\":14", "\"ring\":2,\"first\":7,\"last\":8,\"seq\":20");
    /* the other way round */
    EXPECT(1, "diff --events --json b.db a.db", "\"only_in_a\":0,\"only_in_b\":6,",
           "\"what\":\"only_in_b\",\"process_id\":1,\"ring\":1,\"first\":5,\"last\":7");
    expect("DELETE FROM event WHERE seq = 300", "--quiet", 1, WORDS(NULL));
    /* an event of one ring emitted as that of another */
    EXPECT_JSON(1, "UPDATE event SET thread_id = 3 WHERE seq = 298; DELETE FROM event WHERE seq = 300",
                "\"only_in_a\":1,\"only_in_b\":0,\"differing\":1");
}

/* What was missing has rows without a number: counted, never compared. */
TEST(test_gap_rows)
{
    EXPECT_TEXT(
        1,
        "DELETE FROM event WHERE thread_id = 1 AND ring_seq BETWEEN 10 AND 15;"
        "INSERT INTO event(seq, ts_ns, pid, tid, kind, arg, thread_id, flags) VALUES (999, 9, 500, "
        "500, 53, 6, 1, 0)",
        "process 1 ring 1: 10 to 15 only in A (6 events:", "1 row without a number stands for 6 missing events\n");
    EXPECT_JSON(0,
                "INSERT INTO event(seq, ts_ns, pid, tid, kind, arg, thread_id, flags) VALUES (999, 9, 500, "
                "500, 53, 6, 1, 0)",
                "\"equal\":true", "\"gap_rows\":1,\"gap_events\":6");
    EXPECT_JSON(1,
                "INSERT INTO event(seq, ts_ns, pid, tid, kind, arg, thread_id, flags, ring_seq) "
                "VALUES (999, 9, 500, 500, 53, 6, 1, 0, 101)",
                "\"lost_rows\":1,\"lost_events\":6,\"gap_rows\":0", "\"only_in_b\":1", "{\"lost\":1}");
    EXPECT_TEXT(0,
                "INSERT INTO stats VALUES ('ring_lost', 2, 'data_loss', 'lttng', 12); "
                "INSERT INTO stats VALUES ('other', 2, 'data_loss', 'lttng', 0)",
                "equal: 300", "DATA LOSS", "ring_lost 12 (lttng, 1 entry of data_loss)");
}

/* ---- fields ---- */

TEST(test_fields)
{
    EXPECT_JSON(1, "UPDATE event SET addr = addr + 1 WHERE seq = 85",
                "\"in_both\":300,\"only_in_a\":0,\"only_in_b\":0,\"differing\":1", "\"fields\":{\"addr\":1}",
                "\"process_id\":1,\"ring\":1,\"first\":29,\"last\":29,\"kind\":\"alloc\",\"seq_a\":85,\"seq_b\":85");
    /* NULL is no number */
    EXPECT_JSON(1, "UPDATE event SET device = 0 WHERE seq = 1", "[{\"field\":\"device\",\"a\":null,\"b\":0}]");
    EXPECT_JSON(1, "UPDATE event SET arg = NULL WHERE seq = 1", "[{\"field\":\"arg\",\"a\":0,\"b\":null}]");
    EXPECT_JSON(1, "UPDATE event SET id = NULL WHERE seq = 1", "\"field\":\"id\",\"a\":1,\"b\":null");
    EXPECT_JSON(1, "UPDATE event SET kind = 36, cause = 27 WHERE seq = 4", "\"fields\":{\"kind\":1,\"cause\":1}",
                "{\"field\":\"kind\",\"a\":\"heap_free\",\"b\":\"munmap\"},{\"field\":\"cause\",\"a\":"
                "\"free\",\"b\":\"munmap\"}");
    EXPECT_JSON(1, "UPDATE event SET ts_ns = ts_ns + 5", "\"differing\":300", "\"fields\":{\"ts_ns\":300}",
                "\"differences_all\":300");
    EXPECT_TEXT(1, "UPDATE event SET addr = 1048577, size = NULL, flags = 5, cause = 17, kind = 99 WHERE seq = 1",
                "differ: 0 events only in A, 0 only in B; of 300 in both 1 differs\n",
                "  process 1 ring 1: 1 heap_alloc differs (row 1 in A, 1 in B)\n", "    kind   heap_alloc  99\n",
                "    addr   0x100040    0x100001", "    size   65          NULL", "    cause  malloc      calloc",
                "    flags  0           5 failed late");
}

TEST(test_ids)
{
    /* two allocations of one ring, seq 1 and 16, change places, without their frees (4 and 19) and with
     * them */
    EXPECT_JSON(1, "UPDATE event SET id = 17 - id WHERE seq IN (1, 16)", "\"fields\":{\"id\":2}",
                "\"seq_a\":4,\"seq_b\":4",
                "[{\"field\":\"id\",\"a\":1,\"b\":1,\"a_belongs_to\":16,\"b_belongs_to\":null}]",
                "[{\"field\":\"id\",\"a\":16,\"b\":16,\"a_belongs_to\":1,\"b_belongs_to\":1}]");
    EXPECT_JSON(0, "UPDATE event SET id = 17 - id WHERE seq IN (1, 16, 4, 19)", "\"equal\":true");
    /* two allocations become one, one becomes two */
    EXPECT_TEXT(1, "UPDATE event SET id = 1 WHERE seq IN (16, 19)", "id                     2\n",
                "    id  16  1  (1 in B was 1 in A before)\n");
    EXPECT_TEXT(1, "UPDATE event SET id = 4000 WHERE seq = 4", "    id  1  4000  (1 in A was 1 in B before)\n");
    /* segments are numbered apart from allocations */
    EXPECT_JSON(0, "UPDATE event SET id = 17 WHERE kind = 4 AND id = 1", "\"equal\":true");
    EXPECT_JSON(1, "UPDATE event SET id = 2 WHERE kind = 4 AND id = 1", "\"fields\":{\"id\":20}");
    EXPECT_JSON(1, "UPDATE event SET id = -5 WHERE seq = 7", "\"fields\":{\"id\":1}");
    EXPECT_JSON(1, "UPDATE event SET id = 9000000000000000000 WHERE seq = 7", "\"fields\":{\"id\":1}");
    EXPECT_JSON(1, "UPDATE event SET kind = 17, id = 2 WHERE seq = 1", "\"fields\":{\"kind\":1,\"id\":1}");
}

/* Ids of other kinds are the program's own: no renumbering makes them equal. */
TEST(test_own_ids)
{
    copy_make("UPDATE event SET kind = 17 WHERE kind = 35");
    assert_int_equal(rename("b.db", "c.db"), 0);
    copy_make("UPDATE event SET kind = 17, id = id + 1000 WHERE kind = 35");
    EXPECT(1, "diff --events --json c.db b.db", "\"fields\":{\"id\":60}");
}

TEST(test_callsites)
{
    EXPECT_JSON(1, "UPDATE event SET callsite_id = 3 WHERE seq = 1", "\"fields\":{\"frames\":1}");
    EXPECT_JSON(1, "UPDATE event SET callsite_id = 3 WHERE seq = 97", "\"fields\":{\"callsite_id\":1,\"frames\":1}",
                "{\"field\":\"callsite_id\",\"a\":2,\"b\":3,\"a_belongs_to\":2,\"b_belongs_to\":3}");
    /* a second call site with the same frames */
    EXPECT_JSON(1,
                "INSERT INTO callsite(id, node_id, depth) SELECT 5, node_id, depth FROM callsite WHERE id = 2;"
                "UPDATE event SET callsite_id = 5 WHERE seq = 97",
                "\"fields\":{\"callsite_id\":1}",
                "{\"field\":\"callsite_id\",\"a\":2,\"b\":5,\"a_belongs_to\":2,\"b_belongs_to\":null}");
    EXPECT_JSON(1, "UPDATE event SET callsite_id = 0 WHERE seq = 30", "\"fields\":{\"callsite_id\":1}");
    EXPECT_JSON(1, "UPDATE event SET callsite_id = NULL WHERE seq = 30", "\"fields\":{\"callsite_id\":1}");
    EXPECT_TEXT(1, "UPDATE symbol SET line = 13 WHERE id = 1", "frames                225\n",
                "(3 call sites with other frames, 1 with the same)", "    frame 2 line  12  13\n");
    EXPECT_TEXT(1, "UPDATE stack_node SET pc = 65 WHERE id = 2", "    frame 0 pc  0x40  0x41");
    EXPECT_TEXT(1, "UPDATE stack_node SET parent_id = NULL WHERE id = 3", "    frames  3  2");
    EXPECT_TEXT(1, "UPDATE callsite SET node_id = NULL WHERE id = 3", "    frames  1  0");
    EXPECT_TEXT(1, "UPDATE symbol SET function = '' WHERE id = 5", "    frame 0 function  NULL");
    EXPECT_TEXT(1, "UPDATE symbol SET file = 'other.py', is_python = 0 WHERE id = 4",
                "    frame 0 file       train.py  other.py", "    frame 0 is_python  1         0");
    EXPECT_TEXT(1, "UPDATE symbol SET is_inlined = 0 WHERE id = 3", "    frame 0 is_inlined  1  0");
    EXPECT_TEXT(1, "UPDATE symbol SET module = '/bin/second' WHERE id = 3",
                "    frame 0 module  /bin/first  /bin/second");
    EXPECT_JSON(1, "UPDATE symbol SET line = 6 WHERE id = 4",
                "{\"field\":\"frames\",\"a\":[{\"depth\":0,\"function\":\"train\",\"file\":\"train.py\",\"line\":5,",
                "\"b\":[{\"depth\":0,\"function\":\"train\",\"file\":\"train.py\",\"line\":6,",
                "\"fields\":{\"frames\":75}", "\"callsites\":3,\"callsites_differing\":1");
}

/* ---- what cannot be compared ---- */

TEST(test_unkeyed)
{
    EXPECT_TEXT(1, "UPDATE event SET ring_seq = NULL WHERE seq = 10", "1 could not be compared\n",
                "differ: 1 event only in A", "1 not compared: they have no number (ring_seq is NULL)");
    EXPECT_TEXT(1, "UPDATE event SET thread_id = 44 WHERE seq IN (10, 11)",
                "2 not compared: the table thread has no row for them");
    EXPECT_TEXT(1, "UPDATE event SET ring_seq = 2 WHERE seq IN (10, 16)",
                "2 not compared: their numbers do not grow with seq");
    EXPECT_TEXT(1, "UPDATE event SET ring_seq = -ring_seq", "300 not compared: their numbers do not grow");
    EXPECT_JSON(1,
                "CREATE TEMP TABLE t AS SELECT * FROM event WHERE seq = 300; UPDATE t SET seq = 900;"
                "INSERT INTO event SELECT * FROM t",
                "\"out_of_order\":1", "\"differences_all\":0", "\"equal\":false");
}

TEST(test_tables)
{
    static const char sql[] =
        "UPDATE process SET rank = 3, command_line = NULL WHERE id = 2; DELETE FROM process WHERE id = 1;"
        "UPDATE thread SET lost = 8, name = 'x' WHERE id = 2;"
        "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (9, 7, 1, 77, 78)";
    EXPECT_TEXT(0, sql, "equal: 300 events in 3 rings",
                "6 differences of processes and threads (no part of the verdict without --tables)",
                "  process 1 (pid 500): only in A\n", "  process 2: rank NULL in A, 3 in B\n",
                "  process 2: command_line second in A, NULL in B\n", "  process 1 ring 2: name worker in A, x in B\n",
                "  process 1 ring 2: lost 0 in A, 8 in B\n", "  process 7 ring 1 (pid 77): only in B\n");
    expect(sql, "--tables", 1, WORDS("differ: 0 events", "        processes and threads differ\n"));
    EXPECT_JSON(0, sql, "\"with_tables\":false,\"tables_all\":6",
                "{\"table\":\"process\",\"process_id\":1,\"ring\":null,\"only_in\":\"a\"}",
                "{\"table\":\"thread\",\"process_id\":1,\"ring\":2,\"column\":\"lost\",\"a\":\"0\",\"b\":\"8\"}");
    expect(sql, "--limit=1", 0, WORDS("6 differences of processes and threads, the first 1"));
    EXPECT_TEXT(0,
                "UPDATE process SET command_line = 'a rather long command line that does not fit into a line "
                "with the other one "
                "beside it' WHERE id = 1",
                "  process 1: command_line\n    A  first one\n    B  a rather long");
    EXPECT_TEXT(0, "UPDATE meta SET value = 4712 WHERE key = 'trace_id'",
                "warning: these are traces of two different runs", "equal:");
    EXPECT_JSON(0, "DELETE FROM meta WHERE key = 'trace_id'", "\"run\":\"unknown\"");
}

TEST(test_limit)
{
    static const char sql[] = "DELETE FROM event WHERE seq % 7 = 0; UPDATE event SET size = size + 1 WHERE seq > 200";
    EXPECT_TEXT(1, sql, "128 differences, the first 20\n");
    expect(sql, "--limit=0", 1, WORDS("128 differences, the first 0\n"));
    expect(sql, "--limit=128", 1, WORDS("128 differences\n"));
}

/* Readable at 100 columns, whatever is in the traces. */
TEST(test_width)
{
    copy_make("UPDATE symbol SET function = replace(hex(zeroblob(100)), '0', 'f'), file = "
              "replace(hex(zeroblob(100)), '0', 'g');"
              "UPDATE process SET executable = replace(hex(zeroblob(100)), '0', '/');"
              "UPDATE event SET ts_ns = 9000000000000000000 + seq, addr = -1, size = 9000000000000000000, id "
              "= 4000000000 + seq % 3;"
              "UPDATE thread SET process_id = 4000000000, ring = 4000000000 WHERE id = 3");
    struct command_outcome outcome = command_run("diff", "--events", "--limit=1000", "a.db", "b.db", NULL);
    assert_int_equal(outcome.status, 1);
    for (const char *line = outcome.out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t columns = 0;
        for (const char *at = line; *at != '\n'; at++) {
            columns += ((unsigned char)*at & 0xc0U) != 0x80U ? 1 : 0;
        }
        if (columns > 100) {
            fail_msg("%zu columns: %.*s", columns, (int)strcspn(line, "\n"), line);
        }
    }
    command_outcome_free(&outcome);
}

/* ---- no answer ---- */

TEST(test_bad_input)
{
    EXPECT_TEXT(2, "PRAGMA user_version = 2", "b.db was written by an older varve", "schema 2");
    EXPECT_TEXT(2, "DELETE FROM meta WHERE key = 'complete'", "cut off");
    EXPECT_TEXT(2, "DROP TABLE stack_node_row", "b.db");
    EXPECT_TEXT(2, "DROP TABLE thread", "b.db");
    EXPECT_TEXT(2, "DROP VIEW data_loss", "b.db");
}

TEST_FILE(enter, leave)
