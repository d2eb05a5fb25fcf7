/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the collector */
/*
 * LTTng from the outside: a session daemon and one LTTng session of ours.
 * Done with the programs lttng and lttng-sessiond, so nothing is linked. Sessions of
 * others are never touched. One thread, the collector's, calls all of it.
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_SESSION_H
#define VARVE_TRACE_COLLECTOR_LTTNG_SESSION_H

#include "trace/error.h"

#include <stdbool.h>
#include <stdint.h>

struct lttng_session;

struct lttng_session_options {
    const char *name;      /* unique; letters, digits, - and _ */
    const char *output;    /* folder for the trace; absolute; made by LTTng */
    const char *shm;       /* folder for LTTng's buffers, best on tmpfs: absolute; made here */
    bool may_block;        /* a full buffer: wait (bounded) rather than discard */
    uint64_t buffer_bytes; /* for the buffers of all CPUs together; 0: from the free space of `shm` */
};

struct lttng_session_loss {
    uint64_t discarded_events;
    uint64_t discarded_packets;
};

/// True if lttng and lttng-sessiond are to be found; else one line in `message` that says what
/// is missing and how to get it.
bool lttng_session_is_possible(struct varve_message *message);

/// Start a session daemon if none answers for this user (it is not made a child of this process and is ended
/// by lttng_session_stop if it is ours and has no other session), then create the session, its channel and
/// its events (varve:* of all processes of this user), and start it. Owner of the result: the caller, until
/// lttng_session_stop. Errors: VARVE_ERROR_UNSUPPORTED (tools missing), IO (with what LTTng said).
int lttng_session_start(const struct lttng_session_options *options, struct lttng_session **session_out,
                        struct varve_message *message);

/// Stop and destroy the session: the trace is complete and its buffers are gone. Ends `session`, after an
/// error too. `loss_out` may be NULL.
int lttng_session_stop(struct lttng_session *session, struct lttng_session_loss *loss_out,
                       struct varve_message *message);

/// The same for a session whose collector died: take it over by name. VARVE_ERROR_NOT_FOUND: no such session;
/// `*session_out` is then NULL or, if buffers are left in `shm`, a session of which lttng_session_stop alone makes
/// use.
int lttng_session_adopt(const struct lttng_session_options *options, struct lttng_session **session_out,
                        struct varve_message *message);

/// Remove a folder with all that is in it, while LTTng may be doing the same. Links are removed, not
/// followed.
void lttng_folder_remove(const char *path);

#endif
