/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index (base/hash_index.h) of 64-bit keys whose values may be 0: numbers, addresses, sizes. Contents are interned
 * with the hash as key: while the key's number is of other contents, the next key is tried.
 */
#ifndef VARVE_ANALYSIS_BASE_KEY_MAP_H
#define VARVE_ANALYSIS_BASE_KEY_MAP_H

#include "analysis/base/memory_or_exit.h"

#include "base/hash_index.h"

#define MAP_NONE UINT64_MAX

/* All zero: empty. The index has the value + 1, as 0 is none there. */
struct map {
    struct index index;
};

/// Of contents, as a key.
static inline uint64_t map_hash(const void *bytes, size_t count)
{
    return index_hash(bytes, count, 0);
}

/// MAP_NONE: not there.
static inline uint64_t map_find(const struct map *map, uint64_t key)
{
    return index_find(&map->index, key) - 1;
}

/// False: no memory. A value of MAP_NONE is kept as the one before.
static inline bool map_try_put(struct map *map, uint64_t key, uint64_t value)
{
    if (!index_reserve(&map->index)) {
        return false;
    }
    index_insert(&map->index, key, value + (value != MAP_NONE));
    return true;
}

/// The same for passes that cannot go on without memory: it ends the process.
static inline void map_put(struct map *map, uint64_t key, uint64_t value)
{
    if (!map_try_put(map, key, value)) {
        memory_exhausted();
    }
}

/// Remove a key; its value, MAP_NONE if it is not there.
static inline uint64_t map_remove(struct map *map, uint64_t key)
{
    return index_remove(&map->index, key) - 1;
}

static inline void map_free(struct map *map)
{
    index_free(&map->index);
}

#endif
