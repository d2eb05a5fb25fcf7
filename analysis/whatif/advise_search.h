/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which settings of PyTorch's allocator a history would have fared better with: many are tried on its requests, and the
 * few that help are picked. All figures are those of replays: `varve replay` with the same options gives the same.
 */
#ifndef VARVE_ANALYSIS_WHATIF_ADVISE_SEARCH_H
#define VARVE_ANALYSIS_WHATIF_ADVISE_SEARCH_H

#include "analysis/whatif/advise_candidates.h"
#include "analysis/whatif/whatif_run.h"
#include "analysis/whatif/reserved_waste.h"

#define ADVISE_PICKS_MAX 3

struct advise_options {
    uint64_t memory_limit; /* 0: that which explains what was recorded, if it does; with a capacity none */
    uint64_t capacity;     /* of each device; 0: large enough */
    int64_t duration_ns;   /* of the recorded run; 0: unknown */
    unsigned threads;      /* 0: all processors */
    struct progress *progress;
};

/* A setting that was tried. */
struct advise_trial {
    struct candidate candidate;
    char text[CANDIDATE_TEXT_BYTES]; /* in PyTorch's syntax; "": its defaults */
    struct whatif_outcome outcome;
};

/* Why a setting was picked: it is the best of all, or of some. */
enum advise_reason {
    ADVISE_BEST,
    ADVISE_WITHOUT_EXPANDABLE, /* which not every program can use */
    ADVISE_WITHOUT_PRICE,      /* of those whose device calls take no more time than now */
};

struct advise_pick {
    const struct advise_trial *trial;
    enum advise_reason reason;
    struct whatif_waste waste;
};

struct advice {
    struct replay_before before;
    uint64_t limit, capacity; /* that all were tried under; 0: none */
    bool is_given_room;       /* limit and capacity are the caller's: they may differ from those of the recording */
    /* What the others are compared with: the history's own setting. `text` may lack what no candidate holds. If
     * is_followed every decision is the recorded one; else these are its requests made again, like
     * those of the trials. */
    struct advise_trial own;
    bool is_followed;
    struct whatif_waste waste; /* of the own setting */
    /* of the own setting's requests made again, so that trials can be trusted as far as this is the same */
    struct replay_figures again;
    struct advise_trial *trials; /* of other settings */
    size_t trial_count, trial_capacity;
    int64_t least_ooms;  /* of all settings, the own one too */
    int64_t duration_ns; /* of the recorded run; 0: unknown */
    struct advise_pick picks[ADVISE_PICKS_MAX];
    size_t pick_count;
};

/// Owner of what `out` holds: the caller, by advise_free, if VARVE_OK is returned. Errors: those of replaying the
/// history with its own settings.
int advise_run(const struct history *history, struct whatif *whatif, const struct advise_options *options,
               struct advice *out, struct varve_message *message);
void advise_free(struct advice *advice);
/// How a setting is played; the texts are the trial's.
struct whatif_setting advise_setting(const struct advice *advice, const struct advise_trial *trial);
/// Is `trial` better than the own setting: fewer failures; or less reserved; or no more of it and less time in
/// calls of the device.
bool advise_helps(const struct advice *advice, const struct advise_trial *trial);

#endif
