/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with real values above a planner of rematerialization: random operators, references, pins, locks,
 * evictions and failures, chosen by whoever drives it (random numbers, a fuzzer's bytes). Every tensor has a value, a
 * hash of its operator and its inputs' values; an eviction erases it and only a run from the right inputs brings it
 * back. After each step the planner's own check, the values, locks, sums, and what its events said must all agree.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_REMAT_WORLD_H
#define VARVE_TESTS_SUPPORT_STORAGE_REMAT_WORLD_H

#include "storage/remat.h"

#include <stdbool.h>
#include <stdint.h>

#define REMAT_WORLD_HANDLES 48
#define REMAT_WORLD_NUMBERS (1U << 16) /* tensors, storages: as many as a program may have at a time */
#define REMAT_WORLD_CAUSES (VARVE_REMAT_CAUSE_INPUT + 1)

struct remat_world_options {
    const char *heuristic;
    enum varve_remat_dealloc dealloc;
    enum varve_remat_search search;
    uint64_t budget, seed;
    bool is_live;
    bool has_views, has_wide_views; /* views of one input; of one input with others beside it */
    bool fails;                     /* runs fail now and then */
    bool stumbles;                  /* runs make room beyond the budget now and then */
    bool checks_victims;            /* each victim has the lowest score, up to 1e-6 of it */
    unsigned check_every;           /* steps; 0: never */
};

struct remat_world_tensor {
    uint64_t value, expected;
    uint32_t storage;
    bool is_present, is_listed; /* its storage has not been forgotten */
};

struct remat_world_storage {
    uint32_t locks;
    bool is_pinned;
};

/* What the program holds. */
struct remat_world_handle {
    uint32_t tensor, refs;
};

struct remat_world {
    struct remat_world_options options;
    struct varve_remat *remat;
    struct varve_message message;
    uint64_t (*choose)(void *source, uint64_t limit); /* 0 to limit - 1 */
    void *source;
    struct remat_world_tensor *tensors; /* by their numbers */
    struct remat_world_storage *storages;
    struct remat_world_handle handles[REMAT_WORLD_HANDLES];
    unsigned handle_count, lock_count;
    uint32_t locked[REMAT_WORLD_HANDLES]; /* tensors */
    uint64_t serial;                      /* operators so far */
    uint64_t steps, storages_made, forgotten, failures, stumbles;
    uint64_t runs_until_failure; /* 0: none is to come */
    bool is_over;                /* not live, and an operator has failed */
    struct {
        uint64_t evictions[REMAT_WORLD_CAUSES], evicted_bytes;
        uint64_t operators, model_ns, direct, collateral, remat_ns, failed;
    } seen;
    char wrong[640]; /* the first thing that is */
};

/// VARVE_ERROR_NO_MEMORY or INVALID as of the planner's opening.
int remat_world_open(struct remat_world *world, const struct remat_world_options *options,
                     uint64_t (*choose)(void *source, uint64_t limit), void *source);
/// The next thing that the program does. False: something is wrong, and `wrong` says what.
bool remat_world_step(struct remat_world *world);
/// Everything is released; of a live planner nothing may be left then.
bool remat_world_finish(struct remat_world *world);
void remat_world_close(struct remat_world *world);

#endif
