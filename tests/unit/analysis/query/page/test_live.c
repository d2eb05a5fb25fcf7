/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was live at each moment, of random allocations: every line of every series against a sum in SQL over the view
 * `allocation`.
 * Costs: 1 s, full 3 s
 */
#include <cmocka.h>

#include "analysis/query/db.h"
#include "analysis/query/page/allocations.h"
#include "analysis/query/page/live.h"
#include "tests/support/command.h"
#include "tests/support/random.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#define DATABASE "random.db"
#define ROUNDS 8

static uint64_t random_state;

static void below(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    sqlite3_result_int64(context, (int64_t)random_below(&random_state, (uint64_t)sqlite3_value_int64(values[0])));
}

/* ?1: how many events. A third is never freed; of the others either free may be missing. Not every event has a
 * sample. */
static const char random_sql[] =
    "INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', ''), (2, 'mmap', '');"
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) INSERT INTO symbol(id, function, "
    "is_python, "
    "is_inlined) SELECT i, 'f' || i, 0, 0 FROM n;"
    "INSERT INTO callsite(id, depth, symbol_id, user_symbol_id) SELECT id, 1, 1 + below(5), iif(below(2), 1, NULL) "
    "FROM symbol;"
    "CREATE TEMP TABLE e AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 + below(3) FROM n WHERE i < "
    "(SELECT v FROM x)) "
    "SELECT i FROM n; INSERT INTO sample SELECT 0, 1, 0, i, i * i * 10, 0, 0, NULL, NULL, NULL, 0 FROM e;"
    "CREATE TEMP TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT i, "
    "1 + below((SELECT v FROM x)) AS at, below((SELECT v FROM x)) AS lived, below(3) > 0 AS freed FROM n;"
    "INSERT INTO allocation(id, domain, pid, tid, device, addr, size, requested, alloc_seq, free_requested_seq, "
    "free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary) SELECT i, iif(below(2), 1, "
    "below(8)), 1, 1, "
    "below(2), i * 4096, below(100000), 1, at, iif(freed AND below(4), at + lived, NULL), iif(freed AND below(4), at "
    "+ lived + "
    "below(9), NULL), at * 1000, iif(freed, 999999, NULL), iif(below(4), 1 + below(6), NULL), 16, 1 + below(3), 0 "
    "FROM a";

static void make_database(int64_t events)
{
    char sql[100], *error = NULL;
    remove(DATABASE);
    trace_database_make(DATABASE, (const char *const[]){NULL});
    sqlite3 *db;
    assert_int_equal(sqlite3_open(DATABASE, &db), SQLITE_OK);
    sqlite3_create_function(db, "below", 1, SQLITE_UTF8, NULL, below, NULL, NULL);
    snprintf(sql, sizeof(sql), "PRAGMA synchronous = OFF; CREATE TEMP TABLE x AS SELECT %" PRId64 " AS v", events);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    if (sqlite3_exec(db, random_sql, NULL, NULL, &error) != SQLITE_OK) {
        fail_msg("%s", error);
    }
    sqlite3_close(db);
}

static int64_t naive(struct database *database, const struct live_series *series, int64_t line, int64_t seq)
{
    struct cursor cursor;
    int64_t bytes = 0;
    cursor_open(
        &cursor, database,
        "SELECT sum(a.size) FROM allocation a LEFT JOIN callsite c ON c.id = a.callsite_id WHERE a.domain = ?1 "
        "AND a.process_id = ?2 AND coalesce(a.device, 0) = ?3 AND coalesce(c.user_symbol_id, c.symbol_id, 0) = ?4 "
        "AND a.alloc_seq <= ?5 AND coalesce(a.free_requested_seq, a.free_completed_seq, 9223372036854775807) > ?5");
    cursor_bind_integer(&cursor, 1, series->domain);
    cursor_bind_integer(&cursor, 2, series->process_id);
    cursor_bind_integer(&cursor, 3, series->device);
    cursor_bind_integer(&cursor, 4, line);
    cursor_bind_integer(&cursor, 5, seq);
    if (cursor_next(&cursor)) {
        bytes = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return bytes;
}

static void check(struct live *live, struct database *database)
{
    for (size_t moment = 0; moment < live->moment_count; moment++) {
        int64_t all = 0;
        assert_true(moment == 0 || live->moments[moment - 1].seq < live->moments[moment].seq);
        for (size_t i = 0; i < live->row_count; i++) {
            const struct live_row *row = &live->rows[i];
            assert_int_equal(row->bytes[moment],
                             naive(database, &live->series[row->series], row->line, live->moments[moment].seq));
            all += row->bytes[moment];
        }
        char sql[300];
        snprintf(sql, sizeof(sql),
                 "SELECT sum(size) FROM allocation WHERE domain <> 7 AND alloc_seq <= %" PRId64
                 " AND coalesce(free_requested_seq, free_completed_seq, 9223372036854775807) > %" PRId64,
                 live->moments[moment].seq, live->moments[moment].seq);
        assert_int_equal(all, database_integer(database, sql, 0)); /* no line is missing */
    }
}

TEST(test_random)
{
    random_state = test_first_seed(1);
    for (int round = 0; round < test_rounds(ROUNDS / 4, ROUNDS); round++) {
        make_database(round == 0 ? 1 : 1 + (int64_t)random_below(&random_state, 600));
        struct database *database;
        struct varve_message message;
        assert_int_equal(database_open(DATABASE, DATABASE_ANY, &database, &message), VARVE_OK);
        struct live live;
        live_init(&live, database);
        assert_true(live.moment_count > 0 && live.moment_count <= LIVE_MOMENTS_MAX);
        page_allocations_visit(database, live_add, &live);
        live_finish(&live);
        check(&live, database);
        assert_int_equal(database_error(database, &message), 0);
        live_free(&live);
        database_close(database);
    }
}

TEST_FILE(test_folder_setup, test_folder_teardown)
