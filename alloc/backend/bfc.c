/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Best fit with coalescing, as TensorFlow and XLA (and so JAX) have it. Sizes are multiples of 256 bytes. Free chunks
 * are kept in 21 bins by powers of two from 256 bytes on, each ordered by (size, address), and searched from the bin of
 * the size on: what is found is the smallest chunk that serves, the lowest among equals, and the free index finds the
 * same without the bins. A chunk is cut if it has twice the wanted size, or 128 MiB more than that (option `waste`);
 * else it is handed out whole. A freed chunk merges with its free neighbours of the same region at once.
 *
 * Regions come with allow_growth: the first has 2 MiB (option `region`; with as much as the GPU has, allow_growth is
 * off), and each further one twice as much as the one before. A request that is larger doubles the size until it fits,
 * and then the next region is not doubled. A region is never larger than what the limit leaves; if the device refuses,
 * nine tenths are tried as long as the request fits. When all that fails, wholly free regions go back and the device is
 * asked again (garbage_collection; TensorFlow first looks whether that would be enough). Programs there have no
 * empty_cache; here it gives back the same regions, and the next one has the size that regions had when the
 * pool was as small.
 *
 * One pool serves all streams, as TensorFlow's does. There, the one stream of kernels makes that safe; here a stream
 * that gets a chunk of another one, or merges with it, first waits for that stream's work. Not modelled: chunks that
 * are held back by time stamps, waiting up to ten seconds for other threads to free, the two ends of
 * spatial partitioning.
 *
 * Source: tensorflow/tensorflow third_party/xla/xla/tsl/framework/bfc_allocator.cc, 2026.
 */
#include "alloc/backend/backend.h"
#include "alloc/policy/rounding.h"

#include <stdlib.h>

#define CHUNK_UNIT UINT64_C(256)

enum { OPTION_REGION, OPTION_WASTE };

static const struct varve_alloc_policy_option options[] = {
    {"region", "size of the first region; each further one has twice as much", UINT64_C(2) << 20, UINT64_C(1) << 20,
     UINT64_C(1) << 40, true},
    {"waste", "a chunk that has so much more than is wanted is cut", UINT64_C(128) << 20, CHUNK_UNIT, UINT64_C(1) << 60,
     true},
    {.name = NULL},
};

struct bfc {
    uint64_t first, region; /* bytes of the first region and of the next one */
    uint64_t waste;
};

static uint64_t bfc_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return rounding_up(bytes > 0 ? bytes : 1, CHUNK_UNIT);
}

/* The first one; what the next will have depends on those before. */
static uint64_t bfc_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    uint64_t bytes = options[OPTION_REGION].initial;
    (void)config;
    while (bytes < rounded) {
        bytes *= 2;
    }
    return bytes;
}

static int bfc_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    struct bfc *bfc = malloc(sizeof(*bfc));
    if (bfc == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    bfc->first = bfc->region = rounding_up(values[OPTION_REGION], ROUNDING_MIN_BLOCK);
    bfc->waste = values[OPTION_WASTE];
    alloc->backend_state = bfc;
    return VARVE_OK;
}

static struct block *best_of_all(const struct free_index *index, uint64_t bytes)
{
    struct block *best = NULL;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        struct block *block = free_index_best(index->streams[i], bytes);
        if (block != NULL &&
            (best == NULL || block->size < best->size || (block->size == best->size && block->addr < best->addr))) {
            best = block;
        }
    }
    return best;
}

/* Extend. The next region is doubled only as far as the device reaches: without a limit nothing else would stop it. */
static int extend(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    struct bfc *bfc = alloc->backend_state;
    uint64_t wanted = rounding_up(request->wanted.rounded, ROUNDING_MIN_BLOCK);
    uint64_t room = alloc->limit == 0                      ? UINT64_MAX
                    : alloc->limit > alloc->reserved_bytes ? alloc->limit - alloc->reserved_bytes
                                                           : 0;
    bool has_grown = wanted > bfc->region;
    int error = VARVE_ERROR_NO_MEMORY;
    if (wanted > room) {
        return error;
    }
    while (wanted > bfc->region) {
        bfc->region *= 2;
    }
    uint64_t bytes = bfc->region < room ? bfc->region : room & ~(ROUNDING_MIN_BLOCK - 1);
    while (error == VARVE_ERROR_NO_MEMORY && bytes >= wanted) {
        error = backend_reserve(alloc, request, bytes, block_out);
        bytes = bytes / 10 * 9 & ~(ROUNDING_MIN_BLOCK - 1); /* down: rounded up, small ones would stay as they are */
    }
    if (error == VARVE_OK && !has_grown && bfc->region < alloc->device_total) {
        bfc->region *= 2;
    }
    return error;
}

static void bfc_free(struct varve_alloc *alloc, struct block *block)
{
    backend_coalesce(alloc, block, true);
    backend_put(alloc, block);
}

static int bfc_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    const struct bfc *bfc = alloc->backend_state;
    uint64_t wanted = request->wanted.rounded;
    struct block *block = best_of_all(&alloc->large.index, wanted);
    int error = backend_prepare(alloc, 1);
    if (error != VARVE_OK) {
        return error;
    }
    if (block == NULL || !backend_take_for(alloc, block, request->wanted.bins)) {
        block = NULL;
        error = may_grow ? extend(alloc, request, &block) : VARVE_OK;
    }
    if (block != NULL && (block->size / 2 >= wanted || block->size - wanted >= bfc->waste)) {
        struct block *front = backend_cut(alloc, block, wanted);
        bfc_free(alloc, block);
        block = front;
    }
    *block_out = block;
    return error;
}

static int bfc_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    struct bfc *bfc = alloc->backend_state;
    int error = backend_release_whole(alloc, cause, sum);
    if (cause == VARVE_CAUSE_EMPTY_CACHE) {
        for (bfc->region = bfc->first; bfc->region < alloc->reserved_bytes;) {
            bfc->region *= 2;
        }
    }
    return error;
}

static int bfc_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct bfc *bfc = alloc->backend_state;
    const struct block *block = free_index_first(&alloc->large.index);
    if (bfc->region % ROUNDING_MIN_BLOCK != 0) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "a region of no multiple of 512 bytes");
    }
    for (; block != NULL; block = free_index_following(&alloc->large.index, block)) {
        const struct block *next = backend_free_behind(block);
        if ((block->addr | block->size) % CHUNK_UNIT != 0) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a chunk of a wrong size or place");
        }
        if (next != NULL && next->bins == block->bins) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "two free neighbours were not merged");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = bfc_open,
    .alloc = bfc_alloc,
    .free = bfc_free,
    .release = bfc_release,
    .check = bfc_check,
};

const struct alloc_policy policy_bfc = {
    .name = "bfc",
    .meaning = "Best fit with coalescing, as in TensorFlow and XLA: the size of the first region, doubled for each "
               "one further, and how much a block may be too large before it is cut.",
    .block_size = bfc_block_size,
    .is_small = backend_is_small,
    .segment_size = bfc_segment_size,
    .backend = &backend,
};
