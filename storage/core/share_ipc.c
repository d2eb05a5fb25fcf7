/* SPDX-License-Identifier: Apache-2.0 */
/* Storages of a pool in other processes, through the handles of its device (CUDA IPC, and the host device's own). */
#include "storage/core/storage_object.h"

#include <inttypes.h>
#include <stdlib.h>

int varve_storage_ipc_export(const struct varve_storage *storage, struct varve_storage_ipc *ipc_out,
                             struct varve_message *message)
{
    struct varve_allocation allocation = varve_storage_allocation(storage);
    struct varve_storage_ipc ipc = {
        .geometry = storage->array.geometry, .dtype = storage->array.dtype, .bytes = storage->bytes};
    if (allocation.block == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the storage has no memory of a pool");
    }
    int error = varve_alloc_ipc_export(storage->memory->alloc, varve_allocation_addr(allocation), &ipc.block);
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "the device can't share the block: %s", varve_strerror(error));
    }
    ipc.block.offset += (uint64_t)(uintptr_t)storage->array.data - varve_allocation_addr(allocation);
    *ipc_out = ipc;
    return VARVE_OK;
}

struct imported {
    struct varve_alloc *alloc;
    uint64_t addr;
};

static void imported_release(void *context, void *data)
{
    struct imported *imported = context;
    (void)data;
    varve_alloc_ipc_close(imported->alloc, imported->addr);
    free(imported);
}

int varve_storage_ipc_open(struct varve_memory *memory, const struct varve_storage_ipc *ipc,
                           struct varve_storage **storage_out, struct varve_message *message)
{
    struct imported *imported = malloc(sizeof(*imported));
    struct varve_foreign foreign = {
        .bytes = ipc->bytes, .release = imported_release, .context = imported, .memory = memory};
    if (imported == NULL || memory->alloc == NULL) {
        free(imported);
        return varve_message_set(message, memory->alloc == NULL ? VARVE_ERROR_INVALID : VARVE_ERROR_NO_MEMORY,
                                 "blocks of a pool are opened in the memory of a pool, which needs memory itself");
    }
    imported->alloc = memory->alloc;
    int error = varve_alloc_ipc_open(memory->alloc, &ipc->block, &imported->addr, message);
    if (error != VARVE_OK) {
        free(imported);
        return error;
    }
    foreign.data = (void *)(uintptr_t)imported->addr;
    error = varve_storage_wrap(&foreign, ipc->dtype, &ipc->geometry, NULL, storage_out, message);
    if (error != VARVE_OK) {
        imported_release(imported, NULL);
    }
    return object_created(error, storage_out, __builtin_return_address(0));
}
