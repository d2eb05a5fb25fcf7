/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs, included after cmocka.h */
/*
 * What a test asks a database that it has open.
 */
#ifndef VARVE_TESTS_SUPPORT_QUERY_H
#define VARVE_TESTS_SUPPORT_QUERY_H

#include <cmocka.h>

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

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

/* Rows in lines, columns separated by blanks, NULL as a dash. */
static inline void query_expect(sqlite3 *db, const char *sql, const char *rows)
{
    static char text[8192];
    size_t used = 0;
    sqlite3_stmt *query;
    if (sqlite3_prepare_v2(db, sql, -1, &query, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    text[0] = '\0';
    while (sqlite3_step(query) == SQLITE_ROW && used < sizeof(text)) {
        for (int i = 0; i < sqlite3_column_count(query) && used < sizeof(text); i++) {
            const char *value = (const char *)sqlite3_column_text(query, i);
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i > 0 ? " " : "",
                                     value != NULL ? value : "-");
        }
        used += used < sizeof(text) ? (size_t)snprintf(text + used, sizeof(text) - used, "\n") : 0;
    }
    sqlite3_finalize(query);
    if (strcmp(text, rows) != 0) {
        fail_msg("%s:\n%snot:\n%s", sql, text, rows);
    }
}

#endif
