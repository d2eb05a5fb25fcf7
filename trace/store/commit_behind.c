/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit of an image: by the caller, or, in a private database, by a thread that lives as long as the commit, while
 * the caller fills the other image. store_transaction.c calls it.
 */
#include "trace/store/store_transaction.h"

#include "base/error.h"
#include "base/thread.h"
#include "trace/store/page_image.h"
#include "trace/store/schema.h"
#include "trace/store/store.h"

#include <pthread.h>

bool commit_image(struct store *store, struct store_image *image)
{
    return image_insert(store->db, image) == SQLITE_OK &&
           sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
}

static void *image_commit_behind(void *context)
{
    struct store *store = context;
    /* The message is made here: SQLite's reasons are those of the last call of the connection. */
    if (!commit_image(store, store->behind.image)) {
        store->behind.error = schema_error(store->db, store->path, "cannot write", &store->behind.message);
    }
    return NULL;
}

int store_wait(struct store *store, struct varve_message *message)
{
    struct store_behind *behind = &store->behind;
    if (behind->is_running) {
        pthread_join(behind->thread, NULL);
        behind->is_running = false;
        image_clear(behind->image);
    }
    if (behind->error != VARVE_OK && message != NULL) {
        *message = behind->message;
    }
    return behind->error;
}

/* There is no rollback, so nothing is kept to be repeated. */
void commit_behind(struct store *store)
{
    struct store_behind *behind = &store->behind;
    struct store_image *filled = store->image;
    store->image = behind->image;
    behind->image = filled;
    behind->is_running = thread_start(&behind->thread, image_commit_behind, store) == 0;
    if (!behind->is_running) {
        image_commit_behind(store);
        image_clear(filled);
    }
}
