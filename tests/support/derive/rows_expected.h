/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * The rows of a query, each against the integers that it must have.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_ROWS_EXPECTED_H
#define VARVE_TESTS_SUPPORT_DERIVE_ROWS_EXPECTED_H

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline sqlite3_stmt *query_begin(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *query;
    int result = sqlite3_prepare_v2(db, sql, -1, &query, NULL);
    if (result != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    return query;
}

/* The next row has these integers; INT64_MIN stands for NULL. */
static inline void expect_row(sqlite3_stmt *query, const int64_t *values, int count)
{
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    assert_int_equal(sqlite3_column_count(query), count);
    for (int i = 0; i < count; i++) {
        bool is_null = sqlite3_column_type(query, i) == SQLITE_NULL;
        if (is_null != (values[i] == INT64_MIN) || (!is_null && sqlite3_column_int64(query, i) != values[i])) {
            fail_msg("%s: row %lld, column %d is %s, expected %lld", sqlite3_sql(query),
                     (long long)sqlite3_column_int64(query, 0), i, (const char *)sqlite3_column_text(query, i),
                     (long long)values[i]);
        }
    }
}

static inline void expect_end(sqlite3_stmt *query)
{
    assert_int_equal(sqlite3_step(query), SQLITE_DONE);
    sqlite3_finalize(query);
}

#define EXPECT_ROW(query, values) expect_row(query, values, (int)(sizeof(values) / sizeof((values)[0])))

#endif
