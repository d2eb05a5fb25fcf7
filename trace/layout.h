/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments and blocks of one device's allocator at a moment, and why memory is reserved (varve_collect).
 *
 * Functions may be called from any thread; sizes are bytes, times ns; functions return 0 or a negative enum
 * varve_error, with a reason in `message` (caller-owned, may be NULL), unless a comment says otherwise.
 */
#ifndef VARVE_TRACE_LAYOUT_H
#define VARVE_TRACE_LAYOUT_H

#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum varve_layout_state {
    VARVE_LAYOUT_FREE = 0,
    VARVE_LAYOUT_USED = 1,
    VARVE_LAYOUT_PENDING = 2, /* given back, but other streams may still use it */
};

struct varve_layout_block {
    uint64_t addr;
    uint64_t extent;         /* bytes up to the next block, or to the end of what is mapped */
    uint64_t size;           /* the same, unless the trace contradicts itself */
    uint64_t requested;      /* of a free block what it was last asked for (stale, as PyTorch leaves it) */
    uint64_t segment_id;     /* row of `segment`; 0: implied */
    uint32_t segment_number; /* the allocator's own */
    uint32_t segment;        /* distinguishes segments of this layout */
    uint16_t stream, pool;
    enum varve_layout_state state;
    bool is_expandable;
    bool is_implied; /* no event names its segment: the trace began later */
};

/* One thread at a time for each. */
struct varve_layout;

/// Empty. Owner: the caller, by varve_layout_free (NULL allowed). NULL: no memory.
struct varve_layout *varve_layout_new(void);
void varve_layout_free(struct varve_layout *layout);
/// Become what a row of the table `keyframe` says. Errors: VARVE_ERROR_CORRUPT, NO_MEMORY; then it is only
/// good to be freed or decoded into again.
int varve_layout_decode(struct varve_layout *layout, const void *bytes, size_t count);
/// Take an event of this device, as it is in the table `event` (ids are rows); kinds that change no block are
/// ignored. VARVE_ERROR_NO_MEMORY.
int varve_layout_apply(struct varve_layout *layout, const struct varve_record *record);
/// The first block that ends after `from`; false if there is none. Going on: from = addr + extent.
bool varve_layout_block(const struct varve_layout *layout, uint64_t from, struct varve_layout_block *block_out);
/// The trace has no splits and merges: sizes of blocks follow from requests alone.
bool varve_layout_is_approximate(const struct varve_layout *layout);

/* ---- The fragmentation ladder: why memory is reserved that no live request has ---- */

/* Bytes; reserved = the sum of all others (view `ladder` says what each is). */
struct varve_ladder {
    uint64_t reserved, live_requested, rounding, unsplit_remainder, segment_quantum, pool_segregation, stream_pending,
        cached_segments, external_holes;
};

/* The ladders of the allocators of one process, by device. One thread at a time. */
struct varve_ladders;

/// Empty. Owner: the caller, by varve_ladders_free (NULL allowed). NULL: no memory.
struct varve_ladders *varve_ladders_new(void);
void varve_ladders_free(struct varve_ladders *ladders);
/// The next event of the allocator of record->device. VARVE_ERROR_NO_MEMORY.
int varve_ladders_apply(struct varve_ladders *ladders, const struct varve_record *record);
/// The ladder of each allocator when it had reserved the most (view `ladder_peak`), added up.
struct varve_ladder varve_ladders_peak(const struct varve_ladders *ladders);

#ifdef __cplusplus
}
#endif

#endif
