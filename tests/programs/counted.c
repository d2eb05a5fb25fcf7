/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of the malloc family and of mmap's, once or a few times, with known sizes, from one thread.
 * Prints one JSON line per event that a recorder must have seen, in order:
 *
 *   {"kind":"heap_alloc","cause":"malloc","addr":A,"size":N,"arg":ALIGNMENT OR OLD ADDRESS,"failed":0 or 1}
 *   {"loose":"asprintf","addr":A,"least":N}    any events, after which the block A of at least N bytes is
 * live
 *   {"live_heap":BYTES,"live_mmap":BYTES}      last line: what is live at the end
 *
 * Lines are gathered in static memory, since printing must not disturb what is counted.
 */
#include "workload.h"

#include <errno.h>
#include <malloc.h>

#define PAGE 4096UL
#define HUGE_BYTES (UINT64_C(1) << 62)

/* Not known to the compiler, which would warn of what these calls are meant to do. */
static volatile size_t too_many = SIZE_MAX / 2 + 1;
static volatile size_t too_large = HUGE_BYTES;

static char lines[65536];
static size_t lines_used;
static uint64_t live_heap, live_mmap;

static void __attribute__((format(printf, 1, 2))) line(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(lines + lines_used, sizeof(lines) - lines_used, format, list);
    va_end(list);
    if (length < 0 || (size_t)length >= sizeof(lines) - lines_used) {
        give_up("counted: too many lines");
    }
    lines_used += (size_t)length;
}

static void event(const char *kind, const char *cause, const void *addr, uint64_t size, uint64_t arg, int failed)
{
    line("{\"kind\":\"%s\",\"cause\":\"%s\",\"addr\":%llu,\"size\":%llu,\"arg\":%llu,\"failed\":%d}\n", kind, cause,
         (unsigned long long)(uintptr_t)addr, (unsigned long long)size, (unsigned long long)arg, failed);
}

static void *took(void *block, const char *cause, uint64_t size, uint64_t alignment)
{
    event("heap_alloc", cause, block, size, alignment, block == NULL);
    if (block) {
        live_heap += size;
    }
    return block;
}

static void gave(void *block, uint64_t size)
{
    if (block) {
        event("heap_free", "free", block, size, 0, 0);
        live_heap -= size;
    }
    free(block);
}

/* After a realloc of `old_addr` (an integer: the block is gone) from `old_size` to `size`. */
static void *moved(uintptr_t old_addr, uint64_t old_size, void *block, uint64_t size, const char *cause)
{
    int failed = block == NULL && size != 0;
    /* `const void *` of the old address: only printed */
    event("heap_free", "realloc", (const void *)old_addr, old_size, 0, 0);
    event("heap_realloc", cause, failed ? (const void *)old_addr : block, size, old_addr, failed);
    if (!failed) {
        live_heap += size;
        live_heap -= old_size;
    }
    return block;
}

static void count_malloc(void)
{
    void *zero = took(malloc(0), "malloc", 0, 0);
    void *one = took(malloc(1001), "malloc", 1001, 0);
    void *large = took(malloc(1000003), "malloc", 1000003, 0);
    took(malloc(too_large), "malloc", HUGE_BYTES, 0);
    void *many = took(calloc(7, 143), "calloc", 1001, 0);
    took(calloc(too_many, 4), "calloc", UINT64_MAX, 0);
    void *none = took(calloc(0, 8), "calloc", 0, 0);
    free(NULL);
    gave(many, 1001);
    gave(one, 1001);
    gave(zero, 0);
    gave(none, 0);
    gave(large, 1000003);
}

static void count_realloc(void)
{
    char *block = took(realloc(NULL, 2001), "realloc", 2001, 0);
    volatile uintptr_t old = (uintptr_t)block; /* volatile: the compiler would warn of what is done on purpose */
    block = moved(old, 2001, realloc(block, 2003), 2003, "realloc"); /* in place */
    if ((uintptr_t)block != old) {
        give_up("counted: expected to stay in place");
    }
    void *wall = took(malloc(2007), "malloc", 2007, 0);
    block = moved(old, 2003, realloc(block, 300007), 300007, "realloc"); /* moved, to a mapping of libc's own */
    if ((uintptr_t)block == old) {
        give_up("counted: expected to move");
    }
    old = (uintptr_t)block;
    char *failed = realloc((void *)old, too_large);
    moved(old, 300007, failed, HUGE_BYTES, "realloc");
    block[300006] = 1; /* still ours */
    block = moved(old, 300007, realloc(block, 2009), 2009, "realloc");
    old = (uintptr_t)block;
    moved(old, 2009, realloc(block, 0), 0, "realloc");
    void *zero = took(realloc(NULL, 0), "realloc", 0, 0);
    gave(zero, 0);
    gave(wall, 2007);

    block = took(reallocarray(NULL, 3, 1009), "reallocarray", 3027, 0);
    old = (uintptr_t)block;
    /* Overflows: refused before any allocator is asked, so it is no event. */
    if (reallocarray((void *)old, too_many, 4)) {
        give_up("counted: expected an overflow");
    }
    block = moved(old, 3027, reallocarray((void *)old, 5, 1009), 5045, "reallocarray");
    gave(block, 5045);
}

