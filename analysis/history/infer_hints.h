/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to what a recording leaves open. Four things are: the size of a block that was there when the history began
 * late, whether completions in front of a request came with its search or with its wait for all streams, which segments
 * are in private pools of their own, and whether the history began within a request. Inference and play go by them;
 * conflict_search.c changes them.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_HINTS_H
#define VARVE_ANALYSIS_HISTORY_INFER_HINTS_H

#include "alloc/alloc.h"
#include "analysis/base/key_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of two segments (infer_pools.h) that are not in one pool. */
struct replay_apart {
    uint32_t a, b;
};

struct replay_hints {
    size_t first;       /* event to begin with: those before belong to a request that began earlier */
    struct map sizes;   /* of blocks of the start, by address */
    struct map choices; /* 1: the completion (event) came with a wait for all streams */
    struct map pools;   /* of segments: 1: not the default one; 2: one of its own */
    struct replay_apart *apart;
    size_t apart_count;
    bool derives_pools;    /* private pools, though no segment at the end names one */
    bool pools_take_turns; /* on one stream: a period of use belongs to no pool alone */
    unsigned attempts;
};

void replay_hints_free(struct replay_hints *hints);
/// Give the start's blocks the sizes that were found out.
void replay_hints_apply(const struct replay_hints *hints, struct varve_alloc_snapshot *start);

#endif
