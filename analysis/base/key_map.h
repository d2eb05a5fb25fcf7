/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map of 64-bit keys to 64-bit values: addresses to blocks, segments or events. Contents are interned with the
 * hash as key: while the key's number is of other contents, the next key is tried.
 */
#ifndef VARVE_ANALYSIS_BASE_KEY_MAP_H
#define VARVE_ANALYSIS_BASE_KEY_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map {
    uint64_t *slots; /* key and value, key and value, …; UINT64_MAX is no key */
    size_t count, capacity;
};

/// Of contents, as a key.
uint64_t map_hash(const void *bytes, size_t count);
uint64_t *map_find(const struct map *map, uint64_t key); /* NULL: not there */
/// False: no memory.
bool map_try_put(struct map *map, uint64_t key, uint64_t value);
/// The same for passes that cannot go on without memory: it ends the process.
void map_put(struct map *map, uint64_t key, uint64_t value);
/// Remove a key; false if it is not there.
bool map_remove(struct map *map, uint64_t key, uint64_t *value_out);
void map_free(struct map *map);

#endif
