/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A commit, by a thread that lives as long as it does, while the caller goes on. What a commit that failed was to write
 * stays as it was: that is tried again before another one is begun. store.c calls it.
 */
#include "trace/store/store_transaction.h"

#include "base/error.h"
#include "base/thread.h"
#include "trace/store/event_log.h"
#include "trace/store/schema.h"
#include "trace/store/store.h"

#include <pthread.h>

/* In one transaction. */
static bool batch_insert(struct store *store)
{
    return sqlite3_exec(store->db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK && rows_insert(store, &store->behind.rows) &&
           sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
}

static void *batch_commit(void *context)
{
    struct store *store = context;
    struct store_behind *behind = &store->behind;
    behind->error = store->event_log != NULL ? event_log_write(store->event_log, &behind->message) : VARVE_OK;
    if (behind->error == VARVE_OK && !batch_insert(store)) {
        /* The message is made here: SQLite's reasons are those of the last call of the connection. */
        behind->error = schema_error(store->db, store->path, "cannot write", &behind->message);
        for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
            sqlite3_reset(store->statements[i]);
        }
        /* SQLite may have rolled back by itself; a second ROLLBACK would only report that. */
        if (!sqlite3_get_autocommit(store->db)) {
            sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
        }
    }
    __atomic_store_n(&behind->is_done, true, __ATOMIC_RELEASE);
    return NULL;
}

void commit_join(struct store *store)
{
    struct store_behind *behind = &store->behind;
    if (behind->is_running) {
        pthread_join(behind->thread, NULL);
        behind->is_running = false;
    }
}

void commit_hand_over(struct store *store)
{
    struct store_behind *behind = &store->behind;
    const struct store_rows filled = store->rows;
    store->rows = behind->rows;
    behind->rows = filled;
    behind->is_done = false;
    behind->is_due = true;
    behind->is_running = thread_start(&behind->thread, batch_commit, store) == 0;
    if (!behind->is_running) {
        batch_commit(store);
    }
}

bool store_is_committing(const struct store *store)
{
    return store->behind.is_due && !__atomic_load_n(&store->behind.is_done, __ATOMIC_ACQUIRE);
}

int store_wait(struct store *store, struct varve_message *message)
{
    struct store_behind *behind = &store->behind;
    if (!behind->is_due) {
        return VARVE_OK;
    }
    const bool is_again = !behind->is_running;
    commit_join(store);
    if (is_again && behind->error != VARVE_OK && !store->is_private) {
        batch_commit(store);
    }
    if (behind->error == VARVE_OK) {
        behind->rows.used = 0;
        behind->is_due = false;
    } else if (message != NULL) {
        *message = behind->message;
    }
    return behind->error;
}

int store_sync(struct store *store, struct varve_message *message)
{
    int error = store_wait(store, message);
    if (error == VARVE_OK && store->rows.used > 0) {
        commit_hand_over(store);
        error = store_wait(store, message);
    }
    return error;
}
