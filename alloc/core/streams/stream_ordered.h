/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * Blocks of the device's own pool, as under the policy `cuda-async`: each is a segment of its own, which comes
 * with a request (segment.c) and goes with its free.
 */
#ifndef VARVE_ALLOC_CORE_STREAMS_STREAM_ORDERED_H
#define VARVE_ALLOC_CORE_STREAMS_STREAM_ORDERED_H

#include "alloc/alloc.h"
#include "alloc/index/block.h"

/// The block was freed: its memory is freed on its stream, behind the work of all streams that used it. After
/// an error the block stays, with the uses that are left, and is to be freed again.
int stream_ordered_free(struct varve_alloc *alloc, struct block *block);
/// For a close: the same of a block in use or not, as far as that can be.
void stream_ordered_abandon(struct varve_alloc *alloc, struct block *block);
/// Wait for the streams that freed memory, then the pool keeps nothing unused. Without `waits` it keeps what
/// streams are not done with. Errors: those of waiting, but for captured streams, which are left out.
int stream_ordered_trim(struct varve_alloc *alloc, bool waits);

#endif
