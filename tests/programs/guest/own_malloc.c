/* SPDX-License-Identifier: Apache-2.0 */
/* A program with an allocator linked in: the malloc family is its own, for its libraries too. Exit
 * status 3. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) unsigned char pool[1 << 20];
static size_t used;

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    size_t start = used + 16;
    if (size > sizeof(pool) - start) {
        return NULL;
    }
    memcpy(pool + start - sizeof(size), &size, sizeof(size));
    used = (start + size + 15) & ~(size_t)15;
    return pool + start;
}

__attribute__((visibility("default"))) void free(void *memory)
{
    (void)memory;
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    void *memory = malloc(count * size);
    return memory != NULL ? memset(memory, 0, count * size) : NULL;
}

__attribute__((visibility("default"))) void *realloc(void *memory, size_t size)
{
    void *grown = malloc(size);
    size_t old = 0;
    if (grown != NULL && memory != NULL) {
        memcpy(&old, (unsigned char *)memory - sizeof(old), sizeof(old));
        memcpy(grown, memory, old < size ? old : size);
    }
    return grown;
}

int main(void)
{
    for (int i = 0; i < 100; i++) {
        free(malloc(1001));
    }
    puts("done");
    return 3;
}
