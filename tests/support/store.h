/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A folder with a trace database in the making for each test of the store, and what others see of it.
 */
#ifndef VARVE_TESTS_SUPPORT_STORE_H
#define VARVE_TESTS_SUPPORT_STORE_H

#include <cmocka.h>

#include "support/query.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/store/store.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct fixture {
    char directory[64];
    char path[96];
    char scratch[96];
    struct store *store;   /* NULL: not open */
    struct derive *derive; /* likewise */
    struct rlimit unlimited;
    struct varve_message message;
};

static inline int fixture_begin(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    strcpy(fixture->directory, "/tmp/test_store.XXXXXX");
    signal(SIGXFSZ, SIG_IGN);
    if (mkdtemp(fixture->directory) == NULL || getrlimit(RLIMIT_FSIZE, &fixture->unlimited) != 0) {
        free(fixture);
        return -1;
    }
    snprintf(fixture->path, sizeof(fixture->path), "%s/trace.db", fixture->directory);
    snprintf(fixture->scratch, sizeof(fixture->scratch), "%s/allocations", fixture->directory);
    *state = fixture;
    return 0;
}

static inline int fixture_end(void **state)
{
    struct fixture *fixture = *state;
    setrlimit(RLIMIT_FSIZE, &fixture->unlimited);
    store_close(fixture->store);
    derive_close(fixture->derive);
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", fixture->directory);
    free(fixture);
    return system(command);
}

#define OK(call)                                                                           \
    do {                                                                                   \
        int ok_code = (call);                                                              \
        if (ok_code != VARVE_OK) {                                                         \
            fail_msg("%s: %s: %s", #call, varve_strerror(ok_code), fixture->message.text); \
        }                                                                                  \
    } while (0)

/* What another process sees: a query with one integer, over a connection of its own. */
static inline int64_t look(const struct fixture *fixture, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(fixture->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    int64_t value = query_integer(db, sql);
    sqlite3_close(db);
    return value;
}

#endif
