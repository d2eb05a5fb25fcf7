/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one public header of alloc/: a caching allocator for device memory that decides as PyTorch's
 * CUDACachingAllocator does (2.11; policy `pytorch`), or by another policy, and records every decision.
 *
 * One `struct varve_alloc` serves one device. Unless a comment says otherwise: functions may be called from
 * any thread (one lock per allocator, recursive, so that callbacks may free); sizes are bytes, addresses
 * integers (a device's memory need not be reachable from here); streams are the driver's handles as integers,
 * 0 the default one; functions return 0 or a negative enum varve_error, with a reason in `message`
 * (caller-owned, may be NULL). A cached allocation or free makes no system call and no call of malloc.
 *
 * Where an algorithm follows PyTorch, the source is c10/cuda/CUDACachingAllocator.cpp of version 2.11.
 */
#ifndef VARVE_ALLOC_H
#define VARVE_ALLOC_H

#include "alloc/device.h"
#include "base/error.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Configuration, in PyTorch's syntax ---- */

#define VARVE_ALLOC_DIVISIONS 16
#define VARVE_ALLOC_UNLIMITED UINT64_MAX

/* PyTorch's option names; sizes in bytes here, in MiB in the string. */
struct varve_alloc_config {
    uint64_t max_split_size;                                  /* VARVE_ALLOC_UNLIMITED: none */
    uint64_t max_non_split_rounding_size;                     /* at first large_segment_size */
    uint64_t large_segment_size;                              /* 20 MiB */
    uint64_t roundup_power2_divisions[VARVE_ALLOC_DIVISIONS]; /* 0: off; entry i: sizes from 2^(20+i) */
    double garbage_collection_threshold;                      /* 0: off */
    double memory_fraction;                                   /* per_process_memory_fraction; >= 1: no limit */
    bool expandable_segments;
    bool release_lock_on_cudamalloc;
    bool graph_capture_record_stream_reuse;
    bool research_after_release; /* search the pool again after freed blocks came back (not in 2.11) */
    char text[1024];             /* the string it was parsed from, "" for defaults */
};

void varve_alloc_config_init(struct varve_alloc_config *config);
/// Parse "max_split_size_mb:64,expandable_segments:True,…" over the defaults. Errors: VARVE_ERROR_INVALID;
/// the message names option, value, position and what would be right. `config` is unchanged after an error.
int varve_alloc_config_parse(const char *text, struct varve_alloc_config *config, struct varve_message *message);
/// Every field is one that a string could have given: else VARVE_ERROR_INVALID. Pure.
int varve_alloc_config_check(const struct varve_alloc_config *config, struct varve_message *message);
/// From PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF, else defaults.
int varve_alloc_config_environment(struct varve_alloc_config *config, struct varve_message *message);

/* ---- Opening ---- */

/* A record of VARVE_KIND_ALLOC has in 32 bits, in units, the size of the free block that the block was cut from, or of
 * one that was given out whole the rounded size of the request; the largest number of them means that many
 * or more (2 TiB). */
#define VARVE_ALLOC_FOUND_UNIT UINT64_C(512)
#define VARVE_ALLOC_FOUND_MAX UINT64_C(0xffffffff)

/* Where records of decisions go. `record` is called with the allocator's lock held, in the middle of a
 * decision: it must not call the allocator. Ticks are 0.
 *
 * With folds it takes several events of one call as one record (trace/record_fold.h), while this process records and no
 * second sink wants each of them; otherwise every record is an event.
 *
 * With emits_names the records go into this process's own trace: streams have the numbers that all recorders
 * of the process share (varve_stream_number, which records them), and a POOL record says what a pool's number
 * means before the first record with that number. Otherwise streams are numbered by their first appearance, 0
 * being the default one, and varve_alloc_resolve_record says what the numbers mean. */
struct varve_alloc_recorder {
    void (*record)(void *context, const struct varve_record *record);
    void *context;
    bool emits_names;
    bool folds;
};

/* Records into the ring of the calling thread (varve_emit), with emits_names. */
extern const struct varve_alloc_recorder varve_alloc_recorder_ring;

#define VARVE_ALLOC_PLAN_NOWHERE UINT64_MAX

/* Places for the requests of one iteration, in their order (policy plan). */
struct varve_alloc_plan_entry {
    uint64_t bytes;  /* of the block: a multiple of 512 */
    uint64_t offset; /* offset + bytes <= height; or VARVE_ALLOC_PLAN_NOWHERE: it has no place in the plan */
    uint64_t stream;
};

struct varve_alloc_plan {
    const struct varve_alloc_plan_entry *entries;
    size_t count;
    uint64_t height;
    uint64_t requests_before; /* of the default pool, before the first iteration: they are not planned */
};

struct varve_alloc_options {
    struct varve_device *device; /* borrowed; must outlive the allocator */
    const char *policy;          /* "NAME" or "NAME:option=value:…"; NULL: "pytorch" */
    struct varve_alloc_config config;
    uint64_t memory_limit;                       /* bytes; 0: by config.memory_fraction */
    const struct varve_alloc_recorder *recorder; /* borrowed; NULL: nothing is recorded */
    const struct varve_alloc_plan *plan;         /* borrowed; of policy plan; NULL: nothing is planned */
};

struct varve_alloc;

struct varve_pool_id {
    uint64_t capture, user; /* {0, 0}: the default pool */
};

void varve_alloc_options_init(struct varve_alloc_options *options);
/// Owner of the result: the caller, by varve_alloc_close. Errors: VARVE_ERROR_INVALID (also expandable
/// segments in units that the device can't map), NOT_FOUND (no such policy), NO_MEMORY, UNSUPPORTED
/// (expandable segments on a device without virtual memory, cuda-async on one without stream-ordered memory).
int varve_alloc_open(const struct varve_alloc_options *options, struct varve_alloc **alloc_out,
                     struct varve_message *message);
/// Gives all segments back to the device, used or not. Under cuda-async the streams of blocks that are still
/// in use must exist.
void varve_alloc_close(struct varve_alloc *alloc);
/// The device of its options.
struct varve_device *varve_alloc_get_device(const struct varve_alloc *alloc);
/// Names of the policies, NULL at the end.
const char *const *varve_alloc_policies(void);
/// What a policy does, in a sentence or two (static; NULL: there is no such policy).
const char *varve_alloc_policy_meaning(const char *policy);

/* An option of a policy, given as "NAME:option=value:option=value". */
struct varve_alloc_policy_option {
    const char *name, *meaning;    /* static; a NULL name ends the list */
    uint64_t initial, least, most; /* bytes take a suffix: 512M */
    bool is_bytes;
};

/// The options of a policy (static; NULL: there is no such policy).
const struct varve_alloc_policy_option *varve_alloc_policy_options(const char *policy);
/// Size of the block that serves a request of `bytes`, and of the segment that a block of `rounded` bytes gets
/// where there is none, by the rules of `policy` (NULL: "pytorch") for the default pool. Pure functions; 0 for
/// 0 bytes, requests of 2^60 bytes or more, and an unknown policy.
uint64_t varve_alloc_block_size(const char *policy, const struct varve_alloc_config *config, uint64_t bytes);
uint64_t varve_alloc_segment_size(const char *policy, const struct varve_alloc_config *config, uint64_t rounded);
/// Size of the block that this allocator cuts for a request of `bytes` now, and which pool that is (NULL: not wanted).
/// 0 for 0 bytes, and for 2^60 bytes or more.
uint64_t varve_alloc_rounded_size(struct varve_alloc *alloc, uint64_t bytes, bool *is_small_out);
/// Record somewhere else from now on; NULL: nowhere. `emits_names` must stay what it was. Within the
/// allocator's lock no decision falls between this and what the caller does beside it.
void varve_alloc_set_recorder(struct varve_alloc *alloc, const struct varve_alloc_recorder *recorder);
/// What the numbers of a stream and a pool in one of this allocator's records mean. Also for a recorder,
/// while it is called. VARVE_ERROR_NOT_FOUND, with both 0.
int varve_alloc_resolve_record(struct varve_alloc *alloc, const struct varve_record *record, uint64_t *stream_out,
                               struct varve_pool_id *pool_out);

/* ---- Allocating ---- */

enum varve_block_state {
    VARVE_BLOCK_INACTIVE,
    VARVE_BLOCK_ACTIVE_ALLOCATED,
    VARVE_BLOCK_ACTIVE_PENDING_FREE,
};

struct varve_block_info {
    uint64_t addr, bytes;
    uint64_t requested;     /* stale for inactive blocks, as PyTorch leaves it */
    uint64_t allocation_id; /* 0 for inactive blocks */
    enum varve_block_state state;
};

/// `bytes` on `stream`. 0 bytes give address 0. Errors: VARVE_ERROR_NO_MEMORY with the full accounting in
/// `message`, VARVE_ERROR_INVALID (2^60 bytes or more), a fatal error of the device.
int varve_alloc_raw_alloc_with_stream(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, uint64_t *addr_out,
                                      struct varve_message *message);
int varve_alloc_raw_alloc(struct varve_alloc *alloc, uint64_t bytes, uint64_t *addr_out, struct varve_message *message);
/// Address 0 is ignored. A block that a captured stream uses waits for the end of the capture. Errors:
/// VARVE_ERROR_NOT_FOUND for an address that is not allocated here (unknown, freed already, inside a block,
/// another device's); nothing changes then. Any other error is the device's, which failed to record an event
/// (or, under cuda-async, to take the memory back): the block is freed, and it is tried again by later
/// requests.
int varve_alloc_raw_delete(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message);
/* An allocation and its number, which no later one of the allocator has: an address may be given out again. */
struct varve_allocation {
    void *block; /* the allocator's own; NULL: none */
    uint64_t id;
};

struct varve_allocation_info {
    struct varve_block_info block;
    uint64_t stream;
    struct varve_pool_id pool;
    uint32_t segment_id; /* as records carry it */
    bool is_small;       /* of the pool of small blocks */
    void *user;          /* varve_alloc_set_user; NULL before */
};

/// As varve_alloc_raw_alloc_with_stream, for a handle: whoever frees by it spares the allocator the look-up of an
/// address, and is told when it was freed already. 0 bytes give no allocation. Addresses and handles may be mixed.
int varve_alloc_allocate(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream,
                         struct varve_allocation *allocation_out, struct varve_message *message);
/// As varve_alloc_raw_delete. No allocation is ignored. Errors: VARVE_ERROR_NOT_FOUND if it was freed already, by
/// handle or address; the device's.
int varve_alloc_free(struct varve_alloc *alloc, struct varve_allocation allocation, struct varve_message *message);
/// Its first address, fixed for its life; 0 for none.
uint64_t varve_allocation_addr(struct varve_allocation allocation);
/// The allocation in use that begins at `addr`. VARVE_ERROR_NOT_FOUND.
int varve_alloc_get_allocation(struct varve_alloc *alloc, uint64_t addr, struct varve_allocation *allocation_out);
/// VARVE_ERROR_NOT_FOUND if it was freed.
int varve_alloc_describe(struct varve_alloc *alloc, struct varve_allocation allocation,
                         struct varve_allocation_info *info_out);
/// Hang a pointer of the program's on the allocation, for as long as it is in use. VARVE_ERROR_NOT_FOUND.
int varve_alloc_set_user(struct varve_alloc *alloc, struct varve_allocation allocation, void *user);
/// The block will be used by `stream` too: a later free waits for what that stream has been given by then.
int varve_alloc_record_stream(struct varve_alloc *alloc, uint64_t addr, uint64_t stream, struct varve_message *message);
/// First address and size of the device allocation that `addr` lies in (a block's first address).
int varve_alloc_get_base_allocation(struct varve_alloc *alloc, uint64_t addr, uint64_t *base_out, uint64_t *bytes_out);
/// The block in use that begins at `addr`. VARVE_ERROR_NOT_FOUND, also for one that waits for other streams.
int varve_alloc_get_block(struct varve_alloc *alloc, uint64_t addr, struct varve_block_info *block_out);
/// The same of any address among the bytes that were requested; looks at all blocks unless it is the first.
int varve_alloc_find_block(struct varve_alloc *alloc, uint64_t addr, struct varve_block_info *block_out);
/// Give unused segments of the default pool, and of private pools that may go, back to the device. Errors: the
/// device's; what it has not taken back stays in the cache, and the rest has gone.
int varve_alloc_empty_cache(struct varve_alloc *alloc);
/// What the device has free, or the largest free block of any pool and stream if that is more: the guess of
/// PyTorch's cacheInfo, which asks for no limit, stream or pool. 0 if the device does not say.
int varve_alloc_cache_info(struct varve_alloc *alloc, uint64_t *largest_out);
/// Size of the largest free block of any pool and stream.
uint64_t varve_alloc_largest_free_block(struct varve_alloc *alloc);
/// Fraction (0…1] of the device's total memory; VARVE_ERROR_INVALID otherwise. What is reserved beyond a new
/// limit stays; requests that need more memory fail until it has gone.
int varve_alloc_set_memory_fraction(struct varve_alloc *alloc, double fraction);
double varve_alloc_get_memory_fraction(struct varve_alloc *alloc);
int varve_alloc_set_memory_limit(struct varve_alloc *alloc, uint64_t bytes); /* 0: none */
/// A limit on allocated bytes (sizes of blocks in use, what varve_alloc_memory_allocated returns) beside the one on
/// reserved bytes: a request that would exceed it fails with VARVE_ERROR_NO_MEMORY unless miss callbacks free enough.
/// It is never exceeded by a request; what is in use beyond a new limit stays. 0: none. Not a rule of PyTorch's.
int varve_alloc_set_allocated_limit(struct varve_alloc *alloc, uint64_t bytes);
/// Other settings for later requests; what was decided stays. The limit is not among them (memory_fraction is
/// not looked at). Errors, with nothing changed: as of varve_alloc_open VARVE_ERROR_INVALID and UNSUPPORTED.
int varve_alloc_set_config(struct varve_alloc *alloc, const struct varve_alloc_config *config,
                           struct varve_message *message);
/// What varve_alloc_set_config would answer. Threads: any.
int varve_alloc_accepts_config(const struct varve_alloc *alloc, const struct varve_alloc_config *config,
                               struct varve_message *message);
/// Take the lock that every free takes, so that no memory is freed meanwhile; recursive. A fork while another
/// thread holds it leaves it held in the child for good, like any lock.
void varve_alloc_free_mutex_lock(struct varve_alloc *alloc);
void varve_alloc_free_mutex_unlock(struct varve_alloc *alloc);

/* ---- Private pools (graph capture, memory pools) ---- */

/// Requests whose stream passes `filter` (NULL: all) come from the pool from now on, the newest first.
/// Creates the pool, or takes one more reference. VARVE_ERROR_BUSY if the pool is being allocated to already.
/// `filter` runs with the lock held, for each request; it must not call the allocator.
int varve_alloc_begin_allocate_to_pool(struct varve_alloc *alloc, struct varve_pool_id pool,
                                       bool (*filter)(void *context, uint64_t stream), void *context);
int varve_alloc_end_allocate_to_pool(struct varve_alloc *alloc, struct varve_pool_id pool);
/// Creates the pool with one reference, or takes one more, as a begin and an end would.
int varve_alloc_create_or_incref_pool(struct varve_alloc *alloc, struct varve_pool_id pool);
/// References to the pool; 0 if there is no such pool.
uint32_t varve_alloc_pool_use_count(struct varve_alloc *alloc, struct varve_pool_id pool);
/// Drop one reference; without any, empty_cache may release the pool's segments.
int varve_alloc_release_pool(struct varve_alloc *alloc, struct varve_pool_id pool);
/// As varve_alloc_empty_cache, of one private pool: waits for events of its blocks only. A pool that still
/// has a reference keeps everything. VARVE_ERROR_BUSY while anything is allocated to a private pool.
int varve_alloc_empty_pool(struct varve_alloc *alloc, struct varve_pool_id pool);
/// Pools that never split a block, and pools that serve a default request that would fail.
int varve_alloc_set_no_split(struct varve_alloc *alloc, struct varve_pool_id pool);
int varve_alloc_set_use_on_oom(struct varve_alloc *alloc, struct varve_pool_id pool, bool is_used);

/* ---- Sharing ---- */

struct varve_alloc_ipc {
    struct varve_ipc_handle handle;
    uint64_t offset; /* of the block in the shared allocation */
};

int varve_alloc_ipc_export(struct varve_alloc *alloc, uint64_t addr, struct varve_alloc_ipc *ipc_out);
/// The address here of memory that another process exported; one mapping per handle, counted.
int varve_alloc_ipc_open(struct varve_alloc *alloc, const struct varve_alloc_ipc *ipc, uint64_t *addr_out,
                         struct varve_message *message);
int varve_alloc_ipc_close(struct varve_alloc *alloc, uint64_t addr);

/* The physical memory below a block of an expandable segment. */
struct varve_alloc_pages {
    int *fds;        /* of files, by address; in the exporter they are the allocator's */
    size_t count;    /* of them */
    uint64_t unit;   /* bytes of each */
    uint64_t offset; /* of the block in the first */
};

/// `pages_out->fds` is the caller's, by free; the descriptors stay open as long as the memory. Errors:
/// VARVE_ERROR_NOT_FOUND, UNSUPPORTED (not of an expandable segment, or the device gives none).
int varve_alloc_ipc_export_pages(struct varve_alloc *alloc, uint64_t addr, struct varve_alloc_pages *pages_out);
/// Where the first page is here, all of them behind one another, for varve_alloc_ipc_close. `fds` are this process's
/// and stay the caller's.
int varve_alloc_ipc_open_pages(struct varve_alloc *alloc, const struct varve_alloc_pages *pages, uint64_t *addr_out,
                               struct varve_message *message);
/// Expandable segments become accessible to device `peer`, now and when they grow.
int varve_alloc_enable_peer(struct varve_alloc *alloc, int peer);

/* ---- Observers ---- */

/* A request that can't be served as things are. */
struct varve_alloc_miss {
    uint64_t requested, rounded; /* bytes asked for, and of the block that they need */
    uint64_t excess;             /* bytes beyond the limit of allocated bytes; 0: the pool has no such block */
    uint64_t stream;
    struct varve_pool_id pool;
    int device;    /* as records carry it */
    bool is_small; /* of the pool of small blocks */
};

/// Called on every miss of a pool, and where a request would exceed the limit of allocated bytes, with the lock held;
/// returns the bytes that it freed. Freed bytes that leave a request beyond that limit get it called again. It may call
/// everything but varve_alloc_close; a request of its own that misses calls it again. VARVE_ERROR_FULL.
/// Source: trigger_free_memory_callbacks, which are told nothing and say only whether they freed anything.
int varve_alloc_add_miss_callback(struct varve_alloc *alloc,
                                  uint64_t (*callback)(void *context, const struct varve_alloc_miss *miss),
                                  void *context);

/// The same, called when all that PyTorch does for a request has failed, before the request does. What the calls free
/// is searched, and the stages behind the callbacks are tried again, as long as the calls free anything.
/// VARVE_ERROR_FULL. Not a rule of PyTorch's.
int varve_alloc_add_last_resort(struct varve_alloc *alloc,
                                uint64_t (*callback)(void *context, const struct varve_alloc_miss *miss),
                                void *context);

/// Callbacks of both kinds that were registered with that context are not called any more. Not from within one.
void varve_alloc_remove_callbacks(struct varve_alloc *alloc, const void *context);

enum varve_alloc_stage { /* of the chain that a request goes through once its pool has nothing */
                         VARVE_ALLOC_STAGE_CACHE,
                         VARVE_ALLOC_STAGE_CALLBACKS,
                         VARVE_ALLOC_STAGE_GC,
                         VARVE_ALLOC_STAGE_NEW_SEGMENT,
                         VARVE_ALLOC_STAGE_MEMPOOL_FALLBACK,
                         VARVE_ALLOC_STAGE_RELEASE_AVAILABLE,
                         VARVE_ALLOC_STAGE_RELEASE_CACHED,
                         VARVE_ALLOC_STAGE_LAST_RESORT,
};

/* All that is known when a request fails. */
struct varve_alloc_oom {
    uint64_t requested, rounded, segment_bytes; /* of the request */
    uint64_t stream;
    uint64_t allocated, active, reserved, pending; /* bytes; pending: freed, but in use by other streams */
    uint64_t private_free;                         /* free bytes in private pools */
    uint64_t device_free, device_total, limit;     /* limit 0: none */
    uint64_t allocated_limit;                      /* 0: none */
    uint64_t largest_free;                         /* free block of the request's pool and stream */
    uint64_t largest_free_any;                     /* of any pool and stream */
    uint64_t largest_hole_addr;                    /* segment with the most free bytes */
    uint64_t largest_hole_free, largest_hole_bytes;
    uint64_t blocker_addr, blocker_bytes; /* the smallest used block that keeps that segment apart; 0: none */
    enum varve_alloc_stage stage;         /* the last one tried */
    const char *advice;                   /* option that would have served, static text, or NULL */
};

/// Called after a request has failed, with the lock open (unless the request was a callback's): it may
/// allocate and free. The request stays failed. VARVE_ERROR_FULL.
int varve_alloc_add_oom_observer(struct varve_alloc *alloc,
                                 void (*observer)(void *context, const struct varve_alloc_oom *oom), void *context);

/* ---- Statistics ---- */

struct varve_alloc_stat {
    int64_t current, peak, allocated, freed;
};

enum varve_alloc_stat_pool {
    VARVE_ALLOC_STAT_ALL,
    VARVE_ALLOC_STAT_SMALL_POOL,
    VARVE_ALLOC_STAT_LARGE_POOL,
    VARVE_ALLOC_STAT_POOLS,
};

/* X(name): the array statistics of torch.cuda.memory_stats, in bytes where the name says so, else counts. */
#define VARVE_ALLOC_STAT_LIST(X) \
    X(allocation)                \
    X(segment)                   \
    X(active)                    \
    X(inactive_split)            \
    X(allocated_bytes) X(reserved_bytes) X(active_bytes) X(inactive_split_bytes) X(requested_bytes)

/* In the order of PyTorch's DeviceStats, 2.3 to 2.11. */
struct varve_alloc_stats {
#define VARVE_ALLOC_STAT_FIELD(name) struct varve_alloc_stat name[VARVE_ALLOC_STAT_POOLS];
    VARVE_ALLOC_STAT_LIST(VARVE_ALLOC_STAT_FIELD)
#undef VARVE_ALLOC_STAT_FIELD
    int64_t num_alloc_retries, num_ooms;
    struct varve_alloc_stat oversize_allocations, oversize_segments;
    int64_t num_sync_all_streams, num_device_alloc, num_device_free;
    int64_t max_split_size; /* -1: unlimited */
};

int varve_alloc_get_device_stats(struct varve_alloc *alloc, struct varve_alloc_stats *stats_out);
void varve_alloc_reset_accumulated_stats(struct varve_alloc *alloc);
void varve_alloc_reset_peak_stats(struct varve_alloc *alloc);
/// Every figure under the flat key of torch.cuda.memory_stats ("allocation.all.current", "num_ooms", …),
/// sorted by key as PyTorch does.
void varve_alloc_stats_each(const struct varve_alloc_stats *stats,
                            void (*take)(void *context, const char *key, int64_t value), void *context);
int64_t varve_alloc_memory_allocated(struct varve_alloc *alloc);
int64_t varve_alloc_memory_reserved(struct varve_alloc *alloc);
int64_t varve_alloc_max_memory_allocated(struct varve_alloc *alloc);
int64_t varve_alloc_max_memory_reserved(struct varve_alloc *alloc);

/* ---- Snapshots ---- */

/* A device allocation, or one contiguous mapped range of an expandable segment. */
struct varve_segment_info {
    uint64_t addr, bytes;
    uint64_t allocated_bytes, active_bytes, requested_bytes; /* the latter two of active blocks */
    uint64_t stream;
    struct varve_pool_id pool;
    uint32_t segment_id;
    bool is_small, is_expandable;
    size_t first_block, block_count; /* in varve_alloc_snapshot.blocks */
};

struct varve_alloc_snapshot {
    struct varve_segment_info *segments; /* by address */
    struct varve_block_info *blocks;     /* of segment after segment, by address */
    size_t segment_count, block_count;
};

/// Owner: the caller, by varve_alloc_snapshot_free.
int varve_alloc_snapshot(struct varve_alloc *alloc, struct varve_alloc_snapshot *snapshot_out);
void varve_alloc_snapshot_free(struct varve_alloc_snapshot *snapshot);

/* ---- Looking ahead and inside: replay, tests ---- */

/* What a request would meet, without changing anything. VARVE_ERROR_UNSUPPORTED under policies with
 * structures of their own. */
struct varve_alloc_forecast {
    uint64_t rounded, segment_bytes;
    bool is_hit; /* a cached block would serve it */
};

int varve_alloc_forecast(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream,
                         struct varve_alloc_forecast *forecast_out);

/* What a step of the chain would give back to the device now, in order. */
struct varve_alloc_release {
    uint64_t addr, bytes;
};

/// The segments that `stage` (GC, RELEASE_AVAILABLE or RELEASE_CACHED) would release for that request, with
/// `done` already gone (those of stages before it); at most `limit` are written, the number is returned in
/// `count_out`, and whether the stage would then report success in `success_out`. Expandable segments are
/// listed as the ranges that would be unmapped.
int varve_alloc_forecast_release(struct varve_alloc *alloc, enum varve_alloc_stage stage, uint64_t bytes,
                                 uint64_t stream, const struct varve_alloc_release *done, size_t done_count,
                                 struct varve_alloc_release *released, size_t limit, size_t *count_out,
                                 bool *success_out);
/// Free the blocks whose events have completed, as the next request would do first (nothing in a capture).
int varve_alloc_process_events(struct varve_alloc *alloc);
/// Begin with the segments and blocks of `snapshot` (addr, bytes, stream, pool, is_small, is_expandable;
/// addr, bytes, requested, state of blocks, pending ones as allocated), on an allocator that has no memory
/// yet. The device must give the snapshot's addresses, in its order. Errors: VARVE_ERROR_UNSUPPORTED (policies with
/// structures of their own, whose blocks lie otherwise), INVALID (blocks that do not tile their segment, other
/// addresses), the device's; the allocator can only be closed then.
int varve_alloc_restore(struct varve_alloc *alloc, const struct varve_alloc_snapshot *snapshot,
                        struct varve_message *message);

/* What became of a pool's blocks: first addresses. */
struct varve_pool_change {
    uint64_t *freed, *allocated;
    size_t freed_count, allocated_count;
};

/// The blocks of a private pool become those that it had in `snapshot`, as CUDA graph trees want it before they record
/// behind a graph that was replayed: all that is in use of it is freed, then what was in use is allocated, each block
/// with its whole size as the request. Segments that the pool got since stay, free. `change_out` is the caller's, by
/// varve_pool_change_free. Errors: VARVE_ERROR_NOT_FOUND (no such pool, or one that nobody refers to), INVALID (it no
/// longer has all of the memory), BUSY (a block waits for other streams), all with nothing changed; FULL (no
/// descriptors): what is in use then is a part of it.
int varve_alloc_restore_pool(struct varve_alloc *alloc, struct varve_pool_id pool,
                             const struct varve_alloc_snapshot *snapshot, struct varve_pool_change *change_out,
                             struct varve_message *message);
void varve_pool_change_free(struct varve_pool_change *change);
/// Walk every structure and sum; VARVE_ERROR_CORRUPT with the first thing that is wrong.
int varve_alloc_check(struct varve_alloc *alloc, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
