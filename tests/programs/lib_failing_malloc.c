/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To preload: the n-th allocation of the program that VARVE_TESTS_FAIL_IN names fails, once, or it and all after it
 * (VARVE_TESTS_FAIL_FOR_EVER). n is the first of two 64-bit numbers in the file VARVE_TESTS_FAIL_FILE; the second one is
 * how many there have been. Children that such a program forks go on counting for themselves; other programs are left
 * alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *real_malloc(size_t bytes) __asm__("__libc_malloc");
void *real_calloc(size_t number, size_t bytes) __asm__("__libc_calloc");
void *real_realloc(void *block, size_t bytes) __asm__("__libc_realloc");
void *real_memalign(size_t alignment, size_t bytes) __asm__("__libc_memalign");
void *memalign(size_t alignment, size_t bytes);

static struct {
    uint64_t fails_at, count;
} *steps;
static uint64_t count; /* of this process */
static bool is_for_ever;

__attribute__((constructor)) static void begin(void)
{
    const char *program = getenv("VARVE_TESTS_FAIL_IN");
    const char *path = getenv("VARVE_TESTS_FAIL_FILE");
    void *mapped;
    int file;

    if (program == NULL || path == NULL || strcmp(program, program_invocation_short_name) != 0) {
        return;
    }
    file = open(path, O_RDWR | O_CLOEXEC);
    mapped = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED) {
        abort();
    }
    close(file);
    is_for_ever = getenv("VARVE_TESTS_FAIL_FOR_EVER") != NULL;
    steps = mapped;
}

static bool fails(void)
{
    uint64_t number;

    if (steps == NULL) {
        return false;
    }
    number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (number > __atomic_load_n(&steps->count, __ATOMIC_RELAXED)) {
        __atomic_store_n(&steps->count, number, __ATOMIC_RELAXED);
    }
    if (number == steps->fails_at || (is_for_ever && steps->fails_at > 0 && number > steps->fails_at)) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : real_malloc(bytes);
}

void *calloc(size_t number, size_t bytes)
{
    return fails() ? NULL : real_calloc(number, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails() ? NULL : real_realloc(block, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return fails() ? NULL : real_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    void *made = memalign(alignment, bytes);

    if (made == NULL) {
        return ENOMEM;
    }
    *block = made;
    return 0;
}
