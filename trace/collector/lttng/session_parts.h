/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by the files lttng_session*.c and their test */
/*
 * The parts of session.c: running LTTng's programs within a time limit, the session daemon of this
 * user, folders and buffer sizes. One thread, the collector's, calls all of it.
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_SESSION_PARTS_H
#define VARVE_TRACE_COLLECTOR_LTTNG_SESSION_PARTS_H

#include "trace/collector/lttng/session.h"
#include "trace/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- session_tool.c: one of LTTng's programs, run to its end ---- */

/// How long a program may take before it is killed; 20 s at first. Tests shorten it.
void lttng_tool_limit_set(uint64_t limit_ns);
uint64_t lttng_tool_limit(void);

struct lttng_tool_call {
    const char *const *argv; /* argv[0] is looked up in PATH */
    const char *variable;    /* NAME=VALUE, put in front of the environment; NULL: none */
    uint64_t patience_bytes; /* the limit is longer by the time to write so much to a slow disk */
    char **output;           /* all that it printed; the caller frees it. NULL: not wanted */
};

/// Run a program to its end: in a session of its own (Ctrl-C does not reach it), with the signal mask and the
/// dispositions of a fresh process, without LD_PRELOAD and without the recording's variable. It is reaped
/// here, whatever happens. Errors: UNSUPPORTED (not there), IO (what it said), BUSY (it took too long).
int lttng_tool_run(const struct lttng_tool_call *call, struct varve_message *message);

/// The same for `argv` alone.
int lttng_tool_simply(const char *const *argv, struct varve_message *message);

/// True if PATH has an executable file of that name.
bool lttng_tool_is_there(const char *name);

void lttng_nap(uint64_t *nap_ns); /* sleeps, and doubles the nap up to 10 ms */

/// The next <tag>text</tag> of LTTng's machine interface; `cursor` moves behind it.
bool lttng_xml_next(const char **cursor, const char *tag, const char **text, size_t *length);

/* ---- session_daemon.c: the session daemon of this user ---- */

/// Whether a daemon answers, and then its sessions (freed by the caller) as lttng_daemon_has takes them.
int lttng_daemon_ask(bool *answers_out, char **sessions_out, struct varve_message *message);
/// Whether `name` is among them; NULL: whether there is any.
bool lttng_daemon_has(const char *sessions, const char *name);
/// What LTTng says it lost of a session that is stopped.
int lttng_daemon_loss(const char *name, struct lttng_session_loss *loss, struct varve_message *message);
/// Start one if none answers. Afterwards it is no child of this process, though that may be a subreaper.
int lttng_daemon_need(struct varve_message *message);
/// End the daemon and what belongs to it, if a recorder of this user started it and it has no session left.
int lttng_daemon_release(struct varve_message *message);

/// Between processes: who starts a daemon and makes its first session, and who ends an idle one, exclude each
/// other. Returns a descriptor to close, -1 if the lock is not to be had in time.
int lttng_daemon_lock(void);

/* ---- session_channels.c and session_files.c ---- */

#define LTTNG_NAME_MAX 200 /* of a session's name */
#define LTTNG_META_SUB_BUFFER_BYTES 65536U
#define LTTNG_META_SUB_BUFFERS 8U

struct lttng_buffers {
    uint64_t sub_buffer_bytes;
    unsigned sub_buffers; /* per CPU */
    uint64_t bytes;       /* of all CPUs, both channels */
};

/// Both channels and their events; nothing is traced until the session is started.
int lttng_channels_make(const char *session, const struct lttng_buffers *buffers, bool may_block,
                        struct varve_message *message);

/// Sizes are powers of two. `bytes` 0: a quarter of `free_bytes`, at most 256 MiB, at least 1 MiB per CPU.
struct lttng_buffers lttng_buffers_plan(uint64_t bytes, uint64_t free_bytes, unsigned cpus);
bool lttng_buffers_fit(const struct lttng_buffers *plan, uint64_t free_bytes);
/// CPUs that LTTng makes buffers for: all that this machine could ever have, idle and absent ones included.
unsigned lttng_buffers_cpus(void);

/// Make the folder for the buffers; INVALID if it is there already.
int lttng_folder_make(const char *path, uint64_t *free_bytes_out, struct varve_message *message);
bool lttng_folder_is_empty(const char *path); /* true also: not there */
/* Bytes of its files, the metadata of traces apart. */
struct lttng_folder_sizes {
    uint64_t largest, total;
};
struct lttng_folder_sizes lttng_folder_sizes(const char *path);

/// The metadata of the traces below `output`, anew from the buffers' folder, where the session daemon writes
/// them as it thinks of them. Of a daemon that was killed the consumer delivers the events, but of the
/// metadata only what it had got, and the trace cannot be read.
void lttng_metadata_rescue(const char *shm, const char *output);

/* `lttng create` makes its session the one that commands without a session's name are about. */
struct lttng_current {
    char path[4096];
    char text[1024];
    ssize_t length; /* < 0: no such file */
};
void lttng_current_save(struct lttng_current *current);
void lttng_current_restore(const struct lttng_current *current, const char *session);

#endif
