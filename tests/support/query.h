/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs, included after cmocka.h */
/*
 * What a test asks a database that it has open, and the folder in which that is.
 */
#ifndef VARVE_TESTS_SUPPORT_QUERY_H
#define VARVE_TESTS_SUPPORT_QUERY_H

#include <cmocka.h>

#include "support/random.h"

#include <dirent.h>
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

static inline void query_run(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) {
        fail_msg("%s: %s", sql, error);
    }
}

static inline void query_below(sqlite3_context *context, int count, sqlite3_value **values)
{
    uint64_t *random = sqlite3_user_data(context);
    int64_t value = (int64_t)random_below(random, (uint64_t)sqlite3_value_int64(values[0]));
    if (count == 2 && random_below(random, 5) == 0) {
        sqlite3_result_null(context);
    } else {
        sqlite3_result_int64(context, value);
    }
}

/* A database with SQL's below(n), a number of that state; below(n, NULL) is NULL at times. */
static inline sqlite3 *query_open_random(const char *path, uint64_t *random)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_create_function(db, "below", -1, SQLITE_UTF8, random, query_below, NULL, NULL);
    query_run(db, "PRAGMA synchronous = OFF");
    return db;
}

/* But for hidden ones. */
static inline int entries_of(const char *folder)
{
    DIR *list = opendir(folder);
    int count = 0;
    assert_non_null(list);
    for (const struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        count += entry->d_name[0] != '.';
    }
    closedir(list);
    return count;
}

#endif
