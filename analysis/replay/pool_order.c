/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proofs about pools that need no blocks. A pool has one expandable segment at a time for each stream and
 * class, so two that exist together are in two pools. And empty_cache gives segments back in a known order:
 * the default pool's large ones, its small ones, then pool after pool small before large, each by (stream,
 * size, address). Where a history began after a pool was made, this order may be all that is left of it.
 * Called by pool_proofs.c.
 */
#include "analysis/replay/replay.h"

void replay_pool_set_different(struct replay_pool_proofs *proofs, size_t a, size_t b)
{
    proofs->differ[a * proofs->row_words + b / 64] |= UINT64_C(1) << (b % 64);
    proofs->differ[b * proofs->row_words + a / 64] |= UINT64_C(1) << (a % 64);
}

uint32_t replay_pool_add(struct replay_pool_proofs *proofs, uint64_t addr, uint64_t bytes, uint16_t stream,
                         bool is_small, size_t made_by)
{
    proofs->segments[proofs->count] = (struct replay_pool_segment){
        .addr = addr,
        .bytes = bytes,
        .stream = stream,
        .is_small = is_small,
        .made_by = made_by,
        .first_use = REPLAY_NONE,
        .last_use = REPLAY_NONE,
    };
    return (uint32_t)proofs->count++;
}

void replay_pool_add_places(struct replay_pool_proofs *proofs, const struct replay_places *places)
{
    proofs->first_place = (uint32_t)proofs->count;
    for (size_t i = 0; i < places->count; i++) {
        const struct replay_place *place = &places->items[i];
        uint32_t segment =
            replay_pool_add(proofs, place->base, 0, place->stream, place->is_small, place->made_by);

        proofs->segments[segment].is_gone = place->gone_by != REPLAY_NONE;
        if (place->is_start) {
            proofs->segments[segment].first_use = 0;
            proofs->segments[segment].last_use = 0;
        }
        for (size_t j = 0; j < i; j++) {
            const struct replay_place *other = &places->items[j];

            if (other->stream == place->stream && other->is_small == place->is_small &&
                replay_places_coexist(places, i, j)) {
                replay_pool_set_different(proofs, proofs->first_place + j, segment);
            }
        }
    }
}

/* Given back in the order in which one pool gives back. */
static bool is_ordered(const struct replay_pool_segment *first, const struct replay_pool_segment *second)
{
    return first->bytes != second->bytes ? first->bytes < second->bytes : first->addr < second->addr;
}

static bool is_release(const struct history_event *event)
{
    return event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP;
}

/* The releases from `begin` on, without anything between them. */
static size_t prove_burst(const struct history_device *trace, struct replay_pool_proofs *proofs, size_t begin)
{
    bool has_small = false;
    size_t i = begin;

    for (; i < trace->event_count && is_release(&trace->events[i]); i = replay_decision(trace, i + 1)) {
        uint32_t number = proofs->of_event[i] - 1;
        struct replay_pool_segment *segment = &proofs->segments[number];

        if (proofs->of_event[i] == 0) {
            continue;
        }
        segment->is_private |= has_small && !segment->is_small;
        has_small |= segment->is_small;
        for (size_t j = begin; j < i; j = replay_decision(trace, j + 1)) {
            uint32_t before = proofs->of_event[j] - 1;
            const struct replay_pool_segment *other = &proofs->segments[before];

            /* expandable ones are ordered by free blocks, which are not known here */
            if (proofs->of_event[j] != 0 && other->bytes > 0 && segment->bytes > 0 &&
                other->stream == segment->stream && other->is_small == segment->is_small &&
                !is_ordered(other, segment)) {
                replay_pool_set_different(proofs, before, number);
                segment->is_private = true; /* the default pool's come first */
            }
        }
    }
    return i;
}

void replay_pool_prove_order(const struct history_device *trace, struct replay_pool_proofs *proofs)
{
    size_t i = 0;

    while (i < trace->event_count) {
        i = is_release(&trace->events[i]) ? prove_burst(trace, proofs, i) : i + 1;
    }
}
