/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the recorder is the ring, as in nearly all recorded programs, records go there without a call through a
 * pointer.
 */
#include "alloc/core/allocator_emit.h"
#include "alloc/core/allocator_state.h"
#include "trace/emit.h"
#include "trace/record.h"

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

void emit_elsewhere(struct varve_alloc *alloc, const struct words *words)
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
    const void *owner = lock_owner(&alloc->lock);

    /* a recorder asks varve_alloc_resolve_record, which must know whose a brief hold is */
    lock_keep(&alloc->lock);
    alloc->recorder->record(alloc->recorder->context, &record);
    lock_disown(&alloc->lock, owner);
}

static uint64_t device_last(const struct varve_alloc *alloc)
{
    return varve_record_last(0, 0, (unsigned)alloc->device->index & 0xffU, 0);
}

void emit_pool(struct varve_alloc *alloc, const struct pool *pool)
{
    write_words(alloc, (struct words){
                           .addr = pool->owner != NULL ? pool->owner->id.capture : 0,
                           .size = pool->owner != NULL ? pool->owner->id.user : 0,
                           .arg = pool->is_small,
                           .tag = next_tag(alloc, 1, VARVE_KIND_POOL, 0),
                           .last = device_last(alloc) | (uint64_t)pool->number << 32,
                       });
}

void emit_record(struct varve_alloc *alloc, uint32_t what, const struct stream_bins *bins, uint64_t addr, uint64_t size,
                 uint64_t requested, uint64_t arg, uint64_t id)
{
    write_words(alloc, (struct words){
                           .addr = addr,
                           .size = size,
                           .requested = requested,
                           .arg = arg,
                           .id_stream = bins != NULL ? id_and_stream(bins, id) : id,
                           .tag = next_tag(alloc, 1, (enum varve_kind)(what & 0xffU), what >> 16),
                           .last = (bins != NULL ? bins->record_last : device_last(alloc)) |
                                   (uint64_t)(uint8_t)(what >> 8) << 56,
                       });
}

/* ---- the events of a call, outside of the short ways ---- */

void emit_handout(struct varve_alloc *alloc, const struct block *block, uint64_t found_bytes, bool is_cut,
                  enum varve_cause source)
{
    emit_handout_here(alloc, block->segment_id, block->bins, block->addr, block->size, block->requested, block->id,
                      found_bytes, is_cut, source);
}

void emit_freed_one_by_one(struct varve_alloc *alloc, enum varve_kind kind, const struct freed *freed)
{
    const struct stream_bins *bins = freed->bins;
    uint64_t addr = freed->addr, size = freed->size, before = freed->before, after = freed->after;
    const uint32_t previous = VARVE_KIND_MERGE | VARVE_CAUSE_PREVIOUS << 8;
    const uint32_t next = VARVE_KIND_MERGE | VARVE_CAUSE_NEXT << 8;
    if (kind == VARVE_KIND_FREE_REQUESTED) {
        emit_record(alloc, VARVE_KIND_FREE_REQUESTED, bins, addr, size, freed->requested, freed->segment_id, freed->id);
    }
    emit_record(alloc, VARVE_KIND_FREE_COMPLETED, bins, addr, size, freed->requested, freed->segment_id, freed->id);
    if (before > 0) {
        emit_record(alloc, previous, bins, addr - before, before + size, before, addr - before, 0);
    }
    if (after > 0) {
        emit_record(alloc, next, bins, addr - before, before + size + after, after, addr + size, 0);
    }
}

void emit_freed(struct varve_alloc *alloc, enum varve_kind kind, const struct block *block, uint64_t id,
                uint64_t before, uint64_t after)
{
    emit_freed_here(alloc, kind,
                    (struct freed){
                        .bins = block->bins,
                        .addr = block->addr + before,
                        .size = block->size - before - after,
                        .requested = block->requested,
                        .id = id,
                        .before = before,
                        .after = after,
                        .segment_id = block->segment_id,
                    });
}
