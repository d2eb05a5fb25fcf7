/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `varve attach` and `varve detach` do to the process itself. The library stays loaded in it for good: a thread
 * may be in a hook at any time. Attaching again uses it again. Called by record_run.c and the two commands.
 */
#include "trace/collector/programs/attach_run.h"

#include "base/proc_file.h"
#include "trace/collector/programs/inject.h"
#include "base/error.h"
#include "trace/format/attach_format.h"
#include "trace/symbols/running_process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXECS_MAX 20U /* of a program that executes others all the time, while it is looked at */

/* The functions of the library in the process are found in its file: that must be the one. */
static int check_library(const struct attach *attach, struct varve_message *message)
{
    const struct target *target = &attach->target;
    if (!target_sees(target, attach->library)) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "process %d has no such file: %.300s", target->pid,
                                 attach->library);
    }
    struct stat status;
    if (target->recorder.path[0] != '\0' &&
        (stat(attach->library, &status) != 0 || status.st_ino != target->recorder.inode)) {
        return varve_message_set(
            message, VARVE_ERROR_UNSUPPORTED,
            "process %d has another libvarve_preload.so loaded (%.300s): use that varve, or restart "
            "the program",
            target->pid, target->recorder.path);
    }
    return VARVE_OK;
}

static int check_unrecorded(const struct target *target, struct varve_message *message)
{
    const struct session_mapped *recording = &target->recording;
    if (!target->is_recorded || recording->collector == 0) {
        return VARVE_OK;
    }
    if (!recording->is_attached) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "process %d is recorded already, by varve record (pid %d)",
                                 target->pid, recording->collector);
    }
    return varve_message_set(
        message, VARVE_ERROR_BUSY,
        recording->is_finishing ? "process %d is recorded already, by varve attach (pid %d), which is writing its "
                                  "database: varve detach %d waits for that"
                                : "process %d is recorded already, by varve attach (pid %d): varve detach %d ends that",
        target->pid, recording->collector, target->pid);
}

static int attach_run_check(struct attach *attach, int32_t pid, struct varve_message *message)
{
    int error = target_open(&attach->target, pid, TARGET_TO_RECORD, message);
    VARVE_THEN(error, check_unrecorded(&attach->target, message));
    VARVE_THEN(error, check_library(attach, message));
    return error;
}

int attach_check(struct attach *attach, int32_t pid, const char *library, struct varve_message *message)
{
    memset(attach, 0, sizeof(*attach));
    if (realpath(library, attach->library) == NULL) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "'%s': %s", library, strerror(errno));
    }
    attach->detach_at = symbols_file_function(attach->library, ATTACH_FUNCTION_DETACH);
    attach->release_at = symbols_file_function(attach->library, ATTACH_FUNCTION_RELEASE);
    int lock;
    int error = target_lock(pid, &lock, message);
    VARVE_THEN(error, attach_run_check(attach, pid, message));
    session_descriptor_close(&lock);
    return error;
}

static int call(const struct target *target, const struct inject_call *wanted, struct inject_result *result,
                struct varve_message *message)
{
    int error = inject_call(target, wanted, result, message);
    if (error != VARVE_OK || result->answer == ATTACH_DONE) {
        return error;
    }
    switch (result->answer) {
    case ATTACH_NOT_LATE:
        return varve_message_set(
            message, VARVE_ERROR_UNSUPPORTED,
            "process %d was started by varve record, whose recording is over: it can't be attached "
            "to",
            target->pid);
    case ATTACH_NO_SESSION:
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "process %d can't reach the recording directory",
                                 target->pid);
    default:
        return varve_message_set(message, VARVE_ERROR_BUSY, "process %d is recorded already", target->pid);
    }
}

static int call_loaded(const struct target *target, const struct inject_call *wanted, struct varve_message *message)
{
    struct inject_result result;
    return target->recorder.path[0] != '\0' ? call(target, wanted, &result, message) : VARVE_OK;
}

/* Neither of the two allocates, or waits for what the recorder locks. */
static const struct inject_call hooks_out = {.function = ATTACH_FUNCTION_DETACH,
                                             .avoids = PLACE_LOADER | PLACE_UNKNOWN};
