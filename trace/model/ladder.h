/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fragmentation ladder of one caching allocator, in bytes: why memory is reserved that no live request has. Each
 * reserved byte is of one rung, and reserved - live = the sum of the others. trace/store/views.sql defines the rungs;
 * model/layout_islands.c keeps them; views `ladder`, `ladder_change` and `ladder_peak` show them.
 */
#ifndef VARVE_TRACE_MODEL_LADDER_H
#define VARVE_TRACE_MODEL_LADDER_H

#include <stdint.h>

/* External holes are what is left: reserved less all others. In the order of the columns of event_row: what
 * changes often first. */
enum ladder_rung {
    LADDER_LIVE,     /* requested bytes of blocks in use */
    LADDER_ROUNDING, /* of blocks in use: what the size rules add to the request */
    LADDER_PENDING,  /* blocks that were given back and wait for other streams */
    LADDER_POOLS,    /* holes in pools and streams other than the one that asked the device last */
    LADDER_QUANTUM,  /* ends of partly used memory that no block has had yet */
    LADDER_CACHED,   /* memory without any block in use or pending */
    LADDER_UNSPLIT,  /* of blocks in use: what they are larger than their rounded size */
    LADDER_RESERVED, /* all of it */
    LADDER_RUNGS,
};

struct ladder {
    uint64_t bytes[LADDER_RUNGS];
};

/* Of the moments with the most reserved the first one with the most in blocks in use. seq 0: nothing was reserved. */
struct ladder_peak {
    struct ladder ladder;
    uint64_t seq;
    int64_t ts_ns;
};

#endif
