/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * The allocator's own state and the functions that its files share: see the picture in index/block.h.
 * Everything here runs with the lock held. Section numbers in comments of this folder are the steps of
 * PyTorch's c10/cuda/CUDACachingAllocator.cpp (2.11) by their function names.
 */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_H
#define VARVE_ALLOC_CORE_ALLOCATOR_H

#include "alloc/index/hot.h"
#include "alloc/core/lock.h"
#include "alloc/policy/rounding.h"
#include "alloc/inspect/stats.h"

/* Internal assertions, and the walkers after each step, by the build's level. */
#ifndef VARVE_ASSERT
#define VARVE_ASSERT 0
#endif

struct private_pool;

/* Blocks of one kind (small or large) of the default pool or of a private one. */
struct pool {
    struct free_index index;
    struct block *unmapped;     /* by (stream, address), linked by left and right */
    uint64_t search_count;      /* of searches while garbage collection is on: the clock of ages */
    struct private_pool *owner; /* NULL: the default pool */
    uint16_t number;            /* as records carry it: 2 × pool + (1 if small) */
    bool is_small;
};

struct private_pool {
    struct private_pool *next; /* by id */
    struct varve_pool_id id;
    struct pool large, small;
    uint64_t segment_count;             /* ordinary segments; expandable ones name their pool themselves */
    uint32_t use_count;                 /* 0: empty_cache may release it */
    uint32_t request_count;             /* requests on their way to it, that others may interrupt */
    struct private_pool *next_freeable; /* in the order in which the counts reached 0 */
    bool no_split;
    bool use_on_oom;
};

struct capture {
    struct private_pool *pool;
    bool (*filter)(void *context, uint64_t stream);
    void *context;
};

/* A free address range of the device under one name, for expandable segments. */
struct expandable {
    struct expandable *next;
    const struct pool *pool;
    uint64_t addr, bytes, unit;
    uint64_t *handles; /* by unit; 0: not mapped. A mapping of our own */
    uint32_t segment_id;
};

/* What other streams have yet to finish: per stream, in the order of the frees. */
struct pending_event {
    uint64_t event;
    struct block *block;
};

struct event_queue {
    uint64_t stream;
    struct pending_event *items; /* ring, capacity a power of two */
    uint32_t head, count, capacity;
};

struct alloc_policy;

#define CAPTURES_MAX 16
#define CALLBACKS_MAX 8

struct observer {
    void (*call)(void *context, const struct varve_alloc_oom *oom);
    void *context;
};

struct varve_alloc {
    /* Order: this, then what devices and recorders lock themselves. */
    struct alloc_lock lock;

    struct varve_device *device;
    const struct alloc_policy *policy;
    const struct varve_alloc_recorder *recorder;
    struct varve_alloc_config config;
    uint64_t limit;        /* bytes; 0: none */
    uint64_t total;        /* bytes obtained from the device */
    uint64_t device_total; /* bytes of the device */
    double fraction;
    bool can_expand; /* configured, and the device has virtual memory */

    struct pool large, small;
    struct private_pool *private_pools;
    struct private_pool *freeable_pools;
    uint16_t pool_numbers; /* given so far; the last ones are for all pools beyond the field's width */
    struct capture captures[CAPTURES_MAX];
    uint32_t capture_count;

    struct block_map map;
    struct block_slab slab;
    struct expandable *expandables;
    uint64_t dev_seq;
    uint64_t allocation_id;
    uint32_t segment_id;
    uint64_t *streams; /* handles by number */
    uint32_t stream_count, stream_capacity;

    /* stream_use.c */
    struct event_queue *queues; /* by stream */
    uint32_t queue_count, queue_capacity;
    uint64_t pending_events;
    struct block *deferred, *deferred_last; /* freed during a capture, linked by `right` */
    bool
        has_joined; /* the device's own stream freed memory, and was not waited for since: stream_ordered.c */
    struct stream_use *spare_uses;
    uint64_t *spare_events;
    uint32_t spare_event_count, spare_event_capacity;

    struct varve_alloc_stats stats;

