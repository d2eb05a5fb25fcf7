/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pools of an imported snapshot: the allocator's own, or a private one of a CUDA graph or a MemPool. Newer events
 * name theirs; of others the segments at the end do, and what is gone by then is worked out: by following the history,
 * as a replay does, or, where it does not come out, by the events alone. Called by import_pytorch.c.
 */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_POOLS_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_POOLS_H

#include "trace/writer.h"
#include "analysis/history/infer_device.h"

#include <stdint.h>

struct import_pools;
struct progress;

/// Of all devices of the history, which is borrowed; where events contradict each other, all pools are the allocator's
/// own. Owner: the caller, by import_pools_free.
struct import_pools *import_pools_new(const struct history *history, struct progress *progress);
void import_pools_free(struct import_pools *pools);
/// The state before the first event with the pools of its segments; NULL: there are no private ones. Owner: `pools`.
const struct varve_alloc_snapshot *import_pools_start(const struct import_pools *pools, unsigned device);
/// The number in the database of the pool of an event.
uint16_t import_pools_of_event(const struct import_pools *pools, unsigned device, size_t event, bool is_small);
/// The same of a segment of the start.
uint16_t import_pools_of_segment(const struct import_pools *pools, unsigned device,
                                 const struct varve_segment_info *segment);
/// What `number` means, if the database does not have it yet.
void import_pools_write(struct import_pools *pools, struct varve_writer *writer, unsigned device, uint16_t number);

#endif
