/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One LTTng session of ours, by the programs lttng and lttng-crash: made before the recorded program starts,
 * stopped and destroyed after it, or taken over by `varve recover`. The hard part is to leave nothing behind
 * and to touch nothing of others: each step that fails takes back those before it, a session is named in
 * every call, and the user's own choice of a current session is put back.
 */
#include "trace/collector/lttng/session.h"

#include "trace/collector/clock.h"
#include "trace/collector/lttng/session_parts.h"
#include "trace/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFERS_GONE_NS UINT64_C(2000000000)

struct lttng_session {
    char *name, *output, *shm;
    uint64_t buffer_bytes; /* what may still have to be written when it stops */
    bool is_known;         /* to the session daemon */
};

/* ---- in common ---- */

bool lttng_session_is_possible(struct varve_message *message)
{
    static const char *const tools[] = {"lttng", "lttng-sessiond"};

    for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
        if (!lttng_tool_is_there(tools[i])) {
            varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                              "%s is not in PATH: install LTTng's tools (apt install lttng-tools)", tools[i]);
            return false;
        }
    }
    return true;
}

static int check_options(const struct lttng_session_options *options, struct varve_message *message)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t length = strlen(options->name);

    if (length == 0 || length > LTTNG_NAME_MAX || strspn(options->name, letters) != length) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "'%s' is no name of an LTTng session: letters, digits, - and _, at most %d",
                                 options->name, LTTNG_NAME_MAX);
    }
    if (options->output[0] != '/' || options->shm[0] != '/') {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the path '%s' is not absolute",
                                 options->output[0] != '/' ? options->output : options->shm);
    }
    return VARVE_OK;
}

static void session_free(struct lttng_session *session)
{
    if (session != NULL) {
        free(session->name);
        free(session->output);
        free(session->shm);
        free(session);
    }
}

static struct lttng_session *session_new(const struct lttng_session_options *options,
                                         struct varve_message *message)
{
    struct lttng_session *session = calloc(1, sizeof(*session));

    if (session != NULL) {
        session->name = strdup(options->name);
        session->output = strdup(options->output);
        session->shm = strdup(options->shm);
        if (session->name != NULL && session->output != NULL && session->shm != NULL) {
            return session;
        }
    }
    session_free(session);
    varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an LTTng session");
    return NULL;
}

/* That a program was killed for hanging is a detail of the message. */
static int public_error(int error)
{
    return error == VARVE_ERROR_BUSY ? VARVE_ERROR_IO : error;
}

/* The daemon's end must not be mistaken for idleness by somebody who is about to use it. */
static int daemon_release(struct varve_message *message)
{
    int lock = lttng_daemon_lock();
    int error = VARVE_OK;

    if (lock >= 0) {
        error = lttng_daemon_release(message);
        close(lock);
    }
    return error; /* without the lock it stays: whoever holds it asks the same question later */
}

/* LTTng removes the buffers' files itself, soon; what a daemon waits for must not depend on it. */
static void buffers_remove(const struct lttng_session *session)
{
    uint64_t end_ns = collect_monotonic_ns() + BUFFERS_GONE_NS;
    uint64_t nap_ns = 0;

    while (!lttng_folder_is_empty(session->shm) && collect_monotonic_ns() < end_ns) {
        lttng_nap(&nap_ns);
    }
    lttng_folder_remove(session->shm);
}

/* If a program was killed in the middle of an event, its sub-buffer is never complete, the consumer never
 * gets past it, and `lttng destroy` waits for that for ever. A second wait, in the daemon, which answers
 * nobody meanwhile, is for the buffers' folder to be gone. So no wait for what `stop` has delivered, and the
 * folder goes in any case. */
static int session_destroy(struct lttng_session *session, bool is_delivered, struct varve_message *message)
{
    const char *const destroy[] = {
        "lttng", "--no-sessiond", "destroy", session->name, is_delivered ? "--no-wait" : NULL, NULL};
    int error = lttng_tool_run(
        &(struct lttng_tool_call){.argv = destroy, .patience_bytes = session->buffer_bytes}, message);

    if (error == VARVE_OK || error == VARVE_ERROR_BUSY) {
        buffers_remove(session);
    }
    session->is_known = session->is_known && error != VARVE_OK;
    return error;
}

