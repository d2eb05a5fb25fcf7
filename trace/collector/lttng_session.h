/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One LTTng session of ours, by LTTng's control library (liblttng-ctl, opened when it is needed): made before the
 * recorded program starts, stopped and destroyed after it, or taken over by `varve recover`. Sessions of others are
 * never touched. One thread, the collector's, calls all of it.
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_SESSION_H
#define VARVE_TRACE_COLLECTOR_LTTNG_SESSION_H

#include "base/error.h"
#include "trace/collect.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lttng_recording;

struct lttng_recording_options {
    const char *name;      /* unique; letters, digits, - and _, at most 63 */
    const char *output;    /* folder for the trace; absolute; made by LTTng, and still there after an error */
    bool may_block;        /* a full buffer: wait (bounded) rather than discard */
    uint64_t buffer_bytes; /* for the buffers of all CPUs together; 0: from the free space of /dev/shm */
};

struct lttng_recording_loss {
    uint64_t discarded_events;
    uint64_t discarded_packets;
};

/// True if liblttng-ctl and lttng-sessiond are to be found; else one line in `message` that says what is missing and
/// how to get it.
bool lttng_recording_is_possible(struct varve_message *message);

/// Start a session daemon if none answers for this user (it is not made a child of this process and is ended
/// by lttng_recording_stop if it is ours and has no other session), then create the session, its channels and
/// its events (varve:* of all processes of this user), and start it. Owner of the result: the caller, until
/// lttng_recording_stop. Errors: VARVE_ERROR_UNSUPPORTED (LTTng is missing), FULL (no room for the buffers), IO (with
/// what LTTng said, or that it does not answer).
int lttng_recording_start(const struct lttng_recording_options *options, struct lttng_recording **session_out,
                          struct varve_message *message);

/// Stop and destroy the session: the trace is complete, but for what LTTng can't deliver of a killed program. Ends
/// `session`, after an error too. `loss_out` may be NULL.
int lttng_recording_stop(struct lttng_recording *session, struct lttng_recording_loss *loss_out,
                         struct varve_message *message);

/// The same for a session whose collector died: take it over by name. VARVE_ERROR_NOT_FOUND: no such session.
int lttng_recording_adopt(const struct lttng_recording_options *options, struct lttng_recording **session_out,
                          struct varve_message *message);

/// Remove a folder with all that is in it, while LTTng may be doing the same. Links are removed, not followed.
void lttng_folder_remove(const char *path);

/// How long LTTng may take to answer, 20 s at first; longer by the time to write the buffers to a slow disk. Tests
/// shorten it.
void lttng_limit_set(uint64_t limit_ns);

struct lttng_buffers {
    uint64_t sub_buffer_bytes;
    unsigned sub_buffers; /* per CPU */
    uint64_t bytes;       /* of all CPUs, both channels */
};

/// Sizes are powers of two. `bytes` 0: a quarter of `free_bytes`, at most 256 MiB, at least 1 MiB per CPU.
struct lttng_buffers lttng_buffers_plan(uint64_t bytes, uint64_t free_bytes, unsigned cpus);
bool lttng_buffers_fit(const struct lttng_buffers *plan, uint64_t free_bytes);
/// CPUs that LTTng makes buffers for: all that this machine could ever have, idle and absent ones included.
unsigned lttng_buffers_cpus(void);

/*
 * The LTTng session daemon of this user: one that answers is used and left alone, else one is started, and ended by
 * whichever recorder finishes last. One thread calls all of it.
 */

/// Whether PATH has the program lttng-sessiond.
bool lttng_daemon_is_there(void);
/// Start one. Afterwards it is no child of this process, though that may be a subreaper. Errors: UNSUPPORTED, IO (it
/// failed, or did not answer within `limit_ns`).
int lttng_daemon_start(uint64_t limit_ns, struct varve_message *message);
/// Whether a recorder of this user has started the one that runs.
bool lttng_daemon_is_ours(void);
/// End it, if lttng_daemon_is_ours: SIGTERM, and SIGKILL where that does not help.
void lttng_daemon_end(void);

/// Between processes: who starts a daemon and makes its first session, and who ends an idle one, exclude each
/// other. Returns a descriptor to close, -1 if the lock is not to be had within `limit_ns`.
int lttng_daemon_lock(uint64_t limit_ns);

/*
 * How many records of a recording its LTTng trace lacks. A program that is killed while it writes an event leaves
 * a sub-buffer that LTTng never delivers, and LTTng does not count that. The collector knows what each ring held;
 * what the trace holds is compared with it by ring and number. One thread calls all of it.
 */

/* A ring of the recording: `records` with numbers up to `last`. */
struct lttng_ring {
    uint32_t process, ring;
    uint64_t records, last;
    uint64_t found; /* of these, in the trace */
};

/// Counts what the traces below `folder` lack of `rings`, which are sorted meanwhile. A record that the trace has
/// and the ring has not (a thread was killed between the two) makes up for none. Errors: those of `numbers`.
int lttng_missing_count(struct lttng_ring *rings, size_t count, const char *folder, varve_collect_numbers *numbers,
                        uint64_t *missing_out, struct varve_message *message);

#endif
