/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows written past SQLite: SQLite finds the file sound and every row in it, whatever the number of pages and levels,
 * and beside the page that it never uses.
 * Costs: 1 s
 */
#include "trace/store/bulk_pages.h"

#include "trace/store/sqlite_format.h"

#include "support/query.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE_BYTES 4096U
#define LOCK_PAGE (0x40000000U / PAGE_BYTES + 1)

struct fixture {
    char path[64];
    sqlite3 *db;
    uint64_t random;
};

static void execute(sqlite3 *db, const char *sql)
{
    char *reason = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &reason) != SQLITE_OK) {
        fail_msg("%s: %s", sql, reason);
    }
}

static void database_begin(struct fixture *fixture)
{
    assert_int_equal(sqlite3_open(fixture->path, &fixture->db), SQLITE_OK);
    execute(fixture->db, "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF;"
                         "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b INTEGER);"
                         "CREATE TABLE other(x); INSERT INTO other VALUES (1), (2);");
}

static int begin(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    snprintf(fixture->path, sizeof(fixture->path), "/tmp/test_bulk.XXXXXX");
    int fd = mkstemp(fixture->path);
    close(fd);
    fixture->random = 5;
    *state = fixture;
    return fd < 0 ? -1 : 0;
}

static int end(void **state)
{
    struct fixture *fixture = *state;
    sqlite3_close(fixture->db);
    unlink(fixture->path);
    free(fixture);
    return 0;
}

struct sums {
    int64_t a, b;
};

static struct sums rows_add(struct fixture *fixture, struct store_bulk *bulk, uint64_t rows)
{
    struct sums sums = {0};
    uint64_t rowid = 0;
    for (uint64_t i = 0; i < rows; i++) {
        unsigned bits = (unsigned)random_below(&fixture->random, 40);
        const int64_t values[] = {0, (int64_t)random_below(&fixture->random, UINT64_C(1) << bits),
                                  -(int64_t)random_below(&fixture->random, 1000)};
        bool is_null = random_below(&fixture->random, 4) == 0;
        rowid += 1 + random_below(&fixture->random, 3);
        assert_true(bulk_add(bulk, rowid, values, is_null ? 5 : 1, 3));
        sums.a += values[1];
        sums.b += is_null ? 0 : values[2];
    }
    return sums;
}

/* SQLite has the file closed meanwhile. */
static void attach(struct fixture *fixture, struct store_bulk *bulk)
{
    uint32_t root = (uint32_t)query_integer(fixture->db, "SELECT rootpage FROM sqlite_schema WHERE name = 't'");
    sqlite3_close(fixture->db);
    int fd = open(fixture->path, O_RDWR);
    assert_true(bulk_attach(bulk, fd, root));
    close(fd);
    assert_int_equal(sqlite3_open(fixture->path, &fixture->db), SQLITE_OK);
}

/* Every row is there, and found by its number; `sound`: what SQLite may say of the file. */
static void check(const struct fixture *fixture, uint64_t rows, struct sums sums, const char *sound)
{
    char wanted[128];
    snprintf(wanted, sizeof(wanted), "%llu %lld %lld %llu 3\n", (unsigned long long)rows, (long long)sums.a,
             (long long)sums.b, (unsigned long long)rows);
    query_expect(fixture->db,
                 "SELECT count(*), coalesce(sum(a), 0), coalesce(sum(b), 0),"
                 " (SELECT count(*) FROM t x CROSS JOIN t y ON y.id = x.id), (SELECT sum(x) FROM other) FROM t",
                 wanted);
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT * FROM pragma_integrity_check WHERE integrity_check NOT LIKE '%s'", sound);
    query_expect(fixture->db, sql, "");
}

TEST_WITH(test_sizes, begin, end)
{
    struct fixture *fixture = *state;
    static const uint64_t sizes[] = {0, 1, 100, 300, 1000, 30000, 200000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unlink(fixture->path);
        database_begin(fixture);
        struct store_bulk *bulk = bulk_open(fixture->path, PAGE_BYTES);
        assert_non_null(bulk);
        struct sums sums = rows_add(fixture, bulk, sizes[i]);
        attach(fixture, bulk);
        bulk_close(bulk);
        check(fixture, sizes[i], sums, "ok");
        /* and goes on from there */
        execute(fixture->db, "INSERT INTO t(a, b) VALUES (0, 0); DELETE FROM t WHERE id % 3 = 0;"
                             "INSERT INTO t(a) SELECT a FROM t LIMIT 5000");
        query_expect(fixture->db, "PRAGMA integrity_check", "ok\n");
        sqlite3_close(fixture->db);
        fixture->db = NULL;
    }
}

/* Leaves, and pages above them, on both sides of the page at one gigabyte, or just there. */
TEST_WITH(test_lock_page, begin, end)
{
    struct fixture *fixture = *state;
    for (uint32_t before = 0; before < 12; before += 3) {
        unlink(fixture->path);
        database_begin(fixture);
        struct store_bulk *bulk = bulk_open(fixture->path, PAGE_BYTES);
        struct sums sums = rows_add(fixture, bulk, 3000);
        assert_int_equal(truncate(fixture->path, (off_t)(LOCK_PAGE - 1 - before) * PAGE_BYTES), 0);
        attach(fixture, bulk);
        bulk_close(bulk);
        check(fixture, 3000, sums, "%never used");
        sqlite3_close(fixture->db);
        fixture->db = NULL;
    }
}

/* The first error stays, whatever is asked for then. */
TEST_WITH(test_full_disk, begin, end)
{
    struct fixture *fixture = *state;
    database_begin(fixture);
    struct store_bulk *bulk = bulk_open(fixture->path, PAGE_BYTES);
    assert_non_null(bulk);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {.rlim_cur = 3 << 19, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const int64_t values[] = {0, INT64_MAX, INT64_MAX};
    uint64_t refused = 0;
    for (uint64_t rowid = 1; rowid < 300000; rowid++) {
        bool is_added = bulk_add(bulk, rowid, values, 1, 3);
        assert_true(is_added || errno == EFBIG);
        assert_true(refused == 0 || !is_added);
        refused += !is_added;
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_in_range(refused, 1, 299999);
    assert_false(bulk_attach(bulk, -1, 2));
    assert_int_equal(errno, EFBIG);
    bulk_close(bulk);
}

TEST(test_no_folder)
{
    assert_null(bulk_open("/nonexistent/folder/x.db", PAGE_BYTES));
}
