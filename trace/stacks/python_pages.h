/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the interpreter that may not be there: which pages can be read. */
#ifndef VARVE_TRACE_STACKS_PYTHON_PAGES_H
#define VARVE_TRACE_STACKS_PYTHON_PAGES_H

#include "trace/stacks/python_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PYTHON_PAGE_BYTES 4096U
#define PYTHON_PAGE_SLOTS 4096U

extern uintptr_t python_pages[PYTHON_PAGE_SLOTS];

/// True if all of it can be read; asks the kernel about pages that are not remembered.
bool python_memory_probe(const void *address, size_t bytes);

static inline bool python_page_known(uintptr_t address)
{
    uintptr_t page = address / PYTHON_PAGE_BYTES;
    return __atomic_load_n(&python_pages[page % PYTHON_PAGE_SLOTS], __ATOMIC_RELAXED) == page;
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
