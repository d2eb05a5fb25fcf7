/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment with its blocks, added to the history. Versions differ: blocks have addresses, or sizes only and
 * follow one another; what was requested stands in the block, in its `history`, or nowhere; sums may be missing.
 * Called by snapshot_read.c.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_SEGMENT_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_SEGMENT_H

#include "analysis/snapshot/snapshot_reader.h"

int segment_take(struct snapshot_reader *reader, struct pickle_value value);
/// After the last: order by address, no overlaps.
int segments_finish(struct snapshot_reader *reader);

#endif
