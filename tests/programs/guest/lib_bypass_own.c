/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lib_bypass with an allocator of its own, which gives nothing out twice; with BYPASS_WRAPS in the environment it
 * stands in front of the C library's instead. It ends the program if it is to free what it does not know.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *lib_make(size_t bytes);
void lib_drop(void *memory);
void *lib_regrow(void *memory, size_t bytes);
char *lib_print(int width);

static _Alignas(64) char pool[8 << 20];
static size_t used;
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);

__attribute__((constructor)) static void begin(void)
{
    if (getenv("BYPASS_WRAPS") != NULL) {
        *(void **)&next_free = dlsym(RTLD_NEXT, "free");
        *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
    }
}

void *malloc(size_t bytes)
{
    if (next_malloc != NULL) {
        return next_malloc(bytes);
    }
    char *memory = pool + __atomic_fetch_add(&used, (bytes + 31) & ~(size_t)15, __ATOMIC_RELAXED);
    memcpy(memory, &bytes, sizeof(bytes));
    return memory + 16;
}

void free(void *memory)
{
    if (next_free != NULL) {
        next_free(memory);
    } else if (memory != NULL && (uintptr_t)memory - (uintptr_t)pool >= sizeof(pool)) {
        abort();
    }
}

__attribute__((noinline)) void *lib_make(size_t bytes)
{
    return memset(malloc(bytes), 1, bytes);
}

__attribute__((noinline)) void lib_drop(void *memory)
{
    free(memory);
}

__attribute__((noinline)) void *lib_regrow(void *memory, size_t bytes)
{
    free(memory);
    return malloc(bytes);
}

__attribute__((noinline)) char *lib_print(int width)
{
    char *text = malloc((size_t)width + 1);
    memset(text, '0', (size_t)width);
    text[width] = '\0';
    return text;
}
