/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that calls its linked-in allocator by another name, as Rust programs call jemalloc. With an
 * argument it calls nothing else, and ends with 4.
 */
#include <stddef.h>
#include <stdio.h>

static _Alignas(16) unsigned char pool[1 << 16];
static size_t used;

void *_rjem_malloc(size_t size);

__attribute__((noinline)) void *_rjem_malloc(size_t size)
{
    used += (size + 15) & ~(size_t)15;
    return used <= sizeof(pool) ? pool + used - ((size + 15) & ~(size_t)15) : NULL;
}

int main(int argc, char **argv)
{
    (void)argv;
    for (int i = 0; i < 10; i++) {
        if (_rjem_malloc(1003) == NULL) {
            return 1;
        }
    }
    return argc > 1 ? 4 : puts("done") < 0;
}
