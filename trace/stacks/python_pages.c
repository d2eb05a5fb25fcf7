/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a load could be a SIGSEGV, the kernel copies and answers EFAULT. That is a system call, on a path
 * that is taken at every malloc, so pages once found readable are remembered, for the whole process. A page
 * may go away after that: only a stale pointer, seen by a signal handler in the midst of a few instructions
 * of the interpreter's, could lead there again. Called before any pointer of the interpreter's is followed.
 */
#include "trace/stacks/python_pages.h"
#include "trace/guest/guest_memory.h"

/* Static: it is about this process; written by any thread. */
struct python_page_set python_pages[PYTHON_PAGE_SETS];

/* In the first free way; where there is none, another page is forgotten. */
static void page_keep(uintptr_t page)
{
    uintptr_t *pages = python_pages[page % PYTHON_PAGE_SETS].pages;
    unsigned way = 0;
    while (way < PYTHON_PAGE_WAYS && __atomic_load_n(&pages[way], __ATOMIC_RELAXED) != 0) {
        way++;
    }
    way = way < PYTHON_PAGE_WAYS ? way : page / PYTHON_PAGE_SETS % PYTHON_PAGE_WAYS;
    __atomic_store_n(&pages[way], page, __ATOMIC_RELAXED);
}

bool python_memory_probe(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address / PYTHON_PAGE_BYTES;
    uintptr_t last = ((uintptr_t)address + bytes - 1) / PYTHON_PAGE_BYTES;
    if (bytes == 0) {
        return true;
    }
    if (last < first) {
        return false;
    }
    for (uintptr_t page = first; page <= last; page++) {
        if (python_page_known(page * PYTHON_PAGE_BYTES)) {
            continue;
        }
        char byte;
        if (!recorder_read_memory(&byte, page * PYTHON_PAGE_BYTES, 1)) {
            return false;
        }
        page_keep(page);
    }
    return true;
}
