/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts written down now and then, so that any moment is a few thousand events away. */
#ifndef VARVE_TRACE_MODEL_KEYFRAMES_H
#define VARVE_TRACE_MODEL_KEYFRAMES_H

#include <stdint.h>

struct derive;
struct derive_keyframe;
struct varve_message;

/// After an event: encode every allocator that changed, if enough events have passed since the last time.
void keyframes_step(struct derive *derive, uint64_t seq);
/// Now, whatever has passed.
void keyframes_write(struct derive *derive, uint64_t seq);
/// Calls `take` for each in order; `bytes` is NULL if process_id is 0. Returns its first value other than 0.
int keyframes_each(const struct derive *derive,
                   int (*take)(void *context, const struct derive_keyframe *keyframe, const void *bytes), void *context,
                   struct varve_message *message);

#endif
