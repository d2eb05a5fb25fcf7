/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last events of a device, for the snapshots of torch.cuda.memory._snapshot(): what
 * _record_memory_history turns on. A ring that grows up to its limit. Guarded by the allocator's lock.
 */
#ifndef VARVE_ALLOC_FRONTEND_REGISTRY_HISTORY_H
#define VARVE_ALLOC_FRONTEND_REGISTRY_HISTORY_H

#include "alloc/alloc.h"

struct history_event {
    uint64_t addr; /* of an OOM: what the device had free */
    uint64_t bytes;
    uint64_t stream;
    struct varve_pool_id pool;
    int64_t time_us; /* of CLOCK_REALTIME since 1970 */
    enum varve_kind kind;
};

struct history {
    struct history_event *events;
    uint64_t count, capacity;
    uint64_t start; /* the oldest, once the ring has reached its limit */
    uint64_t limit; /* 0: nothing is kept */
    /* What the numbers of the newest event mean: mostly those of the next one as well. */
    struct {
        bool is_known;
        uint16_t pool_number, stream_number;
        uint64_t stream;
        struct varve_pool_id pool;
    } recent;
};

/// Keep what PyTorch's history has of it: allocations, frees, segments and failures.
void history_add(struct history *history, struct varve_alloc *alloc, struct varve_device *device,
                 const struct varve_record *record);
/// Forget what was kept, and keep so many from now on.
void history_begin(struct history *history, uint64_t limit);
/// Event `i` of `count`, the oldest first.
const struct history_event *history_at(const struct history *history, uint64_t i);

#endif
