/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker of device.h's invariants: what the indexes of addresses, handles and mappings hold
 * must be what the rows say, and what the totals counted. derive_check calls it.
 */
#include "trace/model/device/device.h"

#include <stdlib.h>

struct slot_sum {
    uint64_t allocations, bytes;
};

struct walk {
    const struct derive *derive;
    const struct api_index *index;
    uint32_t process_id;
    bool is_witness;
    struct slot_sum *slots;
};

static const struct scratch_block *block_at(const struct walk *walk, uint64_t number)
{
    return number >= 1 && number <= walk->derive->blocks.count
               ? scratch_block((struct scratch_row *)scratch_peek(&walk->derive->blocks, number))
               : NULL;
}

/* A block row that an index holds; its scratch row, if it has one, is live and counted here. */
static int walk_block(const struct walk *walk, const struct scratch_block *block, const uint64_t *addr)
{
    const struct derive *derive = walk->derive;
    if (block == NULL || block->id > derive->scratch.count) {
        return VARVE_ERROR_CORRUPT;
    }
    if (block->id == 0) {
        return VARVE_OK;
    }
    const struct scratch_row *row = scratch_peek(&derive->scratch, block->id);
    bool is_cupti = row->domain == DOMAIN_CUPTI;
    if (row->free_seq != 0 || !domain_is_api(row->domain) || is_cupti != walk->is_witness ||
        (addr != NULL && row->addr != *addr) ||
        derive->threads[row->thread_id].process_id != walk->process_id) {
        return VARVE_ERROR_CORRUPT;
    }
    struct slot_sum *sum = &walk->slots[api_slot_of(derive, block)];
    sum->allocations++;
    sum->bytes += row->size;
    return VARVE_OK;
}

static int walk_live(const struct walk *walk)
{
    const struct live_index *live = &walk->index->live;
    for (uint64_t i = 0; live->slots != NULL && i < UINT64_C(1) << live->bits; i++) {
        const struct live_slot *slot = &live->slots[i];
        if (slot->addr != 0 && walk_block(walk, block_at(walk, slot->id), &slot->addr) != VARVE_OK) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

static int walk_handles(const struct walk *walk)
{
    const struct live_index *handles = &walk->index->handles;
    for (uint64_t i = 0; handles->slots != NULL && i < UINT64_C(1) << handles->bits; i++) {
        const struct live_slot *slot = &handles->slots[i];
        const struct scratch_block *block = slot->addr != 0 ? block_at(walk, slot->id) : NULL;
        if (slot->addr != 0 && (walk_block(walk, block, NULL) != VARVE_OK || block->handle != slot->addr ||
                                (block->refs == 0 && block->maps == 0))) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

/* Of each mapping: how many there are of its memory, and whether it is the first of them. */
static int walk_mappings(const struct walk *walk)
{
    const struct ranges *mappings = &walk->index->mappings;
    struct range range;
    struct range other;
    for (uint64_t at = 0; ranges_first(mappings, at, UINT64_MAX, &range); at = range.end) {
        const struct scratch_block *block = block_at(walk, range.id);
        uint32_t count = 0;
        bool is_first = true;
        for (uint64_t k = 0; ranges_first(mappings, k, UINT64_MAX, &other); k = other.end) {
            count += other.id == range.id;
            is_first = is_first && (other.id != range.id || other.start >= range.start);
        }
        if (block == NULL || block->maps != count || block->handle == 0) {
            return VARVE_ERROR_CORRUPT;
        }
        bool is_named = live_find(&walk->index->handles, block->handle) == range.id;
        if (!is_named && (block->refs != 0 || (is_first && walk_block(walk, block, NULL) != VARVE_OK))) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}

static int index_check(const struct walk *walk)
{
    if (live_check(&walk->index->live) != VARVE_OK || live_check(&walk->index->handles) != VARVE_OK ||
        ranges_check(&walk->index->mappings) != VARVE_OK || walk_live(walk) != VARVE_OK ||
        walk_handles(walk) != VARVE_OK) {
        return VARVE_ERROR_CORRUPT;
    }
    return walk_mappings(walk);
}

static int sums_check(const struct walk *walk, const struct derive_process *process,
                      struct varve_message *message)
{
    for (unsigned slot = 0; slot < SLOT_LIMIT; slot++) {
        struct total **place = domain_is_api(slot_domain(slot)) ? process_total(process, slot) : NULL;
        const struct total none = {0};
        const struct total *total = place != NULL && *place != NULL ? *place : &none;
        if (domain_is_api(slot_domain(slot)) && (walk->slots[slot].allocations != total->live_allocations ||
                                                 walk->slots[slot].bytes != total->live_bytes)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "process %u, slot %u: %llu live allocations in the index, %llu in the "
                                     "total",
                                     walk->process_id, slot,
                                     (unsigned long long)walk->slots[slot].allocations,
                                     (unsigned long long)total->live_allocations);
        }
    }
    return VARVE_OK;
}

int derive_api_check(const struct derive *derive, uint32_t process_id, struct varve_message *message)
{
    const struct derive_process *process = derive->processes[process_id];
    struct walk walk = {.derive = derive, .process_id = process_id};
    int code = VARVE_OK;
    if (process->api == NULL) {
        return VARVE_OK;
    }
    walk.slots = calloc(SLOT_LIMIT, sizeof *walk.slots);
    if (walk.slots == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to check");
    }
    for (unsigned side = 0; side < 2 && code == VARVE_OK; side++) {
        walk.index = &process->api->sides[side];
        walk.is_witness = side == 1;
        code = index_check(&walk);
    }
    if (code != VARVE_OK) {
        varve_message_set(message, code, "process %u: the indexes of the device API and its rows differ",
                          process_id);
    } else if (!process->has_ended) {
        code = sums_check(&walk, process, message);
    }
    free(walk.slots);
    return code;
}