    struct {
        bool (*call)(void *context);
        void *context;
    } callbacks[CALLBACKS_MAX];
    uint32_t callback_count;
    struct observer observers[CALLBACKS_MAX];
    uint32_t observer_count;
    int *peers; /* devices that have access; as many as the device lets in */
    uint32_t peer_count;
    struct shared_mapping *shared; /* share.c */
};

/* Walkers after each step, in builds that ask for it. */
#if VARVE_ASSERT >= 2
#define ALLOC_CHECK_STEP(alloc) assert(varve_alloc_check((alloc), NULL) == VARVE_OK)
#else
#define ALLOC_CHECK_STEP(alloc) ((void)(alloc))
#endif

/* One request on its way. */
struct request {
    uint64_t bytes, rounded, segment_bytes;
    struct pool *pool;
    struct index_stream *home;
    bool is_expandable; /* expandable segments serve it */
    bool is_ordered;    /* the device's own pool serves it */
    enum varve_cause source;
    enum varve_alloc_stage stage;
    struct varve_message *message; /* of a device's fatal error */
};

/* A way to decide. Functions only look: request.c and release.c act. */
struct alloc_policy {
    const char *name;
    uint64_t (*block_size)(const struct varve_alloc *alloc, uint64_t bytes);
    bool (*is_small)(const struct varve_alloc *alloc, uint64_t rounded);
    uint64_t (*segment_size)(const struct varve_alloc *alloc, uint64_t rounded);
    /* the free block that serves the request, NULL if none does */
    struct block *(*search)(const struct varve_alloc *alloc, const struct request *request);
    bool (*should_split)(const struct varve_alloc *alloc, const struct request *request,
                         const struct block *block);
    bool (*may_merge)(const struct varve_alloc *alloc, const struct block *block,
                      const struct block *neighbour);
    bool has_gc;                /* ages are counted, release_plan_gc runs */
    bool has_release_available; /* release_plan_available runs */
    bool is_ordered; /* the device's own pool serves what is not of a private pool: stream_ordered.c */
};

/* policy/pytorch.c; the rest of that policy is inline: policy/pytorch.h */
uint64_t pytorch_segment_size(const struct varve_alloc *alloc, uint64_t rounded);
/// The best block is of an expandable segment: which one it is to be instead.
struct block *pytorch_pass_expandable(const struct request *request, struct block *block);

/* X(code, name): all policies, the usual one first. */
#define POLICY_LIST(X) X(pytorch, "pytorch") X(first_fit, "first-fit") X(cuda_async, "cuda-async")

#define POLICY_DECLARE(code, text) extern const struct alloc_policy policy_##code;
POLICY_LIST(POLICY_DECLARE)
#undef POLICY_DECLARE
const struct alloc_policy *policy_find(const char *name);

/* ---- blocks ---- */

HOT bool block_is_split(const struct block *block)
{
    return block->prev != NULL || block->next != NULL;
}

HOT struct pool *block_pool(const struct block *block)
{
    return block->home->pool;
}

HOT bool block_is_available(const struct block *block)
{
    return block != NULL && !block->is_allocated && block->event_count == 0 && block->uses == NULL;
}

/* ---- emit.c ---- */

struct emission {
    enum varve_kind kind;
    enum varve_cause cause;
    const struct index_stream *home; /* pool and stream; NULL: none */
    uint64_t addr, size, requested, arg, id;
    unsigned flags;
};

/// `what`: kind, cause and flags, 8 bits each from the lowest on. An emission in pieces, which fit registers.
void emit_record(struct varve_alloc *alloc, uint32_t what, const struct index_stream *home, uint64_t addr,
                 uint64_t size, uint64_t requested, uint64_t arg, uint64_t id);
/// What the pool's number means, for a recorder that tells names.
void emit_pool(struct varve_alloc *alloc, const struct pool *pool);

static inline bool emits_names(const struct varve_alloc *alloc)
{
    return alloc->recorder != NULL && alloc->recorder->emits_names;
}

/* A macro, so that what is told is put together only where somebody is told: EMIT(alloc, (struct
 * emission){…}) */
