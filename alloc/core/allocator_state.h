/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's state, and a request on its way. All of it is touched with the lock held. The names of PyTorch's
 * functions in the comments of core/ are those of c10/cuda/CUDACachingAllocator.cpp (2.11).
 */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_STATE_H
#define VARVE_ALLOC_CORE_ALLOCATOR_STATE_H

#include "alloc/alloc.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_lock.h"
#include "alloc/index/block_map.h"
#include "alloc/index/block_slab.h"
#include "alloc/index/free_index.h"
#include "alloc/policy/policy.h"

/* Internal assertions, and the walkers after each step, by the build's level. */
#ifndef VARVE_ASSERT
#define VARVE_ASSERT 0
#endif

#define CAPTURES_MAX 16
#define CALLBACKS_MAX 8

struct event_queue;
struct private_pool;
struct shared_mapping;

/* An expandable segment: a range of addresses of the device. */
struct expandable {
    struct expandable *next;
    const struct pool *pool;
    uint64_t addr, bytes, unit;
    uint64_t *handles; /* by unit; 0: not mapped. A mapping of our own */
    uint32_t segment_id;
};

/* Requests whose stream passes the filter go to the pool. */
struct capture {
    struct private_pool *pool;
    bool (*filter)(void *context, uint64_t stream);
    void *context;
};

struct callback_list {
    struct {
        uint64_t (*call)(void *context, const struct varve_alloc_miss *miss);
        void *context;
    } entries[CALLBACKS_MAX];
    uint32_t count;
};

struct observer {
    void (*call)(void *context, const struct varve_alloc_oom *oom);
    void *context;
};

/* May requests and frees go the short way (core/cached_path.h)? */
enum alloc_way {
    ALLOC_WAY_LONG, /* something is not as usual */
    ALLOC_WAY_SHORT,
    ALLOC_WAY_RECORDED, /* short, with a recorder */
};

struct varve_alloc {
    /* Order: this, then what devices and recorders lock themselves. */
    struct alloc_lock lock;

    /* with the lock, the line that every request and every free touches */
    uint8_t way;        /* enum alloc_way; alloc_unlock keeps it */
    bool can_expand;    /* configured, and the device has virtual memory */
    bool has_divisions; /* sizes are rounded to divisions of powers of two */
    bool has_ages;      /* searches have been counted */
    const struct varve_alloc_recorder *recorder;
    uint64_t allocation_id;
    uint64_t dev_seq;

    struct varve_device *device;
    const struct alloc_policy *policy;
    void *backend_state;                 /* the policy's own, if it is a backend */
    const struct varve_alloc_plan *plan; /* of options; NULL: none */
    struct varve_alloc_config config;    /* settings_apply changes it */
    uint64_t limit;                      /* bytes; 0: none */
    uint64_t allocated_limit;            /* of blocks in use; 0: none */
    uint64_t reserved_bytes;             /* from the device */
    uint64_t device_total;               /* bytes of the device */
    double fraction;

    struct pool large, small;
    struct private_pool *private_pools;  /* by id */
    struct private_pool *freeable_pools; /* in the order in which their references went */
    uint16_t pool_numbers;               /* assigned so far; the last ones are for all pools beyond the field's width */
    struct capture captures[CAPTURES_MAX];
    uint32_t capture_count;

    struct block_map map;
    struct block_slab slab;
    struct expandable *expandables;
    uint32_t segment_id;
    uint64_t *streams; /* handles by number */
    uint32_t stream_count;
    size_t stream_capacity;

    /* stream_use.c */
    struct event_queue *queues; /* by stream */
    uint32_t queue_count;
    size_t queue_capacity;
    uint64_t pending_events;
    struct block *deferred, *deferred_last; /* freed during a capture, linked by `right` */
    struct stream_use *spare_uses;
    uint64_t *spare_events;
    size_t spare_event_count, spare_event_capacity;

    struct alloc_counters counters;

    struct callback_list misses, last_resorts;
    struct observer observers[CALLBACKS_MAX];
    uint32_t observer_count;
    int *peers; /* devices that have access; as many as the device lets in */
    uint32_t peer_count;
    struct shared_mapping *shared; /* segment_share.c */
};

/* Walkers after each step, in builds that ask for it. */
#if VARVE_ASSERT >= 2
#define ALLOC_CHECK_STEP(alloc) assert(varve_alloc_check((alloc), NULL) == VARVE_OK)
#else
#define ALLOC_CHECK_STEP(alloc) ((void)(alloc))
#endif

HOT void alloc_lock(struct varve_alloc *alloc)
{
    lock_acquire(&alloc->lock);
}

/// Whatever changes what the short way rests on holds the lock, and ends here.
void alloc_unlock(struct varve_alloc *alloc);

/// The backend that keeps the pool's blocks; NULL: there is none.
static inline const struct pool_backend *backend_of_pool(const struct varve_alloc *alloc, const struct pool *pool)
{
    return pool->owner == NULL ? alloc->policy->backend : NULL;
}

/// Frees of this block are ordered on the device; it never waits for events.
static inline bool block_is_ordered(const struct varve_alloc *alloc, const struct block *block)
{
    const struct pool_backend *backend = backend_of_pool(alloc, block_pool(block));

    return backend != NULL && backend->free_ordered != NULL;
}

/// Private pools are PyTorch's where the default one is a backend's.
static inline const struct alloc_policy *policy_of_pool(const struct varve_alloc *alloc, const struct pool *pool)
{
    return alloc->policy->backend != NULL && pool->owner != NULL ? &policy_pytorch : alloc->policy;
}

/* One request on its way. */
struct request {
    uint64_t bytes, segment_bytes;
    struct wanted_block wanted;
    struct pool *pool;
    enum varve_cause source;
    enum varve_alloc_stage stage;
    struct varve_message *message; /* of a device's fatal error */
};

/// Size of the segment that the request would need.
static inline uint64_t request_segment_size(const struct varve_alloc *alloc, const struct request *request)
{
    return policy_of_pool(alloc, request->pool)->segment_size(&alloc->config, request->wanted.rounded);
}

/// Descriptors for one request, before anything is decided, so that nothing can fail half way: front part and
/// leftovers of a map. To be done again wherever others may have used up what was reserved. VARVE_ERROR_FULL.
static inline int request_reserve(struct varve_alloc *alloc)
{
    return block_map_reserve(&alloc->map) != VARVE_OK || block_slab_reserve(&alloc->slab, 4) != VARVE_OK
               ? VARVE_ERROR_FULL
               : VARVE_OK;
}

#endif
