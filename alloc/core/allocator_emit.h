/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions become records: the only module where an allocator's event gets its fields and its number in the
 * device's order. Called with the lock held, which is what makes that order exact. The events of a cached request or
 * free go out together, at its end (trace/record_fold.h).
 */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_EMIT_H
#define VARVE_ALLOC_CORE_ALLOCATOR_EMIT_H

#include "alloc/alloc.h"
#include "alloc/core/allocator_state.h"
#include "alloc/index/free_index.h"
#include "trace/emit.h"
#include "trace/record.h"
#include "trace/record_fold.h"

struct emission {
    enum varve_kind kind;
    enum varve_cause cause;
    const struct stream_bins *bins; /* pool and stream; NULL: none */
    uint64_t addr, size, requested, arg, id;
    unsigned flags;
};

/// `what`: kind, cause and flags, 8 bits each from the lowest on. An emission in pieces, which fit registers.
void emit_record(struct varve_alloc *alloc, uint32_t what, const struct stream_bins *bins, uint64_t addr, uint64_t size,
                 uint64_t requested, uint64_t arg, uint64_t id);
/// A block was handed out, cut from the front of `found_bytes` or whole: then these are its rounded size. One record,
/// where the recorder folds them.
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

/* inline: a record that has been decided on */

/* A record as the words it consists of, which stay in registers on their way into the ring. */
struct words {
    uint64_t addr, size, requested, arg, id_stream, tag, last;
};

/// The words as a record, to a recorder that is not the ring.
void emit_elsewhere(struct varve_alloc *alloc, const struct words *words);

HOT void write_words(struct varve_alloc *alloc, struct words words)
{
    const struct varve_alloc_recorder *recorder = alloc->recorder;

    if (LIKELY(recorder == &varve_alloc_recorder_ring)) {
        varve_emit_words(words.addr, words.size, words.requested, words.arg, words.id_stream, words.tag, words.last);
    } else {
        struct words copy = words; /* in memory here only */

        emit_elsewhere(alloc, &copy);
    }
}

/* The next `events` numbers of the device's order; the tag has the first. */
HOT uint64_t next_tag(struct varve_alloc *alloc, unsigned events, enum varve_kind kind, unsigned flags)
{
    uint64_t first = alloc->dev_seq + 1;

    alloc->dev_seq += events;
    return varve_record_tag(first, kind, flags);
}

HOT uint64_t id_and_stream(const struct stream_bins *bins, uint64_t id)
{
    return id | (uint64_t)bins->number << 48;
}

HOT bool may_fold(const struct varve_alloc *alloc)
{
    return alloc->recorder->folds && __atomic_load_n(&varve_emit_may_fold, __ATOMIC_RELAXED) != 0;
}

/* Of VARVE_KIND_ALLOC: the segment, and the size of the free block that the block was cut from, or the rounded size of
 * one that was given out whole. */
HOT uint64_t arg_of_alloc(uint32_t segment_id, uint64_t found_bytes)
{
    uint64_t units = (found_bytes + VARVE_ALLOC_FOUND_UNIT - 1) / VARVE_ALLOC_FOUND_UNIT;

    return segment_id | (units < VARVE_ALLOC_FOUND_MAX ? units : VARVE_ALLOC_FOUND_MAX) << 32;
}

/* emit_handout of a block that is about to be handed out: work that follows hides the time that reading
 * the clock takes. */
HOT void emit_handout_here(struct varve_alloc *alloc, uint32_t segment_id, const struct stream_bins *bins,
                           uint64_t addr, uint64_t size, uint64_t requested, uint64_t id, uint64_t found_bytes,
                           bool is_cut, enum varve_cause source)
{
    uint64_t units = found_bytes / VARVE_ALLOC_FOUND_UNIT;
    bool is_folded = is_cut && may_fold(alloc) && varve_fold_fits(found_bytes) && units < VARVE_ALLOC_FOUND_MAX;

    if (is_cut && !is_folded) {
        emit_record(alloc, VARVE_KIND_SPLIT, bins, addr, size, found_bytes - size, segment_id, 0);
    }
    write_words(alloc, (struct words){
                           .addr = addr,
                           .size = size,
                           .requested = requested,
                           .arg = arg_of_alloc(segment_id, found_bytes),
                           .id_stream = id_and_stream(bins, id),
                           .tag = next_tag(alloc, 1U + is_folded, VARVE_KIND_ALLOC, is_folded ? VARVE_FLAG_FOLDED : 0),
                           .last = bins->record_last | (uint64_t)source << 56,
                       });
}

