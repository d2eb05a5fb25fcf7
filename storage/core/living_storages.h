/* SPDX-License-Identifier: Apache-2.0 */
/* All storages that are alive at a moment, kept alive while they are looked at. */
#ifndef VARVE_STORAGE_CORE_LIVING_STORAGES_H
#define VARVE_STORAGE_CORE_LIVING_STORAGES_H

#include "storage/core/storage_object.h"

struct living_entry {
    struct varve_storage *storage; /* with a reference of ours */
    uint32_t references;           /* at that moment, without ours */
    uint32_t internal;             /* of them, those of other storages: views and attachments */
    bool is_reached;               /* from a storage that the program has a reference to */
};

struct living {
    struct living_entry *entries; /* by id */
    size_t count, capacity;
};

/// Errors: VARVE_ERROR_NO_MEMORY, with nothing held.
int living_open(struct living *living, struct varve_message *message);
/// Gives the references back: what nobody else has goes.
void living_close(struct living *living);
/// The entry of a storage; NULL: it came later.
struct living_entry *living_find(const struct living *living, const struct varve_storage *storage);

static inline uint32_t living_external(const struct living_entry *entry)
{
    return entry->references > entry->internal ? entry->references - entry->internal : 0;
}

#endif
