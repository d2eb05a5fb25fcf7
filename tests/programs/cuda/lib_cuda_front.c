/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another library that stands in front of the CUDA driver, as memory limiters do: it counts allocations, adds
 * 256 bytes to each large one and finds the next one by dlsym(RTLD_NEXT). At the end it prints its count.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cuMemAlloc_v2(uint64_t *addr_out, size_t bytes);

static unsigned count;

int cuMemAlloc_v2(uint64_t *addr_out, size_t bytes)
{
    void *found = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    int (*next)(uint64_t *, size_t);
    memcpy(&next, &found, sizeof(found));
    count++;
    return next(addr_out, bytes < 10000 ? bytes : bytes + 256);
}

__attribute__((destructor)) static void emit(void)
{
    fprintf(stderr, "front: %u\n", count);
}
