/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs, included after cmocka.h */
/*
 * What a test asks a database that it has open.
 */
#ifndef VARVE_TESTS_SUPPORT_QUERY_H
#define VARVE_TESTS_SUPPORT_QUERY_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sqlite3.h>

/* The one integer that a query gives. */
static inline int64_t query_integer(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(query, 0);
    sqlite3_finalize(query);
    return value;
}

#endif
