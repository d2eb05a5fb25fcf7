/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets from a profile, as STAlloc (arXiv 2507.16274) and, before it, Sekiyama et al. 2018: the requests of a
 * recorded iteration were placed offline (struct varve_alloc_plan); at run time the n-th request of an iteration gets
 * the n-th place, in one segment of the plan's height. What the plan does not know, finds its place taken, or comes in
 * another order is served as in PyTorch's large pool: best fit, segments in multiples of 2 MiB (at least 20),
 * remainders above 1 MiB are split off.
 *
 * Which request it is: the next entry of the plan, if that is of the same size and stream; else the first one of the
 * `window` entries behind it, and the plan goes on there. Behind the last entry comes the first. Without a plan nothing
 * is planned. The free pieces of the
 * plan's segment are in an array by address.
 */
#include "alloc/backend/backend.h"
#include "alloc/policy/rounding.h"
#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>

enum { OPTION_WINDOW };

static const struct varve_alloc_policy_option options[] = {
    {"window", "entries of the plan that are looked at for a request that is not the next one", 64, 0, 100000, false},
    {.name = NULL},
};

struct plan {
    const struct varve_alloc_plan *given;
    uint64_t window;
    size_t next;           /* entry */
    uint64_t before;       /* requests that are still to come before the first iteration */
    uint64_t addr, end;    /* of the segment; 0: there is none yet */
    bool is_refused;       /* there was no memory for it: not asked for again until memory was released */
    struct block **pieces; /* free ones of the segment, by address */
    size_t count, capacity;
};

static int plan_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    static const struct varve_alloc_plan none = {0};
    struct plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    plan->given = alloc->plan != NULL ? alloc->plan : &none;
    plan->window = values[OPTION_WINDOW];
    plan->before = plan->given->requests_before;
    alloc->backend_state = plan;
    return VARVE_OK;
}

static uint64_t placement_plan_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    return rounding_segment_size(config, rounded > ROUNDING_SMALL_SIZE ? rounded : ROUNDING_SMALL_SIZE + 1);
}

/* ---- free pieces of the plan's segment ---- */

static bool is_planned(const struct plan *plan, const struct block *block)
{
    return block->addr - plan->addr < plan->end - plan->addr;
}

