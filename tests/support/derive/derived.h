/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * trace.db in this folder of events, from the derivation and the store, as a collector makes it; what it has is then
 * asked in SQL.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_DERIVED_H
#define VARVE_TESTS_SUPPORT_DERIVE_DERIVED_H

#include "support/command.h"
#include "support/query.h"
#include "base/error.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/store/store.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct derived {
    struct store *store;
    struct derive *derive;
    struct varve_message message;
};

static inline void derived_begin(struct derived *derived)
{
    unlink("trace.db");
    assert_int_equal(store_open("trace.db", STORE_CREATE, &derived->store, &derived->message), VARVE_OK);
    assert_int_equal(derive_open("allocations", &derived->derive, &derived->message), VARVE_OK);
}

/* Event number `seq`, at so many microseconds unless it has a time, of a process and thread with that id and pid 100 +
 * id. */
static inline void derived_event(struct derived *derived, struct event event, uint64_t seq, uint32_t process)
{
    event.seq = seq;
    event.ts_ns = event.ts_ns != 0 ? event.ts_ns : 1000 * (int64_t)seq;
    event.process_id = event.thread_id = process;
    event.pid = event.tid = 100 + (int32_t)process;
    assert_int_equal(derive_event(derived->derive, &event, &derived->message), VARVE_OK);
    assert_int_equal(derive_check(derived->derive, &derived->message), VARVE_OK);
    assert_int_equal(store_append(derived->store, derived->derive, &event, &derived->message), VARVE_OK);
}

/* A process with a thread, of that id. */
static inline void derived_process(struct derived *derived, struct store_process process)
{
    struct store_thread thread = {.id = process.id, .process_id = process.id, .end_ns = -1};
    process.pid = thread.pid = thread.tid = 100 + (int32_t)process.id;
    assert_int_equal(store_process(derived->store, &process), VARVE_OK);
    assert_int_equal(store_thread(derived->store, &thread), VARVE_OK);
}

/* Owner of the database, read-only: the caller. */
static inline sqlite3 *derived_end(struct derived *derived)
{
    assert_int_equal(derive_finish(derived->derive, derived->store, NULL, NULL, &derived->message), VARVE_OK);
    assert_int_equal(store_finish(derived->store, NULL, NULL, &derived->message), VARVE_OK);
    derive_close(derived->derive);
    store_close(derived->store);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2("trace.db", &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    return db;
}

#endif
