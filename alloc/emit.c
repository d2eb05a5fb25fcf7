/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions become records: the one place where an allocator's event gets its fields and its number in the
 * device's order. Called with the lock held, which is what makes that order exact.
 */
#include "alloc/allocator_internal.h"

static void record_into_ring(void *context, const struct varve_record *record)
{
    (void)context;
    varve_emit(record);
}

const struct varve_alloc_recorder varve_alloc_recorder_ring = {record_into_ring, NULL};

void emit_record(struct varve_alloc *alloc, const struct emission *emission)
{
    struct varve_record record = {
        .addr = emission->addr,
        .size = emission->size,
        .requested = emission->requested,
        .arg = emission->arg,
        .id_stream = emission->id,
        .dev_seq_kind_flags = varve_record_tag(++alloc->dev_seq, emission->kind, emission->flags),
        .device = (uint8_t)alloc->device->index,
        .cause = (uint8_t)emission->cause,
    };

    if (emission->home != NULL) {
        record.id_stream |= (uint64_t)index_stream_number(emission->home) << 48;
        record.pool = index_stream_pool(emission->home)->number;
    }
    if (alloc->recorder == &varve_alloc_recorder_ring) {
        varve_emit(&record);
    } else {
        alloc->recorder->record(alloc->recorder->context, &record);
    }
}
