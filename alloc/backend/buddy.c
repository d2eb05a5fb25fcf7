/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary buddies: every block has 2^k bytes and lies at a multiple of 2^k in its segment; a request is rounded up to the
 * next power of two, takes the smallest free block that serves, lowest address first, and halves it until it fits; a freed
 * block merges with its buddy, the other half, as long as that is free. One pool for each stream; a segment has the
 * size of option `segment`, or of the request if that is larger. Source: Knowlton 1965; Knuth, TAOCP 1, 2.5.
 *
 * Proven bound (Knuth, TAOCP 1, 2.5, exercise 41 and Robson): for requests that are powers of two up to 2^r units, in one
 * segment, no sequence with at most n units in use at a time needs more than (r + 1) n units. What is rounded up comes on
 * top: less than half of each block.
 */
#include "alloc/backend/backend.h"
#include "alloc/policy/rounding.h"

#include <stdlib.h>

#define CUTS_MAX 64 /* halvings of one block */

enum { OPTION_SEGMENT };

static const struct varve_alloc_policy_option options[] = {
    {"segment", "size of a new segment, rounded up to a power of two", 64 * (UINT64_C(1) << 20),
     UINT64_C(1) << 20, UINT64_C(1) << 40, true},
    {.name = NULL},
};

struct buddy {
    uint64_t segment; /* bytes of a new segment, a power of two */
};

static uint64_t power_from(uint64_t bytes)
{
    return bytes <= ROUNDING_MIN_BLOCK ? ROUNDING_MIN_BLOCK
                                       : UINT64_C(1) << (64 - __builtin_clzll(bytes - 1));
}

static uint64_t block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return power_from(bytes);
}

static uint64_t segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounded > options[OPTION_SEGMENT].initial ? rounded : options[OPTION_SEGMENT].initial;
}

static int buddy_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    struct buddy *buddy = malloc(sizeof(*buddy));

    if (buddy == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    buddy->segment = power_from(values[OPTION_SEGMENT]);
    alloc->backend_state = buddy;
    return VARVE_OK;
}

/* backend_word: where the piece begins in its segment. */
static int buddy_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow,
                       struct block **block_out)
{
    const struct buddy *buddy = alloc->backend_state;
    uint64_t wanted = request->wanted.rounded;
    struct block *block = free_index_best(request->wanted.bins, wanted);
    int error = backend_prepare(alloc, CUTS_MAX);

    if (error != VARVE_OK) {
        return error;
    }
    if (block != NULL) {
        backend_take(alloc, block);
    } else if (!may_grow) {
        return VARVE_OK;
    } else {
        error = backend_reserve(alloc, request, wanted > buddy->segment ? wanted : buddy->segment, &block);
        if (error == VARVE_OK) {
            block->backend_word = 0;
            error = backend_prepare(alloc, CUTS_MAX); /* others may have come in meanwhile */
        }
        if (error != VARVE_OK) {
            return error;
        }
    }
    while (block->size > wanted) {
        uint64_t offset = block->backend_word, half = block->size / 2;
        struct block *front = backend_cut(alloc, block, half);

        front->backend_word = offset;
        block->backend_word = offset + half;
        backend_put(alloc, block);
        block = front;
    }
    *block_out = block;
    return VARVE_OK;
}

/* The other half of the block that both were cut from; NULL: it is not there in one piece. */
static struct block *buddy_of(const struct block *block)
{
    bool is_second = (block->backend_word & block->size) != 0;
    struct block *other = is_second ? backend_free_before(block) : backend_free_behind(block);

    return other != NULL && other->size == block->size ? other : NULL;
}

static void buddy_free(struct varve_alloc *alloc, struct block *block)
{
    struct block *other;

    while ((other = buddy_of(block)) != NULL) {
        uint64_t offset =
            block->backend_word < other->backend_word ? block->backend_word : other->backend_word;

        backend_take(alloc, other);
        backend_merge(alloc, block, other);
        block->backend_word = offset;
    }
    backend_put(alloc, block);
}

static int buddy_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct block *block = free_index_first(&alloc->large.index);

    for (; block != NULL; block = free_index_following(&alloc->large.index, block)) {
        if ((block->size & (block->size - 1)) != 0 || block->backend_word % block->size != 0) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a buddy of a wrong size or place");
        }
        if (buddy_of(block) != NULL) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "two free buddies were not merged");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = buddy_open,
    .alloc = buddy_alloc,
    .free = buddy_free,
    .release = backend_release_whole,
    .check = buddy_check,
};

const struct alloc_policy policy_buddy = {
    .name = "buddy",
    .block_size = block_size,
    .is_small = backend_is_small,
    .segment_size = segment_size,
    .backend = &backend,
};
