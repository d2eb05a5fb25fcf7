/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the driver that give out or take back memory at once: linear, managed, page-locked host
 * memory, memory of other processes. What a function gives out is looked at only if it succeeded.
 */
#include "trace/recorder/cuda/cuda.h"

/* ---- on the device ---- */

static int alloc(const struct cuda_road *road, uint64_t *addr_out, size_t bytes)
{
    struct cuda_scope scope;
    int result;

    if (cuda_replace_is_on() && cuda_replace_alloc(road, bytes, addr_out, &result)) {
        return result;
    }
    cuda_begin(&scope, road, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    scope.call.bytes = bytes;
    if (cuda_returned(&scope, CUDA_REAL(road, cuMemAlloc_v2)(addr_out, bytes)) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

static int alloc_pitch(const struct cuda_road *road, uint64_t *addr_out, size_t *pitch_out, size_t width,
                       size_t height, unsigned element)
{
    struct cuda_scope scope;
    int result;

    cuda_begin(&scope, road, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC_PITCH, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    scope.call.bytes = (uint64_t)width * height;
    result = CUDA_REAL(road, cuMemAllocPitch_v2)(addr_out, pitch_out, width, height, element);
    if (cuda_returned(&scope, result) == 0) {
        scope.call.addr = *addr_out;
        scope.call.bytes = (uint64_t)*pitch_out * height;
    }
    return cuda_end(&scope);
}

static int alloc_managed(const struct cuda_road *road, uint64_t *addr_out, size_t bytes, unsigned flags)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC_MANAGED, VARVE_MEMORY_MANAGED);
    scope.call.is_alloc = true;
    scope.call.bytes = bytes;
    if (cuda_returned(&scope, CUDA_REAL(road, cuMemAllocManaged)(addr_out, bytes, flags)) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

/* To give back nothing is no event. */
static void begin_free(struct cuda_scope *scope, const struct cuda_road *road, uint64_t addr,
                       enum varve_cause cause, enum varve_memory_kind memory)
{
    cuda_begin(scope, road, VARVE_KIND_DEV_FREE, cause, memory);
    scope->is_told = scope->is_told && addr != 0;
    scope->call.addr = addr;
    cuda_free_tell(scope);
}

static int free_device(const struct cuda_road *road, uint64_t addr)
{
    struct cuda_scope scope;
    int result;

    if (cuda_replace_is_on() && cuda_replace_free(road, addr, &result)) {
        return result;
    }
    begin_free(&scope, road, addr, VARVE_CAUSE_CU_MEM_FREE, VARVE_MEMORY_DEVICE);
    return cuda_free_end(&scope, CUDA_REAL(road, cuMemFree_v2)(addr));
}

static int address_range(const struct cuda_road *road, uint64_t *base_out, size_t *bytes_out, uint64_t addr)
{
    uint64_t base;
    uint64_t bytes;

    if (cuda_replace_is_on() && cuda_replace_range(addr, &base, &bytes)) {
        if (base_out != NULL) {
            *base_out = base;
        }
        if (bytes_out != NULL) {
            *bytes_out = bytes;
        }
        return 0;
    }
    return CUDA_REAL(road, cuMemGetAddressRange_v2)(base_out, bytes_out, addr);
}

CUDA_ENTRIES(cuMemAlloc_v2, (uint64_t * addr_out, size_t bytes), (addr_out, bytes),
             alloc(road, addr_out, bytes));
CUDA_ENTRIES(cuMemFree_v2, (uint64_t addr), (addr), free_device(road, addr));
CUDA_ENTRIES(cuMemAllocPitch_v2,
             (uint64_t * addr_out, size_t *pitch_out, size_t width, size_t height, unsigned element),
             (addr_out, pitch_out, width, height, element),
             alloc_pitch(road, addr_out, pitch_out, width, height, element));
CUDA_ENTRIES(cuMemAllocManaged, (uint64_t * addr_out, size_t bytes, unsigned flags), (addr_out, bytes, flags),
             alloc_managed(road, addr_out, bytes, flags));
CUDA_ENTRIES(cuMemGetAddressRange_v2, (uint64_t * base_out, size_t *bytes_out, uint64_t addr),
             (base_out, bytes_out, addr), address_range(road, base_out, bytes_out, addr));

/* ---- on the host ---- */

static void begin_host(struct cuda_scope *scope, const struct cuda_road *road, enum varve_cause cause,
                       size_t bytes)
{
    cuda_begin(scope, road, VARVE_KIND_DEV_ALLOC, cause, VARVE_MEMORY_PINNED);
    scope->call.is_alloc = true;
    scope->call.bytes = bytes;
}

static int end_host(struct cuda_scope *scope, void *const *memory_out)
{
    if (scope->call.result == 0) {
        scope->call.addr = (uintptr_t)*memory_out;
    }
    return cuda_end(scope);
}

static int alloc_host(const struct cuda_road *road, void **memory_out, size_t bytes)
{
    struct cuda_scope scope;

    begin_host(&scope, road, VARVE_CAUSE_CU_MEM_ALLOC_HOST, bytes);
    cuda_returned(&scope, CUDA_REAL(road, cuMemAllocHost_v2)(memory_out, bytes));
    return end_host(&scope, memory_out);
}

static int host_alloc(const struct cuda_road *road, void **memory_out, size_t bytes, unsigned flags)
{
    struct cuda_scope scope;

    begin_host(&scope, road, VARVE_CAUSE_CU_MEM_HOST_ALLOC, bytes);
    cuda_returned(&scope, CUDA_REAL(road, cuMemHostAlloc)(memory_out, bytes, flags));
    return end_host(&scope, memory_out);
}

static int host_register(const struct cuda_road *road, void *memory, size_t bytes, unsigned flags)
{
    struct cuda_scope scope;

    begin_host(&scope, road, VARVE_CAUSE_CU_MEM_HOST_REGISTER, bytes);
    cuda_returned(&scope, CUDA_REAL(road, cuMemHostRegister_v2)(memory, bytes, flags));
    return end_host(&scope, &memory);
}

static int free_host(const struct cuda_road *road, void *memory)
{
    struct cuda_scope scope;

    begin_free(&scope, road, (uintptr_t)memory, VARVE_CAUSE_CU_MEM_FREE_HOST, VARVE_MEMORY_PINNED);
    return cuda_free_end(&scope, CUDA_REAL(road, cuMemFreeHost)(memory));
}

static int host_unregister(const struct cuda_road *road, void *memory)
{
    struct cuda_scope scope;

    begin_free(&scope, road, (uintptr_t)memory, VARVE_CAUSE_CU_MEM_HOST_UNREGISTER, VARVE_MEMORY_PINNED);
    return cuda_free_end(&scope, CUDA_REAL(road, cuMemHostUnregister)(memory));
}

CUDA_ENTRIES(cuMemAllocHost_v2, (void **memory_out, size_t bytes), (memory_out, bytes),
             alloc_host(road, memory_out, bytes));
CUDA_ENTRIES(cuMemHostAlloc, (void **memory_out, size_t bytes, unsigned flags), (memory_out, bytes, flags),
             host_alloc(road, memory_out, bytes, flags));
CUDA_ENTRIES(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags),
             host_register(road, memory, bytes, flags));
CUDA_ENTRIES(cuMemFreeHost, (void *memory), (memory), free_host(road, memory));
CUDA_ENTRIES(cuMemHostUnregister, (void *memory), (memory), host_unregister(road, memory));

/* ---- of another process: who owns it knows how large it is ---- */

static int ipc_open(const struct cuda_road *road, uint64_t *addr_out, struct cuda_ipc_memory handle,
                    unsigned flags)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    if (cuda_returned(&scope, CUDA_REAL(road, cuIpcOpenMemHandle_v2)(addr_out, handle, flags)) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

static int ipc_close(const struct cuda_road *road, uint64_t addr)
{
    struct cuda_scope scope;

    begin_free(&scope, road, addr, VARVE_CAUSE_CU_IPC_CLOSE_MEM_HANDLE, VARVE_MEMORY_DEVICE);
    return cuda_free_end(&scope, CUDA_REAL(road, cuIpcCloseMemHandle)(addr));
}

/* A handle would be the whole segment's, which the other process would take for the block. */
static int ipc_get(const struct cuda_road *road, struct cuda_ipc_memory *handle_out, uint64_t addr)
{
    uint64_t base, bytes;

    if (cuda_replace_is_on() && cuda_replace_range(addr, &base, &bytes)) {
        return CUDA_RESULT_NOT_SUPPORTED;
    }
    return CUDA_REAL(road, cuIpcGetMemHandle)(handle_out, addr);
}

CUDA_ENTRIES(cuIpcGetMemHandle, (struct cuda_ipc_memory * handle_out, uint64_t addr), (handle_out, addr),
             ipc_get(road, handle_out, addr));
CUDA_ENTRIES(cuIpcOpenMemHandle_v2, (uint64_t * addr_out, struct cuda_ipc_memory handle, unsigned flags),
             (addr_out, handle, flags), ipc_open(road, addr_out, handle, flags));
CUDA_ENTRIES(cuIpcCloseMemHandle, (uint64_t addr), (addr), ipc_close(road, addr));
