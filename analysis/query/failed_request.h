/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that a caching allocator could not serve, and the memory of that moment: what was free, why it did not fit,
 * and what of it would have. Called by the command `oom`.
 */
#ifndef VARVE_ANALYSIS_QUERY_FAILED_REQUEST_H
#define VARVE_ANALYSIS_QUERY_FAILED_REQUEST_H

#include "analysis/query/cached_memory.h"

struct database;

#define FAILURE_BLOCKS_MAX 3

struct failed_request {
    int64_t seq, process_id, device;
    uint64_t rounded; /* bytes of the block that it needed */
    uint16_t stream, pool;
};

/* Free memory of one pool on one stream, or of several. */
struct failure_free {
    uint64_t bytes, blocks, largest;
    uint16_t largest_stream, largest_pool;
};

/* Blocks in use which, freed, leave one free block that is large enough: those with the fewest bytes. */
struct failure_freeing {
    uint64_t bytes, blocks; /* 0: no segment of the pool and stream is that large */
    uint64_t result;        /* size of the block that they would leave */
    struct varve_layout_block first[FAILURE_BLOCKS_MAX];
};

/* The segment of its pool and stream with the most free bytes, and the blocks that keep them apart,
 * the smallest first. */
struct failure_segment {
    uint64_t addr, bytes, unused, largest;
    uint64_t blocks, block_bytes; /* in use or pending */
    struct varve_layout_block first[FAILURE_BLOCKS_MAX];
};

struct failure {
    bool is_known;                    /* the trace has the state of that allocator */
    uint64_t reserved, used, pending; /* bytes */
    uint64_t live;                    /* requested bytes of the blocks in use */
    struct failure_free own, others;  /* of the request's pool and stream, of all the rest */
    uint64_t with_pending;            /* the largest block of its own, if all pending blocks had been free */
    uint64_t largest_addr;            /* of own.largest */
    struct failure_freeing freeing;
    struct failure_segment best; /* bytes 0: none */
};

/// Errors: those of segments_state_load.
int failure_load(struct failure *failure, struct database *database, const struct failed_request *request,
                 struct varve_message *message);

#endif