static void count_aligned(void)
{
    void *block = NULL;
    int error = posix_memalign(&block, 256, 4001);
    took(error ? NULL : block, "posix_memalign", 4001, 256);
    gave(block, 4001);
    error = posix_memalign(&block, 3, 4003);
    if (error != EINVAL) {
        give_up("counted: expected EINVAL");
    }
    took(NULL, "posix_memalign", 4003, 3);
    block = took(aligned_alloc(64, 4032), "aligned_alloc", 4032, 64);
    gave(block, 4032);
    block = took(memalign(1024, 4007), "memalign", 4007, 1024);
    gave(block, 4007);
    block = took(valloc(4013), "valloc", 4013, PAGE);
    gave(block, 4013);
    block = took(pvalloc(4019), "pvalloc", 4019, PAGE);
    gave(block, 4019);
}

static void loose(const char *what, const void *block, size_t least)
{
    line("{\"loose\":\"%s\",\"addr\":%llu,\"least\":%zu}\n", what, (unsigned long long)(uintptr_t)block, least);
}

/* Allocations that the C library makes for its callers. */
static void count_library(void)
{
    char text[] = "seventeen letters";
    char *copy = took(strdup(text), "malloc", sizeof(text), 0);
    char *part = took(strndup(text, 5), "malloc", 6, 0);
    gave(copy, sizeof(text));
    gave(part, 6);
    char *printed = NULL;
    if (asprintf(&printed, "%0500d", 7) != 500) {
        give_up("counted: asprintf");
    }
    loose("asprintf", printed, 501);
    free(printed);
    loose("free", NULL, 0);

    FILE *file = fopen("/proc/self/status", "r");
    char *read_line = NULL;
    size_t capacity = 0;
    if (!file || getline(&read_line, &capacity, file) <= 0) {
        give_up("counted: getline");
    }
    loose("getline", read_line, capacity);
    fclose(file);
    free(read_line);
    loose("free", NULL, 0);
}

static char *mapped(void *memory, const char *cause, size_t bytes, uint64_t arg)
{
    int failed = memory == MAP_FAILED;
    event("mmap", cause, failed ? NULL : memory, (bytes + PAGE - 1) / PAGE * PAGE, arg, failed);
    return memory;
}

static void unmapped(const void *memory, const char *cause, size_t bytes)
{
    event("munmap", cause, memory, bytes, 0, 0);
}

static void count_mmap(void)
{
    const int both = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t arg = (uint64_t)both | (uint64_t)flags << 32;
    char *five = mapped(mmap(NULL, 5 * PAGE - 7, both, flags, -1, 0), "mmap", 5 * PAGE - 7, arg);
    live_mmap += 5 * PAGE;
    mapped(mmap(NULL, 0, both, flags, -1, 0), "mmap", 0, arg); /* refused */

    munmap(five + PAGE, PAGE); /* a hole: pages 0, 2, 3, 4 stay */
    unmapped(five + PAGE, "munmap", PAGE);
    live_mmap -= PAGE;
    if (munmap(five + 1, PAGE) != -1) { /* refused: not even recorded */
        give_up("counted: expected a refusal");
    }

    char *fixed = mmap(five + 2 * PAGE, PAGE, both, flags | MAP_FIXED, -1, 0); /* over page 2: nothing changes in sum */
    mapped(fixed, "mmap", PAGE, arg | (uint64_t)MAP_FIXED << 32);

    char *small = mapped(mmap(NULL, 2 * PAGE, both, flags, -1, 0), "mmap", 2 * PAGE, arg);
    char *large = mremap(small, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    if (large == MAP_FAILED) {
        give_up("counted: mremap");
    }
    unmapped(small, "mremap", 2 * PAGE);
    mapped(large, "mremap", 64 * PAGE, 0);
    large = mremap(large, 64 * PAGE, 3 * PAGE, 0);
    unmapped(large, "mremap", 64 * PAGE);
    mapped(large, "mremap", 3 * PAGE, 0);
    live_mmap += 3 * PAGE;

    munmap(five, 5 * PAGE); /* over the hole */
    unmapped(five, "munmap", 5 * PAGE);
    live_mmap -= 4 * PAGE;
}

int main(void)
{
    count_malloc();
    count_realloc();
    count_aligned();
    count_library();
    count_mmap();
    took(malloc(7777), "malloc", 7777, 0); /* never freed */
    line("{\"live_heap\":%llu,\"live_mmap\":%llu}\n", (unsigned long long)live_heap, (unsigned long long)live_mmap);
    for (size_t at = 0; at < lines_used;) {
        ssize_t written = write(STDOUT_FILENO, lines + at, lines_used - at);
        if (written <= 0) {
            return 1;
        }
        at += (size_t)written;
    }
    return 0;
}
