/* SPDX-License-Identifier: Apache-2.0 */
/* Free pieces of a segment that has used ones count as inactive_split, as PyTorch's do. */
#include "alloc/backend/backend.h"

#include "alloc/core/request_way.h"
#include "alloc/core/block_links.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/rounding.h"

int backend_prepare(struct varve_alloc *alloc, uint64_t pieces)
{
    return block_slab_reserve(&alloc->slab, pieces + 4) == VARVE_OK && block_map_reserve(&alloc->map) == VARVE_OK
               ? VARVE_OK
               : VARVE_ERROR_FULL;
}

int backend_reserve(struct varve_alloc *alloc, struct request *request, uint64_t bytes, struct block **block_out)
{
    request->segment_bytes = bytes;
    struct block *block = NULL;
    int error = segment_alloc(alloc, request, false, &block);
    if (error != VARVE_OK) {
        return error;
    }
    if (alloc->config.release_lock_on_cudamalloc && backend_prepare(alloc, BACKEND_CUTS) != VARVE_OK) {
        backend_put(alloc, block);
        struct release_sum ignored = {0};
        backend_give_back(alloc, block, VARVE_CAUSE_FREE, &ignored);
        return VARVE_ERROR_FULL;
    }
    *block_out = block;
    return VARVE_OK;
}

static void count_inactive(struct varve_alloc *alloc, const struct block *block, int64_t sign)
{
    bool is_small = block_pool(block)->is_small;
    if (block_is_split(block) && !block->is_expandable) {
        hot_change(&alloc->counters, HOT_INACTIVE_SPLIT, is_small, sign);
        hot_change(&alloc->counters, HOT_INACTIVE_SPLIT_BYTES, is_small, sign * (int64_t)block->size);
    }
}

void backend_put(struct varve_alloc *alloc, struct block *block)
{
    free_index_insert(&block_pool(block)->index, block);
    count_inactive(alloc, block, 1);
}

void backend_take(struct varve_alloc *alloc, struct block *block)
{
    free_index_remove(&block_pool(block)->index, block);
    count_inactive(alloc, block, -1);
    block->list_next = NULL;
    block->list_prev = NULL;
}

struct block *backend_cut(struct varve_alloc *alloc, struct block *block, uint64_t bytes)
{
    struct block *front = block_cut_front(&alloc->slab, block, bytes);
    assert(!block->is_free && bytes < block->size);
    front->backend_word = 0;
    block->addr += bytes;
    block->size -= bytes;
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_SPLIT,
                                  .bins = front->bins,
                                  .addr = front->addr,
                                  .size = front->size,
                                  .requested = block->size,
                                  .arg = front->segment_id});
    return front;
}

void backend_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour)
{
    bool is_previous = block->prev == neighbour;
    uint64_t absorbed = neighbour->size, addr = neighbour->addr;
    assert(!block->is_free && !neighbour->is_free);
    block_absorb(alloc, block_pool(block), block, neighbour, false);
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_MERGE,
                                  .cause = is_previous ? VARVE_CAUSE_PREVIOUS : VARVE_CAUSE_NEXT,
                                  .bins = block->bins,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = absorbed,
                                  .arg = addr});
}

struct block *backend_free_before(const struct block *block)
{
    return block->prev != NULL && block->prev->is_free ? block->prev : NULL;
}

struct block *backend_free_behind(const struct block *block)
{
    return block->next != NULL && block->next->is_free ? block->next : NULL;
}

int backend_adopt(struct varve_alloc *alloc, struct block *block, struct stream_bins *bins)
{
    assert(!block->is_free && block_pool(block) == bins->pool);
    int error = VARVE_OK;
    if (block->bins != bins) {
        error = stream_use_order(alloc, bins->stream, block->bins->stream);
    }
    if (error == VARVE_OK) {
        block->bins = bins;
    }
    return error;
}

bool backend_take_for(struct varve_alloc *alloc, struct block *block, struct stream_bins *bins)
{
    backend_take(alloc, block);
    if (backend_adopt(alloc, block, bins) == VARVE_OK) {
        return true;
    }
    backend_put(alloc, block);
    return false;
}

static void backend_absorb(struct varve_alloc *alloc, struct block *block, struct block *neighbour, bool any_stream)
{
    if (neighbour != NULL && (any_stream || neighbour->bins == block->bins) &&
        backend_take_for(alloc, neighbour, block->bins)) {
        backend_merge(alloc, block, neighbour);
    }
}

void backend_coalesce(struct varve_alloc *alloc, struct block *block, bool any_stream)
{
    backend_absorb(alloc, block, backend_free_before(block), any_stream);
    backend_absorb(alloc, block, backend_free_behind(block), any_stream);
}

bool backend_give_back(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, struct release_sum *sum)
{
    uint64_t bytes = block->size;
    int error = segment_release(alloc, block, cause);
    if (error != VARVE_OK) {
        sum->error = error;
        return false;
    }
    sum->segments++;
    sum->bytes += bytes;
    return true;
}

int backend_release_whole(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    struct block *block = free_index_first(&alloc->large.index);
    while (block != NULL) {
        struct block *next = free_index_following(&alloc->large.index, block);
        if (!block_is_split(block)) {
            backend_give_back(alloc, block, cause, sum);
        }
        block = next;
    }
    return VARVE_OK;
}

uint64_t backend_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return rounding_up(bytes > 0 ? bytes : 1, ROUNDING_MIN_BLOCK);
}

bool backend_is_small(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    (void)rounded;
    return false;
}

uint64_t backend_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounded;
}
