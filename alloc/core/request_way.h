/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request: which pool, a free block of it, and the chain of stages when it has none (malloc,
 * alloc_found_block). Called by allocator_open.c, and for its first half by forecasts.
 */
#ifndef VARVE_ALLOC_CORE_REQUEST_WAY_H
#define VARVE_ALLOC_CORE_REQUEST_WAY_H

#include "alloc/alloc.h"
#include "alloc/core/allocator_state.h"

int request_prepare(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct request *request);
/// Prepare a request and allocate for it, in the block returned; VARVE_ERROR_NO_MEMORY after the whole chain, when
/// `request` has the last stage; VARVE_ERROR_FULL.
int request_run(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct varve_message *message,
                struct request *request, struct block **block_out);

/// alloc_found_block of the first `bytes` of a free block, or all of it, which becomes an allocation of so many bytes.
/// Descriptors are reserved (request_reserve). What is left of the block is behind the one returned.
struct block *request_hand_out(struct varve_alloc *alloc, struct block *block, uint64_t bytes, enum varve_cause source);

/*
 * Unused memory back to the device: garbage collection, release_available_cached_blocks and
 * release_cached_blocks. Each stage is first planned, without a change, and then carried out; forecasts stop
 * after the plan, so that the two can't drift apart.
 */

/* Blocks that a stage would release, in order, linked by planned_next. */
struct release_plan {
    struct block *first, *last;
    size_t count;
    uint64_t bytes;
};

void plan_add(struct release_plan *plan, struct block *block, uint64_t bytes);
void plan_forget(struct release_plan *plan); /* nothing is released */
/// What each stage would release, added to the plan; blocks that are in a plan already count as gone.
void plan_garbage(struct varve_alloc *alloc, struct release_plan *plan);
bool plan_available(struct varve_alloc *alloc, const struct request *request, struct release_plan *plan);
void plan_cached(struct varve_alloc *alloc, struct release_plan *plan);

struct release_sum release_garbage(struct varve_alloc *alloc);
struct release_sum release_available(struct varve_alloc *alloc, const struct request *request);
int release_cached(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum_out);
/// The same of one private pool, if it has no reference; VARVE_ERROR_BUSY while a capture is underway.
int release_pool(struct varve_alloc *alloc, struct private_pool *pool, struct release_sum *sum_out);
/// Bytes of the garbage collector's threshold; 0: it does not run now.
uint64_t release_garbage_target(const struct varve_alloc *alloc);

/* A request failed for want of memory: the whole accounting, and the text of the error. Called by allocator_open.c. */

void oom_account(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom);
int oom_message(const struct varve_alloc_oom *oom, struct varve_message *message);

/* Memory from the device and back: alloc_block and release_block. */

/// alloc_block: a segment, or mapped memory, for the request. VARVE_ERROR_NO_MEMORY, or a fatal error.
int segment_alloc(struct varve_alloc *alloc, struct request *request, bool is_retry, struct block **block_out);
/// The parts of it, for backends: whether `bytes` more are within the limit; a device's range that has just come
/// becomes a block of request->segment_bytes, counted and recorded; the message of a device's error, which is returned.
bool segment_is_within_limit(const struct varve_alloc *alloc, uint64_t bytes);
struct block *segment_begin(struct varve_alloc *alloc, const struct request *request, uint64_t addr);
int segment_refused(struct varve_alloc *alloc, const struct request *request, int error);
/// release_block: an unsplit free block that is no part of an expandable segment goes back. Errors: the device's; it
/// stays then, as a new segment in the eyes of who records.
int segment_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause);
/// The sums no longer count the segment that is this block alone.
void segment_uncount(struct varve_alloc *alloc, const struct block *block);

/*
 * Expandable segments: a large range of addresses that gets memory in units where it is needed
 * (find_expandable_block, try_allocate_expandable_block, map_block, unmap_block).
 */

int expandable_alloc(struct varve_alloc *alloc, struct request *request, struct block **block_out);
/// unmap_block, and release_expandable_segment if nothing of it is left; returns the bytes unmapped. What the device
/// fails to unmap stays with all behind it, and `error_out` says so; otherwise it is left alone.
uint64_t expandable_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, int *error_out);
/// Bytes that expandable_release would unmap, and where.
uint64_t expandable_releasable(const struct block *block, uint64_t *addr_out);
void expandable_close(struct varve_alloc *alloc);
/// An empty expandable segment at an address of the device's choice, all of it unmapped, for memory in
/// pieces of `unit`.
int expandable_reserve(struct varve_alloc *alloc, const struct request *request, uint64_t unit,
                       struct block **block_out);
uint64_t expandable_unit(const struct varve_alloc *alloc, const struct pool *pool); /* PyTorch's */
/// Memory for the first `bytes` of unmapped space, in whole units.
int expandable_map(struct varve_alloc *alloc, struct block *block, uint64_t bytes, struct varve_message *message);
/// Physical memory moves: the whole units of a free block are unmapped, and their handles are the caller's (`handles`
/// has room for all of them); and unmapped space gets `given` such units, and new ones behind them. After an error of
/// the second the handles are still the caller's. Otherwise as expandable_release and expandable_map.
uint64_t expandable_detach(struct varve_alloc *alloc, struct block *block, enum varve_cause cause, uint64_t *handles,
                           int *error_out);
int expandable_attach(struct varve_alloc *alloc, struct block *block, uint64_t bytes, const uint64_t *handles,
                      uint64_t given, struct varve_message *message);

/* Memory of other processes and other devices (varve_alloc_ipc_*, varve_alloc_enable_peer). */

void share_close(struct varve_alloc *alloc);
/// The device and its peers get access to a range of whole mappings.
int mapping_open(const struct varve_alloc *alloc, uint64_t addr, uint64_t bytes);

/* What may change while an allocator runs: its limit, its settings, its recorder, its callbacks and observers. */

/// Record the settings that are in force, so that a trace explains the decisions after them.
void settings_emit(struct varve_alloc *alloc);
/// May an allocator on that device have them? Errors: those of varve_alloc_set_config.
int settings_check(const struct varve_alloc_config *config, const struct varve_device *device,
                   struct varve_message *message);
/// Take over settings, which were checked, and what follows from them.
void settings_apply(struct varve_alloc *alloc, const struct varve_alloc_config *config);
/// Bytes of a fraction of the device's memory, at least 1; 0: no limit.
uint64_t settings_limit(const struct varve_alloc *alloc, double fraction);

/*
 * Statistics as callers know them, from the counters that allocations move (core/allocator_counters.h), under the flat
 * keys of torch.cuda.memory_stats.
 */

struct alloc_counters;

/// The figures in full.
void stats_read(const struct alloc_counters *counters, struct varve_alloc_stats *stats_out);
/// allocated and freed of every statistic, and the counters, begin again at 0; max_split_size stays.
void stats_reset_accumulated(struct alloc_counters *counters);
/// Every peak becomes what is current.
void stats_reset_peak(struct alloc_counters *counters);

#endif
