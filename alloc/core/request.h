/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * A request: which pool, a free block of it, and the chain of stages when it has none (malloc,
 * alloc_found_block). Called by alloc.c, and for its first half by forecasts.
 */
#ifndef VARVE_ALLOC_CORE_REQUEST_H
#define VARVE_ALLOC_CORE_REQUEST_H

#include "alloc/alloc.h"
#include "alloc/policy/policy.h"

/* One request on its way. */
struct request {
    uint64_t bytes, segment_bytes;
    struct wanted_block wanted;
    struct pool *pool;
    enum varve_cause source;
    enum varve_alloc_stage stage;
    struct varve_message *message; /* of a device's fatal error */
};

/// Size of the segment that the request would need.
uint64_t request_segment_size(const struct varve_alloc *alloc, const struct request *request);
/// Descriptors for one request; VARVE_ERROR_FULL.
int request_reserve(struct varve_alloc *alloc);
int request_prepare(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct request *request);
/// Prepare a request and allocate for it; VARVE_ERROR_NO_MEMORY after the whole chain, when `request` has the
/// last stage; VARVE_ERROR_FULL.
int request_run(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct varve_message *message,
                struct request *request, uint64_t *addr_out);

#endif
