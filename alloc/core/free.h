/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * Blocks come back: free, free_block and try_merge_blocks.
 */
#ifndef VARVE_ALLOC_CORE_FREE_H
#define VARVE_ALLOC_CORE_FREE_H

#include "alloc/alloc.h"
#include "alloc/index/block.h"

int block_delete(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message);
/// The block is not in use any more: record, merge, insert.
void block_free(struct varve_alloc *alloc, struct block *block);
/// Put a free block into its pool; its age begins.
void block_insert_free(struct block *block);
/// The first `bytes` of a block are cut off; the rest is free, and in the index afterwards.
void block_shrink_free(struct block *block, uint64_t bytes);
/// Absorb a neighbour (NULL allowed) if that may be; returns the bytes absorbed.
uint64_t block_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour);

#endif
