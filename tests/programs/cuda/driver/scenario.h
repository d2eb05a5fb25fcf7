/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What programs of the tests of the CUDA recorder do with the driver, each having found its functions on
 * another way: every function that is recorded, with success and failure. They check that they are answered
 * as the fake driver answers, and that errno stays theirs; what was recorded the test compares with the
 * driver's log.
 */
#ifndef VARVE_TESTS_PROGRAMS_CUDA_DRIVER_SCENARIO_H
#define VARVE_TESTS_PROGRAMS_CUDA_DRIVER_SCENARIO_H

#include "programs/cuda/driver/fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct api {
#define FIELD(exported, ...) cuda_type_##exported *exported;
    CUDA_HOOK_LIST(FIELD)
#undef FIELD
#define FIELD(name, parameters) int(*name) parameters;
    CUDA_PLAIN_LIST(FIELD)
#undef FIELD
};

#define OWN_ERRNO 77

static inline void expect(const char *what, int result, int wanted)
{
    if (result != wanted || errno != OWN_ERRNO) {
        fprintf(stderr, "%s: result %d, wanted %d, errno %d\n", what, result, wanted, errno);
        exit(3);
    }
}

#define EXPECT(wanted, call) (errno = OWN_ERRNO, expect(#call, (call), (wanted)))

/* Memory at the given size; no address may be 0. */
static inline uint64_t take(const struct api *api, size_t bytes)
{
    uint64_t addr = 0;
    EXPECT(0, api->cuMemAlloc_v2(&addr, bytes));
    if (addr == 0) {
        fprintf(stderr, "no address for %zu bytes\n", bytes);
        exit(3);
    }
    return addr;
}

static inline void scenario_linear(const struct api *api)
{
    uint64_t untouched = 0x1234;
    uint64_t first = take(api, 1000);
    uint64_t second = take(api, 2000);
    size_t pitch = 0;
    EXPECT(0, api->cuMemFree_v2(first));
    first = take(api, 3000); /* at the same address */
    EXPECT(FAKE_INVALID, api->cuMemAlloc_v2(&untouched, FAKE_BYTES_INVALID));
    EXPECT(FAKE_OUT_OF_MEMORY, api->cuMemAlloc_v2(&untouched, (size_t)1 << 50));
    EXPECT(FAKE_INVALID, api->cuMemFree_v2(0xdead00));
    EXPECT(0, api->cuMemFree_v2(0));
    if (untouched != 0x1234) {
        fputs("a failed call has written its result\n", stderr);
        exit(3);
    }
    EXPECT(0, api->cuMemFree_v2(first));
    EXPECT(0, api->cuMemAllocPitch_v2(&first, &pitch, 700, 3, 4));
    EXPECT(FAKE_INVALID, api->cuMemAllocPitch_v2(&untouched, &pitch, FAKE_BYTES_INVALID, 3, 4));
    EXPECT(0, api->cuMemFree_v2(first));
    EXPECT(0, api->cuMemAllocManaged(&first, 4096, 1));
    EXPECT(0, api->cuMemFree_v2(first));
    (void)second; /* stays */
}

static inline void scenario_host(const struct api *api)
{
    static char own[4096];
    void *memory = NULL;
    EXPECT(0, api->cuMemAllocHost_v2(&memory, 5000));
    EXPECT(0, api->cuMemFreeHost(memory));
    EXPECT(0, api->cuMemHostAlloc(&memory, 6000, 0));
    EXPECT(0, api->cuMemFreeHost(memory));
    EXPECT(FAKE_OUT_OF_MEMORY, api->cuMemHostAlloc(&memory, (size_t)1 << 50, 0));
    EXPECT(0, api->cuMemHostRegister_v2(own, sizeof(own), 0));
    EXPECT(0, api->cuMemHostUnregister(own));
    EXPECT(FAKE_INVALID, api->cuMemFreeHost((void *)(uintptr_t)0xdead10));
}

