/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To preload: the n-th allocation of the program that VARVE_TESTS_FAIL_IN names fails, once, or it and all
 * after it (VARVE_TESTS_FAIL_FOR_EVER). n is the first of two 64-bit numbers in the file
 * VARVE_TESTS_FAIL_FILE; the second one is how many there have been, the third how many before the first
 * mkdtemp. Children that such a program forks go on counting for themselves; other programs are left alone.
 * So is what libdw and libelf ask for: they assert that they get it. With VARVE_TESTS_FAIL_CALLERS only what the
 * libraries in it ask for counts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
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
} * steps;
static uint64_t count; /* of this process */
static bool is_for_ever;
static const char *callers; /* names of files; NULL: all */
static struct {
    uintptr_t begin, end;
} spared[2];
static unsigned spared_count;

static int find_spared(struct dl_phdr_info *object, size_t bytes, void *context)
{
    uintptr_t end = 0;
    (void)bytes;
    (void)context;
    if (spared_count < 2 && (strstr(object->dlpi_name, "/libdw") || strstr(object->dlpi_name, "/libelf"))) {
        for (unsigned i = 0; i < object->dlpi_phnum; i++) {
            uintptr_t until = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr + object->dlpi_phdr[i].p_memsz;
            end = object->dlpi_phdr[i].p_type == PT_LOAD && until > end ? until : end;
        }
        spared[spared_count].begin = object->dlpi_addr;
        spared[spared_count++].end = end;
    }
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *program = getenv("VARVE_TESTS_FAIL_IN");
    const char *path = getenv("VARVE_TESTS_FAIL_FILE");
    if (program == NULL || path == NULL || strcmp(program, program_invocation_short_name) != 0) {
        return;
    }
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED) {
        abort();
    }
    close(file);
    dl_iterate_phdr(find_spared, NULL);
    is_for_ever = getenv("VARVE_TESTS_FAIL_FOR_EVER") != NULL;
    callers = getenv("VARVE_TESTS_FAIL_CALLERS");
    steps = mapped;
}

static bool is_among_callers(const void *address)
{
    Dl_info info;
    const char *name = dladdr(address, &info) != 0 && info.dli_fname != NULL ? strrchr(info.dli_fname, '/') : NULL;
    return name != NULL && strstr(callers, name + 1) != NULL;
}

static bool fails(const void *caller)
{
    if (steps == NULL || (callers != NULL && !is_among_callers(caller))) {
        return false;
    }
    for (unsigned i = 0; i < spared_count; i++) {
        if ((uintptr_t)caller >= spared[i].begin && (uintptr_t)caller < spared[i].end) {
            return false;
        }
    }
    uint64_t number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (number > __atomic_load_n(&steps->count, __ATOMIC_RELAXED)) {
        __atomic_store_n(&steps->count, number, __ATOMIC_RELAXED);
    }
    if (number == steps->fails_at || (is_for_ever && steps->fails_at > 0 && number > steps->fails_at)) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

#define FAILING(name, parameters, real, arguments)                                \
    void *name parameters                                                         \
    {                                                                             \
        return fails(__builtin_return_address(0)) ? NULL : real_##real arguments; \
    }

FAILING(malloc, (size_t bytes), malloc, (bytes))
FAILING(calloc, (size_t number, size_t bytes), calloc, (number, bytes))
FAILING(realloc, (void *block, size_t bytes), realloc, (block, bytes))
FAILING(memalign, (size_t alignment, size_t bytes), memalign, (alignment, bytes))
FAILING(aligned_alloc, (size_t alignment, size_t bytes), memalign, (alignment, bytes))

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    void *made = fails(__builtin_return_address(0)) ? NULL : real_memalign(alignment, bytes);
    if (made == NULL) {
        return ENOMEM;
    }
    *block = made;
    return 0;
}
