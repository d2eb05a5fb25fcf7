/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map of 64-bit keys to 64-bit values: addresses to blocks, segments or events. Used by the passes that
 * infer what a recording leaves open, and by what-if replays.
 */
#ifndef VARVE_ANALYSIS_REPLAY_MAP_H
#define VARVE_ANALYSIS_REPLAY_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct replay_map {
    uint64_t *slots; /* key and value, key and value, … */
    size_t count, capacity;
};

uint64_t *replay_map_find(const struct replay_map *map, uint64_t key); /* NULL: not there */
/// False: no memory.
bool replay_map_try_put(struct replay_map *map, uint64_t key, uint64_t value);
/// The same for passes that cannot go on without memory: it ends the process.
void replay_map_put(struct replay_map *map, uint64_t key, uint64_t value);
/// Remove a key; false if it is not there.
bool replay_map_remove(struct replay_map *map, uint64_t key, uint64_t *value_out);
void replay_map_free(struct replay_map *map);

#ifdef __cplusplus
}
#endif

#endif
