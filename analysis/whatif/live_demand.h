/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the requests of a history need, whatever serves them: no allocator does with less memory than
 * was live at a time.
 */
#ifndef VARVE_ANALYSIS_WHATIF_LIVE_DEMAND_H
#define VARVE_ANALYSIS_WHATIF_LIVE_DEMAND_H

#include "analysis/history/history.h"
#include "base/error.h"

/* Bytes as requested. Of what served requests need (`load`, …) and of all requests, with those that
 * failed (`…_all`). */
struct whatif_demand {
    uint64_t load, load_all;               /* most that was live at a time: of each device, added up */
    uint64_t device_load, device_load_all; /* the same of the device that needs most */
    uint64_t largest, largest_all;         /* request */
    size_t largest_event;                  /* number of the event that `largest` is, of its device */
    uint64_t served, failed;               /* requests */
    uint64_t events;
};

/// Errors: VARVE_ERROR_FORMAT, UNSUPPORTED (the state before the first event can't be worked out).
int whatif_demand_load(const struct history *history, struct whatif_demand *demand_out, struct varve_message *message);

#endif
