/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * A naive model of the caching allocator's decisions: all blocks in one array that is searched from end to end, and a
 * device that is a counter of bytes. It shares no code with alloc/, only the types of its public header, and answers every
 * request with the address and the events that the real one must give. It holds what no recording of PyTorch's has: limits,
 * device failures, private pools, streams and garbage collection in any combination.
 *
 * A model that runs out of memory or finds itself inconsistent aborts.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_MODEL_H
#define VARVE_TESTS_SUPPORT_ALLOC_MODEL_H

#include "alloc/alloc.h"

#define MODEL_USES 16U  /* streams that one block can be recorded for */
#define MODEL_RULES 32U /* scripted failures that wait */
#define MODEL_CAPTURES 32U

struct alloc_model_options {
    struct varve_alloc_config config;
    uint64_t memory_limit; /* 0: by config.memory_fraction */
    uint64_t capacity, total;
    /* The address of the next segment, or reservation of addresses; asked before the device is. */
    uint64_t (*place)(void *context, uint64_t bytes, uint64_t stream, bool is_reservation);
    /* The device has these addresses back. */
    void (*gone)(void *context, uint64_t addr, uint64_t bytes);
    /* A pool has nothing: blocks may be freed now; true if some were. NULL: nobody to ask. */
    bool (*miss)(void *context);
    void *context;
};

/* What is compared of a record. */
struct alloc_model_event {
    unsigned kind; /* enum varve_kind */
    uint64_t addr, size, requested;
    bool is_small; /* of which kind of pool; the model's only */
};

struct model_pool {
    uint64_t searches; /* the GC's clock */
    bool is_small;
    struct model_private *owner; /* NULL: the default pool */
};

enum model_state { MODEL_FREE, MODEL_UNMAPPED, MODEL_ALLOCATED, MODEL_PENDING };

struct model_block {
    struct model_block *prev, *next; /* by address in the segment */
    struct model_pool *pool;
    enum model_state state;
    uint64_t stream, addr, size, requested, freed_at;
    uint64_t uses[MODEL_USES];        /* streams the block was recorded for */
    bool use_is_captured[MODEL_USES]; /* … while a pool was being allocated to */
    unsigned use_count, event_count;
    uint64_t base; /* of an expandable segment's addresses, which its units count from; 0: an ordinary segment */
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

/* Blocks, in no order but that of adding. */
struct model_list {
    struct model_block **items;
    size_t count, capacity;
};

struct alloc_model {
    struct alloc_model_options options;
    struct varve_alloc_config config;
    uint64_t limit; /* 0: none */
    struct model_pool large, small;
    struct model_private *privates;
    uint64_t leaves;                               /* how often a pool's references came to 0 */
    struct model_capture captures[MODEL_CAPTURES]; /* newest last */
    size_t capture_count;
    struct model_list blocks; /* all of them */
    struct model_list deferred;
    struct model_wait *waits; /* oldest first */
    size_t wait_count, wait_capacity;
    uint64_t reserved;      /* what limit and GC go by, and what the device has given */
    int64_t retries, syncs; /* as num_alloc_retries and num_sync_all_streams of the statistics */
    struct alloc_model_event *events;
    size_t event_count, event_capacity;
    uint64_t calls[VARVE_DEVICE_CALL_LIMIT];
    struct model_rule {
        enum varve_device_call call;
        uint64_t first, last; /* calls, counted from 1 */
        int error;
    } rules[MODEL_RULES];
    size_t rule_count;
};

struct alloc_model *alloc_model_open(const struct alloc_model_options *options);
void alloc_model_close(struct alloc_model *model);

int alloc_model_alloc(struct alloc_model *model, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int alloc_model_free(struct alloc_model *model, uint64_t addr);
int alloc_model_record_stream(struct alloc_model *model, uint64_t addr, uint64_t stream);
void alloc_model_empty_cache(struct alloc_model *model);
int alloc_model_set_fraction(struct alloc_model *model, double fraction);

int alloc_model_begin(struct alloc_model *model, struct varve_pool_id id,
                      bool (*filter)(void *context, uint64_t stream), void *context);
int alloc_model_end(struct alloc_model *model, struct varve_pool_id id);
int alloc_model_release(struct alloc_model *model, struct varve_pool_id id);
/// NULL: no such pool.
struct model_private *alloc_model_pool(const struct alloc_model *model, struct varve_pool_id id);
bool alloc_model_is_capturing(const struct alloc_model *model, struct varve_pool_id id);

/// As varve_sim_fail; false if too many rules wait already.
bool alloc_model_fail(struct alloc_model *model, enum varve_device_call call, uint64_t nth, uint64_t count, int error);
/// Everything recorded on `stream` so far completes.
void alloc_model_stream_complete(struct alloc_model *model, uint64_t stream);
/// The block at that address; NULL.
struct model_block *alloc_model_block(const struct alloc_model *model, uint64_t addr);
/// Room for one item more behind `count`.
void *alloc_model_grow(void *items, size_t count, size_t *capacity, size_t item_size);

#endif
