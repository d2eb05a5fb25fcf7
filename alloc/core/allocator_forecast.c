/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request would meet and what a stage would release, without a change: for replay, which
 * attributes a burst of releases to its cause. Rests on the plans of core/cache_release.c and on the policy's pure
 * search.
 */
#include "alloc/core/allocator_state.h"
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/rounding.h"

static int allocator_forecast_prepare(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream,
                                      struct request *request)
{
    int error = request_prepare(alloc, bytes, stream, request);
    if (error == VARVE_OK) {
        request->segment_bytes = request_segment_size(alloc, request);
    }
    return error;
}

int varve_alloc_forecast(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream,
                         struct varve_alloc_forecast *forecast_out)
{
    if (bytes == 0 || bytes >= ROUNDING_REQUEST_LIMIT) {
        return VARVE_ERROR_INVALID;
    }
    if (alloc->policy->backend != NULL) {
        return VARVE_ERROR_UNSUPPORTED; /* it does not look without acting */
    }
    alloc_lock(alloc);
    struct request request;
    int error = allocator_forecast_prepare(alloc, bytes, stream, &request);
    if (error == VARVE_OK) {
        *forecast_out = (struct varve_alloc_forecast){
            .rounded = request.wanted.rounded,
            .segment_bytes = request.segment_bytes,
            .is_hit = alloc->policy->search(&alloc->config, &request.wanted) != NULL,
        };
    }
    alloc_unlock(alloc);
    return error;
}

static bool allocator_forecast_is_among(const struct varve_alloc_release *items, size_t count, uint64_t addr)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].addr == addr) {
            return true;
        }
    }
    return false;
}

/* Free blocks that earlier stages have released already, as far as the caller is concerned. */
static void plan_done(struct varve_alloc *alloc, const struct varve_alloc_release *done, size_t count,
                      struct release_plan *plan)
{
    for (struct pool *pool = pool_each(alloc, NULL); count > 0 && pool != NULL; pool = pool_each(alloc, pool)) {
        for (struct block *block = free_index_first(&pool->index); block != NULL;
             block = free_index_following(&pool->index, block)) {
            uint64_t addr = block->addr;
            if (block->expandable != NULL && expandable_releasable(block, &addr) == 0) {
                continue;
            }
            if (allocator_forecast_is_among(done, count, addr)) {
                plan_add(plan, block, 0);
            }
        }
    }
}

static size_t allocator_forecast_list(const struct block *block, struct varve_alloc_release *released, size_t limit)
{
    size_t count = 0;
    for (; block != NULL; block = block->planned_next) {
        struct varve_alloc_release item = {block->addr, block->size};
        if (block->expandable != NULL) {
            item.bytes = expandable_releasable(block, &item.addr);
        }
        if (count < limit) {
            released[count] = item;
        }
        count++;
    }
    return count;
}

int varve_alloc_forecast_release(struct varve_alloc *alloc, enum varve_alloc_stage stage, uint64_t bytes,
                                 uint64_t stream, const struct varve_alloc_release *done, size_t done_count,
                                 struct varve_alloc_release *released, size_t limit, size_t *count_out,
                                 bool *success_out)
{
    struct release_plan plan = {0};
    *count_out = 0;
    *success_out = false;
    if (bytes >= ROUNDING_REQUEST_LIMIT) {
        return VARVE_ERROR_INVALID;
    }
    alloc_lock(alloc);
    struct request request;
    int error = allocator_forecast_prepare(alloc, bytes > 0 ? bytes : 1, stream, &request);
    if (error == VARVE_OK) {
        plan_done(alloc, done, done_count, &plan);
        struct block *before = plan.last;
        switch (stage) {
        case VARVE_ALLOC_STAGE_GC:
            plan_garbage(alloc, &plan);
            *success_out = true;
            break;
        case VARVE_ALLOC_STAGE_RELEASE_AVAILABLE:
            *success_out = plan_available(alloc, &request, &plan);
            break;
        case VARVE_ALLOC_STAGE_RELEASE_CACHED:
            plan_cached(alloc, &plan);
            *success_out = true;
            break;
        default:
            error = VARVE_ERROR_INVALID;
        }
        *count_out = allocator_forecast_list(before != NULL ? before->planned_next : plan.first, released, limit);
        plan_forget(&plan);
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_process_events(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    int error = VARVE_OK;
    if (alloc->capture_count == 0) {
        error = stream_use_poll(alloc);
    }
    alloc_unlock(alloc);
    return error;
}
