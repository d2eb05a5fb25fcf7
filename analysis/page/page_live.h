/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was live at some two hundred moments, by the user's line: the answer to a click on a moment. Exact at each of
 * them. A moment is a row of the view `timeline`, whose `allocated` is what the lines add up to, or the
 * peak of a domain.
 */
#ifndef VARVE_ANALYSIS_PAGE_PAGE_LIVE_H
#define VARVE_ANALYSIS_PAGE_PAGE_LIVE_H

#include "analysis/base/key_map.h"

#include <stddef.h>
#include <stdint.h>

struct database;
struct page_allocation;
struct page_writer;

#define LIVE_MOMENTS_MAX 240
#define LIVE_ROWS_MAX 60000 /* series and lines: what comes after these counts as the rest of its series */

struct live_moment {
    int64_t seq, ts_ns;
};

/* What there is of a domain of a process on a device. */
struct live_series {
    int64_t domain, process_id, device;
};

/* A line in a series; line 0: no name is known; < 0: the rest of the series. */
struct live_row {
    uint32_t series;
    int64_t line;
    int64_t
        bytes[LIVE_MOMENTS_MAX + 1]; /* at each moment: while allocations are added, the difference to the one before */
};

struct live {
    struct live_moment moments[LIVE_MOMENTS_MAX];
    size_t moment_count;
    struct live_series *series;
    size_t series_count, series_capacity;
    struct live_row *rows;
    size_t row_count, row_capacity;
    struct map row_numbers;
};

/// The moments: evenly over time, evenly over events, and the peaks.
void live_init(struct live *live, struct database *database);
/// A page_allocation_visitor.
void live_add(void *live, const struct page_allocation *allocation);
/// Differences become bytes; after the last allocation.
void live_finish(struct live *live);
/// The largest lines of each moment, and the sum of all others.
void live_write(const struct live *live, struct database *database, struct page_writer *writer);
void live_free(struct live *live);

#endif
