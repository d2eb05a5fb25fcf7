/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments: a large range of addresses that gets memory in units where it is needed
 * (find_expandable_block, try_allocate_expandable_block, map_block, unmap_block).
 */
#ifndef VARVE_ALLOC_CORE_SEGMENT_EXPANDABLE_H
#define VARVE_ALLOC_CORE_SEGMENT_EXPANDABLE_H

#include "alloc/core/allocator_state.h"

int expandable_alloc(struct varve_alloc *alloc, struct request *request, struct block **block_out);
/// unmap_block, and release_expandable_segment if nothing of it is left; returns the bytes unmapped. What the device
/// fails to unmap stays with all behind it, and `error_out` says so; otherwise it is left alone.
uint64_t expandable_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, int *error_out);
/// Bytes that expandable_release would unmap, and where.
uint64_t expandable_releasable(const struct block *block, uint64_t *addr_out);
void expandable_close(struct varve_alloc *alloc);
/// An empty expandable segment at an address of the device's choice, all of it unmapped, for memory in
/// pieces of `unit`.
int expandable_reserve(struct varve_alloc *alloc, const struct request *request, uint64_t unit,
                       struct block **block_out);
uint64_t expandable_unit(const struct varve_alloc *alloc, const struct pool *pool); /* PyTorch's */
/// Memory for the first `bytes` of unmapped space, in whole units.
int expandable_map(struct varve_alloc *alloc, struct block *block, uint64_t bytes, struct varve_message *message);
/// Physical memory moves: the whole units of a free block are unmapped, and their handles are the caller's (`handles`
/// has room for all of them); and unmapped space gets `given` such units, and new ones behind them. After an error of
/// the second the handles are still the caller's. Otherwise as expandable_release and expandable_map.
uint64_t expandable_detach(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, uint64_t *handles,
                           int *error_out);
int expandable_attach(struct varve_alloc *alloc, struct block *block, uint64_t bytes, const uint64_t *handles,
                      uint64_t given, struct varve_message *message);

#endif
