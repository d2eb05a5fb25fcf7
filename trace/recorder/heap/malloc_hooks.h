/* SPDX-License-Identifier: Apache-2.0 */
/* An allocation and a free into the ring. */
#ifndef VARVE_TRACE_RECORDER_HEAP_MALLOC_HOOKS_H
#define VARVE_TRACE_RECORDER_HEAP_MALLOC_HOOKS_H

#include "trace/stacks/native_stack.h"
#include "trace/record.h"

#include <stddef.h>

void heap_note_alloc(void *memory, size_t size, size_t alignment, enum varve_cause cause,
                     const struct callsite_start *start);
void heap_note_free(void *memory, enum varve_cause cause);
/// After heap_note_free of `old`; `memory` NULL: it failed, unless `bytes` is 0.
void heap_note_realloc(void *old, void *memory, size_t bytes, enum varve_cause cause, uint32_t callsite);

#endif
