/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the interpreter that may not be there: which pages can be read. */
#ifndef VARVE_TRACE_STACKS_PYTHON_PAGES_H
#define VARVE_TRACE_STACKS_PYTHON_PAGES_H

#include "trace/guest/guest_memory.h"
#include "trace/stacks/python_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PYTHON_PAGE_BYTES 4096U
#define PYTHON_PAGE_SETS 512U
#define PYTHON_PAGE_WAYS 8U /* a cache line: pages of one set would else take turns, at a system call each */

/* Numbers of pages, each in the set that its low bits say. 0 is empty: nothing is kept behind it. */
struct python_page_set {
    _Alignas(CACHE_LINE_BYTES) uintptr_t pages[PYTHON_PAGE_WAYS];
};

extern struct python_page_set python_pages[PYTHON_PAGE_SETS];

/// True if all of it can be read; asks the kernel about pages that are not remembered.
bool python_memory_probe(const void *address, size_t bytes);

static inline bool python_page_known(uintptr_t address)
{
    const uintptr_t page = address / PYTHON_PAGE_BYTES;
    const struct python_page_set *set = &python_pages[page % PYTHON_PAGE_SETS];
    uintptr_t known = __atomic_load_n(&set->pages[0], __ATOMIC_RELAXED);
    for (unsigned way = 1; __builtin_expect(known != page, 0) && known != 0 && way < PYTHON_PAGE_WAYS; way++) {
        known = __atomic_load_n(&set->pages[way], __ATOMIC_RELAXED);
    }
    return known == page;
}

/// True if `address` may be an object of at least `bytes` bytes, at most a page, and reading it does not
/// fault.
static inline bool python_readable(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address;
    return python_plausible(address) &&
           ((python_page_known(first) && python_page_known(first + bytes - 1)) || python_memory_probe(address, bytes));
}

#endif
