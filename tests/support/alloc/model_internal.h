/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * What the files of the allocator's model share: its plain structures and the steps between them.
 *
 *   model.c         requests, frees, streams: the entry points
 *   model_pools.c   private pools, figures, snapshots
 *   model_memory.c  segments, expandable segments, garbage collection, release
 *   model_parts.c   lists, blocks, statistics, the device's counters
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_MODEL_INTERNAL_H
#define VARVE_TESTS_SUPPORT_ALLOC_MODEL_INTERNAL_H

#include "support/alloc/model.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_MIB UINT64_C(0x100000)
#define MODEL_USES 16U  /* streams that one block can be recorded for */
#define MODEL_RULES 32U /* scripted failures that wait */

struct model_pool;

struct model_block {
    struct model_block *prev, *next; /* by address in the segment */
    struct model_pool *pool;
    uint64_t stream, addr, size, requested;
    uint64_t freed_at;
    uint64_t uses[MODEL_USES];        /* streams the block was recorded for */
    bool use_is_captured[MODEL_USES]; /* … while a pool was being allocated to */
    unsigned use_count;
    unsigned event_count;
    bool is_allocated, is_mapped;
    uint64_t
        base; /* of an expandable segment's addresses, which its units count from; 0: an ordinary segment */
};

/* Blocks in no order. */
struct model_list {
    struct model_block **items;
    size_t count, capacity;
};

struct model_private;

struct model_pool {
    struct model_list free, unmapped;
    uint64_t searches; /* the GC's clock */
    bool is_small;
    struct model_private *owner; /* NULL: the default pool */
};

struct model_private {
    struct model_private *next; /* ascending ids */
    struct varve_pool_id id;
    struct model_pool large, small;
    int64_t references;
    uint64_t left_at; /* when the references came to 0; pools are released in that order */
    bool is_no_split, is_use_on_oom;
};

struct model_capture {
    struct varve_pool_id id;
    bool (*filter)(void *context, uint64_t stream);
    void *context;
};

/* An event that a stream has been given and a freed block waits for. */
struct model_wait {
    uint64_t stream;
    struct model_block *block;
    bool is_complete;
};

struct model_rule {
    enum varve_device_call call;
    uint64_t first, last; /* calls, counted from 1 */
    int error;
};

struct alloc_model {
    struct alloc_model_options options;
    struct varve_alloc_config config;
    uint64_t limit; /* 0: none */
    struct model_pool large, small;
    struct model_private *privates;
    uint64_t leaves;                   /* how often a pool's references came to 0 */
    struct model_capture captures[32]; /* newest last */
    size_t capture_count;
    struct model_list active, deferred;
    struct model_wait *waits; /* oldest first */
    size_t wait_count, wait_capacity;
    struct varve_alloc_stats stats;
    uint64_t reserved; /* what limit and GC go by */
    struct alloc_model_event *events;
    size_t event_count, event_capacity;
    uint64_t device_used;
    uint64_t calls[VARVE_DEVICE_CALL_LIMIT];
    struct model_rule rules[MODEL_RULES];
    size_t rule_count;
};

/* One request on its way. */
struct model_request {
    uint64_t requested, size, segment_size, stream;
    struct model_pool *pool;
    struct model_block *block;
    bool is_expandable;
};

static inline void alloc_model_require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

/* ---- model_parts.c ---- */

void *alloc_model_grow(void *items, size_t count, size_t *capacity, size_t item_size);
uint64_t alloc_model_size_round(const struct varve_alloc_config *config, uint64_t size);
uint64_t alloc_model_segment_size(const struct varve_alloc_config *config, uint64_t size);
void alloc_model_list_add(struct model_list *list, struct model_block *block);
void alloc_model_list_remove(struct model_list *list, const struct model_block *block);
/// The smallest by (stream, size, address) of those that come after the key; NULL: none.
struct model_block *alloc_model_list_after(const struct model_list *list, uint64_t stream, uint64_t size,
                                           uint64_t addr, bool is_key_included);
struct model_block *alloc_model_list_next(const struct model_list *list, const struct model_block *block);
/// The largest before the key; NULL: none.
struct model_block *alloc_model_list_before(const struct model_list *list, uint64_t stream, uint64_t size,
                                            uint64_t addr);

struct model_block *alloc_model_block_new(struct model_pool *pool, uint64_t stream, uint64_t addr,
                                          uint64_t size);
bool alloc_model_block_is_split(const struct model_block *block);
/// Into the list of free blocks of its pool.
void alloc_model_block_insert(struct model_block *block);
/// Cut the last `size` bytes off into a new block behind `block`, in no list.
struct model_block *alloc_model_block_cut(struct model_block *block, uint64_t size);
/// Let `block` absorb its neighbour if both are of one kind; the bytes absorbed.
uint64_t alloc_model_block_merge(struct alloc_model *model, struct model_block *block,
                                 struct model_block *neighbour);

void alloc_model_emit(struct alloc_model *model, unsigned kind, uint64_t addr, uint64_t size,
                      uint64_t requested);
void alloc_model_stat_add(struct varve_alloc_stat *stat, int64_t change);
/// The same change of `all` and of the pool's kind.
void alloc_model_stats_add(struct varve_alloc_stat *stats, const struct model_pool *pool, int64_t change);

/// Count one call of the device; the error a script has for it, or 0.
int alloc_model_device_call(struct alloc_model *model, enum varve_device_call call);
/// The same for a call that wants memory.
int alloc_model_device_take(struct alloc_model *model, enum varve_device_call call, uint64_t bytes);

/* ---- model_memory.c ---- */

/// The chain's "try the device": 0 with request->block set, or an error.
int alloc_model_segment_new(struct alloc_model *model, struct model_request *request, bool is_retry);
void alloc_model_collect_garbage(struct alloc_model *model);
bool alloc_model_release_available(struct alloc_model *model, const struct model_request *request);
void alloc_model_release_pool_blocks(struct alloc_model *model, struct model_pool *pool);

/* ---- model_pools.c ---- */

struct model_pool *alloc_model_pool_for(struct alloc_model *model, uint64_t size, uint64_t stream);
/// Forget a pool that has nothing any more, by its count of device allocations and in truth. What was set for
/// a pool holds for its id for ever.
void alloc_model_private_erase(struct alloc_model *model, struct model_private *private);
void alloc_model_limit_set(struct alloc_model *model, double fraction);

#endif
