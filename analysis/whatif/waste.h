/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the reserved memory nobody had asked for when most was reserved, by cause: of a setting, found by playing it. Called by
 * advise.c.
 */
#ifndef VARVE_ANALYSIS_WHATIF_WASTE_H
#define VARVE_ANALYSIS_WHATIF_WASTE_H

#include "analysis/whatif/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes, sums over devices, each at its own first moment with most reserved:
 * reserved = requested + rounding + unsplit + pending + cached + holes. */
struct whatif_waste {
    int64_t reserved, requested;
    int64_t rounding; /* blocks in use: what the rules of sizes add to the request */
    int64_t unsplit;  /* blocks in use: the rest, too small to be split off, or not allowed to be */
    int64_t pending;  /* blocks freed, and in use by other streams */
    int64_t cached;   /* segments without a block in use */
    int64_t holes;    /* free blocks beside blocks in use */
};

/// Play `setting` and look; `follow`: with the recorded decisions, which must come out. Threads: any. Errors: those of replay_run.
int whatif_waste_at_peak(const struct history *history, const struct whatif_setting *setting, bool follow,
                         struct whatif_waste *out, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
