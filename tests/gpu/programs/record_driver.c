/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the CUDA driver, for the test of the CUDA recorder, in a way that is chosen when it is built: WAY 0
 * links it, 1 takes dlopen and dlsym, 2 cuGetProcAddress, 3 cudaGetDriverEntryPointByVersion. With the
 * argument `addresses` it prints whether cuGetProcAddress gives out what the library exports.
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#if WAY == 3
#include <cuda_runtime_api.h>
#endif

#include "record_expect.h"

#define MIB ((size_t)1 << 20)
#define EXPECT_EVENT(kind, memory, function, bytes) expect_event(kind, memory, function, 0, bytes)

/* X(exported, symbol, version) */
#define FUNCTIONS(X)                                                       \
    X(cuInit, cuInit, 2000)                                                \
    X(cuDeviceGet, cuDeviceGet, 2000)                                      \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)            \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000)      \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                              \
    X(cuCtxCreate_v2, cuCtxCreate, 3020)                                   \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000)                                 \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000)                            \
    X(cuMemAlloc_v2, cuMemAlloc, 3020)                                     \
    X(cuMemFree_v2, cuMemFree, 3020)                                       \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020)                           \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000)                          \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020)                             \
    X(cuMemFreeHost, cuMemFreeHost, 2000)                                  \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020)                             \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020)                               \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020) \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020)                     \
    X(cuMemAddressFree, cuMemAddressFree, 10020)                           \
    X(cuMemCreate, cuMemCreate, 10020)                                     \
    X(cuMemRelease, cuMemRelease, 10020)                                   \
    X(cuMemMap, cuMemMap, 10020)                                           \
    X(cuMemUnmap, cuMemUnmap, 10020)                                       \
    X(cuMemSetAccess, cuMemSetAccess, 10020)                               \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)     \
    X(cuArrayCreate_v2, cuArrayCreate, 3020)                               \
    X(cuArrayDestroy, cuArrayDestroy, 2000)                                \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000)

#define X(exported, symbol, version) static PFN_##symbol##_v##version do_##exported;
/* The header's macros would lead from a symbol to another name. */
#undef cuDevicePrimaryCtxRelease
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuCtxSynchronize
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemAllocPitch
#undef cuMemAllocHost
#undef cuArrayCreate
FUNCTIONS(X)
#undef X

#if WAY == 0
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);

static void *find(const char *exported, const char *symbol, int version)
{
    (void)exported;
    (void)symbol;
    (void)version;
    return NULL;
}
#define FOUND(exported, symbol, version) (void)find, do_##exported = exported;
#else
static void *library;

