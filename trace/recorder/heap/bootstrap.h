/* SPDX-License-Identifier: Apache-2.0 */
/* The pool that serves allocations while the real functions are being looked up. */
#ifndef VARVE_TRACE_RECORDER_HEAP_BOOTSTRAP_H
#define VARVE_TRACE_RECORDER_HEAP_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *heap_bootstrap_alloc(size_t alignment, size_t bytes); /* zeroed; NULL when the pool is used up */
#define HEAP_BOOTSTRAP_BYTES 16384U
extern char heap_bootstrap_pool[HEAP_BOOTSTRAP_BYTES];

static inline bool heap_bootstrap_owns(const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)heap_bootstrap_pool < HEAP_BOOTSTRAP_BYTES;
}

size_t heap_bootstrap_size(const void *memory);

#endif
