/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the calls that arrive while the real allocator is still being looked up: dlsym may allocate (an
 * error message, a new thread's table), and that call ends in our own malloc. A static pool serves these few;
 * it is never given back, and free and realloc recognise its addresses.
 */
#include "trace/recorder/heap/heap_hooks.h"

#include <string.h>

_Alignas(64) char heap_bootstrap_pool[HEAP_BOOTSTRAP_BYTES];
static size_t pool_used; /* bytes; atomic */

void *heap_bootstrap_alloc(size_t alignment, size_t bytes)
{
    alignment = alignment < 16 ? 16 : alignment;
    if (alignment > HEAP_BOOTSTRAP_BYTES || bytes > HEAP_BOOTSTRAP_BYTES) {
        return NULL;
    }
    size_t need = ((bytes + 15) & ~(size_t)15) + 16 + alignment;
    size_t start = __atomic_fetch_add(&pool_used, need, __ATOMIC_RELAXED);
    if (start + need > HEAP_BOOTSTRAP_BYTES) {
        return NULL;
    }
    start = (start + 16 + alignment - 1) & ~(alignment - 1);
    memcpy(heap_bootstrap_pool + start - sizeof(size_t), &bytes, sizeof(size_t));
    return heap_bootstrap_pool + start;
}

size_t heap_bootstrap_size(const void *memory)
{
    size_t bytes;
    memcpy(&bytes, (const char *)memory - sizeof(size_t), sizeof(size_t));
    return bytes;
}
