/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: which pool, a free block of it, and the chain of stages when it has none (malloc,
 * alloc_found_block). Called by allocator_open.c, and for its first half by forecasts.
 */
#ifndef VARVE_ALLOC_CORE_REQUEST_WAY_H
#define VARVE_ALLOC_CORE_REQUEST_WAY_H

#include "alloc/core/allocator_state.h"

int request_prepare(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct request *request);
/// Prepare a request and allocate for it, in the block returned; VARVE_ERROR_NO_MEMORY after the whole chain, when
/// `request` has the last stage; VARVE_ERROR_FULL.
int request_run(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct varve_message *message,
                struct request *request, struct block **block_out);

#endif
