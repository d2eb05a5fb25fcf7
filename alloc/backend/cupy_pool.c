/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CuPy's memory pool. Sizes are multiples of 512 bytes, and each stream has an arena: free chunks in bins, one for each
 * multiple of 512 bytes. A request takes a chunk of the first bin that has one, from that of its size on, and cuts it
 * to its size, whatever is left; which chunk of the bin is left open there (a set's own order), here it is the lowest.
 * If there is none, the device gives exactly what is wanted. A freed chunk merges with its free neighbours; chunks of
 * other streams are never used.
 *
 * If the device has no memory, all chunks that are whole segments go back to it (free_all_blocks), of all streams, and
 * it is asked again. A request beyond the pool's own limit (option `limit`, CUPY_GPU_MEMORY_LIMIT there) fails at once
 * instead, though chunks might be given back.
 *
 * Source: cupy/cupy cupy/cuda/memory.pyx, SingleDeviceMemoryPool, 2025.
 */
#include "alloc/backend/backend.h"

#include <stdlib.h>

enum { OPTION_LIMIT };

static const struct varve_alloc_policy_option options[] = {
    {"limit", "of what the pool has from the device; 0: none", 0, 0, UINT64_C(1) << 60, true},
    {.name = NULL},
};

struct cupy {
    uint64_t limit;      /* 0: none */
    bool was_over_limit; /* so the last request failed: nothing goes back for it */
};

static int cupy_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    struct cupy *cupy = malloc(sizeof(*cupy));
    if (cupy == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    *cupy = (struct cupy){.limit = values[OPTION_LIMIT]};
    alloc->backend_state = cupy;
    return VARVE_OK;
}

static int cupy_pool_grow(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    struct cupy *cupy = alloc->backend_state;
    uint64_t wanted = request->wanted.rounded;
    cupy->was_over_limit = cupy->limit != 0 && (wanted > cupy->limit || alloc->reserved_bytes > cupy->limit - wanted);
    return cupy->was_over_limit ? VARVE_ERROR_NO_MEMORY : backend_reserve(alloc, request, wanted, block_out);
}

static int cupy_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    uint64_t wanted = request->wanted.rounded;
    struct block *block = free_index_best(request->wanted.bins, wanted);
    int error = backend_prepare(alloc, 1);
    if (error != VARVE_OK || (block == NULL && !may_grow)) {
        return error;
    }
    if (block == NULL) {
        return cupy_pool_grow(alloc, request, block_out);
    }
    backend_take(alloc, block);
    if (block->size > wanted) {
        struct block *front = backend_cut(alloc, block, wanted);
        backend_put(alloc, block);
        block = front;
    }
    *block_out = block;
    return VARVE_OK;
}

static void cupy_free(struct varve_alloc *alloc, struct block *block)
{
    backend_coalesce(alloc, block, false);
    backend_put(alloc, block);
}

static int cupy_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    const struct cupy *cupy = alloc->backend_state;
    return cause == VARVE_CAUSE_RETRY && cupy->was_over_limit ? VARVE_OK : backend_release_whole(alloc, cause, sum);
}

static int cupy_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct block *block = free_index_first(&alloc->large.index);
    for (; block != NULL; block = free_index_following(&alloc->large.index, block)) {
        if (backend_free_behind(block) != NULL) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "two free neighbours were not merged");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = cupy_open,
    .alloc = cupy_alloc,
    .free = cupy_free,
    .release = cupy_release,
    .check = cupy_check,
};

const struct alloc_policy policy_cupy_pool = {
    .name = "cupy-pool",
    .meaning = "CuPy's pool: segments of the size of the request, best fit within a stream; the most that it takes "
               "(0: no limit).",
    .block_size = backend_block_size,
    .is_small = backend_is_small,
    .segment_size = backend_segment_size,
    .backend = &backend,
};
