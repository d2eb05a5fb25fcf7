/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks of a snapshot, which picklers write once and refer back to by the memo: a frame's dict becomes a
 * number in a table of frames, a list of frames the number of a stack, and the memo entry keeps nothing but that.
 * Called for events, segments and blocks.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_FRAMES_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_FRAMES_H

#include "analysis/snapshot/snapshot_reader.h"

/// The value of `frames`: a list, None, or a list that was there before.
int frames_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value,
                uint32_t *stack_out);

#endif
