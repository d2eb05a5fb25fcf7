/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves cudaMalloc in the driver's place, for tests of the recorder: pieces of one segment that it gets from
 * the driver by the same look-up as any program, in order and never reused. Reports on stderr what it did.
 */
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/replacement.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SEGMENT_BYTES (1U << 20)
#define PIECES 64

struct piece {
    uint64_t addr, bytes;
};

static uint64_t segment;
static uint64_t used;
static struct piece pieces[PIECES];
static unsigned count, frees, forgets;

static int alloc(int device, uint64_t bytes, uint32_t callsite, uint64_t *addr_out)
{
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    (void)callsite;
    cuda_type_cuMemAlloc_v2 *driver_alloc;
    memcpy(&driver_alloc, &found, sizeof(found));
    if (device != 0 || bytes == 0 || bytes > SEGMENT_BYTES - used || count == PIECES) {
        return 2;
    }
    if (segment == 0 && driver_alloc(&segment, SEGMENT_BYTES) != 0) {
        return 2;
    }
    *addr_out = segment + used;
    pieces[count++] = (struct piece){*addr_out, bytes};
    used += bytes;
    return 0;
}

static int range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out)
{
    for (unsigned i = 0; i < count; i++) {
        if (addr - pieces[i].addr < pieces[i].bytes) {
            *base_out = pieces[i].addr;
            *bytes_out = pieces[i].bytes;
            return 1;
        }
    }
    return 0;
}

static int give_back(uint64_t addr)
{
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].addr == addr && pieces[i].bytes != 0) {
            pieces[i].bytes = 0;
            frees++;
            return 0;
        }
    }
    return -1;
}

static void forget(int device)
{
    forgets += device == 0;
    segment = 0;
    used = 0;
}

extern const struct varve_replacement varve_cuda_replacement;
const struct varve_replacement varve_cuda_replacement = {
    .version = VARVE_REPLACEMENT_VERSION,
    .alloc = alloc,
    .free = give_back,
    .range = range,
    .forget = forget,
};

__attribute__((destructor)) static void emit(void)
{
    fprintf(stderr, "replaced: %u %u %u\n", count, frees, forgets);
}
