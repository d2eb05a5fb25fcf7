/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What would have served a request that failed for want of memory, found by playing the history's requests again: under
 * the same memory limit with other settings, other policies or one more call of empty_cache, and under the recorded
 * settings with more memory. Called by the command `oom`.
 */
#ifndef VARVE_ANALYSIS_WHATIF_ADVISE_EXPLAIN_H
#define VARVE_ANALYSIS_WHATIF_ADVISE_EXPLAIN_H

#include "analysis/whatif/whatif_run.h"

struct explain;

struct explain_options {
    const char *policy;    /* of the recording; NULL: pytorch */
    uint64_t memory_limit; /* of the recording; 0: worked out */
    unsigned threads;      /* 0: all processors */
    struct progress *progress;
};

/* A request that failed in the recording. */
struct explain_failure {
    unsigned device;
    size_t event;   /* number in the device's history, from 0 */
    size_t request; /* number among the device's requests, from 0 */
};

struct explain_facts {
    uint64_t limit;     /* that the replays ran under */
    bool is_given;      /* by the caller; else worked out: what was reserved at most, and the true one may be higher */
    bool is_reproduced; /* with it every recorded decision came out again */
    uint64_t requests;  /* of all devices */
    const struct explain_failure *failures; /* by device and event */
    size_t failure_count;
};

enum explain_kind {
    EXPLAIN_SETTING,     /* of PyTorch */
    EXPLAIN_EMPTY_CACHE, /* a call that the program makes */
    EXPLAIN_RULE,        /* that no release of PyTorch has yet */
    EXPLAIN_POLICY,      /* another allocator */
};

/* Something that served the request when the history was played with it. */
struct explain_answer {
    enum explain_kind kind;
    const char *change; /* the settings that are new, "without NAME:VALUE", "no settings", or the policy's name */
    const char *conf;   /* all settings; NULL: those recorded. Both until explain_close */
    size_t empty_event; /* EXPLAIN_EMPTY_CACHE: the call comes before this event, */
    uint64_t empty_live,
        empty_requests; /* when so many bytes are in use, and so many requests before the one that failed */
    uint64_t failures;  /* requests that still fail, of all */
    bool is_luck; /* it is not served if the device gives other addresses: they decide between blocks of equal size */
    struct replay_figures figures;
    uint64_t device_ns;
    size_t number; /* for explain_smallest_limit */
};

#define EXPLAIN_ANSWERS_MAX 12
#define EXPLAIN_ALL SIZE_MAX      /* requests */
#define EXPLAIN_RECORDED SIZE_MAX /* settings */

/// `history` and the options' texts are borrowed until explain_close, which the caller owes if VARVE_OK is returned.
/// Errors: those of whatif_open and replay_before_load; VARVE_ERROR_UNSUPPORTED (no limit is given and none
/// can be worked out).
int explain_open(const struct history *history, const struct explain_options *options, struct explain **explain_out,
                 struct varve_message *message);
void explain_close(struct explain *explain); /* NULL is allowed */
const struct explain_facts *explain_get_facts(const struct explain *explain);
/// The recorded settings, played like all others, fail there too: only then do the others say anything about it.
bool explain_fails_again(const struct explain *explain, size_t failure);
/// What serves it without failing an earlier request that was served: the best of each kind of change, the best first.
/// `tried_out`: how many were played.
size_t explain_find(struct explain *explain, size_t failure, struct explain_answer answers[EXPLAIN_ANSWERS_MAX],
                    size_t *tried_out);
/// The limit, a multiple of 2 MiB, under which the failure (or EXPLAIN_ALL requests) is served and 2 MiB below which it
/// is not, under the recorded settings or those of an answer; of several the one next to the limit of the recording.
/// 0: none was found.
uint64_t explain_smallest_limit(struct explain *explain, size_t failure, size_t number);

#endif
