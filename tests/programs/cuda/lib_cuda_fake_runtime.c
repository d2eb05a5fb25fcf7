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

static void *context;

static void find_exported(void *function_out, const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    memcpy(function_out, &found, sizeof(found));
}

/* By each function: the device is set up by the first one that needs it. */
static void find(void *function_out, const char *symbol, int version)
{
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
    cuda_type_cuGetProcAddress_v2 *address;
    void *found = NULL;
    find_exported(&init, "cuInit");
    find_exported(&retain, "cuDevicePrimaryCtxRetain");
    find_exported(&set, "cuCtxSetCurrent");
    find_exported(&address, "cuGetProcAddress_v2");
    if (context == NULL && (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0)) {
        abort();
    }
    if (address(symbol, &found, version, 0, NULL) != 0) {
        abort();
    }
    memcpy(function_out, &found, sizeof(found));
}

#define CALLS(name, parameters, exported, symbol, version, ...) \
    int name parameters                                         \
    {                                                           \
        cuda_type_##exported *driver;                           \
        find(&driver, #symbol, version);                        \
        return driver(__VA_ARGS__);                             \
    }

CALLS(cudaMalloc, (void **out, size_t bytes), cuMemAlloc_v2, cuMemAlloc, 3020, (uint64_t *)out, bytes)
CALLS(cudaFree, (void *memory), cuMemFree_v2, cuMemFree, 3020, (uintptr_t)memory)
CALLS(cudaMallocHost, (void **out, size_t bytes), cuMemHostAlloc, cuMemHostAlloc, 2020, out, bytes, 0)
CALLS(cudaFreeHost, (void *memory), cuMemFreeHost, cuMemFreeHost, 2000, memory)
CALLS(cudaFreeAsync, (void *memory, cuda_stream stream), cuMemFreeAsync, cuMemFreeAsync, 11020, (uintptr_t)memory,
      stream)
CALLS(cudaMallocManaged, (void **out, size_t bytes, unsigned flags), cuMemAllocManaged, cuMemAllocManaged, 6000,
      (uint64_t *)out, bytes, flags)
CALLS(cudaDeviceSynchronize, (void), cuCtxSynchronize, cuCtxSynchronize, 12000)

/* From the default pool by name, as the real one does. */
int cudaMallocAsync(void **out, size_t bytes, cuda_stream stream)
{
    cuda_type_cuMemAllocFromPoolAsync *driver;
    int (*default_pool)(void **, int);
    void *pool = NULL;
    find(&driver, "cuMemAllocFromPoolAsync", 11020);
    find_exported(&default_pool, "cuDeviceGetDefaultMemPool");
    default_pool(&pool, 0);
    return driver((uint64_t *)out, bytes, pool, stream);
}

int cudaDeviceReset(void)
{
    cuda_type_cuDevicePrimaryCtxReset_v2 *driver;
    find(&driver, "cuDevicePrimaryCtxReset", 11000);
    context = NULL;
    return driver(0);
}
