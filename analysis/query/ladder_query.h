/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why reserved memory serves no request: the fragmentation ladder of an allocator after an event, as view `ladder` has
 * it. Called by segment_listing.c and the report.
 */
#ifndef VARVE_ANALYSIS_QUERY_LADDER_QUERY_H
#define VARVE_ANALYSIS_QUERY_LADDER_QUERY_H

#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

#define LADDER_FIGURES 9

/* In bytes: reserved, live, and the seven rungs between them, in the order of the columns of the view. */
struct ladder_figures {
    int64_t bytes[LADDER_FIGURES];
};

/// The row of `ladder` of that event, or of the allocator's last one before it; all 0 before its first, and where
/// events were not kept. Errors as of cursors: database_error gives them.
void ladder_load(struct ladder_figures *figures, struct database *database, int64_t process_id, int64_t device,
                 int64_t seq);
/// A line for each rung that is not 0, behind one with their sum; nothing if nothing is reserved.
void ladder_print(FILE *out, const struct ladder_figures *figures);
struct cJSON *ladder_json(const struct ladder_figures *figures);

#endif
