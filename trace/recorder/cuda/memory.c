/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the driver that give out or take back memory at once: linear, managed, page-locked host
 * memory, memory of other processes. What a function gives out is looked at only if it succeeded.
 */
#include "trace/recorder/cuda/call.h"
#include "trace/recorder/cuda/entry.h"
#include "trace/recorder/cuda/hooks.h"
#include "trace/recorder/cuda/replace.h"
#include "trace/record.h"

#include <stddef.h>

/* ---- on the device ---- */

static int alloc(const struct cuda_entry *entry, uint64_t *addr_out, size_t bytes)
{
    struct cuda_scope scope;
    int result;

    if (cuda_replace_is_on() && cuda_replace_alloc(entry, bytes, addr_out, &result)) {
        return result;
    }
    cuda_begin(&scope, entry, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    scope.call.bytes = bytes;
    if (cuda_returned(&scope, CUDA_REAL(entry, cuMemAlloc_v2)(addr_out, bytes)) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

static int alloc_pitch(const struct cuda_entry *entry, uint64_t *addr_out, size_t *pitch_out, size_t width,
                       size_t height, unsigned element)
{
    struct cuda_scope scope;
    int result;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC_PITCH, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    scope.call.bytes = (uint64_t)width * height;
    result = CUDA_REAL(entry, cuMemAllocPitch_v2)(addr_out, pitch_out, width, height, element);
    if (cuda_returned(&scope, result) == 0) {
        scope.call.addr = *addr_out;
        scope.call.bytes = (uint64_t)*pitch_out * height;
    }
    return cuda_end(&scope);
}

static int alloc_managed(const struct cuda_entry *entry, uint64_t *addr_out, size_t bytes, unsigned flags)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC_MANAGED, VARVE_MEMORY_MANAGED);
    scope.call.is_alloc = true;
    scope.call.bytes = bytes;
    if (cuda_returned(&scope, CUDA_REAL(entry, cuMemAllocManaged)(addr_out, bytes, flags)) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

/* To give back nothing is no event. */
static void begin_free(struct cuda_scope *scope, const struct cuda_entry *entry, uint64_t addr,
                       enum varve_cause cause, enum varve_memory_kind memory)
{
    cuda_begin(scope, entry, VARVE_KIND_DEV_FREE, cause, memory);
    scope->is_recorded = scope->is_recorded && addr != 0;
    scope->call.addr = addr;
    cuda_free_emit(scope);
}

static int free_device(const struct cuda_entry *entry, uint64_t addr)
{
    struct cuda_scope scope;
    int result;

    if (cuda_replace_is_on() && cuda_replace_free(entry, addr, &result)) {
        return result;
    }
    begin_free(&scope, entry, addr, VARVE_CAUSE_CU_MEM_FREE, VARVE_MEMORY_DEVICE);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemFree_v2)(addr));
}

static int address_range(const struct cuda_entry *entry, uint64_t *base_out, size_t *bytes_out, uint64_t addr)
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
    return CUDA_REAL(entry, cuMemGetAddressRange_v2)(base_out, bytes_out, addr);
}

CUDA_ENTRIES(cuMemAlloc_v2, (uint64_t * addr_out, size_t bytes), (addr_out, bytes),
             alloc(entry, addr_out, bytes));
CUDA_ENTRIES(cuMemFree_v2, (uint64_t addr), (addr), free_device(entry, addr));
CUDA_ENTRIES(cuMemAllocPitch_v2,
             (uint64_t * addr_out, size_t *pitch_out, size_t width, size_t height, unsigned element),
             (addr_out, pitch_out, width, height, element),
             alloc_pitch(entry, addr_out, pitch_out, width, height, element));
CUDA_ENTRIES(cuMemAllocManaged, (uint64_t * addr_out, size_t bytes, unsigned flags), (addr_out, bytes, flags),
             alloc_managed(entry, addr_out, bytes, flags));
CUDA_ENTRIES(cuMemGetAddressRange_v2, (uint64_t * base_out, size_t *bytes_out, uint64_t addr),
             (base_out, bytes_out, addr), address_range(entry, base_out, bytes_out, addr));

/* ---- on the host ---- */

