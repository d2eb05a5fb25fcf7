/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of `varve segments`: totals first, then what is cached and unused, then segments and their blocks. */
#ifndef VARVE_ANALYSIS_QUERY_SEGMENT_LISTING_H
#define VARVE_ANALYSIS_QUERY_SEGMENT_LISTING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct database;
struct segments_state;

struct listing {
    int64_t top; /* empty segments, holes, and segments in use that are listed of each allocator */
    bool with_map, with_blocks;
};

/// Errors as of cursors: database_error gives them.
void listing_text(FILE *out, struct database *database, const struct segments_state *state,
                  const struct listing *listing);
void listing_json(FILE *out, struct database *database, const struct segments_state *state);

#endif
