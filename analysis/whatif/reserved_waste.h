/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the reserved memory nobody had asked for when most was reserved, by cause, of one setting: it is played, and
 * the ladder of its records says it. Called by advise_search.c.
 */
#ifndef VARVE_ANALYSIS_WHATIF_RESERVED_WASTE_H
#define VARVE_ANALYSIS_WHATIF_RESERVED_WASTE_H

#include "analysis/whatif/whatif_run.h"

/* X(name): columns of view ladder_peak. */
#define WHATIF_CAUSE_LIST(X) \
    X(rounding)              \
    X(unsplit_remainder)     \
    X(segment_quantum) X(pool_segregation) X(stream_pending) X(cached_segments) X(external_holes)

/* Bytes, sums over devices, each at its own moment: reserved - live_requested = the causes together. */
struct whatif_waste {
    bool is_known;
    int64_t reserved, live_requested;
#define WHATIF_CAUSE_FIELD(name) int64_t name;
    WHATIF_CAUSE_LIST(WHATIF_CAUSE_FIELD)
#undef WHATIF_CAUSE_FIELD
};

/// Play `setting` and look; `finds_limit`: as of struct replay_options; `follow`: with the recorded decisions, which
/// must come out. Errors: those of replay_play; `out` is then not known.
int whatif_waste_at_peak(const struct history *history, const struct whatif_setting *setting, bool finds_limit,
                         bool follow, struct whatif_waste *out, struct varve_message *message);

#endif
