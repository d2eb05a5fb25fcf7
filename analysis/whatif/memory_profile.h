/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history as a profile for the policy `plan`: its iteration, if the requests repeat, else all of it, and a place for
 * each request of that, chosen offline.
 */
#ifndef VARVE_ANALYSIS_WHATIF_MEMORY_PROFILE_H
#define VARVE_ANALYSIS_WHATIF_MEMORY_PROFILE_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"

struct whatif_profile {
    struct varve_alloc_plan *plans; /* of each device */
    size_t count;
    /* of some device nothing repeats: its plan is of the whole history, which no program knows beforehand */
    bool is_whole;
};

/// Whether a setting's policy needs a profile.
bool whatif_needs_profile(const char *policy);
/// Owner: the caller, by whatif_profile_free. Threads: any. Errors: those of placement_solve.
int whatif_profile_make(const struct history *history, struct whatif_profile *profile, struct varve_message *message);
void whatif_profile_free(struct whatif_profile *profile);

#endif