/* A block that comes back, as it is before it merges with its neighbours, whose sizes are `before` and
 * `after` (0: none). */
struct freed {
    const struct stream_bins *bins;
    uint64_t addr, size, requested, id, before, after;
    uint32_t segment_id;
};

/* One record for each event. */
void emit_freed_one_by_one(struct varve_alloc *alloc, enum varve_kind kind, const struct freed *freed);

/* emit_freed of a block that is about to merge. */
HOT void emit_freed_here(struct varve_alloc *alloc, enum varve_kind kind, struct freed freed)
{
    unsigned events = 1U + (kind == VARVE_KIND_FREE_REQUESTED) + (freed.before > 0) + (freed.after > 0);

    if (UNLIKELY(!may_fold(alloc) || !varve_fold_fits(freed.before) || !varve_fold_fits(freed.after))) {
        struct freed copy = freed; /* in memory here only */

        emit_freed_one_by_one(alloc, kind, &copy);
        return;
    }
    write_words(alloc, (struct words){
                           .addr = freed.addr,
                           .size = freed.size,
                           .requested = freed.requested,
                           .arg = freed.segment_id | freed.before / VARVE_FOLD_UNIT << 32,
                           .id_stream = id_and_stream(freed.bins, freed.id),
                           .tag = next_tag(alloc, events, kind, VARVE_FLAG_FOLDED),
                           .last = freed.bins->record_last | freed.after / VARVE_FOLD_UNIT,
                       });
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

/*
 * All pools: private ones, for graph captures and memory pools, come and go (beginAllocateToPool,
 * endAllocateToPool, releasePool); streams get their bins in a pool, and their numbers in records.
 */

struct private_pool {
    struct private_pool *next; /* by id */
    struct varve_pool_id id;
    struct pool large, small;
    uint64_t segment_count;             /* ordinary segments; expandable ones name their pool themselves */
    uint32_t use_count;                 /* 0: empty_cache may release it */
    uint32_t request_count;             /* requests on their way to it, that others may interrupt */
    struct private_pool *next_freeable; /* in the order in which the counts reached 0 */
    bool use_on_oom;
};

void pool_init(struct varve_alloc *alloc, struct pool *pool, struct private_pool *owner, bool is_small);
struct private_pool *private_pool_find(const struct varve_alloc *alloc, struct varve_pool_id id);
/// The pool of that id, made without a reference if it is new; NULL: no memory.
struct private_pool *private_pool_make(struct varve_alloc *alloc, struct varve_pool_id id);
void private_pools_erase_empty(struct varve_alloc *alloc);
void private_pools_close(struct varve_alloc *alloc);
/// The pool of that kind that a request of `stream` goes to, while there are captures.
struct pool *pool_of_captures(struct varve_alloc *alloc, uint64_t stream, bool is_small);
/// The bins of a stream in a pool, numbered for the records; NULL: no memory.
struct stream_bins *pool_bins(struct varve_alloc *alloc, struct pool *pool, uint64_t stream);
/// Every pool: NULL gives the default large one; NULL at the end.
struct pool *pool_each(struct varve_alloc *alloc, const struct pool *pool);

/*
 * The walk over every block that has memory, once, for everything that looks at the whole heap: free blocks
 * by pool, stream, size and address, then those in use in no order. The heap must not change meanwhile.
 */

/* Begins as {0}. */
struct block_walk {
    struct pool *pool;   /* of `block` */
    struct block *block; /* the last free one */
    bool has_passed_free;
    uint64_t position; /* in the map */
};

/// The next block; NULL at the end.
struct block *walk_next(struct varve_alloc *alloc, struct block_walk *walk);

/* What the device says of a failure, in the text of the request's error. Used by whatever calls the device. */

/// Set `message` to "`what`: " and what the device says of its last failure; returns `error`.
int device_message(const struct varve_alloc *alloc, int error, struct varve_message *message, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

#endif
