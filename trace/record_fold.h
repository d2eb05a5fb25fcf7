/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several events of one call as one record: a cached request that cuts a block, a free with the merges that follow from
 * it. They have one time, are published together, and what tells them apart follows from the record's fields:
 *
 *   ALLOC            SPLIT, ALLOC: the remainder is the free block that it was cut from (`arg`) less `size`
 *   FREE_REQUESTED   FREE_REQUESTED, FREE_COMPLETED, then as
 *   FREE_COMPLETED   FREE_COMPLETED, MERGE with the previous block (its size in bits 32 to 63 of `arg`, 0: none), MERGE
 *                    with the next one (its size in `callsite`, which frees have none of; 0: none), in
 *                    units of 512 bytes
 *
 * Numbers of the device's order (`dev_seq`) are consecutive, the record has the first. Where a size is no multiple of
 * the unit or too large, and where a second sink gets each event, the allocator emits one record per event. Rings,
 * spills and `emitted` count records; losses by kind, `lost` events and whatever is stored count events.
 */
#ifndef VARVE_TRACE_RECORD_FOLD_H
#define VARVE_TRACE_RECORD_FOLD_H

#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_FOLD_UNIT UINT64_C(512) /* bytes */
#define VARVE_FOLD_EVENTS_MAX 4U      /* of one record */

/* May a size be a field of a folded record? 0: there is no such block. */
static inline bool varve_fold_fits(uint64_t bytes)
{
    return (bytes % VARVE_FOLD_UNIT | (bytes / VARVE_FOLD_UNIT) >> 32) == 0;
}

static inline bool varve_record_is_folded(const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);

    return (record->dev_seq_kind_flags & VARVE_FLAG_FOLDED) != 0 &&
           (kind == VARVE_KIND_ALLOC || kind == VARVE_KIND_FREE_REQUESTED || kind == VARVE_KIND_FREE_COMPLETED);
}

/* An event of its own with the fields that all of a call have in common. */
static inline struct varve_record varve_fold_part(const struct varve_record *record, unsigned number,
                                                  enum varve_kind kind)
{
    struct varve_record part = *record;
    unsigned flags = varve_record_flags(record) & ~(unsigned)VARVE_FLAG_FOLDED;

    part.dev_seq_kind_flags = varve_record_tag(varve_record_dev_seq(record) + number, kind, flags);
    return part;
}

static inline struct varve_record varve_fold_merge(const struct varve_record *free, unsigned number, uint64_t before,
                                                   uint64_t after)
{
    struct varve_record part = varve_fold_part(free, number, VARVE_KIND_MERGE);

    /* the survivor's: with the next block it has absorbed the previous one already */
    part.addr = free->addr - before;
    part.size = free->size + before + after;
    part.requested = after != 0 ? after : before;
    part.arg = after != 0 ? free->addr + free->size : free->addr - before;
    part.id_stream = (uint64_t)varve_record_stream(free) << 48;
    part.callsite = 0;
    part.cause = (uint8_t)(after != 0 ? VARVE_CAUSE_NEXT : VARVE_CAUSE_PREVIOUS);
    return part;
}

static inline unsigned varve_fold_split(const struct varve_record *record, struct varve_record *parts)
{
    uint64_t found = (record->arg >> 32) * VARVE_FOLD_UNIT;

    parts[0] = varve_fold_part(record, 0, VARVE_KIND_SPLIT);
    parts[0].requested = found - record->size;
    parts[0].arg = (uint32_t)record->arg;
    parts[0].id_stream = (uint64_t)varve_record_stream(record) << 48;
    parts[0].cause = 0;
    parts[1] = varve_fold_part(record, 1, VARVE_KIND_ALLOC);
    return 2;
}

static inline unsigned varve_fold_free(const struct varve_record *record, bool is_requested, struct varve_record *parts)
{
    uint64_t before = (record->arg >> 32) * VARVE_FOLD_UNIT;
    uint64_t after = record->callsite * VARVE_FOLD_UNIT;
    unsigned count = 0;

    if (is_requested) {
        parts[count] = varve_fold_part(record, count, VARVE_KIND_FREE_REQUESTED);
        count++;
    }
    parts[count] = varve_fold_part(record, count, VARVE_KIND_FREE_COMPLETED);
    count++;
    for (unsigned i = 0; i < count; i++) {
        parts[i].arg = (uint32_t)record->arg;
        parts[i].callsite = 0;
    }
    if (before != 0) {
        parts[count] = varve_fold_merge(record, count, before, 0);
        count++;
    }
    if (after != 0) {
        parts[count] = varve_fold_merge(record, count, before, after);
        count++;
    }
    return count;
}

/// The events of a record, each with the flags of its transport; returns how many. A record that is not folded is its
/// own event.
static inline unsigned varve_record_unfold(const struct varve_record *record,
                                           struct varve_record parts[VARVE_FOLD_EVENTS_MAX])
{
    unsigned kind = varve_record_kind(record);

    if (!varve_record_is_folded(record)) {
        parts[0] = *record;
        return 1;
    }
    return kind == VARVE_KIND_ALLOC ? varve_fold_split(record, parts)
                                    : varve_fold_free(record, kind == VARVE_KIND_FREE_REQUESTED, parts);
}

#ifdef __cplusplus
}
#endif

#endif
