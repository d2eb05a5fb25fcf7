/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * A policy decides sizes, searches, splits and merges. Its functions only look: they see the settings, what a
 * request wants and the free index, and core/ acts on what they return. A new one is a file in this folder and
 * an entry of POLICY_LIST.
 */
#ifndef VARVE_ALLOC_POLICY_POLICY_H
#define VARVE_ALLOC_POLICY_POLICY_H

#include "alloc/alloc.h"
#include "alloc/index/pool.h"

/* The block that a request wants. */
struct wanted_block {
    uint64_t rounded;         /* its size */
    struct stream_bins *bins; /* of the request's pool and stream */
    bool is_expandable;       /* expandable segments serve the request */
    bool stream_ordered;      /* the device's own pool does */
};

struct alloc_policy {
    const char *name;
    uint64_t (*block_size)(const struct varve_alloc_config *config, uint64_t bytes);
    bool (*is_small)(const struct varve_alloc_config *config, uint64_t rounded);
    uint64_t (*segment_size)(const struct varve_alloc_config *config, uint64_t rounded);
    /* the free block that serves the request, NULL if none does */
    struct block *(*search)(const struct varve_alloc_config *config, const struct wanted_block *wanted);
    bool (*should_split)(const struct varve_alloc_config *config, const struct wanted_block *wanted,
                         const struct block *block);
    bool (*may_merge)(const struct varve_alloc_config *config, const struct block *block,
                      const struct block *neighbour);
    bool has_gc;                /* ages are counted, old blocks are collected */
    bool has_release_available; /* oversize blocks are released for a request */
    bool stream_ordered;        /* the device's own pool serves what is not of a private pool */
};

/* X(code, name): all policies, the usual one first. */
#define POLICY_LIST(X) X(pytorch, "pytorch") X(first_fit, "first-fit") X(cuda_async, "cuda-async")

#define POLICY_DECLARE(code, text) extern const struct alloc_policy policy_##code;
POLICY_LIST(POLICY_DECLARE)
#undef POLICY_DECLARE

/// NULL: the usual one. NULL if there is none of that name.
const struct alloc_policy *policy_find(const char *name);

#endif