#define EMIT(alloc, ...)                           \
    do {                                           \
        if (UNLIKELY((alloc)->recorder != NULL)) { \
            emit_pieces((alloc), __VA_ARGS__);     \
        }                                          \
    } while (0)

HOT void emit_pieces(struct varve_alloc *alloc, struct emission emission)
{
    uint32_t what = (uint32_t)emission.kind | (uint32_t)emission.cause << 8 | (uint32_t)emission.flags << 16;

    emit_record(alloc, what, emission.home, emission.addr, emission.size, emission.requested, emission.arg,
                emission.id);
}

/* Of VARVE_KIND_ALLOC: the segment, and the size of the free block that the block was cut from. */
HOT uint64_t arg_of_alloc(uint32_t segment_id, uint64_t found_bytes)
{
    uint64_t units = found_bytes / VARVE_ALLOC_FOUND_UNIT;

    return segment_id | (units < VARVE_ALLOC_FOUND_MAX ? units : VARVE_ALLOC_FOUND_MAX) << 32;
}

HOT void emit_completed(struct varve_alloc *alloc, const struct block *block)
{
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_FREE_COMPLETED,
                                  .home = block->home,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = block->segment_id,
                                  .id = block->id});
}

/* ---- request.c ---- */

/// Size of the segment that the request would need.
uint64_t request_segment_size(const struct varve_alloc *alloc, const struct request *request);
/// Descriptors for one request; VARVE_ERROR_FULL.
int request_reserve(struct varve_alloc *alloc);
int request_prepare(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct request *request);
/// Prepare and serve a request; VARVE_ERROR_NO_MEMORY after the whole chain, when `request` says how far it
/// came; VARVE_ERROR_FULL.
int request_run(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct varve_message *message,
                struct request *request, uint64_t *addr_out);

/* ---- free.c ---- */

/// Put a free block into its pool; its age begins.
void block_insert_free(struct block *block);
/// The first `bytes` of a block are cut off; the rest is free, and in the index afterwards.
void block_shrink_free(struct block *block, uint64_t bytes);
/// The block is not in use any more: record, merge, insert.
void block_free(struct varve_alloc *alloc, struct block *block);
/// Absorb a neighbour (NULL allowed) if that may be; returns the bytes absorbed.
uint64_t block_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour);
int block_delete(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message);

/* ---- stream_use.c ---- */

int stream_use_add(struct varve_alloc *alloc, struct block *block, uint64_t stream);
/// A block with uses was freed: it waits for an event of each stream (or, in a capture, for its end).
int stream_use_wait(struct varve_alloc *alloc, struct block *block);
/// Free the blocks whose events have completed (process_events).
int stream_use_poll(struct varve_alloc *alloc);
/// Let `stream` wait for what `other` has been given by now.
int stream_use_order(struct varve_alloc *alloc, uint64_t stream, uint64_t other);
void stream_use_drop_first(struct varve_alloc *alloc, struct block *block);
/// Wait for all events, or those of one private pool's blocks (synchronize_and_free_events).
int stream_use_synchronize(struct varve_alloc *alloc, const struct private_pool *only);
void stream_use_close(struct varve_alloc *alloc);

/* ---- segment.c ---- */

/// alloc_block: a segment, or mapped memory, for the request. VARVE_ERROR_NO_MEMORY, or a fatal error.
int segment_obtain(struct varve_alloc *alloc, struct request *request, bool is_retry,
                   struct block **block_out);
/// release_block: an unsplit free block that is no part of an expandable segment goes back.
void segment_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause);
/// The sums no longer count the segment that is this block alone.
void segment_uncount(struct varve_alloc *alloc, const struct block *block);

/* ---- stream_ordered.c ---- */

/// A block of the device's pool was freed: it goes back behind the work of its stream and of all others that
/// used it. After an error it stays, with the uses that are left, and is to be given back again.
int ordered_give(struct varve_alloc *alloc, struct block *block);
/// For a close: the block, in use or not, goes back likewise, as far as that can be.
void ordered_abandon(struct varve_alloc *alloc, struct block *block);
/// Wait for the streams that freed memory, then the pool keeps nothing unused. Without `waits` it keeps what
/// streams are not done with. Errors: those of waiting, but for captured streams, which are left out.
int ordered_trim(struct varve_alloc *alloc, bool waits);

