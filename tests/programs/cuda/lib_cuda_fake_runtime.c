/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pretends to be the CUDA runtime library, libcudart.so.12, for tests: finds the driver as the real one does,
 * by dlopen, dlsym of cuGetProcAddress_v2 and then that, and knows a handful of functions.
 */
#include "programs/cuda/driver/fake.h"
#include "programs/cuda/driver/runtime_calls.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static cuda_type_cuGetProcAddress_v2 *address;
static void *context;

static void find(void *function_out, const char *symbol, int version)
{
    void *found = NULL;
    if (address(symbol, &found, version, 0, NULL) != 0) {
        abort();
    }
    memcpy(function_out, &found, sizeof(found));
}

/* Called by each function: the device is set up by the first one that needs it. */
static void begin(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set)(void *);
    if (context != NULL) {
        return;
    }
    memcpy(&address, &found, sizeof(found));
    found = dlsym(library, "cuInit");
    memcpy(&init, &found, sizeof(found));
    found = dlsym(library, "cuDevicePrimaryCtxRetain");
    memcpy(&retain, &found, sizeof(found));
    found = dlsym(library, "cuCtxSetCurrent");
    memcpy(&set, &found, sizeof(found));
    if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0) {
        abort();
    }
}

#define DRIVER(exported, symbol, version)   \
    cuda_type_##exported *exported##_found; \
    begin();                                \
    find(&exported##_found, #symbol, version)

int cudaMalloc(void **out, size_t bytes)
{
    DRIVER(cuMemAlloc_v2, cuMemAlloc, 3020);
    return cuMemAlloc_v2_found((uint64_t *)out, bytes);
}

int cudaFree(void *memory)
{
    DRIVER(cuMemFree_v2, cuMemFree, 3020);
    return cuMemFree_v2_found((uintptr_t)memory);
}

int cudaMallocHost(void **out, size_t bytes)
{
    DRIVER(cuMemHostAlloc, cuMemHostAlloc, 2020);
    return cuMemHostAlloc_found(out, bytes, 0);
}

int cudaFreeHost(void *memory)
{
    DRIVER(cuMemFreeHost, cuMemFreeHost, 2000);
    return cuMemFreeHost_found(memory);
}

/* From the default pool by name, as the real one does. */
int cudaMallocAsync(void **out, size_t bytes, void *stream)
{
    DRIVER(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020);
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDeviceGetDefaultMemPool");
    int (*default_pool)(void **, int);
    void *pool = NULL;

    memcpy(&default_pool, &found, sizeof(found));
    default_pool(&pool, 0);
    return cuMemAllocFromPoolAsync_found((uint64_t *)out, bytes, pool, stream);
}

int cudaFreeAsync(void *memory, void *stream)
{
    DRIVER(cuMemFreeAsync, cuMemFreeAsync, 11020);
    return cuMemFreeAsync_found((uintptr_t)memory, stream);
}

int cudaMallocManaged(void **out, size_t bytes, unsigned flags)
{
    DRIVER(cuMemAllocManaged, cuMemAllocManaged, 6000);
    return cuMemAllocManaged_found((uint64_t *)out, bytes, flags);
}

int cudaDeviceSynchronize(void)
{
    DRIVER(cuCtxSynchronize, cuCtxSynchronize, 12000);
    return cuCtxSynchronize_found();
}

int cudaDeviceReset(void)
{
    DRIVER(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000);
    context = NULL;
    return cuDevicePrimaryCtxReset_v2_found(0);
}
