/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream reads from: a file or memory, plain or compressed as its first bytes say. Owns the file and the
 * decompressor; called by input_stream.c, and from the second window on by the thread of input_prefetch.c.
 */
#ifndef VARVE_ANALYSIS_BASE_INPUT_SOURCE_H
#define VARVE_ANALYSIS_BASE_INPUT_SOURCE_H

#include "analysis/base/input_prefetch.h"

struct input_source;

/// `path` is copied; `file` is closed at the end; -1: `bytes` of `memory` instead. `total`: 0 if unknown.
struct input_source *input_source_new(const char *path, int file, const void *memory, size_t bytes, uint64_t total);
void input_source_free(struct input_source *source);
/// Look at the first bytes and begin to decompress. VARVE_ERROR_FORMAT: there are none.
int input_source_recognise(struct input_source *source, struct varve_message *message);
/// Decompressed bytes, as many as there is room for, fewer only at the end: prefetch_producer.make, with the
/// source as its context. Errors: VARVE_ERROR_FORMAT (truncated, damaged, followed by something else), IO.
int input_source_make(void *context, unsigned char *to, size_t room, struct prefetch_step *step,
                      struct varve_message *message);
const char *input_source_path(const struct input_source *source);
/// "xz", "gzip", "zstd", or "zip" of torch.save; NULL: plain.
const char *input_source_packing(const struct input_source *source);
uint64_t input_source_total(const struct input_source *source);

#endif
