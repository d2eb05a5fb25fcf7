/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of one history under many settings: what the recording leaves open is inferred once, and each setting is
 * then a play of its own, on any thread. A setting that can't be run ends no other one.
 */
#ifndef VARVE_ANALYSIS_WHATIF_WHATIF_RUN_H
#define VARVE_ANALYSIS_WHATIF_WHATIF_RUN_H

#include "analysis/replay/replay_before.h"
#include "analysis/replay/replay.h"
#include "analysis/whatif/whatif_metrics.h"

struct whatif;

/* As the options of `varve replay` of the same names; texts are borrowed while a play runs. */
struct whatif_setting {
    const char *policy;        /* NULL: pytorch; "NAME", or "NAME:key=value:…" */
    const char *conf;          /* PyTorch's syntax; NULL: the history's own */
    uint64_t memory_limit;     /* of reserved bytes, of each device; 0: by the fraction in `conf`, or none */
    uint64_t capacity;         /* of each device; 0: large enough */
    bool stop_at_oom;          /* end with the first request that fails */
    bool served_only;          /* without the requests that failed in the history */
    bool counts_addresses;     /* segments lie upwards, not where a CUDA driver would put them */
    size_t empty_cache_before; /* of each device: a call of empty_cache before this event; 0: none */
    replay_observe observe;    /* on the play's thread, instead of what fills `moments`; NULL: that */
    void *observe_context;
    replay_skip skip; /* without the requests that it says; NULL: all are made */
    void *skip_context;
};

struct whatif_outcome {
    struct replay_result result; /* sums over devices; not to be used if there is an error */
    struct replay_figures figures;
    struct whatif_moments moments;
    int error; /* VARVE_OK, or why this setting can't be run, with the reason in `message` */
    struct varve_message message;
};

/// Infer what `history` leaves open; it is borrowed until whatif_close, which the caller owes if VARVE_OK is returned.
/// Errors: VARVE_ERROR_FORMAT (the history contradicts itself), UNSUPPORTED.
int whatif_open(const struct history *history, struct whatif **whatif_out, struct varve_message *message);
void whatif_close(struct whatif *whatif); /* NULL is allowed */
/// What it cost as it was recorded. Owner: `whatif`.
const struct replay_before *whatif_recorded(const struct whatif *whatif);
/// A setting was played whose plan is of all of the history, since nothing in it repeats: no program knows
/// that beforehand.
bool whatif_knew_future(const struct whatif *whatif);
/// Play `count` settings on `threads` threads (0: all processors); outcome i is that of setting i. One thread calls.
/// `progress` (may be NULL) gets one step a play. Errors: those of the settings are in their outcomes.
void whatif_play(struct whatif *whatif, const struct whatif_setting *settings, size_t count, unsigned threads,
                 struct whatif_outcome *outcomes, struct progress *progress);

#endif
