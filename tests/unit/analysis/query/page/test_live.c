/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was live at each moment, of random allocations: every line of every series against a naive sum in SQL over the view `allocation`.
 */
#include <cmocka.h>

#include "analysis/query/db.h"
#include "analysis/query/page/allocations.h"
#include "analysis/query/page/live.h"
#include "tests/support/command.h"
#include "tests/support/random.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DATABASE "random.db"
#define SYMBOLS 5
#define ROUNDS 8

static uint64_t random_state;

static int64_t below(int64_t limit)
{
    return (int64_t)random_below(&random_state, (uint64_t)limit);
}

/* A number between 1 and `limit`, or NULL. */
static const char *or_null(char *text, size_t bytes, int64_t number)
{
    if (below(4) == 0) {
        return "NULL";
    }
    snprintf(text, bytes, "%" PRId64, number);
    return text;
}

static void add_allocation(int64_t id, int64_t events)
{
    char sql[512], requested[24], completed[24], callsite[24];
    int64_t begin = 1 + below(events);
    int64_t end = begin + below(events);
    bool is_freed = below(3) > 0;

    snprintf(
        sql, sizeof(sql),
        "INSERT INTO allocation(id, domain, pid, tid, device, addr, size, requested, alloc_seq, free_requested_seq, "
        "free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary) VALUES (%" PRId64
        ", %" PRId64 ", 1, 1, %" PRId64 ", %" PRId64 ", %" PRId64 ", 1, %" PRId64 ", %s, %s, %" PRId64
        ", %s, %s, 16, %" PRId64 ", 0)",
        id, below(2) == 0 ? 1 : below(8), below(2), id * 4096, below(100000), begin,
        is_freed ? or_null(requested, sizeof(requested), end) : "NULL",
        is_freed ? or_null(completed, sizeof(completed), end + below(9)) : "NULL", begin * 1000,
        is_freed ? "999999" : "NULL", or_null(callsite, sizeof(callsite), 1 + below(SYMBOLS + 1)),
        1 + below(3));
    sql_run(DATABASE, sql);
}

static void make_database(int64_t events)
{
    remove(DATABASE);
    trace_database_make(DATABASE, (const char *const[]){NULL});
    sql_run(DATABASE, "INSERT INTO domain(code, name, meaning) VALUES (1, 'heap', ''), (2, 'mmap', '')");
    for (int i = 1; i <= SYMBOLS; i++) {
        char sql[200];

        snprintf(sql, sizeof(sql),
                 "INSERT INTO symbol(id, function, is_python, is_inlined) VALUES (%d, 'f%d', 0, 0)", i, i);
        sql_run(DATABASE, sql);
        snprintf(sql, sizeof(sql),
                 "INSERT INTO callsite(id, depth, symbol_id, user_symbol_id) VALUES (%d, 1, %d, %s)", i,
                 (int)(1 + below(SYMBOLS)), below(2) == 0 ? "NULL" : "1");
        sql_run(DATABASE, sql);
    }
    for (int64_t seq = 1; seq <= events; seq += 1 + below(3)) {
        char sql[200];

        snprintf(sql, sizeof(sql),
                 "INSERT INTO sample VALUES (0, 1, 0, %" PRId64 ", %" PRId64 ", 0, 0, NULL, NULL, NULL, 0)",
                 seq, seq * seq * 10);
        sql_run(DATABASE, sql);
    }
    for (int64_t i = 1; i <= 60; i++) {
        add_allocation(i, events);
    }
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
        char sql[300];

        assert_true(moment == 0 || live->moments[moment - 1].seq < live->moments[moment].seq);
        for (size_t i = 0; i < live->row_count; i++) {
            const struct live_row *row = &live->rows[i];

            assert_int_equal(row->bytes[moment], naive(database, &live->series[row->series], row->line,
                                                       live->moments[moment].seq));
            all += row->bytes[moment];
        }
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
        struct database *database;
        struct varve_message message;
        struct live live;

        make_database(round == 0 ? 1 : 1 + below(600));
        assert_int_equal(database_open(DATABASE, DATABASE_ANY, &database, &message), VARVE_OK);
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
