/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LTTng session daemon of this user: one that answers is used and left alone, else one is started, and ended by
 * whichever recorder finishes last. One thread calls all of it.
 */
#ifndef VARVE_TRACE_COLLECTOR_LTTNG_DAEMON_H
#define VARVE_TRACE_COLLECTOR_LTTNG_DAEMON_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

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

#endif
