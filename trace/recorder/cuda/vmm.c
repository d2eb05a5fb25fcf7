/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: addresses, physical memory and what maps one to the other. Physical memory lies
 * where its description says, not on the current device; these calls need no context at all.
 */
#include "trace/recorder/cuda/call.h"
#include "trace/recorder/cuda/entry.h"
#include "trace/recorder/cuda/hooks.h"
#include "trace/recorder/cuda/resources.h"
#include "trace/record.h"

#include <stddef.h>

/* ---- addresses ---- */

static int reserve(const struct cuda_entry *entry, uint64_t *addr_out, size_t bytes, size_t alignment,
                   uint64_t hint, unsigned long long flags)
{
    struct cuda_scope scope;
    int result;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_RESERVE, VARVE_CAUSE_CU_MEM_ADDRESS_RESERVE,
               VARVE_MEMORY_DEVICE);
    scope.call.bytes = bytes;
    result = CUDA_REAL(entry, cuMemAddressReserve)(addr_out, bytes, alignment, hint, flags);
    if (cuda_returned(&scope, result) == 0) {
        scope.call.addr = *addr_out;
    }
    return cuda_end(&scope);
}

static int address_free(const struct cuda_entry *entry, uint64_t addr, size_t bytes)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_ADDRESS_FREE, VARVE_CAUSE_CU_MEM_ADDRESS_FREE,
               VARVE_MEMORY_DEVICE);
    scope.call.addr = addr;
    scope.call.bytes = bytes;
    cuda_free_emit(&scope);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemAddressFree)(addr, bytes));
}

/* ---- physical memory ---- */

static int create(const struct cuda_entry *entry, uint64_t *handle_out, size_t bytes,
                  const struct cuda_properties *wanted, unsigned long long flags)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_CREATE, VARVE_CAUSE_CU_MEM_CREATE, VARVE_MEMORY_DEVICE);
    scope.call.is_alloc = true;
    scope.call.bytes = bytes;
    cuda_resolve_location(&scope, wanted != NULL ? &wanted->location : NULL);
    if (cuda_returned(&scope, CUDA_REAL(entry, cuMemCreate)(handle_out, bytes, wanted, flags)) == 0) {
        scope.call.arg = *handle_out;
    }
    return cuda_end(&scope);
}

static int release(const struct cuda_entry *entry, uint64_t handle)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_RELEASE, VARVE_CAUSE_CU_MEM_RELEASE, VARVE_MEMORY_DEVICE);
    scope.call.arg = handle;
    cuda_resolve_handle(&scope, handle);
    cuda_free_emit(&scope);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemRelease)(handle));
}

static int end_handle(struct cuda_scope *scope, int result, const uint64_t *handle_out)
{
    if (cuda_returned(scope, result) == 0) {
        scope->call.arg = *handle_out;
        cuda_resolve_handle(scope, *handle_out);
    }
    return cuda_end(scope);
}

static int retain(const struct cuda_entry *entry, uint64_t *handle_out, void *addr)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_CREATE, VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE,
               VARVE_MEMORY_DEVICE);
    return end_handle(&scope, CUDA_REAL(entry, cuMemRetainAllocationHandle)(handle_out, addr), handle_out);
}

static int import(const struct cuda_entry *entry, uint64_t *handle_out, void *shared, int type)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_CREATE, VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE,
               VARVE_MEMORY_DEVICE);
    return end_handle(&scope, CUDA_REAL(entry, cuMemImportFromShareableHandle)(handle_out, shared, type),
                      handle_out);
}

/* ---- mappings ---- */

static int map(const struct cuda_entry *entry, uint64_t addr, size_t bytes, size_t offset, uint64_t handle,
               unsigned long long flags)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_MAP, VARVE_CAUSE_CU_MEM_MAP, VARVE_MEMORY_DEVICE);
    scope.call.addr = addr;
    scope.call.bytes = bytes;
    scope.call.arg = handle;
    if (cuda_returned(&scope, CUDA_REAL(entry, cuMemMap)(addr, bytes, offset, handle, flags)) == 0) {
        cuda_resolve_handle(&scope, handle);
    }
    return cuda_end(&scope);
}

static int unmap(const struct cuda_entry *entry, uint64_t addr, size_t bytes)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_UNMAP, VARVE_CAUSE_CU_MEM_UNMAP, VARVE_MEMORY_DEVICE);
    scope.call.addr = addr;
    scope.call.bytes = bytes;
    cuda_free_emit(&scope);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMemUnmap)(addr, bytes));
}

static int set_access(const struct cuda_entry *entry, uint64_t addr, size_t bytes,
                      const struct cuda_access *access, size_t count)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_VMM_SET_ACCESS, VARVE_CAUSE_CU_MEM_SET_ACCESS, VARVE_MEMORY_DEVICE);
    scope.call.addr = addr;
    scope.call.bytes = bytes;
    scope.call.arg = count;
    cuda_returned(&scope, CUDA_REAL(entry, cuMemSetAccess)(addr, bytes, access, count));
    return cuda_end(&scope);
}

CUDA_ENTRIES(cuMemAddressReserve,
             (uint64_t * addr_out, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags),
             (addr_out, bytes, alignment, hint, flags),
             reserve(entry, addr_out, bytes, alignment, hint, flags));
CUDA_ENTRIES(cuMemAddressFree, (uint64_t addr, size_t bytes), (addr, bytes),
             address_free(entry, addr, bytes));
CUDA_ENTRIES(cuMemCreate,
             (uint64_t * handle_out, size_t bytes, const struct cuda_properties *wanted,
              unsigned long long flags),
             (handle_out, bytes, wanted, flags), create(entry, handle_out, bytes, wanted, flags));
CUDA_ENTRIES(cuMemRelease, (uint64_t handle), (handle), release(entry, handle));
CUDA_ENTRIES(cuMemRetainAllocationHandle, (uint64_t * handle_out, void *addr), (handle_out, addr),
             retain(entry, handle_out, addr));
CUDA_ENTRIES(cuMemImportFromShareableHandle, (uint64_t * handle_out, void *shared, int type),
             (handle_out, shared, type), import(entry, handle_out, shared, type));
CUDA_ENTRIES(cuMemMap,
             (uint64_t addr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags),
             (addr, bytes, offset, handle, flags), map(entry, addr, bytes, offset, handle, flags));
CUDA_ENTRIES(cuMemUnmap, (uint64_t addr, size_t bytes), (addr, bytes), unmap(entry, addr, bytes));
CUDA_ENTRIES(cuMemSetAccess, (uint64_t addr, size_t bytes, const struct cuda_access *access, size_t count),
             (addr, bytes, access, count), set_access(entry, addr, bytes, access, count));
