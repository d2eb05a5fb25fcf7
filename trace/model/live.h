/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * Hash index: address → id of what lives there. Also used for other 64-bit keys.
 */
#ifndef VARVE_TRACE_MODEL_LIVE_H
#define VARVE_TRACE_MODEL_LIVE_H

#include <stdint.h>

struct live_slot {
    uint64_t addr; /* 0: empty */
    uint64_t id;
};

/* Linear probing, deletion by shifting back: no tombstones. At most 3/4 full, and doubled when full, which
 * makes 21 to 43 bytes per block, 64 while it is being doubled. */
struct live_index {
    struct live_slot *slots; /* NULL until the first block */
    uint64_t count;
    unsigned bits; /* log2 of the number of slots */
};

int live_reserve(struct live_index *index); /* space for one more; VARVE_ERROR_NO_MEMORY */
uint64_t live_find(const struct live_index *index, uint64_t addr); /* 0: none */
/// Remember addr → id and return the id it had before, 0 if none. After live_reserve it cannot fail.
uint64_t live_insert(struct live_index *index, uint64_t addr, uint64_t id);
uint64_t live_remove(struct live_index *index, uint64_t addr); /* forget; returns the id, 0 if none */
void live_clear(struct live_index *index);
int live_check(const struct live_index *index); /* VARVE_ERROR_CORRUPT if an entry cannot be found */

#endif