static void *find(const char *exported, const char *symbol, int version)
{
    void *found = NULL;
#if WAY == 1
    (void)symbol;
    (void)version;
    found = dlsym(library, exported);
#elif WAY == 2
    static PFN_cuGetProcAddress_v12000 address;
    CUdriverProcAddressQueryResult status;

    (void)exported;
    if (address == NULL) {
        void *function = dlsym(library, "cuGetProcAddress_v2");
        memcpy(&address, &function, sizeof(function));
    }
    EXPECT(0, address(symbol, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
#else
    enum cudaDriverEntryPointQueryResult status;

    (void)exported;
    EXPECT(0, cudaGetDriverEntryPointByVersion(symbol, &found, (unsigned)version, cudaEnableDefault, &status));
#endif
    if (found == NULL) {
        fprintf(stderr, "%s was not found\n", exported);
        exit(2);
    }
    return found;
}
#define FOUND(exported, symbol, version)                 \
    {                                                    \
        void *found = find(#exported, #symbol, version); \
        memcpy(&do_##exported, &found, sizeof(found));   \
    }
#endif

static CUdeviceptr take(size_t bytes)
{
    CUdeviceptr addr = 0;
    EXPECT(0, do_cuMemAlloc_v2(&addr, bytes));
    EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cuMemAlloc", bytes);
    return addr;
}

static void give(CUdeviceptr addr)
{
    EXPECT_EVENT("dev_free", MEMORY_DEVICE, "cuMemFree", 0);
    EXPECT(0, do_cuMemFree_v2(addr));
}

static void linear(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 256, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
    give(take(3 * MIB));
    take(5 * MIB); /* stays */
    CUdeviceptr addr;
    EXPECT(2, do_cuMemAlloc_v2(&addr, (size_t)1 << 50));
    expect_event("dev_oom", MEMORY_DEVICE, "cuMemAlloc", 1, (size_t)1 << 50);
    EXPECT(1, do_cuMemFree_v2(0x123400));
    expect_event("dev_free", MEMORY_DEVICE, "cuMemFree", 1, 0);
    EXPECT_EVENT("dev_free", MEMORY_DEVICE, "cuMemFree", 0); /* reported before it failed */
    size_t pitch;
    EXPECT(0, do_cuMemAllocPitch_v2(&addr, &pitch, 777, 10, 4));
    EXPECT_EVENT("dev_alloc", MEMORY_DEVICE, "cuMemAllocPitch", pitch * 10);
    give(addr);
    EXPECT(0, do_cuMemAllocManaged(&addr, MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT_EVENT("dev_alloc", MEMORY_MANAGED, "cuMemAllocManaged", MIB);
    give(addr);
    void *memory;
    EXPECT(0, do_cuMemAllocHost_v2(&memory, 2 * MIB));
    EXPECT_EVENT("dev_alloc", MEMORY_PINNED, "cuMemAllocHost", 2 * MIB);
    EXPECT_EVENT("dev_free", MEMORY_PINNED, "cuMemFreeHost", 0);
    EXPECT(0, do_cuMemFreeHost(memory));
    CUarray array;
    EXPECT(0, do_cuArrayCreate_v2(&array, &flat));
    EXPECT_EVENT("dev_alloc", MEMORY_ARRAY, "cuArrayCreate", 256 * 16 * 8);
    EXPECT_EVENT("dev_free", MEMORY_ARRAY, "cuArrayDestroy", 0);
    EXPECT(0, do_cuArrayDestroy(array));
    EXPECT(0, do_cuMemAllocAsync(&addr, 7 * MIB, NULL));
    EXPECT_EVENT("dev_alloc_async", MEMORY_DEVICE, "cuMemAllocAsync", 7 * MIB);
    EXPECT_EVENT("dev_free_async", MEMORY_DEVICE, "cuMemFreeAsync", 0);
    EXPECT(0, do_cuMemFreeAsync(addr, NULL));
    EXPECT(0, do_cuStreamSynchronize(NULL));
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cuStreamSynchronize", 0);
}

static void virtual(void)
{
    CUmemAllocationProp where = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = where.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t unit;
    EXPECT(0, do_cuMemGetAllocationGranularity(&unit, &where, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr addr;
    EXPECT(0, do_cuMemAddressReserve(&addr, 16 * unit, 0, 0, 0));
    EXPECT_EVENT("vmm_reserve", MEMORY_DEVICE, "cuMemAddressReserve", 16 * unit);
    CUmemGenericAllocationHandle handle, again;
    for (int i = 0; i < 3; i++) {
        EXPECT(0, do_cuMemCreate(&handle, unit, &where, 0));
        EXPECT_EVENT("vmm_create", MEMORY_DEVICE, "cuMemCreate", unit);
        EXPECT(0, do_cuMemMap(addr + (unsigned)i * unit, unit, 0, handle, 0));
        EXPECT_EVENT("vmm_map", MEMORY_DEVICE, "cuMemMap", unit);
        EXPECT_EVENT("vmm_release", MEMORY_DEVICE, "cuMemRelease", 0);
        EXPECT(0, do_cuMemRelease(handle));
    }
    EXPECT(0, do_cuMemSetAccess(addr, 3 * unit, &access, 1));
    EXPECT_EVENT("vmm_set_access", MEMORY_DEVICE, "cuMemSetAccess", 3 * unit);
    EXPECT(0, do_cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)addr));
    EXPECT_EVENT("vmm_create", MEMORY_DEVICE, "cuMemRetainAllocationHandle", 0);
    EXPECT_EVENT("vmm_release", MEMORY_DEVICE, "cuMemRelease", 0);
    EXPECT(0, do_cuMemRelease(again));
    EXPECT_EVENT("vmm_unmap", MEMORY_DEVICE, "cuMemUnmap", 3 * unit);
    EXPECT(0, do_cuMemUnmap(addr, 3 * unit));
    EXPECT_EVENT("vmm_address_free", MEMORY_DEVICE, "cuMemAddressFree", 16 * unit);
    EXPECT(0, do_cuMemAddressFree(addr, 16 * unit));
}

static void contexts(CUdevice device)
{
    CUcontext made;
    EXPECT(0, do_cuCtxCreate_v2(&made, 0, device));
    take(2 * MIB);
    EXPECT(0, do_cuCtxSynchronize());
    EXPECT_EVENT("dev_sync", MEMORY_NONE, "cuCtxSynchronize", 0);
    EXPECT(0, do_cuCtxDestroy_v2(made));
    EXPECT_EVENT("dev_reset", MEMORY_NONE, "cuCtxDestroy", 0);
}

/* For the table of versions in trace/recorder/cuda/cuda_hooks.h. */
static void print_addresses(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = dlsym(driver, "cuGetProcAddress_v2");
    PFN_cuGetProcAddress_v12000 address;
    CUdriverProcAddressQueryResult status;
    unsigned same = 0, other = 0;
    memcpy(&address, &function, sizeof(function));
#define X(exported, symbol, version)                                               \
    {                                                                              \
        void *found = NULL;                                                        \
        EXPECT(0, address(#symbol, &found, version, 0, &status));                  \
        if (found == dlsym(driver, #exported)) {                                   \
            same++;                                                                \
        } else {                                                                   \
            printf("%s at %d is not the exported one\n", #symbol, (int)(version)); \
            other++;                                                               \
        }                                                                          \
    }
    FUNCTIONS(X)
#undef X
    printf("%u as exported, %u others\n", same, other);
}

int main(int argc, char **argv)
{
    CUcontext primary;
    CUdevice device;

#if WAY != 0
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 77;
    }
#endif
    if (argc > 1 && strcmp(argv[1], "addresses") == 0) {
        print_addresses();
        return 0;
    }
    FUNCTIONS(FOUND)
    EXPECT(0, do_cuInit(0));
    EXPECT(0, do_cuDeviceGet(&device, 0));
    EXPECT(0, do_cuDevicePrimaryCtxRetain(&primary, device));
    EXPECT(0, do_cuCtxSetCurrent(primary));
    linear();
    virtual();
    contexts(device);
    EXPECT(0, do_cuCtxSetCurrent(primary));
    EXPECT(0, do_cuDevicePrimaryCtxRelease_v2(device));
    EXPECT_EVENT("dev_reset", MEMORY_NONE, "cuDevicePrimaryCtxRelease", 0);
    expect_print();
    return 0;
}
