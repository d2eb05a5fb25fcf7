/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * Decisions become records: the only module where an allocator's event gets its fields and its number in the
 * device's order. Called with the lock held, which is what makes that order exact. The events of a cached request or free
 * go out together, at its end (trace/record_fold.h).
 */
#ifndef VARVE_ALLOC_CORE_STATE_EMIT_H
#define VARVE_ALLOC_CORE_STATE_EMIT_H

#include "alloc/core/state/allocator.h"

struct emission {
    enum varve_kind kind;
    enum varve_cause cause;
    const struct stream_bins *bins; /* pool and stream; NULL: none */
    uint64_t addr, size, requested, arg, id;
    unsigned flags;
};

/// `what`: kind, cause and flags, 8 bits each from the lowest on. An emission in pieces, which fit registers.
void emit_record(struct varve_alloc *alloc, uint32_t what, const struct stream_bins *bins, uint64_t addr,
                 uint64_t size, uint64_t requested, uint64_t arg, uint64_t id);
/// A block was handed out, cut from the front of `found_bytes` or whole. One record, where the recorder folds them.
void emit_handout(struct varve_alloc *alloc, const struct block *block, uint64_t found_bytes, bool is_cut,
                  enum varve_cause source);
/// A block came back: FREE_REQUESTED and FREE_COMPLETED, or the latter alone, and the merges with the blocks before and
/// behind it (sizes, 0: none), which the block has absorbed by now. One record, where the recorder folds them.
void emit_freed(struct varve_alloc *alloc, enum varve_kind kind, const struct block *block, uint64_t id,
                uint64_t before, uint64_t after);
/// What the pool's number means, for a recorder that emits names.
void emit_pool(struct varve_alloc *alloc, const struct pool *pool);

static inline bool emits_names(const struct varve_alloc *alloc)
{
    return alloc->recorder != NULL && alloc->recorder->emits_names;
}

/* A macro, so that the record is put together only if there is a recorder: EMIT(alloc, (struct emission){…}) */
#define EMIT(alloc, ...)                           \
    do {                                           \
        if (UNLIKELY((alloc)->recorder != NULL)) { \
            emit_pieces((alloc), __VA_ARGS__);     \
        }                                          \
    } while (0)

HOT void emit_pieces(struct varve_alloc *alloc, struct emission emission)
{
    uint32_t what = (uint32_t)emission.kind | (uint32_t)emission.cause << 8 | (uint32_t)emission.flags << 16;

    emit_record(alloc, what, emission.bins, emission.addr, emission.size, emission.requested, emission.arg,
                emission.id);
}

/* Of VARVE_KIND_ALLOC: the segment, and the size of the free block that the block was cut from. */
HOT uint64_t arg_of_alloc(uint32_t segment_id, uint64_t found_bytes)
{
    uint64_t units = found_bytes / VARVE_ALLOC_FOUND_UNIT;

    return segment_id | (units < VARVE_ALLOC_FOUND_MAX ? units : VARVE_ALLOC_FOUND_MAX) << 32;
}

/* A free that is asked for and does not complete at once, or a completion without merges. */
HOT void emit_free(struct varve_alloc *alloc, enum varve_kind kind, const struct block *block)
{
    EMIT(alloc, (struct emission){.kind = kind,
                                  .bins = block->bins,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = block->segment_id,
                                  .id = block->id});
}

/* A segment, or memory of one, at the block's address comes or goes. */
static inline void emit_segment(struct varve_alloc *alloc, enum varve_kind kind, enum varve_cause cause,
                                const struct block *block, uint64_t bytes, uint64_t requested)
{
    EMIT(alloc, (struct emission){.kind = kind,
                                  .cause = cause,
                                  .bins = block->bins,
                                  .addr = block->addr,
                                  .size = bytes,
                                  .requested = requested,
                                  .arg = block->segment_id});
}

#endif
