/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks for mmap, munmap and mremap of the program itself; what the C library maps for its heap and for
 * thread stacks does not pass here and is not counted twice. munmap is emitted before the call, like free;
 * when the kernel refuses, the range is emitted again, so that the sums stay right. mremap is an munmap and
 * an mmap.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/stacks/native_stack.h"
#include "base/syscall.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

static size_t whole_pages(size_t bytes)
{
    size_t page = heap_page_bytes;
    return (bytes + page - 1) & ~(page - 1);
}

/* Apart from `note`: its record is not on the stack while the call site is looked for. */
static __attribute__((noinline)) void mmap_hooks_emit(enum varve_kind kind, const void *address, size_t bytes,
                                                      uint64_t arg, enum varve_cause cause, uint32_t callsite)
{
    struct varve_record record = {0};
    bool has_failed = address == MAP_FAILED;
    record.addr = has_failed ? 0 : (uintptr_t)address;
    record.size = whole_pages(bytes);
    record.requested = kind == VARVE_KIND_MMAP ? bytes : 0;
    record.arg = arg;
    record.dev_seq_kind_flags = varve_record_tag(0, kind, has_failed ? VARVE_FLAG_FAILED : 0);
    record.callsite = callsite;
    record.cause = (uint8_t)cause;
    varve_emit(&record);
}

static void mmap_hooks_note(enum varve_kind kind, const void *address, size_t bytes, uint64_t arg,
                            enum varve_cause cause, const struct callsite_start *start)
{
    mmap_hooks_emit(kind, address, bytes, arg, cause, hook_callsite(start));
}

/* Inline: hooks leave the program's stack to the program. */
static inline __attribute__((always_inline)) void *map_by(const struct heap_real *real, void *address, size_t bytes,
                                                          int protection, int flags, int fd, off_t offset,
                                                          const uintptr_t *frame)
{
    uint64_t arg = (uint32_t)protection | ((uint64_t)(uint32_t)flags << 32);
    if (!hook_records()) {
        return real->mmap(address, bytes, protection, flags, fd, offset);
    }
    struct callsite_start start = hook_start(frame);
    void *memory = real->mmap(address, bytes, protection, flags, fd, offset);
    mmap_hooks_note(VARVE_KIND_MMAP, memory, bytes, arg, VARVE_CAUSE_MMAP, &start);
    return memory;
}

void *map_mmap(const struct heap_real *real, void *address, size_t bytes, int protection, int flags, int fd,
               off_t offset, const uintptr_t *frame)
{
    return map_by(real, address, bytes, protection, flags, fd, offset, frame);
}

HOOK void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!hook_can_call()) {
        return (void *)hook_answer((long)recorder_sys_mmap(address, bytes, protection, flags, fd, (uint64_t)offset));
    }
    return map_by(&heap_real, address, bytes, protection, flags, fd, offset, HOOK_FRAME());
}

HOOK __typeof__(mmap) mmap64 __attribute__((alias("mmap")));

/* What the kernel will refuse is not recorded: an address off a page, a length of 0. */
static bool is_range(const void *address, size_t bytes)
{
    return bytes > 0 && (uintptr_t)address % heap_page_bytes == 0;
}

int map_munmap(const struct heap_real *real, void *address, size_t bytes, const uintptr_t *frame)
{
    if (!hook_records() || !is_range(address, bytes) || hook_is_sink_closing(frame)) {
        return real->munmap(address, bytes);
    }
    main_end_watch();
    struct callsite_start start = hook_start(frame);
    mmap_hooks_note(VARVE_KIND_MUNMAP, address, bytes, 0, VARVE_CAUSE_MUNMAP, &start);
    int failed = real->munmap(address, bytes);
    if (failed != 0) {
        mmap_hooks_note(VARVE_KIND_MMAP, address, bytes, 0, VARVE_CAUSE_MUNMAP, &start);
    }
    return failed;
}

HOOK int munmap(void *address, size_t bytes)
{
    if (!hook_can_call()) {
        return (int)hook_answer(recorder_sys_munmap(address, bytes));
    }
    return map_munmap(&heap_real, address, bytes, HOOK_FRAME());
}

void *map_mremap(const struct heap_real *real, void *old, size_t old_bytes, size_t bytes, int flags, void *wanted,
                 const uintptr_t *frame)
{
    struct callsite_start start;
    void *memory;
    bool gives_up;
    if (!hook_records()) {
        return real->mremap(old, old_bytes, bytes, flags, wanted);
    }
    start = hook_start(frame);
    gives_up = is_range(old, old_bytes);
#ifdef MREMAP_DONTUNMAP
    gives_up = gives_up && (flags & MREMAP_DONTUNMAP) == 0;
#endif
    if (gives_up) {
        mmap_hooks_note(VARVE_KIND_MUNMAP, old, old_bytes, 0, VARVE_CAUSE_MREMAP, &start);
    }
    memory = real->mremap(old, old_bytes, bytes, flags, wanted);
    if (memory == MAP_FAILED && gives_up) {
        mmap_hooks_note(VARVE_KIND_MMAP, old, old_bytes, 0, VARVE_CAUSE_MREMAP, &start);
    } else {
        mmap_hooks_note(VARVE_KIND_MMAP, memory, bytes, 0, VARVE_CAUSE_MREMAP, &start);
    }
    return memory;
}

HOOK void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, ...)
{
    void *wanted = NULL;
    if ((flags & MREMAP_FIXED) != 0) {
        va_list arguments;
        va_start(arguments, flags);
        wanted = va_arg(arguments, void *);
        va_end(arguments);
    }
    if (!hook_can_call() || heap_real.mremap == NULL) {
        return (void *)hook_answer(
            recorder_syscall(SYS_mremap, (long)old, (long)old_bytes, (long)bytes, flags, (long)wanted, 0));
    }
    return map_mremap(&heap_real, old, old_bytes, bytes, flags, wanted, HOOK_FRAME());
}
