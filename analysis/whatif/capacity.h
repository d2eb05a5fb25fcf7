/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lines of the program hold what is too much for a device of a given size: those with most memory at the moment of the load,
 * the most requested bytes that live at a time, below which no allocator can go.
 */
#ifndef VARVE_ANALYSIS_WHATIF_CAPACITY_H
#define VARVE_ANALYSIS_WHATIF_CAPACITY_H

#include "analysis/whatif/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is live at that moment, of one line of the program; without call sites of one size. */
struct capacity_line {
    const char *function, *file; /* of the user's line; the history's texts. NULL: no call site is known */
    uint32_t line;
    uint64_t bytes, blocks;
    uint64_t size; /* without a call site: what each block asked for */
    uint64_t key;  /* of the line, for capacity_shed */
};

/* Of the device that needs most; as whatif_demand counts, with the requests that failed. */
struct capacity_load {
    uint64_t bytes;
    unsigned device;
    size_t event;                /* after which they are live */
    struct capacity_line *lines; /* by bytes, the most first */
    size_t line_count;
    bool has_callsites; /* some line has a name */
};

/// `history` is borrowed for the lines' texts. Owner: the caller, by capacity_load_free. Errors: VARVE_ERROR_NO_MEMORY.
int capacity_load_find(const struct history *history, struct capacity_load *out);
void capacity_load_free(struct capacity_load *load);

/// How many of the first lines of `load` would have to go, at least `bytes` of them together, so that the rest runs under `setting`,
/// which is found by playing it without the requests of these lines. 0: not found within the first lines that `load` has or that could
/// be tried.
size_t capacity_shed(const struct history *history, const struct capacity_load *load,
                     const struct whatif_setting *setting, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
