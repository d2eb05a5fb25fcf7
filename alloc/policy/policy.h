/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy decides sizes, searches, splits and merges. There are two kinds of them. Functions that only look: they see
 * the settings, what a request wants and the free index, and core/ acts on what they return; a file in this folder. And
 * backends, which have structures of their own and act: a file in ../backend. Each is an entry of POLICY_LIST, and no
 * other file knows it.
 */
#ifndef VARVE_ALLOC_POLICY_POLICY_H
#define VARVE_ALLOC_POLICY_POLICY_H

#include "alloc/alloc.h"
#include "alloc/index/free_index.h"

/* The block that a request wants. */
struct wanted_block {
    uint64_t rounded;         /* its size */
    struct stream_bins *bins; /* of the request's pool and stream */
    bool is_expandable;       /* expandable segments serve the request */
};

struct block;
struct request;
struct varve_alloc;

/* What has gone back to the device: number and bytes. */
struct release_sum {
    uint64_t segments, bytes;
    bool has_succeeded; /* as the stage itself judges */
    int error;          /* the last one of the device, which has kept something */
};

#define POLICY_OPTIONS_MAX 8 /* of one policy */

/* The default pool, kept in structures of the policy's own (alloc->backend_state); private pools are PyTorch's under
 * every policy, since a captured graph goes on using their memory. Called with the lock held. What is free is also in
 * the free index (alloc/backend/backend.h puts it there), so that snapshots, statistics and checks know
 * nothing of policies.
 * Errors: 0 or a negative enum varve_error. */
struct pool_backend {
    const struct varve_alloc_policy_option *options; /* NULL: none */
    /* `values`: of the options, in their order. May set alloc->backend_state to memory of malloc, which is freed when
     * the allocator closes; `close` is then called also after an error. NULL: there is no state. */
    int (*open)(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message);
    /* A piece of memory for request->wanted, cut to its size (or larger, where the policy does not cut): not in the
     * index, nor anywhere else. NULL and 0 if nothing free serves and `may_grow` is false; with it
     * VARVE_ERROR_NO_MEMORY if the device or the limit refuses. */
    int (*alloc)(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out);
    /* A piece comes back: it merges with others or does not, and goes into the index. */
    void (*free)(struct varve_alloc *alloc, struct block *block);
    /* What is unused goes back to the device, as far as the policy does that: for empty_cache, and when a request
     * fails. `sum` is added to. An error is one of waiting for streams, before anything was released. */
    int (*release)(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum);
    /* Walk the own structures; VARVE_ERROR_CORRUPT. */
    int (*check)(struct varve_alloc *alloc, struct varve_message *message);
    /* What the state points to goes; the segments are given back by the caller. NULL: nothing. */
    void (*close)(struct varve_alloc *alloc);

    /* Of policies that order frees on the device instead of waiting for events (cuda-async); else NULL. The block,
     * which may have been used by other streams, is freed: there is none any more after VARVE_OK. */
    int (*free_ordered)(struct varve_alloc *alloc, struct block *block);
    /* The allocator closes, and the block's memory goes back though it is in use. NULL: as a segment. */
    void (*abandon)(struct varve_alloc *alloc, struct block *block);
};

struct alloc_policy {
    const char *name;
    const char *meaning; /* for the manual: the rules in a sentence or two, and what its options stand for */
    uint64_t (*block_size)(const struct varve_alloc_config *config, uint64_t bytes);
    bool (*is_small)(const struct varve_alloc_config *config, uint64_t rounded);
    uint64_t (*segment_size)(const struct varve_alloc_config *config, uint64_t rounded);
    /* the free block that serves the request, NULL if none does */
    struct block *(*search)(const struct varve_alloc_config *config, const struct wanted_block *wanted);
    bool (*should_split)(const struct varve_alloc_config *config, const struct wanted_block *wanted,
                         const struct block *block);
    bool (*may_merge)(const struct varve_alloc_config *config, const struct block *block,
                      const struct block *neighbour);
    bool has_gc;                        /* ages are counted, old blocks are collected */
    bool has_release_available;         /* oversize blocks are released for a request */
    const struct pool_backend *backend; /* NULL: the functions above decide; else search, should_split and may_merge are
                                           not called for the default pool */
};

/* X(code, name): all policies, the usual one first. */
#define POLICY_LIST(X)          \
    X(pytorch, "pytorch")       \
    X(first_fit, "first-fit")   \
    X(buddy, "buddy")           \
    X(cuda_async, "cuda-async") \
    X(bfc, "bfc")               \
    X(tlsf, "tlsf")             \
    X(arena, "arena")           \
    X(rmm_pool, "rmm-pool")     \
    X(cupy_pool, "cupy-pool")   \
    X(plan, "plan")             \
    X(stitch, "stitch")         \
    X(none, "none")

#define POLICY_DECLARE(code, text) extern const struct alloc_policy policy_##code;
POLICY_LIST(POLICY_DECLARE)
#undef POLICY_DECLARE

/// Of "NAME" or "NAME:option=value:…"; NULL: the usual one. NULL if there is none of that name.
const struct alloc_policy *policy_find(const char *text);
/// The values of a policy's options, by the text that it was chosen with. VARVE_ERROR_INVALID with the
/// options that there are.
int policy_values(const struct alloc_policy *policy, const char *text, uint64_t values[POLICY_OPTIONS_MAX],
                  struct varve_message *message);

#endif
