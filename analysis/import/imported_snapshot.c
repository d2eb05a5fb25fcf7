/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/import/imported_snapshot.h"

#include "analysis/base/input_stream.h"
#include "analysis/history/history_read.h"
#include "analysis/import/import.h"
#include "analysis/import/import_log.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "base/publish.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int imported_read(const char *path, struct history **history_out, struct progress *progress,
                  struct varve_message *message)
{
    struct varve_message ignored = {""};
    struct input_stream *input;
    enum import_source source;
    struct stat status;
    *history_out = NULL;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) || history_is_database(path) ||
        input_stream_open(path, &input, &ignored) != VARVE_OK) {
        return VARVE_OK;
    }
    bool is_one = import_recognise(input, &source, &ignored) == VARVE_OK && source == IMPORT_SOURCE_PYTORCH;
    input_stream_close(input);
    return is_one ? history_read_pytorch(path, history_out, progress, message) : VARVE_OK;
}

int imported_folder_make(char *folder, size_t bytes, struct varve_message *message)
{
    const char *parent = getenv("TMPDIR");
    char path[4096 + 16];
    snprintf(path, sizeof(path), "%.4000s/varve.db", parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    int error = varve_publish_folder_make(path, true, folder, bytes, message);
    if (error != VARVE_OK) {
        folder[0] = '\0';
    }
    return error;
}

int imported_take(struct history *history, const char *path, struct imported *imported, struct progress *progress,
                  struct varve_message *message)
{
    struct varve_writer *writer = NULL;
    struct import_result ignored;
    char database[sizeof(imported->folder) + 16];
    *imported = (struct imported){NULL, ""};
    int error = imported_folder_make(imported->folder, sizeof(imported->folder), message);
    snprintf(database, sizeof(database), "%s/imported.db", imported->folder);
    VARVE_THEN(error, import_pytorch_begin(history, path, database, false, progress, &ignored, &writer, message));
    history_free(history);
    VARVE_THEN(error, varve_writer_finish(writer, progress_step, progress, message));
    VARVE_THEN(error, database_open(database, DATABASE_DERIVED, &imported->database, message));
    if (error == VARVE_OK) {
        database_call(imported->database, path);
    }
    return error;
}

void imported_close(struct imported *imported)
{
    if (imported->database != NULL) {
        database_close(imported->database);
    }
    if (imported->folder[0] != '\0') {
        varve_publish_folder_remove(imported->folder);
    }
    *imported = (struct imported){NULL, ""};
}
