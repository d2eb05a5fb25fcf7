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

const struct varve_alloc_recorder varve_alloc_recorder_ring = {record_into_ring, NULL, true};

HOT void write_record(struct varve_alloc *alloc, const struct varve_record *record)
{
    if (alloc->recorder == &varve_alloc_recorder_ring) {
        varve_emit(record);
    } else {
        alloc->recorder->record(alloc->recorder->context, record);
    }
}

void emit_pool(struct varve_alloc *alloc, const struct pool *pool)
{
    const struct varve_record record = {
        .addr = pool->owner != NULL ? pool->owner->id.capture : 0,
        .size = pool->owner != NULL ? pool->owner->id.user : 0,
        .arg = pool->is_small,
        .dev_seq_kind_flags = varve_record_tag(++alloc->dev_seq, VARVE_KIND_POOL, 0),
        .pool = pool->number,
        .device = (uint8_t)alloc->device->index,
    };

    write_record(alloc, &record);
}

void emit_record(struct varve_alloc *alloc, uint32_t what, const struct stream_bins *bins, uint64_t addr,
                 uint64_t size, uint64_t requested, uint64_t arg, uint64_t id)
{
    struct varve_record record = {
        .addr = addr,
        .size = size,
        .requested = requested,
        .arg = arg,
        .id_stream = id,
        .dev_seq_kind_flags = varve_record_tag(++alloc->dev_seq, (enum varve_kind)(what & 0xffU), what >> 16),
        .device = (uint8_t)alloc->device->index,
        .cause = (uint8_t)(what >> 8),
    };

    if (bins != NULL) {
        record.id_stream |= (uint64_t)bins->number << 48;
        record.pool = bins->pool->number;
    }
    write_record(alloc, &record);
}