/* ---- start ---- */

/* Of a folder with a trace in it LTTng would make two in one. */
static int check_output(const char *output, struct varve_message *message)
{
    if (!lttng_folder_is_empty(output)) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%s exists: an LTTng trace needs a new or an empty folder", output);
    }
    return VARVE_OK;
}

static int plan_buffers(const struct lttng_session_options *options, uint64_t free_bytes,
                        struct lttng_buffers *buffers, struct varve_message *message)
{
    unsigned cpus = lttng_buffers_cpus();

    *buffers = lttng_buffers_plan(options->buffer_bytes, free_bytes, cpus);
    if (!lttng_buffers_fit(buffers, free_bytes)) {
        return varve_message_set(message, VARVE_ERROR_FULL,
                                 "LTTng's buffers take %" PRIu64 " MiB for the %u CPUs that this machine may "
                                 "have, and only %" PRIu64 " MiB are free at %s",
                                 buffers->bytes >> 20, cpus, free_bytes >> 20, options->shm);
    }
    return VARVE_OK;
}

/* LTTng 2.15 and newer write CTF 2 unless told otherwise; older ones know one format and no such option. */
static bool has_formats(void)
{
    static const char *const list[] = {"lttng", "create", "--list-options", NULL};
    char *output = NULL;
    bool has_option =
        lttng_tool_run(&(struct lttng_tool_call){.argv = list, .output = &output}, NULL) == VARVE_OK &&
        output != NULL && strstr(output, "--trace-format") != NULL;

    free(output);
    return has_option;
}

static int session_create(struct lttng_session *session, struct varve_message *message)
{
    struct lttng_current current;
    char *output = NULL;
    char *shm = NULL;
    int error;

    if (asprintf(&output, "--output=%s", session->output) < 0) {
        output = NULL;
    }
    if (asprintf(&shm, "--shm-path=%s", session->shm) < 0) {
        shm = NULL;
    }
    if (output == NULL || shm == NULL) {
        error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an LTTng session");
    } else {
        const char *const create[] = {"lttng",
                                      "--no-sessiond",
                                      "create",
                                      session->name,
                                      output,
                                      shm,
                                      has_formats() ? "--trace-format=ctf-1.8" : NULL,
                                      NULL};

        lttng_current_save(&current);
        error = lttng_tool_simply(create, message);
        session->is_known = error == VARVE_OK;
        lttng_current_restore(&current, session->name);
    }
    free(output);
    free(shm);
    return error;
}

static bool is_listed(const char *name)
{
    struct varve_message unheard;
    char *sessions = NULL;
    bool answers = false;
    int error = lttng_daemon_ask(&answers, &sessions, &unheard);
    bool is_there = error == VARVE_OK && answers && lttng_daemon_has(sessions, name);

    free(sessions);
    return is_there;
}

/* The lock covers the time in which a daemon has no session of ours yet. Where the home folder can't be
 * written LTTng makes the session and fails after that, as it can't note it as the current one. */
static int session_make(struct lttng_session *session, struct varve_message *message)
{
    int lock = lttng_daemon_lock();
    int error = lttng_daemon_need(message);

    if (error == VARVE_OK && is_listed(session->name)) {
        error =
            varve_message_set(message, VARVE_ERROR_IO, "LTTng's session %s already exists", session->name);
    } else if (error == VARVE_OK) {
        error = session_create(session, message);
        if (error == VARVE_ERROR_IO && is_listed(session->name)) {
            session->is_known = true;
            error = VARVE_OK;
        }
    }
    if (lock >= 0) {
        close(lock);
    }
    return error;
}

static int start_in(struct lttng_session *session, const struct lttng_session_options *options,
                    uint64_t free_bytes, struct varve_message *message)
{
    struct varve_message unheard;
    struct lttng_buffers buffers;
    int error = plan_buffers(options, free_bytes, &buffers, message);

    if (error != VARVE_OK) {
        return error;
    }
    session->buffer_bytes = buffers.bytes;
    error = session_make(session, message);
    if (error == VARVE_OK) {
        error = lttng_channels_make(session->name, &buffers, options->may_block, message);
    }
    if (error == VARVE_OK) {
        const char *const start[] = {"lttng", "--no-sessiond", "start", session->name, NULL};

        error = lttng_tool_simply(start, message);
    }
    if (error != VARVE_OK) {
        if (session->is_known) {
            session_destroy(session, true, &unheard);
        }
        daemon_release(&unheard);
    }
    return error;
}

