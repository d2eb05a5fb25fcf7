/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's own pools as a policy: each request is one allocation of the device's stream-ordered memory
 * (cuMemAllocFromPoolAsync), each free frees it at once (cuMemFreeAsync), and nothing is cached here. What is reserved
 * is therefore what is allocated; what the driver's pool holds beyond that is seen in the device's free memory alone.
 *
 * Nothing waits for streams here. A free is enqueued on the block's stream, behind its last use. Where other
 * streams used the block, it is enqueued on the device's own stream, which first waits for all work that those
 * streams have by now: no stream of the program is held up by a free. A request may be: a pool that can't grow
 * lets a stream wait for memory whose free is enqueued.
 *
 * What can't be freed now (a stream is being captured, the device fails) is kept in the deferred list and tried
 * again by later requests. A stream on which memory was freed must live until the next trim.
 */
#include "alloc/backend/backend.h"
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/pytorch_rules.h"

#include <inttypes.h>
#include <stdlib.h>

/* A stream's bins->backend is the state while memory was freed on the stream since the last trim. A block's
 * backend_word is 1 if it was freed and the device's own stream waits for it already. */
struct cuda_async {
    bool has_joined; /* the device's own stream freed memory, and was not waited for since */
};

static int cuda_async_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    (void)values;
    if (ops->alloc_async == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "policy %s: device %s has no pool of stream-ordered memory", alloc->policy->name,
                                 ops->name);
    }
    alloc->backend_state = calloc(1, sizeof(struct cuda_async));
    return alloc->backend_state != NULL
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
}

static int cuda_async_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    uint64_t addr = 0;
    int error = may_grow ? backend_prepare(alloc, 0) : VARVE_OK;
    if (!may_grow || error != VARVE_OK) {
        return error;
    }
    request->segment_bytes = request->wanted.rounded;
    if (!segment_is_within_limit(alloc, request->segment_bytes)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    error = alloc->device->ops->alloc_async(alloc->device, request->segment_bytes, request->wanted.bins->stream, &addr);
    if (error != VARVE_OK) {
        return segment_refused(alloc, request, error);
    }
    *block_out = segment_begin(alloc, request, addr);
    (*block_out)->backend_word = 0;
    return VARVE_OK;
}

static void cuda_async_forget(struct varve_alloc *alloc, struct block *block)
{
    bool is_small = block_pool(block)->is_small;
    emit_free(alloc, VARVE_KIND_FREE_COMPLETED, block);
    emit_segment(alloc, VARVE_KIND_SEGMENT_FREE, VARVE_CAUSE_FREE, block, block->size, 0);
    block_map_remove(&alloc->map, block);
    stat_complete(&alloc->counters, is_small, block->requested);
    segment_uncount(alloc, block);
    block_slab_release(&alloc->slab, block);
}

/* The stream on which the block is to be freed, behind all that use it. What has been waited for is not
 * waited for again after an error: more work of those streams is none with this block. */
static int users_join(struct varve_alloc *alloc, struct block *block, uint64_t *stream_out)
{
    uint64_t own = block->bins->stream;
    if (block->uses == NULL && block->backend_word == 0) {
        *stream_out = own;
        return VARVE_OK;
    }
    int error = alloc->device->ops->join_stream(alloc->device, stream_out);
    if (error == VARVE_OK && block->backend_word == 0) {
        error = stream_use_order(alloc, *stream_out, own);
        block->backend_word = error == VARVE_OK;
    }
    while (error == VARVE_OK && block->uses != NULL) {
        error = stream_use_order(alloc, *stream_out, block->uses->stream);
        if (error == VARVE_OK) {
            stream_use_drop_first(alloc, block);
        }
    }
    return error;
}

static int cuda_async_free_ordered(struct varve_alloc *alloc, struct block *block)
{
    struct cuda_async *state = alloc->backend_state;
    uint64_t stream = 0;
    int error = users_join(alloc, block, &stream);
    assert(!block->is_allocated && !block_is_split(block));
    VARVE_THEN(error, alloc->device->ops->free_async(alloc->device, block->addr, block->size, stream));
    if (error == VARVE_OK) {
        if (block->backend_word != 0) {
            state->has_joined = true;
        } else {
            block->bins->backend = state;
        }
        cuda_async_forget(alloc, block);
    }
    return error;
}

