/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the recorder is the ring, as in nearly all recorded programs, records go there without a call through a
 * pointer.
 */
#include "alloc/core/state/emit.h"
#include "alloc/core/state/allocator.h"
#include "alloc/core/state/pools.h"

static void record_into_ring(void *context, const struct varve_record *record)
{
    (void)context;
    varve_emit(record);
}

const struct varve_alloc_recorder varve_alloc_recorder_ring = {
    .record = record_into_ring,
    .emits_names = true,
    .folds = true,
};

/* A record as the words it consists of, which stay in registers on their way into the ring. */
struct words {
    uint64_t addr, size, requested, arg, id_stream, tag, last;
};

static __attribute__((noinline)) void record_elsewhere(const struct varve_alloc_recorder *recorder,
                                                       const struct words *words)
{
    const struct varve_record record = {
        .addr = words->addr,
        .size = words->size,
        .requested = words->requested,
        .arg = words->arg,
        .id_stream = words->id_stream,
        .dev_seq_kind_flags = words->tag,
        .callsite = (uint32_t)words->last,
        .pool = (uint16_t)(words->last >> 32),
        .device = (uint8_t)(words->last >> 48),
        .cause = (uint8_t)(words->last >> 56),
    };

    recorder->record(recorder->context, &record);
}

HOT void write_words(struct varve_alloc *alloc, struct words words)
{
    const struct varve_alloc_recorder *recorder = alloc->recorder;

    if (LIKELY(recorder == &varve_alloc_recorder_ring)) {
        varve_emit_words(words.addr, words.size, words.requested, words.arg, words.id_stream, words.tag,
                         words.last);
    } else {
        struct words copy = words; /* in memory here only */

        record_elsewhere(recorder, &copy);
    }
}

/* The next `events` numbers of the device's order; the tag has the first. */
HOT uint64_t next_tag(struct varve_alloc *alloc, unsigned events, enum varve_kind kind, unsigned flags)
{
    uint64_t first = alloc->dev_seq + 1;

    alloc->dev_seq += events;
    return varve_record_tag(first, kind, flags);
}

static inline uint64_t id_and_stream(const struct stream_bins *bins, uint64_t id)
{
    return id | (uint64_t)bins->number << 48;
}

HOT uint64_t last_of(const struct varve_alloc *alloc, const struct pool *pool, uint32_t callsite,
                     unsigned cause)
{
    return varve_record_last(callsite, pool != NULL ? pool->number : 0,
                             (unsigned)alloc->device->index & 0xffU, cause);
}

HOT bool may_fold(const struct varve_alloc *alloc)
{
    return alloc->recorder->folds && __atomic_load_n(&varve_emit_may_fold, __ATOMIC_RELAXED) != 0;
}

void emit_pool(struct varve_alloc *alloc, const struct pool *pool)
{
    write_words(alloc, (struct words){
                           .addr = pool->owner != NULL ? pool->owner->id.capture : 0,
                           .size = pool->owner != NULL ? pool->owner->id.user : 0,
                           .arg = pool->is_small,
                           .tag = next_tag(alloc, 1, VARVE_KIND_POOL, 0),
                           .last = last_of(alloc, pool, 0, 0),
                       });
}

void emit_record(struct varve_alloc *alloc, uint32_t what, const struct stream_bins *bins, uint64_t addr,
                 uint64_t size, uint64_t requested, uint64_t arg, uint64_t id)
{
    write_words(alloc, (struct words){
                           .addr = addr,
                           .size = size,
                           .requested = requested,
                           .arg = arg,
                           .id_stream = bins != NULL ? id_and_stream(bins, id) : id,
                           .tag = next_tag(alloc, 1, (enum varve_kind)(what & 0xffU), what >> 16),
                           .last = last_of(alloc, bins != NULL ? bins->pool : NULL, 0, (uint8_t)(what >> 8)),
                       });
}

/* ---- the events of a call ---- */

void emit_handout(struct varve_alloc *alloc, const struct block *block, uint64_t found_bytes, bool is_cut,
                  enum varve_cause source)
{
    const struct stream_bins *bins = block->bins;
    bool is_folded = is_cut && may_fold(alloc) && varve_fold_fits(found_bytes) &&
                     found_bytes / VARVE_ALLOC_FOUND_UNIT < VARVE_ALLOC_FOUND_MAX;

    if (is_cut && !is_folded) {
        emit_record(alloc, VARVE_KIND_SPLIT, bins, block->addr, block->size, found_bytes - block->size,
                    block->segment_id, 0);
    }
    write_words(alloc, (struct words){
                           .addr = block->addr,
                           .size = block->size,
                           .requested = block->requested,
                           .arg = arg_of_alloc(block->segment_id, found_bytes),
                           .id_stream = id_and_stream(bins, block->id),
                           .tag = next_tag(alloc, 1U + is_folded, VARVE_KIND_ALLOC,
                                           is_folded ? VARVE_FLAG_FOLDED : 0),
                           .last = last_of(alloc, bins->pool, 0, source),
                       });
}

static __attribute__((noinline)) void emit_freed_one_by_one(struct varve_alloc *alloc, enum varve_kind kind,
                                                            const struct block *block, uint64_t id,
                                                            uint64_t before, uint64_t after)
{
    const struct stream_bins *bins = block->bins;
    uint64_t size = block->size - before - after, addr = block->addr + before;
    const uint32_t previous = VARVE_KIND_MERGE | VARVE_CAUSE_PREVIOUS << 8;
    const uint32_t next = VARVE_KIND_MERGE | VARVE_CAUSE_NEXT << 8;

    if (kind == VARVE_KIND_FREE_REQUESTED) {
        emit_record(alloc, VARVE_KIND_FREE_REQUESTED, bins, addr, size, block->requested, block->segment_id,
                    id);
    }
    emit_record(alloc, VARVE_KIND_FREE_COMPLETED, bins, addr, size, block->requested, block->segment_id, id);
    if (before > 0) {
        emit_record(alloc, previous, bins, block->addr, before + size, before, block->addr, 0);
    }
    if (after > 0) {
        emit_record(alloc, next, bins, block->addr, block->size, after, addr + size, 0);
    }
}

void emit_freed(struct varve_alloc *alloc, enum varve_kind kind, const struct block *block, uint64_t id,
                uint64_t before, uint64_t after)
{
    const struct stream_bins *bins = block->bins;
    unsigned events = 1U + (kind == VARVE_KIND_FREE_REQUESTED) + (before > 0) + (after > 0);

    if (!may_fold(alloc) || !varve_fold_fits(before) || !varve_fold_fits(after)) {
        emit_freed_one_by_one(alloc, kind, block, id, before, after);
        return;
    }
    write_words(alloc, (struct words){
                           .addr = block->addr + before,
                           .size = block->size - before - after,
                           .requested = block->requested,
                           .arg = block->segment_id | before / VARVE_FOLD_UNIT << 32,
                           .id_stream = id_and_stream(bins, id),
                           .tag = next_tag(alloc, events, kind, VARVE_FLAG_FOLDED),
                           .last = last_of(alloc, bins->pool, (uint32_t)(after / VARVE_FOLD_UNIT), 0),
                       });
}
