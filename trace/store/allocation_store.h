/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `allocation`, which go into the database while the program runs. */
#ifndef VARVE_TRACE_STORE_ALLOCATION_STORE_H
#define VARVE_TRACE_STORE_ALLOCATION_STORE_H

#include "trace/store/store.h"

struct derive;
struct varve_message;

/* So many of the newest rows may still be closed soon, and are in memory anyway. */
#define ALLOCATIONS_BEHIND ((uint64_t)1 << 16)

/// Allocations that were opened a while ago, all but the newest `behind`, go with the next store_commit. False: not all
/// of them, but a part that is large enough.
bool allocations_gather(struct store *store, struct derive *derive, uint64_t behind);
/// After the last event: commit all that are left, and what is pending. After an error it may be called again.
int allocations_finish(struct store *store, struct derive *derive, store_progress progress, void *context,
                       struct varve_message *message);

#endif
