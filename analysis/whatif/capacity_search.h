/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which call sites hold what is too much for a device of a given size: those with most memory at the moment of the
 * load, the most requested bytes that live at a time, below which no allocator can go.
 */
#ifndef VARVE_ANALYSIS_WHATIF_CAPACITY_SEARCH_H
#define VARVE_ANALYSIS_WHATIF_CAPACITY_SEARCH_H

#include "analysis/whatif/whatif_run.h"

/* Of a frame; the history's texts. `file` NULL: unknown. */
struct capacity_place {
    const char *function, *file;
    uint32_t line;
};

/* What is live at that moment of one call site; where call sites are unknown, of one size. */
struct capacity_site {
    struct capacity_place user;  /* the user's line */
    struct capacity_place inner; /* what it called that allocated, if that is another one */
    uint64_t bytes, blocks;
    uint64_t size; /* without a call site: what each block asked for */
    uint64_t key;  /* of the call site or the size, for capacity_shed */
};

/* Of the device that needs most; as whatif_demand counts, with the requests that failed. */
struct capacity_load {
    uint64_t bytes;
    unsigned device;
    size_t event;                /* after which they are live: 1 is the first */
    struct capacity_site *sites; /* by bytes, the most first */
    size_t site_count;
    bool has_callsites; /* some site has a name */
};

/// `history` is borrowed for the sites' texts. Owner: the caller, by capacity_load_free. Errors: VARVE_ERROR_NO_MEMORY.
int capacity_load_find(const struct history *history, struct capacity_load *out);
void capacity_load_free(struct capacity_load *load);

/// How many of the first sites of `load` would have to go, at least `bytes` of them together, so that the rest runs
/// under `setting`, which is found by playing it without their requests. 0: not found within those that could be tried.
size_t capacity_shed(struct whatif *whatif, const struct history *history, const struct capacity_load *load,
                     const struct whatif_setting *setting, uint64_t bytes);

#endif
