/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that a trace begins. LTTng-UST has no callback for that, but it describes the process (libraries,
 * build ids) to each session that is started, between two tracepoints of its own, lttng_ust_statedump:start
 * and :end, and any function can be made a probe of a tracepoint. Ours is one of :end, which is reached
 * whether or not the session wants it.
 */
#include "trace/recorder/lttng/provider.h"

#include <string.h>

#include <lttng/tracepoint.h>

/*
 * When it is called (LTTng-UST 2.13.5, tests/conformance/test_lttng_provider.py):
 *
 *   lttng start                          yes, also in mid-run and again after lttng stop (which switches the
 *                                        tracepoints off); they are on by then
 *   library opened, a session runs:
 *     LTTng's constructor did not wait   yes, soon after (LTTNG_UST_REGISTER_TIMEOUT=0)
 *     it waited for the session daemon   no: LTTng described the process within that wait, when there was no
 *                                        provider yet. The tracepoints are on when varve_sink_provider
 *                                        returns: its caller looks
 *   lttng enable-event, session runs     no; lttng regenerate statedump makes up for it
 *
 * Nothing falls in between: the probe is there before varve_sink_provider returns, so a trace whose
 * description ended earlier has its tracepoints on by then. It may also be called before that return, and
 * once for nothing.
 *
 * It runs in the thread that LTTng-UST keeps for a session daemon, under LTTng's lock ust_mutex and within
 * a read-side section of its RCU: events may be written, but whoever called fork, dlopen of another
 * provider, or exit meanwhile waits for us, so what we call must not wait for such a thread.
 */

struct lttng_ust_session;

static void trace_began(void *data, struct lttng_ust_session *session)
{
    const struct sink_host *host = data;
    (void)session; /* opaque */
    if (lttng_provider_is_wanted()) {
        host->started(host->context);
    }
}

bool lttng_provider_watch_starts(const struct sink_host *host)
{
    void *data;
    memcpy(&data, &host, sizeof(host)); /* ISO C knows no cast that takes away const */
    return lttng_ust_tracepoint_provider_register("lttng_ust_statedump", "end", (void (*)(void))trace_began, data,
                                                  "struct lttng_ust_session *, session") == 0;
}
