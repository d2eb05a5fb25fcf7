/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream reads from: a file or memory, and the decoder that its first bytes ask for. */
#ifndef VARVE_ANALYSIS_HISTORY_INPUT_SOURCE_H
#define VARVE_ANALYSIS_HISTORY_INPUT_SOURCE_H

#include "analysis/history/input/prefetch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct input_source;

/// `path` is copied; `file` is closed at the end; -1: `bytes` of `memory` instead. `total`: 0 if unknown.
struct input_source *input_source_new(const char *path, int file, const void *memory, size_t bytes,
                                      uint64_t total);
void input_source_free(struct input_source *source);
/// Look at the first bytes and begin to decode. VARVE_ERROR_FORMAT: there are none.
int input_source_recognise(struct input_source *source, struct varve_message *message);
/// Decoded bytes, as many as there is room for, fewer only at the end: the make of an input_ahead_maker,
/// whose context is the source.
int input_source_make(void *context, unsigned char *to, size_t room, struct input_ahead_step *step,
                      struct varve_message *message);
const char *input_source_path(const struct input_source *source);
uint64_t input_source_total(const struct input_source *source);

#ifdef __cplusplus
}
#endif

#endif