/* ---- expandable.c ---- */

int expandable_obtain(struct varve_alloc *alloc, struct request *request, struct block **block_out);
/// unmap_block, and release_expandable_segment if nothing of it is left; returns the bytes unmapped.
uint64_t expandable_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause);
/// Bytes that expandable_release would unmap, and where.
uint64_t expandable_releasable(const struct block *block, uint64_t *addr_out);
void expandable_close(struct varve_alloc *alloc);
/// An empty expandable segment at a given address, all of it unmapped (inspect/restore.c).
int expandable_reserve(struct varve_alloc *alloc, const struct request *request, struct block **block_out);
int expandable_map(struct varve_alloc *alloc, struct block *block, uint64_t bytes,
                   struct varve_message *message);

/* ---- release.c ---- */

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

/// What a stage has given back: number and bytes.
struct release_sum {
    uint64_t segments, bytes;
    bool has_succeeded; /* as the stage itself judges */
};

struct release_sum release_garbage(struct varve_alloc *alloc);
struct release_sum release_available(struct varve_alloc *alloc, const struct request *request);
int release_cached(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum_out);
/// The same of one private pool, if it has no reference; VARVE_ERROR_BUSY while a capture is underway.
int release_pool(struct varve_alloc *alloc, struct private_pool *pool, struct release_sum *sum_out);
/// Bytes of the garbage collector's threshold; 0: it does not run now.
uint64_t release_garbage_target(const struct varve_alloc *alloc);

/* ---- private_pool.c ---- */

void pool_init(struct varve_alloc *alloc, struct pool *pool, struct private_pool *owner, bool is_small);
void pool_close(struct pool *pool);
struct private_pool *private_pool_find(const struct varve_alloc *alloc, struct varve_pool_id id);
/// The pool of that name, made without a reference if it is new; NULL: no memory, or too many pools.
struct private_pool *private_pool_make(struct varve_alloc *alloc, struct varve_pool_id id);
/// One reference more: the pool can't go before varve_alloc_release_pool.
void private_pool_take(struct varve_alloc *alloc, struct private_pool *pool);
void private_pools_erase_empty(struct varve_alloc *alloc);
/// The pool of that kind that a request of `stream` goes to, while there are captures.
struct pool *pool_of_captures(struct varve_alloc *alloc, uint64_t stream, bool is_small);
/// The place of a stream in a pool, numbered for the records; NULL: no memory.
struct index_stream *pool_stream(struct varve_alloc *alloc, struct pool *pool, uint64_t stream);
/// Keep the list of unmapped address space in order.
void pool_unmapped_insert(struct pool *pool, struct block *block);
void pool_unmapped_remove(struct pool *pool, struct block *block);
/// Every pool: NULL gives the default large one; NULL at the end.
struct pool *pool_each(struct varve_alloc *alloc, const struct pool *pool);

/* ---- settings.c ---- */

void settings_emit(struct varve_alloc *alloc);
/// Bytes of a fraction of the device's memory, at least 1; 0: no limit.
uint64_t settings_limit(const struct varve_alloc *alloc, double fraction);

/* ---- inspect/oom.c ---- */

void oom_account(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom);
int oom_message(const struct varve_alloc_oom *oom, struct varve_message *message);
/// Set `message` to "`what`: " and what the device says of its last failure; returns `error`.
int device_message(const struct varve_alloc *alloc, int error, struct varve_message *message,
                   const char *what, ...) __attribute__((format(printf, 4, 5)));

/* ---- share.c ---- */

void share_close(struct varve_alloc *alloc);

/* ---- the lock ---- */

HOT void alloc_lock(struct varve_alloc *alloc)
{
    lock_take(&alloc->lock);
}

HOT void alloc_unlock(struct varve_alloc *alloc)
{
    lock_drop(&alloc->lock);
}

#endif