static inline void scenario_arrays(const struct api *api)
{
    struct cuda_array_2d flat = {.width = 64, .height = 32, .format = 0x20, .channels = 2};
    struct cuda_array_3d deep = {.width = 16, .height = 8, .depth = 4, .format = 0x01, .channels = 4};
    void *array = NULL;
    EXPECT(0, api->cuArrayCreate_v2(&array, &flat)); /* 64 * 32 * 2 * 4 */
    EXPECT(0, api->cuArrayDestroy(array));
    EXPECT(0, api->cuArray3DCreate_v2(&array, &deep)); /* 16 * 8 * 4 * 4 */
    EXPECT(0, api->cuArrayDestroy(array));
    EXPECT(0, api->cuMipmappedArrayCreate(&array, &deep, 3)); /* (512 + 64 + 8) * 4 */
    EXPECT(0, api->cuMipmappedArrayDestroy(array));
    flat.width = FAKE_BYTES_INVALID;
    EXPECT(FAKE_INVALID, api->cuArrayCreate_v2(&array, &flat));
}

/* On the other device than the current one. */
static inline void scenario_virtual(const struct api *api)
{
    struct cuda_memory_kind where = {.type = 1, .location = {.type = CUDA_LOCATION_DEVICE, .id = 1}};
    struct cuda_access access = {.location = where.location, .flags = 3};
    struct cuda_memory_kind host = {.type = 1, .location = {.type = 2, .id = 0}};
    uint64_t addr = 0;
    uint64_t handle = 0;
    uint64_t again = 0;
    EXPECT(0, api->cuMemAddressReserve(&addr, 8 << 20, 0, 0, 0));
    EXPECT(0, api->cuMemCreate(&handle, 2 << 20, &where, 0));
    EXPECT(FAKE_OUT_OF_MEMORY, api->cuMemCreate(&again, (size_t)1 << 50, &where, 0));
    EXPECT(0, api->cuMemMap(addr, 2 << 20, 0, handle, 0));
    EXPECT(FAKE_INVALID, api->cuMemMap(addr, 2 << 20, 0, 0xdead20, 0));
    EXPECT(0, api->cuMemSetAccess(addr, 2 << 20, &access, 1));
    EXPECT(0, api->cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)addr));
    EXPECT(0, api->cuMemRelease(handle));
    EXPECT(0, api->cuMemRelease(handle));
    EXPECT(FAKE_INVALID, api->cuMemRelease(handle));
    EXPECT(0, api->cuMemUnmap(addr, 2 << 20));
    EXPECT(0, api->cuMemAddressFree(addr, 8 << 20));
    EXPECT(0, api->cuMemImportFromShareableHandle(&handle, NULL, 1));
    EXPECT(0, api->cuMemRelease(handle));
    EXPECT(0, api->cuMemCreate(&handle, 4 << 20, &host, 0));
    EXPECT(0, api->cuMemRelease(handle));
}

#define ALLOC_ASYNC(own) ((own) ? api->cuMemAllocAsync_ptsz : api->cuMemAllocAsync)
#define ALLOC_FROM(own) ((own) ? api->cuMemAllocFromPoolAsync_ptsz : api->cuMemAllocFromPoolAsync)
#define FREE_ASYNC(own) ((own) ? api->cuMemFreeAsync_ptsz : api->cuMemFreeAsync)
#define WAIT(own) ((own) ? api->cuStreamSynchronize_ptsz : api->cuStreamSynchronize)

