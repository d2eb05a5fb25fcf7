/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large mappings ask for huge pages: a walk through a million descriptors misses the TLB at each step
 * otherwise.
 */
#include "alloc/index/block.h"

#include <assert.h>
#include <stddef.h>
#include <sys/mman.h>

#define HUGE_BYTES_MIN (UINT64_C(4) << 20)

void *pages_map(uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX) {
        return NULL;
    }
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return NULL;
    }
    if (bytes >= HUGE_BYTES_MIN) {
        (void)madvise(pages, bytes, MADV_HUGEPAGE); /* only advice: it may fail */
    }
    return pages;
}

void pages_unmap(void *pages, uint64_t bytes)
{
    if (pages != NULL) {
        int error = munmap(pages, bytes);
        assert(error == 0);
        (void)error;
    }
}
