/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A depth per thread, which hooks look at first: above 0 they pass through. Called around everything that may
 * allocate.
 */
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"

__thread uint32_t recorder_reentrant_depth;

void recorder_reentrant_begin(struct recorder_signals *saved)
{
    recorder_signals_block(saved);
    recorder_reentrant_depth++;
}

void recorder_reentrant_end(const struct recorder_signals *saved)
{
    recorder_reentrant_depth--;
    recorder_signals_restore(saved);
}
