/* SPDX-License-Identifier: Apache-2.0 */
/* The program under record, started, and its end. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_LAUNCH_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_LAUNCH_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct launch {
    int32_t pid;
    int pidfd;
    int signal_fd; /* SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT of the collector arrive here */
    bool has_ended;
    /* it ran already and is no child: what ends it is asked of pidfd, has_ended also if the user said so */
    bool is_attached;
    bool is_gone;        /* is_attached: it has ended by itself */
    int wait_status;     /* of waitpid, once has_ended; not known where is_attached */
    unsigned interrupts; /* SIGINT seen since the program ended */
};

/// A child was reaped; `peak_rss_bytes`: the most that was resident of it or of a child that it had waited for.
typedef void launch_ended(void *context, int32_t pid, int wait_status, uint64_t peak_rss_bytes);

/// Start `argv` with `preload` put in front of LD_PRELOAD, `session_directory` as VARVE_SESSION, and
/// `variables` ("NAME=VALUE", RECORD_VARIABLES at most and NULL at the end, borrowed) in place of the environment's
/// own. The program gets the signal mask and dispositions that the collector had before; daemons of it become children
/// of whoever adopts them without varve. Errors of exec come back here.
int launch_start(struct launch *launch, char *const argv[], const char *preload, const char *session_directory,
                 char *const *variables, struct varve_message *message);

/// The same place for a process that runs already: signals of the collector arrive here and end its recording,
/// not the process.
int launch_attach(struct launch *launch, int32_t pid, struct varve_message *message);

/// Has it ended, whether its parent knows or not? Of pid and pidfd alone (-1: the kernel gave none).
bool launch_attached_is_gone(const struct launch *launch);

/// Handle the signals that arrived, reap children, forward SIGTERM, SIGHUP, SIGQUIT to the program. SIGINT
/// from a terminal reaches the program by itself: it is forwarded only if it was sent to the collector alone.
/// `ended` is called for each process reaped. Never blocks.
void launch_poll(struct launch *launch, launch_ended *ended, void *context);

/// Wait until the program has ended, handing signals on meanwhile: for a collector that can't go on. Returns
/// `error` unchanged. Others that end meanwhile are reaped silently.
int launch_wait(struct launch *launch, int error);

/// From here on Ctrl-C is answered at once, by whatever thread: with line `first`, and the next time with line `second`
/// and `end`, which ends this process (NULL: with `first` again). Signals that came before do not count. Texts are
/// copied.
void launch_finishing(struct launch *launch, const char *first, const char *second, void (*end)(void));
/// Not any more.
void launch_finished(void);

/* The program under record, looked at before it is started. */

struct launch_check {
    char path[4096];        /* what will be executed, found along PATH */
    char interpreter[4096]; /* of a script; "" otherwise */
};

/// Look at the program before it is started: VARVE_ERROR_NOT_FOUND, VARVE_ERROR_PERMISSION (not executable, a
/// directory), VARVE_ERROR_UNSUPPORTED (statically linked, other machine, setuid or setgid, file
/// capabilities), each with one line that says what is wrong and what to do.
int launch_check(const char *program, struct launch_check *check_out, struct varve_message *message);

/* What the program's environment says besides LD_PRELOAD and the session. */

struct varve_collect_options;
struct varve_message;

#define RECORD_VARIABLES 8

struct record_variables {
    char *items[RECORD_VARIABLES + 1]; /* "NAME=VALUE", NULL at the end */
};

/// For what `options` asks for: `torch_history` (4096 bytes) gets the prefix of what PyTorch's own
/// history is written to, "" if it isn't asked for. Errors: VARVE_ERROR_NOT_FOUND (a library is missing, or
/// the database's folder), NO_MEMORY.
int record_variables_make(struct record_variables *variables, const struct varve_collect_options *options,
                          char *torch_history, struct varve_message *message);
void record_variables_free(struct record_variables *variables);

/// The prefix of what PyTorch's own history of a recording becomes, 4096 bytes, absolute: that of the database, without
/// its .db. Errors: VARVE_ERROR_NOT_FOUND, INVALID.
int record_history_name(const char *database_path, char *history, struct varve_message *message);
/// What of varve's own an attached PyTorch needs is there. Error: VARVE_ERROR_NOT_FOUND.
int record_history_check(const struct varve_collect_options *options, struct varve_message *message);

#endif
