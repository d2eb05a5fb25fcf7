/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of a snapshot that mean nothing here, kept for an export: as the opcodes of a pickle that make key and value
 * again, which need nothing of the pickle around them. Called by the parsers of a snapshot's parts.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_REST_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_REST_H

#include "analysis/snapshot/snapshot_reader.h"

/// Add a key and its value to what `reader->rest` holds so far. What cannot be kept (bytes, texts of more than 64 KiB,
/// deep or very large values) is left out, key and all.
void rest_add(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value);
/// The number of the text of all that was added; nothing is there afterwards.
uint32_t rest_take(struct snapshot_reader *reader);
/// Move what was added behind what `reader->root` has, as far as there is room; nothing is in
/// `reader->rest` afterwards.
void rest_keep(struct snapshot_reader *reader);
/// The same of one value. False: it cannot be kept.
bool rest_value(struct snapshot_reader *reader, struct pickle_value value, uint32_t *text_out);

#endif
