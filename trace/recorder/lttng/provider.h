/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the provider library need of each other. */
#ifndef VARVE_TRACE_RECORDER_LTTNG_PROVIDER_H
#define VARVE_TRACE_RECORDER_LTTNG_PROVIDER_H

#include "trace/format/sink_provider.h"

#include <stdbool.h>

/* provider.c */

/// True if some trace wants records at this moment. Any thread.
bool lttng_provider_is_wanted(void);

/* provider_start.c */

/// From now on, for good, host->started is called when a trace that wants our events begins. False: LTTng has no memory
/// for it. Once per process.
bool lttng_provider_watch_starts(const struct sink_host *host);

/* provider_fork.c */

/// From now on children of a fork can't inherit a lock that a thread of LTTng holds. Once per process.
void lttng_provider_watch_forks(void);

#endif
