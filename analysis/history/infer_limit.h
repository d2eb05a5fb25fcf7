/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of reserved bytes that a device's history was recorded under, which no snapshot holds: between what was
 * reserved and what was refused. Who plays the history under a limit is the caller (replay.c).
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_LIMIT_H
#define VARVE_ANALYSIS_HISTORY_INFER_LIMIT_H

#include "analysis/history/history.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the events and the rests of a snapshot say. */
struct replay_limit_bounds {
    uint64_t peak;       /* the most that was reserved */
    uint64_t granted;    /* no limit is less: it would have refused what was granted */
    uint64_t unrefused;  /* from here on nothing is refused, and nothing is collected */
    uint64_t capacity;   /* the least of what was reserved and what the device had free when it refused; 0: unknown */
    bool is_exact;       /* what is granted and refused under `granted` is what the limit granted and refused */
    bool may_be_limited; /* something was refused or given back */
};

/* What came of the history under a limit. */
struct replay_limit_trial {
    bool comes_out;    /* every decision, and the end */
    bool is_too_small; /* more was given back or refused than in the history; else less, or something else differs */
    uint64_t refusals; /* retries and failures */
    size_t reached;    /* events that came out */
};

/* Under `used` the history comes out. All are 0 if no limit does, or none explains anything. */
struct replay_limit {
    uint64_t used;  /* `capacity`, if that does, else `least` */
    uint64_t least; /* the smallest under which the history comes out */
    uint64_t most;  /* the largest with as many retries and failures; 0: not looked for */
    bool is_capacity;
    uint64_t nearest; /* if none does: the one under which most events came out; 0: no more than without a limit */
};

struct replay_limit_search {
    struct replay_limit_bounds bounds;
    bool finds_most;
    struct replay_limit_trial unlimited; /* what comes without a limit */
    /* Errors end the search. */
    int (*play)(void *context, uint64_t limit, struct replay_limit_trial *out);
    void *context;
};

/// `says_free`: events of failures say what the device had free. Errors: VARVE_ERROR_NO_MEMORY.
int replay_limit_bounds(const struct history_device *device, bool says_free, double threshold,
                        struct replay_limit_bounds *out);
/// Errors: those of `play`.
int replay_limit_find(const struct replay_limit_search *search, struct replay_limit *out);

#endif
