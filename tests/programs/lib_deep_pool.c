/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator of a library's own, which counts blocks that are not from it. It gives none out again.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

unsigned deep_pool_given(void);
unsigned deep_pool_taken(void);
unsigned deep_pool_strange(void);

static _Alignas(64) char pool[1 << 20];
static size_t pool_used;
static unsigned given, taken, strange;

void *malloc(size_t bytes)
{
    void *block = pool + pool_used;
    pool_used += (bytes + 15) / 16 * 16;
    given++;
    return pool_used <= sizeof(pool) ? block : NULL;
}

void free(void *block)
{
    const uintptr_t at = (uintptr_t)block;
    const int is_own = at >= (uintptr_t)pool && at < (uintptr_t)pool + sizeof(pool);
    taken += is_own != 0;
    strange += block != NULL && !is_own;
}

unsigned deep_pool_given(void)
{
    return given;
}

unsigned deep_pool_taken(void)
{
    return taken;
}

unsigned deep_pool_strange(void)
{
    return strange;
}
