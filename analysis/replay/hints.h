/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conflict search: what a recording leaves open is answered in the likeliest way, and a replay that then goes
 * wrong is begun anew with the next answer. Four things are open: the size of a block that was there when the
 * history began late, whether completions in front of a request came with its search or with its wait for all
 * streams, which segments are in private pools of their own, and whether the history began within a request. Called by infer.c and replay.c.
 */
#ifndef VARVE_ANALYSIS_REPLAY_HINTS_H
#define VARVE_ANALYSIS_REPLAY_HINTS_H

#include "alloc/alloc.h"
#include "analysis/replay/map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct replay;

/* Numbers of two segments (pools.h) that are not in one pool. */
struct replay_apart {
    uint32_t a, b;
};

struct replay_hints {
    size_t first;              /* event to begin with: those before belong to a request that began earlier */
    struct replay_map sizes;   /* of blocks of the start, by address */
    struct replay_map choices; /* 1: the completion (event) came with a wait for all streams */
    struct replay_map pools;   /* of segments: 1: not the default one; 2: one of its own */
    struct replay_apart *apart;
    size_t apart_count;
    bool derives_pools;    /* private pools, though no segment at the end names one */
    bool pools_take_turns; /* on one stream: a period of use belongs to no pool alone */
    unsigned attempts;
};

void replay_hints_free(struct replay_hints *hints);
/// Give the start's blocks the sizes that were found out.
void replay_hints_apply(const struct replay_hints *hints, struct varve_alloc_snapshot *start);
/// Whether `completion`, in front of event `request`, came with a wait: what is known, else what is likely.
bool replay_choose(struct replay *replay, size_t completion, size_t request, bool likely);
/// After a mismatch: another answer that may be right; false if there is none.
bool replay_hints_learn(const struct replay *replay, struct replay_hints *hints);

#ifdef __cplusplus
}
#endif

#endif
