/* SPDX-License-Identifier: Apache-2.0 */
/* A layout as bytes: the keyframes of a database. */
#ifndef VARVE_TRACE_MODEL_LAYOUT_CODE_H
#define VARVE_TRACE_MODEL_LAYOUT_CODE_H

#include <stddef.h>
#include <stdint.h>

struct varve_layout;

/// The most bytes that the layout may take.
size_t layout_encode_bound(const struct varve_layout *layout);
/// Encode into so many bytes; returns how many it took.
size_t layout_encode(const struct varve_layout *layout, uint8_t *bytes);

#endif