static const struct inject_call memory_back = {
    .function = ATTACH_FUNCTION_RELEASE, .avoids = PLACE_LOADER | PLACE_UNKNOWN, .needs_quiet = true};

static int attach_run_start(struct attach *attach, const char *directory, struct varve_message *message)
{
    const struct inject_call wanted = {
        .function = ATTACH_FUNCTION, .argument = directory, .library = attach->library, .avoids = PLACE_ANY};
    if (!target_sees(&attach->target, directory)) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "process %d does not see %.300s: choose another place by -o", attach->target.pid,
                                 directory);
    }
    int error = VARVE_OK;
    if (attach->target.is_recorded) {
        error = call_loaded(&attach->target, &hooks_out, message);
        VARVE_THEN(error, call_loaded(&attach->target, &memory_back, message));
    }
    struct inject_result result;
    if (error == VARVE_OK) {
        error = call(&attach->target, &wanted, &result, message);
        attach->stopped_ns = result.stopped_ns;
    }
    return error;
}

int attach_start(struct attach *attach, const char *directory, struct varve_message *message)
{
    int lock;
    int error = target_lock(attach->target.pid, &lock, message);
    VARVE_THEN(error, attach_run_check(attach, attach->target.pid, message)); /* another one may have been faster */
    VARVE_THEN(error, attach_run_start(attach, directory, message));
    session_descriptor_close(&lock);
    return error;
}

static int call_locked(struct target *target, int32_t pid, const struct inject_call *wanted,
                       struct varve_message *message)
{
    int error = VARVE_ERROR_BUSY;
    bool is_another = true;
    for (unsigned i = 0; i < EXECS_MAX && error == VARVE_ERROR_BUSY && is_another; i++) {
        error = target_open(target, pid, TARGET_TO_LEAVE, message);
        VARVE_THEN(error, call_loaded(target, wanted, message));
        const int32_t living = proc_file_thread(pid);
        if (error != VARVE_OK && living == 0) {
            error = varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d has ended", pid);
        }
        is_another = !target_is_same(target, living); /* there are no hooks in a program that it has executed since */
    }
    return error;
}

static int call_in(int32_t pid, const struct inject_call *wanted, struct varve_message *message)
{
    struct target *target = malloc(sizeof(*target));
    int error = VARVE_ERROR_NO_MEMORY;
    if (target != NULL) {
        int lock;
        error = target_lock(pid, &lock, message);
        VARVE_THEN(error, call_locked(target, pid, wanted, message));
        session_descriptor_close(&lock);
        free(target);
    }
    return error;
}

int attach_stop(const struct attach *attach, int32_t pid, void (*idle)(void *context), void *idle_context,
                struct varve_message *message)
{
    struct inject_call wanted = hooks_out;
    wanted.function_at = attach != NULL ? attach->detach_at : 0;
    wanted.idle = idle;
    wanted.idle_context = idle_context;
    return call_in(pid, &wanted, message);
}

int attach_release(const struct attach *attach, int32_t pid, struct varve_message *message)
{
    struct inject_call wanted = memory_back;
    wanted.function_at = attach != NULL ? attach->release_at : 0;
    return call_in(pid, &wanted, message);
}

int attach_find(int32_t pid, struct session_mapped *recording_out, struct varve_message *message)
{
    struct target *target = malloc(sizeof(*target));
    *recording_out = (struct session_mapped){0};
    int error = VARVE_ERROR_NO_MEMORY;
    if (target == NULL) {
        return error;
    }
    int lock;
    error = target_lock(pid, &lock, message);
    VARVE_THEN(error, target_open(target, pid, TARGET_TO_LEAVE, message));
    session_descriptor_close(&lock);
    if (error != VARVE_OK) {
        free(target);
        return error;
    }
    *recording_out = target->recording;
    if (!target->is_recorded) {
        error =
            varve_message_set(message, VARVE_ERROR_NOT_FOUND, "process %d is not attached to: nothing records it", pid);
    } else if (recording_out->collector != 0 && !recording_out->is_attached) {
        error = varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                  "process %d was started by varve record (pid %d), which records it to its end", pid,
                                  recording_out->collector);
    }
    free(target);
    return error;
}
