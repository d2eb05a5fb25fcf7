/* SPDX-License-Identifier: Apache-2.0 */
/* Address space without memory, as a list by (stream, address): a pool has few such ranges. */
#include "alloc/index/free_index.h"

static bool block_pool_is_before(const struct block *a, const struct block *b)
{
    uint64_t stream_a = a->bins->stream, stream_b = b->bins->stream;
    return stream_a != stream_b ? stream_a < stream_b : a->addr < b->addr;
}

void pool_unmapped_insert(struct pool *pool, struct block *block)
{
    struct block *before = NULL;
    struct block *after = pool->unmapped;
    while (after != NULL && block_pool_is_before(after, block)) {
        before = after;
        after = after->right;
    }
    block->left = before;
    block->right = after;
    if (after != NULL) {
        after->left = block;
    }
    if (before != NULL) {
        before->right = block;
    } else {
        pool->unmapped = block;
    }
}

void pool_unmapped_remove(struct pool *pool, struct block *block)
{
    if (block->left != NULL) {
        block->left->right = block->right;
    } else {
        pool->unmapped = block->right;
    }
    if (block->right != NULL) {
        block->right->left = block->left;
    }
    block->left = block->right = NULL;
}
