/* SPDX-License-Identifier: Apache-2.0 */
/* Names and lines out of a code object. */
#ifndef VARVE_TRACE_STACKS_PYTHON_TEXT_H
#define VARVE_TRACE_STACKS_PYTHON_TEXT_H

#include "trace/stacks/python_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A str object as UTF-8, cut between characters to fit, NUL-terminated; lone surrogates become U+FFFD.
/// False if the object is not a plain str.
bool python_text_copy(const struct python_layout *layout, const struct python_types *types, const void *object,
                      char *out, size_t out_bytes);

/// Line of the instruction at `offset` bytes (negative: not started) in a line table; 0 if it has none.
uint32_t python_line_find(enum python_line_format format, const uint8_t *table, size_t table_bytes, int32_t first_line,
                          int32_t offset);

#endif
