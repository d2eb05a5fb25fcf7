/* SPDX-License-Identifier: Apache-2.0 */
/* What `bypass` opens. Its constructor allocates a block of 3001 bytes, which its destructor frees. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *lib_make(size_t bytes);
void lib_drop(void *memory);
void *lib_regrow(void *memory, size_t bytes);
char *lib_print(int width);
void *lib_next(size_t bytes);

static void *first;

__attribute__((constructor)) static void begin(void)
{
    first = malloc(3001);
}

__attribute__((destructor)) static void end(void)
{
    free(first);
}

__attribute__((noinline)) void *lib_make(size_t bytes)
{
    char *memory = malloc(bytes);
    return memory != NULL ? memset(memory, 1, bytes) : NULL;
}

__attribute__((noinline)) void lib_drop(void *memory)
{
    free(memory);
}

__attribute__((noinline)) void *lib_regrow(void *memory, size_t bytes)
{
    return realloc(memory, bytes);
}

__attribute__((noinline)) char *lib_print(int width)
{
    char *text = NULL;
    return asprintf(&text, "%0*d", width, 5) == width ? text : NULL;
}

void *lib_next(size_t bytes)
{
    static void *(*next_make)(size_t);
    if (next_make == NULL) {
        void *next = dlopen("lib_bypass_next.so", RTLD_NOW);
        *(void **)&next_make = next != NULL ? dlsym(next, "lib_next_make") : NULL;
    }
    return next_make != NULL ? next_make(bytes) : NULL;
}