static inline void scenario_streams(const struct api *api, bool own)
{
    struct cuda_pool_kind where = {.type = 1, .location = {.type = CUDA_LOCATION_DEVICE, .id = 1}};
    uint64_t threshold = 123456;
    uint64_t addr = 0;
    void *stream = NULL;
    cuda_pool pool = NULL;
    void *graph = NULL;
    int reuse = 1;
    EXPECT(0, api->cuStreamCreate(&stream, 0));
    EXPECT(0, ALLOC_ASYNC(own)(&addr, 7000, NULL));
    EXPECT(0, FREE_ASYNC(own)(addr, NULL));
    EXPECT(0, ALLOC_ASYNC(own)(&addr, 8000, stream));
    EXPECT(0, FREE_ASYNC(own)(addr, stream));
    EXPECT(FAKE_OUT_OF_MEMORY, ALLOC_ASYNC(own)(&addr, (size_t)1 << 50, stream));
    EXPECT(FAKE_INVALID, FREE_ASYNC(own)(0xdead30, stream));
    EXPECT(0, api->cuMemPoolCreate(&pool, &where));
    EXPECT(0, api->cuMemPoolSetAttribute(pool, CUDA_POOL_RELEASE_THRESHOLD, &threshold));
    EXPECT(0, api->cuMemPoolSetAttribute(pool, 1, &reuse));
    EXPECT(0, ALLOC_FROM(own)(&addr, 9000, pool, stream));
    EXPECT(0, api->cuMemFree_v2(addr));
    EXPECT(0, api->cuDeviceSetMemPool(0, pool));
    EXPECT(0, ALLOC_ASYNC(own)(&addr, 9500, stream));
    EXPECT(0, FREE_ASYNC(own)(addr, stream));
    EXPECT(0, api->cuMemPoolTrimTo(pool, 4242));
    EXPECT(0, api->cuMemPoolDestroy(pool));
    EXPECT(0, api->cuStreamBeginCapture_v2(stream, 0));
    EXPECT(0, ALLOC_ASYNC(own)(&addr, 9900, stream));
    EXPECT(900, WAIT(own)(stream));
    EXPECT(0, api->cuStreamEndCapture(stream, &graph));
    EXPECT(0, WAIT(own)(stream));
    EXPECT(0, WAIT(own)(NULL));
    EXPECT(0, api->cuCtxSynchronize());
    EXPECT(0, api->cuEventSynchronize((void *)(uintptr_t)0xeeee0));
}

static inline void scenario_contexts(const struct api *api)
{
    struct cuda_ipc_memory imported = {.bytes = {[63] = 'h'}};
    void *primary = NULL;
    void *made = NULL;
    uint64_t addr = 0;
    EXPECT(0, api->cuIpcOpenMemHandle_v2(&addr, imported, 1));
    EXPECT(0, api->cuIpcCloseMemHandle(addr));
    EXPECT(0, api->cuCtxCreate_v2(&made, 0, 0));
    take(api, 11000);
    EXPECT(0, api->cuCtxDestroy_v2(made));
    EXPECT(FAKE_INVALID, api->cuCtxDestroy_v2(made));
    EXPECT(0, api->cuDevicePrimaryCtxRetain(&primary, 1));
    EXPECT(0, api->cuDevicePrimaryCtxRetain(&primary, 1));
    EXPECT(0, api->cuCtxSetCurrent(primary));
    take(api, 12000);
    EXPECT(0, api->cuCtxSynchronize_v2(primary));
    EXPECT(0, api->cuDevicePrimaryCtxRelease_v2(1)); /* not the last one */
    EXPECT(0, api->cuDevicePrimaryCtxRelease_v2(1));
    EXPECT(FAKE_NO_CONTEXT, api->cuMemAlloc_v2(&addr, 13000));
    EXPECT(0, api->cuDevicePrimaryCtxReset_v2(0));
    EXPECT(0, api->cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(0, api->cuCtxSetCurrent(primary));
    take(api, 14000);
}

/* `own`: by the variants whose default stream is the thread's. */
static inline void scenario(const struct api *api, bool own)
{
    void *primary = NULL;
    uint64_t addr = 0;
    EXPECT(0, api->cuInit(0));
    EXPECT(FAKE_NO_CONTEXT, api->cuMemAlloc_v2(&addr, 500));
    EXPECT(0, api->cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT(0, api->cuCtxSetCurrent(primary));
    scenario_linear(api);
    scenario_host(api);
    scenario_arrays(api);
    scenario_virtual(api);
    scenario_streams(api, own);
    scenario_contexts(api);
}

#endif
