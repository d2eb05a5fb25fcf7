/* SPDX-License-Identifier: Apache-2.0 */
/* What the numbers of streams and pools in a trace stand for. Called by segment_listing.c and the command `oom`. */
#ifndef VARVE_ANALYSIS_QUERY_POOL_NAMES_H
#define VARVE_ANALYSIS_QUERY_POOL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct database;
struct segments_part;

struct pool_meaning {
    bool is_small, has_ids;
    int64_t capture_id, user_id;
};

#define POOL_NAME_BYTES 16

/// The handle of a stream; its number if the trace does not say.
int64_t stream_handle(struct database *database, const struct segments_part *part, int64_t number);
struct pool_meaning pool_of(struct database *database, const struct segments_part *part, unsigned number);
/// "large", "small", or with the number of a private pool: "large 2".
void pool_name(struct database *database, const struct segments_part *part, unsigned number,
               char name[POOL_NAME_BYTES]);

#endif
