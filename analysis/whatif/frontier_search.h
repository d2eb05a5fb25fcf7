/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frontier of a setting: the smallest capacity at which all requests of a history are served. A capacity is a limit
 * of reserved bytes for each device, as the setting's memory_limit, and a multiple of FRONTIER_STEP.
 *
 * Below the load (most bytes live at a time) everything fails. Above it, more memory need not be better: what is
 * released or collected because of a limit can leave holes in other places, so that a capacity fails above one that
 * does. So beside the bisection others are probed, and what is found is said: `fails_above`.
 */
#ifndef VARVE_ANALYSIS_WHATIF_FRONTIER_SEARCH_H
#define VARVE_ANALYSIS_WHATIF_FRONTIER_SEARCH_H

#include "analysis/whatif/live_demand.h"
#include "analysis/whatif/whatif_run.h"

#define FRONTIER_STEP (UINT64_C(2) << 20)
#define FRONTIER_CHECKS 8 /* probes on either side of the frontier, evenly spaced, beside those of the bisection */

struct frontier_options {
    unsigned threads;   /* 0: all processors */
    bool is_exhaustive; /* probe every capacity from the load to the unlimited peak, none is left open then */
    bool with_failed;   /* the requests that failed in the history are to be served, too */
    struct progress *progress;
};

struct frontier {
    int error; /* VARVE_OK, or why there is none for this setting, with the reason in `message` */
    struct varve_message message;
    uint64_t bytes;             /* all requests are served; the capacity one step below fails */
    uint64_t fails_above;       /* largest probed capacity above `bytes` that fails; 0: none */
    uint64_t safe;              /* smallest probed capacity above all that fail: `bytes`, or above `fails_above` */
    size_t probes;              /* capacities that were played */
    struct whatif_outcome free; /* without a limit */
    struct whatif_outcome at;   /* at `bytes` */
};

/// The frontier of each of `count` settings (their limits, stop_at_oom and served_only are ignored). `demand` is the
/// history's. Errors are those of settings, in their results.
void frontier_find(struct whatif *whatif, const struct whatif_demand *demand, const struct whatif_setting *settings,
                   size_t count, const struct frontier_options *options, struct frontier *frontiers);

#endif
