/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What backends (struct pool_backend) are made of: memory comes as a segment, is cut into pieces and merged again, and
 * goes back as a whole. Each step is recorded and counted here, so that a backend is its decisions alone.
 *
 * A piece is either free, and then in the free index (backend_put), or held by the backend or the program. Sizes may be
 * any; the device's segments are multiples of 512 bytes. Called with the allocator's lock held. Descriptors that a call
 * needs are reserved with backend_prepare at the beginning of an `alloc`, so that nothing fails half way.
 */
#ifndef VARVE_ALLOC_BACKEND_BACKEND_H
#define VARVE_ALLOC_BACKEND_BACKEND_H

#include "alloc/core/allocator_state.h"

#define BACKEND_CUTS 64 /* of one request, at most */

/// At least `pieces` cuts cannot fail. VARVE_ERROR_FULL.
int backend_prepare(struct varve_alloc *alloc, uint64_t pieces);
/// A new segment of `bytes` for the request's stream, held. While the device is asked, other requests may come in
/// (release_lock_on_cudamalloc); BACKEND_CUTS cuts cannot fail afterwards. Errors: VARVE_ERROR_NO_MEMORY (limit or
/// device), VARVE_ERROR_FULL, the device's.
int backend_reserve(struct varve_alloc *alloc, struct request *request, uint64_t bytes, struct block **block_out);
/// A held piece becomes free: it is in the index of its stream afterwards.
void backend_put(struct varve_alloc *alloc, struct block *block);
/// A free piece is held; its list links are NULL.
void backend_take(struct varve_alloc *alloc, struct block *block);
/// The first `bytes` of a held piece become a piece of their own, which is returned; `block` keeps the
/// rest. Both are held.
struct block *backend_cut(struct varve_alloc *alloc, struct block *block, uint64_t bytes);
/// A held piece absorbs a held neighbour of its segment, which is gone then.
void backend_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour);
/// The neighbour before or behind a piece if it is free; NULL.
struct block *backend_free_before(const struct block *block);
struct block *backend_free_behind(const struct block *block);
/// A held piece goes over to another stream, which then waits for the work of the one that had it.
/// Errors: the device's.
int backend_adopt(struct varve_alloc *alloc, struct block *block, struct stream_bins *bins);
/// A free piece is held for that stream. False: the device can't let the stream wait, and the piece is still free.
bool backend_take_for(struct varve_alloc *alloc, struct block *block, struct stream_bins *bins);
/// A held piece absorbs its free neighbours; with `any_stream` also those of other streams, whose work its own stream
/// then waits for. One for which the device can't do that stays.
void backend_coalesce(struct varve_alloc *alloc, struct block *block, bool any_stream);
/// A free piece that is a whole segment goes back to the device, and `sum` counts it. False: the device has kept it,
/// and it stays free.
bool backend_give_back(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, struct release_sum *sum);
/// The same of all of them, for backends that have nothing but the index.
int backend_release_whole(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum);
/// Of a policy's table, where it has no rule of its own: a multiple of 512 bytes; one pool for all sizes; a
/// segment for each block.
uint64_t backend_block_size(const struct varve_alloc_config *config, uint64_t bytes);
bool backend_is_small(const struct varve_alloc_config *config, uint64_t rounded);
uint64_t backend_segment_size(const struct varve_alloc_config *config, uint64_t rounded);

#endif