/* The first piece that begins behind `addr`. */
static size_t piece_behind(const struct plan *plan, uint64_t addr)
{
    size_t low = 0, high = plan->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->pieces[middle]->addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int pieces_reserve(struct plan *plan, size_t more)
{
    return ARRAY_GROW(plan->pieces, plan->capacity, plan->count + more) ? VARVE_OK : VARVE_ERROR_FULL;
}

static void piece_put(struct varve_alloc *alloc, struct plan *plan, struct block *block)
{
    size_t at = piece_behind(plan, block->addr);
    memmove(&plan->pieces[at + 1], &plan->pieces[at], (plan->count - at) * sizeof(struct block *));
    plan->pieces[at] = block;
    plan->count++;
    backend_put(alloc, block);
}

static void piece_take(struct varve_alloc *alloc, struct plan *plan, struct block *block)
{
    size_t at = piece_behind(plan, block->addr) - 1;
    assert(plan->pieces[at] == block);
    plan->count--;
    memmove(&plan->pieces[at], &plan->pieces[at + 1], (plan->count - at) * sizeof(struct block *));
    backend_take(alloc, block);
}

/* ---- requests by the plan ---- */

/* The entry that the request is; NULL: none. */
static const struct varve_alloc_plan_entry *placement_plan_entry_of(struct plan *plan, const struct request *request)
{
    size_t count = plan->given->count;
    size_t looked_at = plan->window + 1 < count ? (size_t)plan->window + 1 : count;
    for (size_t i = 0; i < looked_at; i++) {
        size_t number = (plan->next + i) % count;
        const struct varve_alloc_plan_entry *entry = &plan->given->entries[number];
        if (entry->bytes == request->wanted.rounded && entry->stream == request->wanted.bins->stream) {
            plan->next = (number + 1) % count;
            return entry;
        }
    }
    return NULL;
}

/* The place of the entry, cut out; NULL: something is in the way. */
static struct block *placement_plan_place(struct varve_alloc *alloc, struct plan *plan, const struct request *request,
                                          const struct varve_alloc_plan_entry *entry)
{
    uint64_t addr = plan->addr + entry->offset, end = addr + entry->bytes;
    size_t behind = piece_behind(plan, addr);
    struct block *block = behind > 0 ? plan->pieces[behind - 1] : NULL;
    if (block == NULL || block->addr + block->size < end) {
        return NULL;
    }
    piece_take(alloc, plan, block);
    if (block->addr < addr) {
        piece_put(alloc, plan, backend_cut(alloc, block, addr - block->addr));
    }
    if (block->size > entry->bytes) {
        struct block *rest = block;
        block = backend_cut(alloc, rest, entry->bytes);
        piece_put(alloc, plan, rest);
    }
    if (backend_adopt(alloc, block, request->wanted.bins) != VARVE_OK) {
        piece_put(alloc, plan, block);
        return NULL;
    }
    return block;
}

/* The segment comes with the first request that needs the device. */
static int placement_plan_reserve(struct varve_alloc *alloc, struct plan *plan, struct request *request)
{
    struct block *block = NULL;
    uint64_t bytes = rounding_up(plan->given->height, ROUNDING_LARGE_STEP);
    int error = pieces_reserve(plan, 4);
    VARVE_THEN(error, backend_reserve(alloc, request, bytes, &block));
    if (error == VARVE_OK && plan->addr != 0) { /* another request was faster while the device was asked */
        backend_put(alloc, block);
        return VARVE_OK;
    }
    if (error == VARVE_OK) {
        plan->addr = block->addr;
        plan->end = block->addr + block->size;
        error = pieces_reserve(plan, 4);
        piece_put(alloc, plan, block);
    }
    plan->is_refused = error == VARVE_ERROR_NO_MEMORY;
    return error;
}

/* ---- requests that the plan does not serve ---- */

static struct block *best_fit(const struct plan *plan, const struct request *request)
{
    struct block *block = free_index_best(request->wanted.bins, request->wanted.rounded);
    while (block != NULL && is_planned(plan, block)) {
        block = free_index_next(block);
    }
    return block;
}

static int fall_back(struct varve_alloc *alloc, struct plan *plan, struct request *request, bool may_grow,
                     struct block **block_out)
{
    uint64_t wanted = request->wanted.rounded;
    struct block *block = best_fit(plan, request);
    int error = VARVE_OK;
    if (block != NULL) {
        backend_take(alloc, block);
    } else if (may_grow) {
        error = backend_reserve(alloc, request, placement_plan_segment_size(&alloc->config, wanted), &block);
    }
    if (error == VARVE_OK && block != NULL) {
        error = backend_prepare(alloc, 1); /* others may have come in while the device was asked */
    }
    if (error != VARVE_OK || block == NULL) {
        return error;
    }
    if (block->size - wanted > ROUNDING_SMALL_SIZE ||
        (wanted <= ROUNDING_SMALL_SIZE && block->size - wanted >= ROUNDING_MIN_BLOCK)) {
        struct block *rest = block;
        block = backend_cut(alloc, rest, wanted);
        backend_put(alloc, rest);
    }
    *block_out = block;
    return VARVE_OK;
}

static int placement_plan_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow,
                                struct block **block_out)
{
    struct plan *plan = alloc->backend_state;
    size_t next = plan->next;
    const struct varve_alloc_plan_entry *entry =
        plan->before == 0 && plan->given->count > 0 ? placement_plan_entry_of(plan, request) : NULL;
    bool has_place = entry != NULL && entry->offset != VARVE_ALLOC_PLAN_NOWHERE;
    int error = pieces_reserve(plan, 4);
    VARVE_THEN(error, backend_prepare(alloc, 4));
    if (error == VARVE_OK && has_place && plan->addr == 0 && may_grow && !plan->is_refused) {
        error = placement_plan_reserve(alloc, plan, request);
        error = error == VARVE_ERROR_NO_MEMORY ? VARVE_OK : error;
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (has_place && plan->addr == 0 && !may_grow) {
        plan->next = next; /* it is asked again, with may_grow, once the cache has failed */
        return plan->is_refused ? fall_back(alloc, plan, request, false, block_out) : VARVE_OK;
    }
    *block_out = has_place && plan->addr != 0 ? placement_plan_place(alloc, plan, request, entry) : NULL;
    if (*block_out != NULL) {
        return VARVE_OK;
    }
    error = fall_back(alloc, plan, request, may_grow, block_out);
    if (*block_out == NULL) {
        plan->next = next;
    } else {
        plan->before -= plan->before > 0 ? 1 : 0;
    }
    return error;
}

static void plan_free(struct varve_alloc *alloc, struct block *block)
{
    struct plan *plan = alloc->backend_state;
    bool is_piece = is_planned(plan, block);
    struct block *neighbours[2] = {backend_free_before(block), backend_free_behind(block)};
    for (unsigned i = 0; i < 2; i++) {
        if (neighbours[i] != NULL && is_piece) {
            piece_take(alloc, plan, neighbours[i]);
            /* what was another stream's may be used by this one only behind its work */
            if (backend_adopt(alloc, neighbours[i], block->bins) == VARVE_OK) {
                backend_merge(alloc, block, neighbours[i]);
            } else {
                piece_put(alloc, plan, neighbours[i]);
            }
        } else if (neighbours[i] != NULL) {
            backend_take(alloc, neighbours[i]);
            backend_merge(alloc, block, neighbours[i]);
        }
    }
    /* one piece more at most than used ones: there is room, or there is no place for it in the plan */
    if (is_piece && pieces_reserve(plan, 1) == VARVE_OK) {
        piece_put(alloc, plan, block);
    } else {
        backend_put(alloc, block);
    }
}

/* The plan's segment stays: the next iteration needs it. */
static int plan_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    struct plan *plan = alloc->backend_state;
    struct block *block = free_index_first(&alloc->large.index);
    while (block != NULL) {
        struct block *next = free_index_following(&alloc->large.index, block);
        if (!block_is_split(block) && !is_planned(plan, block)) {
            backend_give_back(alloc, block, cause, sum);
        }
        block = next;
    }
    plan->is_refused = false;
    return VARVE_OK;
}

static int plan_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct plan *plan = alloc->backend_state;
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct block *block = plan->pieces[i];
        bytes += block->size;
        if (!block->is_free || !is_planned(plan, block) || (i > 0 && plan->pieces[i - 1]->addr >= block->addr)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a free piece of the plan is wrong");
        }
    }
    return bytes <= plan->end - plan->addr
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_CORRUPT, "more is free than the plan has");
}

static void plan_close(struct varve_alloc *alloc)
{
    struct plan *plan = alloc->backend_state;
    if (plan != NULL) {
        free(plan->pieces);
    }
}

static const struct pool_backend backend = {
    .options = options,
    .open = plan_open,
    .alloc = placement_plan_alloc,
    .free = plan_free,
    .release = plan_release,
    .check = plan_check,
    .close = plan_close,
};

const struct alloc_policy policy_plan = {
    .name = "plan",
    .meaning = "Each request has the place that an offline placement of a recorded iteration chose for it, as in "
               "STAlloc; what is not in the plan is served by PyTorch's rules. How many entries of the plan are "
               "looked at for a request that is not the next one.",
    .block_size = backend_block_size,
    .is_small = backend_is_small,
    .segment_size = placement_plan_segment_size,
    .backend = &backend,
};
