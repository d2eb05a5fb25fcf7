/* SPDX-License-Identifier: Apache-2.0 */
/* Memory from the device and back: alloc_block and release_block. */
#ifndef VARVE_ALLOC_CORE_SEGMENT_PAGES_H
#define VARVE_ALLOC_CORE_SEGMENT_PAGES_H

#include "alloc/core/allocator_state.h"

/// alloc_block: a segment, or mapped memory, for the request. VARVE_ERROR_NO_MEMORY, or a fatal error.
int segment_alloc(struct varve_alloc *alloc, struct request *request, bool is_retry, struct block **block_out);
/// The parts of it, for backends: whether `bytes` more are within the limit; a device's range that has just come
/// becomes a block of request->segment_bytes, counted and recorded; the message of a device's error, which is returned.
bool segment_is_within_limit(const struct varve_alloc *alloc, uint64_t bytes);
struct block *segment_begin(struct varve_alloc *alloc, const struct request *request, uint64_t addr);
int segment_refused(struct varve_alloc *alloc, const struct request *request, int error);
/// release_block: an unsplit free block that is no part of an expandable segment goes back. Errors: the device's; it
/// stays then, as a new segment in the eyes of who records.
int segment_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause);
/// The sums no longer count the segment that is this block alone.
void segment_uncount(struct varve_alloc *alloc, const struct block *block);

#endif
