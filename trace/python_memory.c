/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that may not be there: where a load could be a SIGSEGV, the kernel copies and answers EFAULT. The
 * hard part is the price, a system call, on a path that is taken at every malloc; so pages once found
 * readable are remembered. A page may go away after that: what protects then is that only a stale pointer,
 * seen in a signal handler in the midst of a few instructions of the interpreter's, could lead there again.
 * The other python_*.c files look through this before they follow a pointer.
 */
#include "trace/python_internal.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Numbers of pages, each where its low bits say. Static: it is about this process; written by any thread. */
_Atomic uintptr_t python_pages[PYTHON_PAGE_SLOTS];

/* Where a sandbox forbids process_vm_readv: a call that reads 8 bytes of its argument and then fails. */
static bool word_is_readable(uintptr_t address)
{
    const int no_such_operation = -1;
    long result = syscall(SYS_rt_sigprocmask, no_such_operation, (const void *)(address & ~(uintptr_t)7),
                          NULL, sizeof(uint64_t));
    return result == 0 || errno != EFAULT;
}

bool python_memory_copy(void *out, const void *address, size_t bytes)
{
    int saved_errno = errno;
    struct iovec local = {.iov_base = out, .iov_len = bytes};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
    ssize_t copied = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    bool whole = copied == (ssize_t)bytes;
    if (copied < 0 && (errno == ENOSYS || errno == EPERM)) {
        uintptr_t first = (uintptr_t)address;
        uintptr_t last = first + bytes - 1;
        whole = last >= first;
        for (uintptr_t at = first; whole && at <= last; at = (at | (PYTHON_PAGE_BYTES - 1)) + 1)
            whole = word_is_readable(at);
        if (whole)
            memcpy(out, address, bytes);
    }
    errno = saved_errno;
    return whole;
}

bool python_memory_probe(const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address / PYTHON_PAGE_BYTES;
    uintptr_t last = ((uintptr_t)address + bytes - 1) / PYTHON_PAGE_BYTES;
    if (bytes == 0)
        return true;
    if (last < first)
        return false;
    for (uintptr_t page = first; page <= last; page++) {
        _Atomic uintptr_t *slot = &python_pages[page % PYTHON_PAGE_SLOTS];
        char byte;
        if (atomic_load_explicit(slot, memory_order_relaxed) == page)
            continue;
        if (!python_memory_copy(&byte, (const void *)(page * PYTHON_PAGE_BYTES), 1))
            return false;
        atomic_store_explicit(slot, page, memory_order_relaxed);
    }
    return true;
}
