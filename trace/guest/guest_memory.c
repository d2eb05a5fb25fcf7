/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the code that lives inside the workload. Everything goes straight to the kernel: the C
 * library's mmap may be our own hook, and its allocator is what we record. Called by all files of the
 * recorder.
 */
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <sys/mman.h>

#define LARGE_PAGE_BYTES ((size_t)2 << 20)

static bool memory_is_locked; /* atomic */

void recorder_memory_is_locked(bool is_locked)
{
    __atomic_store_n(&memory_is_locked, is_locked, __ATOMIC_RELAXED);
}

#if defined(__SANITIZE_THREAD__) /* it must see that an address begins a new life; its builds have no hooks */
static void *guest_memory_map(size_t bytes, int protection, int flags, int fd, uint64_t offset)
{
    void *memory = mmap(NULL, bytes, protection, fd < 0 ? flags : MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    /* the file past it, over that range: it did not see how the descriptor was opened */
    if (fd >= 0 && recorder_sys_failed(recorder_sys_mmap(memory, bytes, protection, flags | MAP_FIXED, fd, offset))) {
        munmap(memory, bytes);
        return NULL;
    }
    return memory;
}

void recorder_unmap(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

static void *map_again(const void *base, size_t bytes)
{
    void *memory = guest_memory_map(bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != NULL && recorder_sys_failed(recorder_sys_map_again(base, bytes, MREMAP_FIXED, memory))) {
        munmap(memory, bytes);
        return NULL;
    }
    return memory;
}
#else
/* Pages that nobody may touch are not made when they are locked. */
static void *map_unlocked(size_t bytes, int protection, int flags, int fd, uint64_t offset)
{
    void *memory = recorder_sys_mmap(NULL, bytes, PROT_NONE, flags, fd, offset);
    if (recorder_sys_failed(memory)) {
        return NULL;
    }
    recorder_syscall(SYS_munlock, (long)memory, (long)bytes, 0, 0, 0, 0);
    if (recorder_sys_mprotect(memory, bytes, protection) != 0) {
        recorder_sys_munmap(memory, bytes);
        return NULL;
    }
    return memory;
}

static void *guest_memory_map(size_t bytes, int protection, int flags, int fd, uint64_t offset)
{
    if (__builtin_expect(__atomic_load_n(&memory_is_locked, __ATOMIC_RELAXED), 0)) {
        return map_unlocked(bytes, protection, flags, fd, offset);
    }
    void *memory = recorder_sys_mmap(NULL, bytes, protection, flags, fd, offset);
    return recorder_sys_failed(memory) ? NULL : memory;
}

void recorder_unmap(void *memory, size_t bytes)
{
    recorder_sys_munmap(memory, bytes);
}

static void *map_again(const void *base, size_t bytes)
{
    void *memory = recorder_sys_map_again(base, bytes, 0, NULL);
    return recorder_sys_failed(memory) ? NULL : memory;
}
#endif

void *recorder_map(size_t bytes)
{
    return guest_memory_map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void *recorder_map_table(size_t bytes)
{
    void *memory = recorder_map(bytes);
    if (memory != NULL && bytes >= LARGE_PAGE_BYTES) {
        recorder_sys_madvise(memory, bytes, MADV_HUGEPAGE); /* a refusal changes nothing but the time it takes */
    }
    return memory;
}

void *recorder_map_window(int fd, uint64_t offset, size_t bytes)
{
    void *memory = guest_memory_map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (memory != NULL) {
        recorder_sys_madvise(memory, bytes, MADV_DONTFORK);
    }
    return memory;
}

void *recorder_map_file(int fd, size_t bytes, bool fork_private)
{
    return fork_private ? recorder_map_window(fd, 0, bytes)
                        : guest_memory_map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

void *recorder_map_file_read(int fd, size_t bytes)
{
    return guest_memory_map(bytes, PROT_READ, MAP_SHARED, fd, 0);
}

void *recorder_map_more(const void *base, uint64_t offset, size_t bytes)
{
    char *memory = map_again(base, offset + bytes);
    if (memory == NULL) {
        return NULL;
    }
    recorder_unmap(memory, offset);
    recorder_sys_madvise(memory + offset, bytes, MADV_DONTFORK);
    return memory + offset;
}

void *recorder_map_wiped(size_t bytes)
{
    void *memory = recorder_map(bytes);
    if (memory != NULL && recorder_sys_madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
        recorder_unmap(memory, bytes); /* Linux before 4.14: a fork child could not be recognized */
        return NULL;
    }
    return memory;
}

void *recorder_map_wiped_once(void **slot, size_t bytes)
{
    void *found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (found != NULL) {
        return found;
    }
    found = recorder_map_wiped(bytes);
    void *expected = NULL;
    if (found != NULL &&
        !__atomic_compare_exchange_n(slot, &expected, found, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        recorder_unmap(found, bytes);
        found = expected;
    }
    return found;
}

/* Some sandboxes know process_vm_readv and not this. */
static __attribute__((noinline)) long read_own_memory(void *out, uintptr_t address, size_t bytes)
{
    int fd = recorder_sys_open("/proc/thread-self/mem", O_RDONLY, 0);
    long got = -EPERM;
    if (fd >= 0) {
        got = recorder_sys_pread(fd, out, bytes, address);
        recorder_sys_close(fd);
    }
    return got;
}

bool recorder_read_memory(void *out, uintptr_t address, size_t bytes)
{
    long got = recorder_sys_read_memory(out, address, bytes);
    if (got == -EPERM || got == -ENOSYS) {
        got = read_own_memory(out, address, bytes);
    }
    return got == (long)bytes;
}