int lttng_session_start(const struct lttng_session_options *options, struct lttng_session **session_out,
                        struct varve_message *message)
{
    struct lttng_session *session;
    struct stat status;
    bool is_new;
    uint64_t free_bytes;
    int error = check_options(options, message);

    *session_out = NULL;
    if (error == VARVE_OK && !lttng_session_is_possible(message)) {
        error = VARVE_ERROR_UNSUPPORTED;
    }
    error = error != VARVE_OK ? error : check_output(options->output, message);
    if (error != VARVE_OK) {
        return error;
    }
    session = session_new(options, message);
    if (session == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    is_new = lstat(session->output, &status) != 0;
    error = lttng_folder_make(session->shm, &free_bytes, message);
    if (error == VARVE_OK) {
        error = start_in(session, options, free_bytes, message);
        if (error != VARVE_OK) {
            lttng_folder_remove(session->shm);
        }
        if (error != VARVE_OK && is_new) {
            lttng_folder_remove(session->output);
        }
    }
    if (error != VARVE_OK) {
        session_free(session);
        return public_error(error);
    }
    *session_out = session;
    return VARVE_OK;
}

/* ---- stop ---- */

/* A session whose recorder died between stop and destroy is stopped already, and LTTng fails then: only
 * destroy tells whether that mattered, as it stops what still runs and waits for the data. */
static int session_end(struct lttng_session *session, struct lttng_session_loss *loss,
                       struct varve_message *message)
{
    const char *const stop[] = {"lttng", "--no-sessiond", "stop", session->name, NULL};
    struct varve_message unheard;
    int stopped = lttng_tool_run(
        &(struct lttng_tool_call){.argv = stop, .patience_bytes = session->buffer_bytes}, message);
    int error = stopped == VARVE_ERROR_BUSY ? stopped : lttng_daemon_loss(session->name, loss, message);
    int destroyed = session_destroy(session, stopped == VARVE_OK, error == VARVE_OK ? message : &unheard);

    return error != VARVE_OK ? error : destroyed;
}

int lttng_session_stop(struct lttng_session *session, struct lttng_session_loss *loss_out,
                       struct varve_message *message)
{
    struct lttng_session_loss loss = {0, 0};
    struct varve_message unheard;
    int error = VARVE_OK;
    int released;

    if (session->is_known) {
        error = session_end(session, &loss, message);
    } else {
        lttng_metadata_rescue(session->shm, session->output);
        lttng_folder_remove(session->shm);
    }
    released = daemon_release(error == VARVE_OK ? message : &unheard);
    error = error != VARVE_OK ? error : released;
    if (loss_out != NULL) {
        *loss_out = loss;
    }
    session_free(session);
    return public_error(error);
}

/* ---- adopt ---- */

int lttng_session_adopt(const struct lttng_session_options *options, struct lttng_session **session_out,
                        struct varve_message *message)
{
    struct lttng_session *session;
    char *sessions = NULL;
    bool answers;
    int error = check_options(options, message);

    *session_out = NULL;
    if (error == VARVE_OK && !lttng_session_is_possible(message)) {
        error = VARVE_ERROR_UNSUPPORTED;
    }
    error = error != VARVE_OK ? error : lttng_daemon_ask(&answers, &sessions, message);
    if (error != VARVE_OK) {
        free(sessions);
        return public_error(error);
    }
    session = session_new(options, message);
    if (session == NULL) {
        free(sessions);
        return VARVE_ERROR_NO_MEMORY;
    }
    session->buffer_bytes = lttng_folder_sizes(session->shm).total;
    session->is_known = answers && lttng_daemon_has(sessions, session->name);
    free(sessions);
    if (!session->is_known) {
        error = varve_message_set(message, VARVE_ERROR_NOT_FOUND, "LTTng has no session %s any more",
                                  options->name);
        if (lttng_folder_is_empty(session->shm)) {
            session_free(session);
            return error;
        }
    }
    *session_out = session;
    return error;
}
