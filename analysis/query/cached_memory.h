/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caching allocator has reserved and does not use: segments without a block in use, which it could give back, or
 * which a private pool keeps while its CUDA graph or MemPool lives, and holes, free ranges in segments that have a
 * block in use. Called by segment_listing.c and by the command `oom`.
 */
#ifndef VARVE_ANALYSIS_QUERY_CACHED_MEMORY_H
#define VARVE_ANALYSIS_QUERY_CACHED_MEMORY_H

#include "analysis/query/segment_query.h"

/* Free blocks without a gap between them, in a segment with a block in use. */
struct hole {
    uint64_t addr, size;
    struct segment_item segment;              /* all of it, if it is expandable */
    struct varve_layout_block before, behind; /* in use, right beside it; extent 0: none */
};

struct cached_sums {
    uint64_t reserved, used,
        pending; /* bytes; reserved: of segments that events name, the others also of implied ones */
    uint64_t in_holes, in_empty, in_kept; /* free bytes */
    uint64_t largest_hole, largest_empty;
    uint64_t segments, used_blocks, pending_blocks, holes, empty_segments, kept_segments;
    uint64_t implied_bytes, implied_blocks; /* in use, of segments that no event names */
};

/* Of one allocator. */
struct cached {
    struct cached_sums sums;
    struct hole *holes; /* the largest first, then by address */
    size_t hole_count, hole_capacity;
    struct segment_item *empty; /* segments without a block in use that could be given back; the same order */
    size_t empty_count, empty_capacity;
    struct segment_item *kept; /* those of private pools; the same order */
    size_t kept_count, kept_capacity;
    struct segment_item *used; /* the others, those with most free bytes first */
    size_t used_count, used_capacity;
};

void cached_load(struct cached *cached, const struct varve_layout *layout);
void cached_free(struct cached *cached);

#endif
