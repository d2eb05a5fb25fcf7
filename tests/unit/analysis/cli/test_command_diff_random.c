/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff --events` on random traces with random changes: its figures against joins in SQL over the events of both.
 * Rows in another order, and rings and allocations that are numbered otherwise, make no difference. What is made of ids
 * and call sites that changed: test_command_diff.c. And in memory that does not grow with what one side lacks: two
 * rings in turn, then one of them lacks nearly half of all events in one piece, which must not wait for anything.
 * Costs: 6 s, full 23 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/query.h"
#include "support/random.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const columns[] = {"ts_ns", "pid",  "tid",  "device",    "dev_seq", "kind",  "stream",
                                      "pool",  "addr", "size", "requested", "arg",     "cause", "flags"};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* Kinds of allocations of the heap and of mappings; in each of four rings the numbers grow, with gaps. */
static const char make_sql[] =
    "INSERT INTO meta VALUES ('complete', 1);"
    "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 0, 1, 1), (2, 1, 1, 1, 1), (3, 2, 0, 1, 1), "
    "(4, 2, 1, 1, 1);"
    "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 40 + below(160)) "
    "INSERT INTO event(seq, ts_ns, pid, tid, device, dev_seq, kind, stream, pool, id, addr, size, requested, arg, "
    "cause, flags, thread_id, ring_seq) "
    "SELECT seq, below(3), below(3), below(3), below(3, NULL), below(3, NULL), 32 + below(5), below(3, NULL), "
    "below(3, NULL), 1 + below(30, NULL), below(3, NULL), below(3, NULL), below(3, NULL), below(3, NULL), below(3), "
    "below(3), 1 + below(4), seq + seq / 20 FROM n;";

/* Each of them, or not. */
static const char *const renumberings[] = {
    "UPDATE event SET id = 100 - id",
    "UPDATE thread SET id = 50 - id; UPDATE event SET thread_id = 50 - thread_id",
    "CREATE TEMP TABLE t AS SELECT row_number() OVER (ORDER BY thread_id DESC, seq) AS place, * FROM event; DELETE "
    "FROM event; "
    "UPDATE t SET seq = place; ALTER TABLE t DROP COLUMN place; INSERT INTO event SELECT * FROM t",
};

/* About the row whose number is in `x`, and for columns one each. */
static const char *const changes[] = {
    "DELETE FROM event WHERE seq BETWEEN (SELECT v FROM x) AND (SELECT v + below(5) FROM x)",
    "UPDATE event SET kind = 32 + below(5) WHERE seq = (SELECT v FROM x)",
    "UPDATE event SET addr = NULL, size = below(3, NULL) WHERE seq = (SELECT v FROM x)",
    "UPDATE event SET ring_seq = NULL WHERE seq = (SELECT v FROM x)",
};

#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static uint64_t seed, random_state;

static void change(sqlite3 *db)
{
    size_t chosen = random_below(&random_state, CHANGES + COLUMNS);
    query_run(db, "DELETE FROM x; INSERT INTO x SELECT 1 + below(200)");
    char sql[200];
    if (chosen < CHANGES) {
        query_run(db, changes[chosen]);
    } else if (strcmp(columns[chosen - CHANGES], "kind") != 0) {
        snprintf(sql, sizeof(sql), "UPDATE event SET %s = below(3) WHERE seq = (SELECT v FROM x)",
                 columns[chosen - CHANGES]);
        query_run(db, sql);
    }
}

/* a.db, and b.db that is the same but for its numbers and for some changes of both. */
static void make_traces(void)
{
    unlink("a.db");
    trace_database_make("a.db", (const char *const[]){NULL});
    sqlite3 *db = query_open_random("a.db", &random_state);

    query_run(db, make_sql);
    sqlite3_close(db);
    size_t bytes;
    char *copy = file_read("a.db", &bytes);

    file_write("b.db", copy, bytes);
    free(copy);
    for (size_t side = 0, count = random_below(&random_state, 3) * random_below(&random_state, 12); side < 2; side++) {
        db = query_open_random(side == 0 ? "a.db" : "b.db", &random_state);
        query_run(db, "CREATE TEMP TABLE x(v)");
        for (size_t i = 0; i < count; i++) {
            change(db);
        }
        for (size_t i = 0; side == 1 && i < sizeof(renumberings) / sizeof(renumberings[0]); i++) {
            if (random_below(&random_state, 2) == 0) {
                query_run(db, renumberings[i]);
            }
        }
        sqlite3_close(db);
    }
}

/* Events by what they are found by, whoever numbers rings. */
static const char views_sql[] =
    "ATTACH 'b.db' AS b;"
    "CREATE TEMP VIEW ka AS SELECT process_id * 10 + ring AS place, e.* FROM main.event e JOIN main.thread t ON t.id "
    "= thread_id "
    "WHERE ring_seq IS NOT NULL;"
    "CREATE TEMP VIEW kb AS SELECT process_id * 10 + ring AS place, e.* FROM b.event e JOIN b.thread t ON t.id = "
    "thread_id "
    "WHERE ring_seq IS NOT NULL;"
    "CREATE TEMP VIEW only_a AS SELECT place, ring_seq FROM ka EXCEPT SELECT place, ring_seq FROM kb;"
    "CREATE TEMP VIEW only_b AS SELECT place, ring_seq FROM kb EXCEPT SELECT place, ring_seq FROM ka;";

#define RUNS(view)                                                                                          \
    "(SELECT count(*) FROM (SELECT DISTINCT place, ring_seq - row_number() OVER (PARTITION BY place ORDER " \
    "BY ring_seq) FROM " view "))"

static void expect_words(const char *out, const char *words)
{
    if (strstr(out, words) == NULL) {
        fail_msg("seed %llu: no %s in %s", (unsigned long long)seed, words, out);
    }
}

/* What the answer has to hold; returns whether the traces are equal. */
static bool expect_answer(sqlite3 *db, const char *out)
{
    char sql[2000] = "SELECT count(*) FROM ka JOIN kb USING (place, ring_seq) WHERE 0", words[600], fields[400] = "";
    int64_t alone[] = {query_integer(db, "SELECT count(*) FROM only_a"),
                       query_integer(db, "SELECT count(*) FROM only_b")};
    int64_t unnumbered[] = {query_integer(db, "SELECT count(*) FROM main.event WHERE ring_seq IS NULL"),
                            query_integer(db, "SELECT count(*) FROM b.event WHERE ring_seq IS NULL")};
    int64_t runs = query_integer(db, "SELECT " RUNS("only_a") " + " RUNS("only_b"));
    for (size_t i = 0; i < COLUMNS; i++) {
        char one[200];
        snprintf(one, sizeof(one), "SELECT count(*) FROM ka JOIN kb USING (place, ring_seq) WHERE ka.%s IS NOT kb.%s",
                 columns[i], columns[i]);
        int64_t count = query_integer(db, one);

        if (count > 0) {
            snprintf(fields + strlen(fields), sizeof(fields) - strlen(fields), "%s\"%s\":%d",
                     fields[0] != '\0' ? "," : "", columns[i], (int)count);
        }
        snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), " OR ka.%s IS NOT kb.%s", columns[i], columns[i]);
    }
    int64_t differing = query_integer(db, sql);

    snprintf(words, sizeof(words), "\"in_both\":%d,\"only_in_a\":%d,\"only_in_b\":%d,\"differing\":%d,",
             (int)query_integer(db, "SELECT count(*) FROM ka JOIN kb USING (place, ring_seq)"), (int)alone[0],
             (int)alone[1], (int)differing);
    expect_words(out, words);
    snprintf(words, sizeof(words), "\"fields\":{%s},", fields);
    expect_words(out, words);
    snprintf(words, sizeof(words), "\"differences_all\":%d,", (int)(runs + differing));
    expect_words(out, words);
    for (int side = 0; side < 2; side++) {
        snprintf(words, sizeof(words), "\"without_number\":%d,", (int)unnumbered[side]);
        expect_words(side == 0 ? out : strstr(out, "\"b\":{"), words);
    }
    return alone[0] + alone[1] + differing + unnumbered[0] + unnumbered[1] == 0;
}

TEST(test_random)
{
    uint64_t first = test_first_seed(1);
    int rounds = test_rounds(20, 100), equal = 0;
    for (seed = first; seed < first + (uint64_t)rounds; seed++) {
        random_state = seed;
        make_traces();
        struct command_outcome outcome = command_run_line("diff --events --json --limit=1000 a.db b.db");
        sqlite3 *db = query_open_random("a.db", &random_state);

        query_run(db, views_sql);
        bool is_equal = expect_answer(db, outcome.out);

        assert_int_equal(outcome.status, is_equal ? 0 : 1);
        sqlite3_close(db);
        command_outcome_free(&outcome);
        equal += is_equal;
    }
    if (rounds >= 20) { /* a sanitizer has fewer */
        assert_true(equal > rounds / 10 && equal < rounds);
    }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EVENT_BYTES 1000000 /* memory says nothing */
#else
#define EVENT_BYTES 64 /* of one that is kept, at least */
#endif

/* Run in a child, whose memory is its own. Returns how much it took, in KiB. */
static long run_alone(int status, const char *words)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct command_outcome outcome = command_run_line("diff --events --json a.db b.db");
        bool is_right = outcome.status == status && strstr(outcome.out, words) != NULL;
        if (!is_right) {
            fprintf(stderr, "status %d: %s%s\n", outcome.status, outcome.out, outcome.err);
        }
        _exit(is_right ? 0 : 1);
    }
    struct rusage usage;
    int wait_status;
    assert_int_equal(wait4(child, &wait_status, 0, &usage), child);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    return usage.ru_maxrss;
}

TEST(test_large)
{
    int events = test_is_full() ? 500000 : 100000;
    char sql[700], words[100];
    unlink("a.db");
    trace_database_make("a.db", (const char *const[]){NULL});
    snprintf(sql, sizeof(sql),
             "INSERT INTO meta VALUES ('complete', 1);"
             "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 1, 1, 1), (2, 1, 2, 1, 2);"
             "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < %d) "
             "INSERT INTO event(seq, ts_ns, pid, tid, kind, addr, size, id, thread_id, flags, ring_seq) "
             "SELECT seq, seq * 50, 1, 1, 33 - seq %% 2, seq / 2 %% 9973 * 4096, seq * 7919 %% 16384, (seq + 1) / 2, "
             "1 + seq %% 2, 0, (seq + 1) / 2 FROM n",
             events);
    sql_run("a.db", sql);
    size_t count;
    char *bytes = file_read("a.db", &count);

    file_write("b.db", bytes, count);
    free(bytes);
    long kib = run_alone(0, "\"equal\":true");

    snprintf(sql, sizeof(sql),
             "DELETE FROM event WHERE thread_id = 2 AND seq BETWEEN 1000 AND %d;"
             "UPDATE event SET size = 7777777 WHERE seq = %d",
             events - 1000, events - 502);
    sql_run("b.db", sql);
    snprintf(words, sizeof(words), "\"only_in_a\":%d,\"only_in_b\":0,\"differing\":1,", (events - 2000) / 2);
    long kib_apart = run_alone(1, words);

    if (kib_apart - kib >= (long)events / 2 * EVENT_BYTES / 1024) {
        fail_msg("%ld KiB and then %ld", kib, kib_apart);
    }
}

TEST_FILE(test_folder_setup, test_folder_teardown)