static void cuda_async_abandon(struct varve_alloc *alloc, struct block *block)
{
    uint64_t own = block->bins->stream, stream = own;
    if (users_join(alloc, block, &stream) != VARVE_OK && block->backend_word == 0) {
        stream = own;
    }
    alloc->device->ops->free_async(alloc->device, block->addr, block->size, stream);
}

static int joined_wait(struct varve_alloc *alloc)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    struct cuda_async *state = alloc->backend_state;
    uint64_t stream = 0;
    int error = VARVE_OK;
    if (state->has_joined) {
        error = ops->join_stream(alloc->device, &stream);
        error = error == VARVE_OK ? ops->stream_synchronize(alloc->device, stream) : error;
        state->has_joined = error != VARVE_OK;
    }
    return error;
}

static int streams_wait(struct varve_alloc *alloc, const struct pool *pool)
{
    int error = VARVE_OK;
    for (uint32_t i = 0; error == VARVE_OK && i < pool->index.stream_count; i++) {
        struct stream_bins *bins = pool->index.streams[i];
        if (bins->backend != NULL) {
            error = alloc->device->ops->stream_synchronize(alloc->device, bins->stream);
            if (error == VARVE_ERROR_BUSY) {
                error = VARVE_OK; /* captured: the pool keeps what it may still use */
            } else if (error == VARVE_OK) {
                bins->backend = NULL;
            }
        }
    }
    return error;
}

/* Wait for the streams that freed memory, then the pool keeps nothing unused. */
static int cuda_async_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    int error = streams_wait(alloc, &alloc->large);
    (void)cause;
    (void)sum; /* how much the driver gave back, it does not say */
    VARVE_THEN(error, streams_wait(alloc, &alloc->small));
    VARVE_THEN(error, joined_wait(alloc));
    return error != VARVE_OK ? error : alloc->device->ops->pool_trim(alloc->device, 0);
}

/* Of what came and was not handed out. */
static void cuda_async_free(struct varve_alloc *alloc, struct block *block)
{
    alloc->device->ops->free_async(alloc->device, block->addr, block->size, block->bins->stream);
    block->bins->backend = alloc->backend_state;
    emit_segment(alloc, VARVE_KIND_SEGMENT_FREE, VARVE_CAUSE_FREE, block, block->size, 0);
    segment_uncount(alloc, block);
    block_slab_release(&alloc->slab, block);
}

static int cuda_async_check(struct varve_alloc *alloc, struct varve_message *message)
{
    uint64_t position = 0;
    const struct block *block;
    while ((block = block_map_each(&alloc->map, &position)) != NULL) {
        if (block_is_ordered(alloc, block) &&
            (block_is_split(block) || (block->is_allocated && block->backend_word != 0))) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "a block of the device's pool has a wrong state, address %#" PRIx64, block->addr);
        }
    }
    return VARVE_OK;
}

/* What streams are not done with the pool keeps. */
static void cuda_async_close(struct varve_alloc *alloc)
{
    if (alloc->backend_state != NULL) {
        alloc->device->ops->pool_trim(alloc->device, 0);
    }
}

static const struct pool_backend backend = {
    .open = cuda_async_open,
    .alloc = cuda_async_alloc,
    .free = cuda_async_free,
    .release = cuda_async_release,
    .check = cuda_async_check,
    .close = cuda_async_close,
    .free_ordered = cuda_async_free_ordered,
    .abandon = cuda_async_abandon,
};

const struct alloc_policy policy_cuda_async = {
    .name = "cuda-async",
    .meaning = "The driver's own pools (cudaMallocAsync); offline a model of them.",
    .block_size = backend_block_size,
    .is_small = pytorch_is_small,
    .segment_size = backend_segment_size,
    .backend = &backend,
};
