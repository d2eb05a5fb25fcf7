/* SPDX-License-Identifier: Apache-2.0 */
/* What lies beyond the innermost frames of a deep stack. */
#ifndef VARVE_TRACE_STACKS_NATIVE_DEEP_H
#define VARVE_TRACE_STACKS_NATIVE_DEEP_H

#include "trace/stacks/native_walk.h"

struct deep_memo;

/// Goes on from `walk->at` on the thread's own stack, to the outermost frame or up to one that takes another kind of
/// step. `*memo` is what the last such walk of the thread has left, NULL at first; it belongs to this walk alone.
void deep_walk(struct walk *walk, struct deep_memo **memo);
void deep_memo_free(struct deep_memo *memo);

#endif
