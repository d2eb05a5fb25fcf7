/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites that hardly matter, put together once the last event was taken: which they are, and their
 * figures added up.
 */
#ifndef VARVE_TRACE_MODEL_DERIVE_JOIN_H
#define VARVE_TRACE_MODEL_DERIVE_JOIN_H

#include <stddef.h>
#include <stdint.h>

struct derive;

/* One part in so many of a domain's bytes, allocations, bytes at its peak, or bytes live at the end is not small. */
#define JOIN_SHARE 10000U

enum join_size {
    JOIN_UNUSED, /* nothing was allocated there */
    JOIN_SMALL,  /* in every domain, by each of the measures */
    JOIN_LARGE,  /* in one of them; or of a storage that is alive */
};

/// `sizes[n]`: enum join_size of call site n, below `limit`; what is larger already stays so.
void join_sizes(const struct derive *derive, uint8_t *sizes, size_t limit);
/// From here on the figures of call site n, below `limit`, are those of `joined[n]`, and so are its live allocations;
/// no event may follow. Errors: VARVE_ERROR_NO_MEMORY.
int join_callsites(struct derive *derive, const uint32_t *joined, size_t limit);

#endif