static void begin_host(struct cuda_scope *scope, const struct cuda_entry *entry, enum varve_cause cause,
                       size_t bytes)
{
    cuda_begin(scope, entry, VARVE_KIND_DEV_ALLOC, cause, VARVE_MEMORY_PINNED);
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

static int alloc_host(const struct cuda_entry *entry, void **memory_out, size_t bytes)
{
    struct cuda_scope scope;

    begin_host(&scope, entry, VARVE_CAUSE_CU_MEM_ALLOC_HOST, bytes);
    cuda_returned(&scope, CUDA_REAL(entry, cuMemAllocHost_v2)(memory_out, bytes));
    return end_host(&scope, memory_out);
}

static int host_alloc(const struct cuda_entry *entry, void **memory_out, size_t bytes, unsigned flags)
{
    struct cuda_scope scope;

    begin_host(&scope, entry, VARVE_CAUSE_CU_MEM_HOST_ALLOC, bytes);
    cuda_returned(&scope, CUDA_REAL(entry, cuMemHostAlloc)(memory_out, bytes, flags));
    return end_host(&scope, memory_out);
}

static int host_register(const struct cuda_entry *entry, void *memory, size_t bytes, unsigned flags)
{
    struct cuda_scope scope;

    begin_host(&scope, entry, VARVE_CAUSE_CU_MEM_HOST_REGISTER, bytes);
    cuda_returned(&scope, CUDA_REAL(entry, cuMemHostRegister_v2)(memory, bytes, flags));
    return end_host(&scope, &memory);
}

static int free_host(const struct cuda_entry *entry, void *memory)
{
    struct cuda_scope scope;

    begin_free(&scope, entry, (uintptr_t)memory, VARVE_CAUSE_CU_MEM_FREE_HOST, VARVE_MEMORY_PINNED);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemFreeHost)(memory));
}

static int host_unregister(const struct cuda_entry *entry, void *memory)
{
    struct cuda_scope scope;

    begin_free(&scope, entry, (uintptr_t)memory, VARVE_CAUSE_CU_MEM_HOST_UNREGISTER, VARVE_MEMORY_PINNED);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemHostUnregister)(memory));
}

CUDA_ENTRIES(cuMemAllocHost_v2, (void **memory_out, size_t bytes), (memory_out, bytes),
             alloc_host(entry, memory_out, bytes));
CUDA_ENTRIES(cuMemHostAlloc, (void **memory_out, size_t bytes, unsigned flags), (memory_out, bytes, flags),
             host_alloc(entry, memory_out, bytes, flags));
CUDA_ENTRIES(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags),
             host_register(entry, memory, bytes, flags));
CUDA_ENTRIES(cuMemFreeHost, (void *memory), (memory), free_host(entry, memory));
CUDA_ENTRIES(cuMemHostUnregister, (void *memory), (memory), host_unregister(entry, memory));

/* ---- of another process: who owns it knows how large it is ---- */

static int ipc_open(const struct cuda_entry *entry, uint64_t *addr_out, struct cuda_ipc_memory handle,
                    unsigned flags)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_ALLOC, VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    if (cuda_returned(&scope, CUDA_REAL(entry, cuIpcOpenMemHandle_v2)(addr_out, handle, flags)) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

static int ipc_close(const struct cuda_entry *entry, uint64_t addr)
{
    struct cuda_scope scope;

    begin_free(&scope, entry, addr, VARVE_CAUSE_CU_IPC_CLOSE_MEM_HANDLE, VARVE_MEMORY_DEVICE);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuIpcCloseMemHandle)(addr));
}

/* A handle would be the whole segment's, which the other process would take for the block. */
static int ipc_get(const struct cuda_entry *entry, struct cuda_ipc_memory *handle_out, uint64_t addr)
{
    uint64_t base, bytes;

    if (cuda_replace_is_on() && cuda_replace_range(addr, &base, &bytes)) {
        return CUDA_RESULT_NOT_SUPPORTED;
    }
    return CUDA_REAL(entry, cuIpcGetMemHandle)(handle_out, addr);
}

CUDA_ENTRIES(cuIpcGetMemHandle, (struct cuda_ipc_memory * handle_out, uint64_t addr), (handle_out, addr),
             ipc_get(entry, handle_out, addr));
CUDA_ENTRIES(cuIpcOpenMemHandle_v2, (uint64_t * addr_out, struct cuda_ipc_memory handle, unsigned flags),
             (addr_out, handle, flags), ipc_open(entry, addr_out, handle, flags));
CUDA_ENTRIES(cuIpcCloseMemHandle, (uint64_t addr), (addr), ipc_close(entry, addr));
