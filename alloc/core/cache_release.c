/* SPDX-License-Identifier: Apache-2.0 */
/* A plan is a list through the blocks themselves (`planned_next`), since it may be as long as the pool. */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"

void plan_add(struct release_plan *plan, struct block *block, uint64_t bytes)
{
    block->planned_next = NULL;
    block->is_planned = true;
    if (plan->last != NULL) {
        plan->last->planned_next = block;
    } else {
        plan->first = block;
    }
    plan->last = block;
    plan->count++;
    plan->bytes += bytes;
}

void plan_forget(struct release_plan *plan)
{
    for (struct block *block = plan->first; block != NULL; block = block->planned_next) {
        block->is_planned = false;
    }
    *plan = (struct release_plan){0};
}

/* ---- plans ---- */

uint64_t release_garbage_target(const struct varve_alloc *alloc)
{
    double threshold = alloc->config.garbage_collection_threshold;
    uint64_t bytes = (uint64_t)(threshold * (double)alloc->limit);
    return alloc->limit != 0 && threshold > 0 && alloc->reserved_bytes > bytes ? alloc->reserved_bytes - bytes : 0;
}

static uint64_t gc_age(const struct pool *pool, const struct block *block)
{
    return pool->search_count - block->freed_at;
}

/* Blocks above the mean age go, in passes, until enough bytes went; a pass does not stop when they did. */
void plan_garbage(struct varve_alloc *alloc, struct release_plan *plan)
{
    struct pool *pool = &alloc->large;
    uint64_t target = release_garbage_target(alloc);
    uint64_t total_age = 0, count = 0;
    uint64_t begin_bytes = plan->bytes;
    bool has_found = target > 0;
    for (struct block *block = free_index_first(&pool->index); has_found && block != NULL;
         block = free_index_following(&pool->index, block)) {
        if (!block_is_split(block) && !block->is_planned) {
            total_age += gc_age(pool, block);
            count++;
        }
    }
    while (plan->bytes - begin_bytes < target && has_found && count > 0) {
        double least_age = (double)total_age / (double)count;
        has_found = false;
        for (struct block *block = free_index_first(&pool->index); block != NULL;
             block = free_index_following(&pool->index, block)) {
            if (!block->is_planned && !block_is_split(block) && block->expandable == NULL &&
                (double)gc_age(pool, block) >= least_age) {
                has_found = true;
                total_age -= gc_age(pool, block);
                count--;
                plan_add(plan, block, block->size);
            }
        }
    }
}

static struct block *previous_unplanned(const struct block *block)
{
    struct block *previous = free_index_previous(block);
    while (previous != NULL && previous->is_planned) {
        previous = free_index_previous(previous);
    }
    return previous;
}

static struct block *next_unplanned(struct block *block)
{
    while (block != NULL && block->is_planned) {
        block = free_index_next(block);
    }
    return block;
}

/* Oversize blocks are never split by requests of the same settings; a restored state may have such pieces,
 * and requests of expandable segments cut ordinary ones. A part of a segment can't be released. */
static bool cache_release_is_whole(const struct block *block)
{
    return block->expandable == NULL && !block_is_split(block);
}

