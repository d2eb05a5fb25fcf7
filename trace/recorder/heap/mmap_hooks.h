/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of mmap, munmap and mremap do once `real`, of whichever C library, can be called. */
#ifndef VARVE_TRACE_RECORDER_HEAP_MMAP_HOOKS_H
#define VARVE_TRACE_RECORDER_HEAP_MMAP_HOOKS_H

#include "trace/recorder/heap/heap_real.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/// The function itself, recorded. `frame`: that of the hook (HOOK_FRAME). Threads: any.
void *map_mmap(const struct heap_real *real, void *address, size_t bytes, int protection, int flags, int fd,
               off_t offset, const uintptr_t *frame);
int map_munmap(const struct heap_real *real, void *address, size_t bytes, const uintptr_t *frame);
/// `wanted` counts with MREMAP_FIXED only.
void *map_mremap(const struct heap_real *real, void *old, size_t old_bytes, size_t bytes, int flags, void *wanted,
                 const uintptr_t *frame);

#endif
