/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No cache: each request is a call of the device, and so is each free, as with PYTORCH_NO_CUDA_MEMORY_CACHING=1 or
 * plain cudaMalloc. The least that can be reserved without moving blocks, and the most calls. A segment is a multiple
 * of 512 bytes; what the driver keeps beyond that for itself (it maps 2 MiB at a time, and puts small segments
 * together) is not in the figures.
 */
#include "alloc/backend/backend.h"

static int none_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    return may_grow ? backend_reserve(alloc, request, request->wanted.rounded, block_out) : VARVE_OK;
}

/* What the device keeps is given back with the next release. */
static void none_free(struct varve_alloc *alloc, struct block *block)
{
    backend_put(alloc, block);
    struct release_sum ignored = {0};
    backend_give_back(alloc, block, VARVE_CAUSE_FREE, &ignored);
}

/* Every block is a segment. */
static int none_check(struct varve_alloc *alloc, struct varve_message *message)
{
    uint64_t position = 0;
    const struct block *block;
    while ((block = block_map_each(&alloc->map, &position)) != NULL) {
        if (block_pool(block) == &alloc->large && block_is_split(block)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a part of a segment under policy none");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .alloc = none_alloc,
    .free = none_free,
    .release = backend_release_whole,
    .check = none_check,
};

const struct alloc_policy policy_none = {
    .name = "none",
    .meaning = "No cache: each request is a call of the device.",
    .block_size = backend_block_size,
    .is_small = backend_is_small,
    .segment_size = backend_segment_size,
    .backend = &backend,
};
