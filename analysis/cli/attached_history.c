/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve attach --torch` into a folder below TMPDIR, which goes once the history that PyTorch has left there is read.
 * Called by command_advise.c.
 */
#include "analysis/cli/attached_history.h"

#include "analysis/cli/recording_options.h"
#include "analysis/history/history_read.h"
#include "analysis/import/imported_snapshot.h"
#include "base/error.h"
#include "base/publish.h"
#include "trace/collect.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The terminal is not the program's, and what it does with the CUDA driver meanwhile is not what is asked: time goes
 * on. */
static void attached_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    const bool is_recording = strcmp(stage, "recording") == 0;
    progress_step(context, stage, is_recording ? 0 : done, is_recording ? 0 : total);
}

/* What PyTorch has written for `result`. */
static int attached_read(const struct varve_collect_options *collect, const struct varve_collect_result *result,
                         struct progress *progress, struct history **history_out, struct varve_message *message)
{
    char path[sizeof(result->torch_history) + 32];
    snprintf(path, sizeof(path), "%s.%d.pickle", result->torch_history, collect->attach_pid);
    if (result->torch_history[0] != '\0' && access(path, F_OK) == 0) {
        return history_read_pytorch(path, history_out, progress, message);
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d: %s", collect->attach_pid,
                             result->torch_remark.text);
}

static int attached_record(struct command_context *context, struct recording *recording,
                           struct varve_collect_options *collect, struct history **history_out,
                           struct varve_message *message)
{
    struct varve_collect_result result = {0};
    collect->progress = attached_step;
    int error = varve_collect_attach(collect, &result, message);
    VARVE_THEN(error, attached_read(collect, &result, &recording->progress, history_out, message));
    progress_end(&recording->progress);
    if (error == VARVE_OK && result.torch_remark.text[0] != '\0') {
        command_say(context->err, "varve %s: process %d: %s\n", context->name, collect->attach_pid,
                    result.torch_remark.text);
    }
    recording_say_hooked(context->err, &result);
    return error;
}

int attached_history_read(struct command_context *context, int32_t pid, int64_t for_ns, struct history **history_out)
{
    static const struct recording_options options = RECORDING_DEFAULTS;
    struct varve_message message = {""};
    struct recording recording;
    struct varve_collect_options collect;
    char folder[4096], database[sizeof(folder) + 16];
    varve_collect_options_init(&collect);
    collect.heap = false;
    recording_observe_torch(&collect);
    if (!recording_begin(context, &options, &recording, &collect)) {
        return EXIT_STATUS_FAILED;
    }
    int error = imported_folder_make(folder, sizeof(folder), &message);
    snprintf(database, sizeof(database), "%s/attached.db", folder);
    collect.attach_pid = pid;
    collect.attach_ns = for_ns;
    collect.database_path = database;
    VARVE_THEN(error, attached_record(context, &recording, &collect, history_out, &message));
    if (folder[0] != '\0') {
        varve_publish_folder_remove(folder);
    }
    return error == VARVE_OK
               ? 0
               : command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
}
