/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `storage`, which go into the database while the program runs, as those of `allocation` do. */
#ifndef VARVE_TRACE_STORE_STORAGE_STORE_H
#define VARVE_TRACE_STORE_STORAGE_STORE_H

#include <stdbool.h>
#include <stdint.h>

struct derive;
struct store;
struct varve_message;

/* So many of the newest ones may still be destroyed soon. */
#define STORAGES_BEHIND ((uint64_t)1 << 14)

/// Storages that were created a while ago, all but the newest `behind`, go with the next store_commit. False: not all
/// of them, but a part that is large enough.
bool storages_gather(struct store *store, struct derive *derive, uint64_t behind);
/// After the last event: commit all that are left, and what is pending. After an error it may be called again.
int storages_finish(struct store *store, struct derive *derive, struct varve_message *message);

#endif