/* The smallest oversize block that would do, or else enough of the others, the largest first. */
bool plan_available(struct varve_alloc *alloc, const struct request *request, struct release_plan *plan)
{
    uint64_t least = alloc->config.max_split_size;
    uint64_t key = request->wanted.rounded > least ? request->wanted.rounded : least;
    uint64_t begin_bytes = plan->bytes;
    if (least == VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    struct block *block = next_unplanned(free_index_lower_bound(request->wanted.bins, key, 0));
    if (block != NULL && cache_release_is_whole(block)) {
        plan_add(plan, block, block->size);
        return true;
    }
    block = block != NULL ? previous_unplanned(block) : free_index_last(request->wanted.bins);
    if (block != NULL && block->is_planned) {
        block = previous_unplanned(block);
    }
    while (block != NULL && plan->bytes - begin_bytes < key && block->size >= least) {
        struct block *smaller = previous_unplanned(block);
        if (cache_release_is_whole(block)) {
            plan_add(plan, block, block->size);
        }
        block = smaller;
    }
    return plan->bytes - begin_bytes >= key;
}

/* Whole segments first, then what expandable ones can spare. */
static void plan_pool(struct pool *pool, struct release_plan *plan)
{
    for (struct block *block = free_index_first(&pool->index); block != NULL;
         block = free_index_following(&pool->index, block)) {
        if (!block->is_planned && cache_release_is_whole(block)) {
            plan_add(plan, block, block->size);
        }
    }
    uint64_t addr;
    for (struct block *block = free_index_first(&pool->index); block != NULL;
         block = free_index_following(&pool->index, block)) {
        if (!block->is_planned && block->expandable != NULL && expandable_releasable(block, &addr) > 0) {
            plan_add(plan, block, expandable_releasable(block, &addr));
        }
    }
}

void plan_cached(struct varve_alloc *alloc, struct release_plan *plan)
{
    if (alloc->capture_count == 0 && alloc->policy->backend == NULL) {
        plan_pool(&alloc->large, plan);
        plan_pool(&alloc->small, plan);
    }
    for (struct private_pool *pool = alloc->freeable_pools; pool != NULL; pool = pool->next_freeable) {
        plan_pool(&pool->small, plan);
        plan_pool(&pool->large, plan);
    }
}

/* ---- carrying out ---- */

static struct release_sum carry_out(struct varve_alloc *alloc, struct release_plan *plan, enum varve_cause cause)
{
    struct release_sum sum = {0};
    struct block *block = plan->first;
    while (block != NULL) {
        struct block *next = block->planned_next;
        block->is_planned = false;
        if (block->expandable != NULL) {
            sum.segments++;
            sum.bytes += expandable_release(alloc, block, cause, &sum.error);
        } else {
            enum varve_cause own = block_pool(block)->owner != NULL ? VARVE_CAUSE_POOL_DESTROYED : cause;
            uint64_t bytes = block->size;
            int error = segment_release(alloc, block, own);
            sum.segments += error == VARVE_OK;
            sum.bytes += error == VARVE_OK ? bytes : 0;
            sum.error = error == VARVE_OK ? sum.error : error;
        }
        block = next;
    }
    *plan = (struct release_plan){0};
    return sum;
}

struct release_sum release_garbage(struct varve_alloc *alloc)
{
    struct release_plan plan = {0};
    plan_garbage(alloc, &plan);
    return carry_out(alloc, &plan, VARVE_CAUSE_GC);
}

struct release_sum release_available(struct varve_alloc *alloc, const struct request *request)
{
    struct release_plan plan = {0};
    bool has_succeeded = plan_available(alloc, request, &plan);
    struct release_sum sum = carry_out(alloc, &plan, VARVE_CAUSE_RELEASE_AVAILABLE);
    sum.has_succeeded = has_succeeded;
    return sum;
}

int release_cached(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum_out)
{
    *sum_out = (struct release_sum){0};
    int error = VARVE_OK;
    if (alloc->capture_count == 0) {
        error = stream_use_synchronize(alloc, NULL);
    }
    if (error != VARVE_OK) {
        return error;
    }
    struct release_plan plan = {0};
    plan_cached(alloc, &plan);
    *sum_out = carry_out(alloc, &plan, cause);
    sum_out->has_succeeded = true;
    private_pools_erase_empty(alloc);
    return alloc->capture_count == 0 && alloc->policy->backend != NULL
               ? alloc->policy->backend->release(alloc, cause, sum_out)
               : VARVE_OK;
}

int release_pool(struct varve_alloc *alloc, struct private_pool *pool, struct release_sum *sum_out)
{
    *sum_out = (struct release_sum){0};
    if (pool->use_count > 0) {
        return VARVE_OK;
    }
    if (alloc->capture_count > 0) {
        return VARVE_ERROR_BUSY; /* events can't be waited for */
    }
    int error = stream_use_synchronize(alloc, pool);
    if (error != VARVE_OK) {
        return error;
    }
    struct release_plan plan = {0};
    plan_pool(&pool->small, &plan);
    plan_pool(&pool->large, &plan);
    *sum_out = carry_out(alloc, &plan, VARVE_CAUSE_EMPTY_CACHE);
    sum_out->has_succeeded = true;
    private_pools_erase_empty(alloc);
    return VARVE_OK;
}
