/* SPDX-License-Identifier: Apache-2.0 */
/* The causes need more than the blocks at that moment: what no block has had yet, and which pool asked
 * the device last. */
#include "analysis/whatif/reserved_waste.h"

#include "analysis/query/database.h"
#include "analysis/replay/history_writer.h"
#include "base/error.h"
#include "trace/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

static int reserved_waste_folder_make(char folder[PATH_BYTES], struct varve_message *message)
{
    const char *parent = getenv("TMPDIR");
    if (snprintf(folder, PATH_BYTES, "%s/varve-XXXXXX", parent != NULL && parent[0] != '\0' ? parent : "/tmp") >=
            PATH_BYTES - 16 ||
        mkdtemp(folder) == NULL) {
        return varve_message_set(message, VARVE_ERROR_IO, "no temporary folder: %s", strerror(errno));
    }
    return VARVE_OK;
}

static int reserved_waste_write_database(const char *path, const struct history *history,
                                         const struct whatif_setting *setting, bool finds_limit, bool follow,
                                         struct varve_message *message)
{
    struct replay_options options = {
        .policy = setting->policy,
        .conf = setting->conf,
        .memory_limit = setting->memory_limit,
        .capacity = setting->capacity,
        .finds_limit = finds_limit,
        .follow = follow,
    };
    struct replay_inference *inference;
    struct replay_result result;
    int error = replay_infer(history, &options, &inference, &result, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_writer *writer;
    error = varve_writer_open(path, false, &writer, message);
    if (error == VARVE_OK) {
        options.writer = history_writer_new(writer, history);
        error = replay_play(inference, &options, &result, message);
        history_writer_free(options.writer);
        if (error == VARVE_OK) {
            error = varve_writer_finish(writer, NULL, NULL, message);
        } else {
            varve_writer_abandon(writer);
        }
    }
    replay_inference_free(inference);
    return error;
}

static int read_database(const char *path, struct whatif_waste *out, struct varve_message *message)
{
    struct database *database;
    struct cursor cursor;
    int error = database_open(path, DATABASE_DERIVED, &database, message);
    int column = 0;
    if (error != VARVE_OK) {
        return error;
    }
#define SUM(name) ", sum(" #name ")"
    cursor_open(&cursor, database,
                "SELECT sum(reserved), sum(live_requested)" WHATIF_CAUSE_LIST(SUM) " FROM ladder_peak");
#undef SUM
    if (cursor_next(&cursor)) {
        out->reserved = cursor_integer(&cursor, column++);
        out->live_requested = cursor_integer(&cursor, column++);
#define READ(name) out->name = cursor_integer(&cursor, column++);
        WHATIF_CAUSE_LIST(READ)
#undef READ
        out->is_known = true;
    }
    cursor_close(&cursor);
    error = database_error(database, message);
    database_close(database);
    return error;
}

int whatif_waste_at_peak(const struct history *history, const struct whatif_setting *setting, bool finds_limit,
                         bool follow, struct whatif_waste *out, struct varve_message *message)
{
    char folder[PATH_BYTES];
    int error = reserved_waste_folder_make(folder, message);
    *out = (struct whatif_waste){.is_known = false};
    if (error != VARVE_OK) {
        return error;
    }
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/replay.db", folder);
    error = reserved_waste_write_database(path, history, setting, finds_limit, follow, message);
    VARVE_THEN(error, read_database(path, out, message));
    out->is_known = out->is_known && error == VARVE_OK;
    unlink(path);
    rmdir(folder);
    return error;
}
