/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the cuda device for other devices and other processes. A peer gets access to everything here from its own
 * primary context, which is kept for that. Other processes get whole segments, or physical memory.
 *
 * What they are given of a segment fills the driver's handle to the last byte, so only its first address can be
 * exported, and a block's offset in it travels beside (varve_alloc_ipc). The driver answers a handle that is open
 * already with the same address, and counts; so does the table. A handle of our own it refuses, though programs pass
 * storages through queues that end where they began; the table of exports knows it.
 *
 * Physical memory goes as descriptors of files. The driver makes a new one at each export, so the first is kept as long
 * as the memory.
 *
 * Called through the ops table.
 */
#include "alloc/device/cuda_device.h"
#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct cuda_ipc_memory) == VARVE_IPC_HANDLE_BYTES, "the driver's handle is all of it");

/* ---- peers ---- */

/* In the peer's context: that is where access to another one is given. */
static int access_set(struct cuda_device *cuda, int peer, cuda_ordinal ordinal)
{
    const struct cuda_driver *driver = cuda->driver;
    cuda_context context;
    cuda_result result = driver->primary_retain(&context, ordinal);
    int error = cuda_failed(cuda, result, "the context of CUDA device %d, as a peer of %d", ordinal, cuda->ordinal);
    if (error != VARVE_OK) {
        return error;
    }
    result = driver->context_push(context);
    cuda_context popped;
    if (result == CUDA_RESULT_SUCCESS) {
        result = driver->context_enable_peer(cuda->context, 0);
        driver->context_pop(&popped);
    }
    if (result == CUDA_RESULT_PEER_ACCESS_ALREADY_ENABLED) {
        result = CUDA_RESULT_SUCCESS;
    }
    error = cuda_failed(cuda, result, "cuCtxEnablePeerAccess of CUDA device %d to %d", ordinal, cuda->ordinal);
    VARVE_THEN(error, cuda_pool_set_access(cuda, ordinal));
    if (error == VARVE_OK) {
        cuda->has_peer[peer] = true;
    } else {
        driver->primary_release(ordinal);
    }
    return error;
}

static int peer_enable(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int peer = call->peer;
    if (peer == cuda->table.device.index) {
        return DEVICE_REFUSE(&cuda->table.resources, VARVE_ERROR_INVALID, "device %d is no peer of itself", peer);
    }
    cuda_ordinal ordinal;
    int error = cuda_peer_ordinal(cuda, peer, &ordinal);
    if (error != VARVE_OK || cuda->has_peer[peer]) {
        return error;
    }
    int can = 0;
    error = cuda_failed(cuda, cuda->driver->device_can_access(&can, ordinal, cuda->ordinal),
                        "cuDeviceCanAccessPeer of CUDA device %d to %d", ordinal, cuda->ordinal);
    if (error == VARVE_OK && !can) {
        return DEVICE_REFUSE(&cuda->table.resources, VARVE_ERROR_UNSUPPORTED,
                             "CUDA device %d has no way to the memory of %d", ordinal, cuda->ordinal);
    }
    return error != VARVE_OK ? error : access_set(cuda, peer, ordinal);
}

int cuda_peer_enable(struct varve_device *device, int peer)
{
    return device_run(device, (struct device_call){.peer = peer}, peer_enable);
}

/* ---- other processes ---- */

static struct cuda_export *export_at(struct cuda_device *cuda, uint64_t addr)
{
    for (uint32_t i = 0; i < cuda->export_count; i++) {
        if (cuda->exports[i].addr == addr) {
            return &cuda->exports[i];
        }
    }
    return NULL;
}

static struct cuda_export *export_of(struct cuda_device *cuda, const struct varve_ipc_handle *handle)
{
    for (uint32_t i = 0; i < cuda->export_count; i++) {
        if (memcmp(&cuda->exports[i].handle, handle, sizeof(*handle)) == 0) {
            return &cuda->exports[i];
        }
    }
    return NULL;
}

void cuda_export_withdraw(struct cuda_device *cuda, uint64_t addr)
{
    struct cuda_export *found = export_at(cuda, addr);
    if (found) {
        *found = cuda->exports[--cuda->export_count];
    }
}

static int export_make(struct cuda_device *cuda, const struct device_range *segment)
{
    if (!ARRAY_GROW(cuda->exports, cuda->export_capacity, cuda->export_count + 1)) {
        return DEVICE_REFUSE(&cuda->table.resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of an export");
    }
    struct cuda_export *made = &cuda->exports[cuda->export_count];
    struct cuda_ipc_memory memory;
    int error =
        cuda_failed(cuda, cuda->driver->ipc_export(&memory, segment->addr), "cuIpcGetMemHandle of %llu bytes at %#llx",
                    (unsigned long long)segment->bytes, (unsigned long long)segment->addr);
    if (error == VARVE_OK) {
        *made = (struct cuda_export){.addr = segment->addr};
        memcpy(made->handle.bytes, memory.bytes, sizeof(made->handle.bytes));
        cuda->export_count++;
    }
    return error;
}

static int cuda_share_segment_export(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    struct device_range *segment;
    int error = resources_range_find(&cuda->table.resources, DEVICE_RANGE_SEGMENT, call->addr, 0, &segment);
    if (error == VARVE_OK && !export_at(cuda, call->addr)) {
        error = export_make(cuda, segment);
    }
    if (error == VARVE_OK) {
        *(struct varve_ipc_handle *)call->out = export_at(cuda, call->addr)->handle;
    }
    return error;
}

int cuda_ipc_export(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out)
{
    return device_run(device, (struct device_call){.addr = addr, .out = handle_out}, cuda_share_segment_export);
}

/* The driver has opened something at `addr`, for the first time or once more. */
static int import_enter(struct cuda_device *cuda, cuda_address addr)
{
    struct device_range *range = device_ranges_at_or_before(&cuda->table.resources.space, addr);
    if (range && range->addr == addr && range->kind == DEVICE_RANGE_IMPORT) {
        range->value++;
        return VARVE_OK;
    }
    cuda_address base = 0;
    size_t bytes = 0;
    int error = cuda_failed(cuda, cuda->driver->memory_range(&base, &bytes, addr), "cuMemGetAddressRange of %#llx",
                            (unsigned long long)addr);
    if (error != VARVE_OK) {
        return error;
    }
    error = resources_range_new(&cuda->table.resources, DEVICE_RANGE_IMPORT, bytes - (addr - base), &range);
    if (error != VARVE_OK) {
        return error;
    }
    range->value = 1;
    range->addr = addr;
    error = resources_range_enter(&cuda->table.resources, range);
    if (error != VARVE_OK) {
        free(range);
    }
    return error;
}

static int cuda_share_import(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    struct cuda_export *own = export_of(cuda, call->ipc);
    if (own) {
        own->opens++;
        *(uint64_t *)call->out = own->addr;
        return VARVE_OK;
    }
    struct cuda_ipc_memory memory;
    memcpy(memory.bytes, call->ipc->bytes, sizeof(memory.bytes));
    cuda_address addr = 0;
    int error = cuda_failed(cuda, cuda->driver->ipc_open(&addr, memory, CUDA_IPC_LAZY_PEER_ACCESS),
                            "cuIpcOpenMemHandle of a segment of another process");
    if (error != VARVE_OK) {
        return error;
    }
    error = import_enter(cuda, addr);
    if (error != VARVE_OK) {
        cuda->driver->ipc_close(addr);
        return error;
    }
    *(uint64_t *)call->out = addr;
    return VARVE_OK;
}

int cuda_ipc_open(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out)
{
    return device_run(device, (struct device_call){.ipc = handle, .out = addr_out}, cuda_share_import);
}

static int import_close(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    struct cuda_export *own = export_at(cuda, call->addr);
    if (own && own->opens > 0) {
        own->opens--;
        return VARVE_OK;
    }
    struct device_range *range;
    int error = resources_range_find(&cuda->table.resources, DEVICE_RANGE_IMPORT, call->addr, 0, &range);
    VARVE_THEN(error, cuda_failed(cuda, cuda->driver->ipc_close(call->addr), "cuIpcCloseMemHandle of %#llx",
                                  (unsigned long long)call->addr));
    if (error == VARVE_OK && --range->value == 0) {
        device_ranges_remove(&cuda->table.resources.space, range);
        resources_range_end(&cuda->table.resources, range);
    }
    return error;
}

int cuda_ipc_close(struct varve_device *device, uint64_t addr)
{
    return device_run(device, (struct device_call){.addr = addr, .gives_back = true}, import_close);
}

/* ---- physical memory ---- */

static struct cuda_lent_memory *lent_find(struct cuda_device *cuda, cuda_memory memory)
{
    for (uint32_t i = 0; i < cuda->lent_count; i++) {
        if (cuda->lent[i].memory == memory) {
            return &cuda->lent[i];
        }
    }
    return NULL;
}

void cuda_lent_withdraw(struct cuda_device *cuda, cuda_memory memory)
{
    struct cuda_lent_memory *found = lent_find(cuda, memory);
    if (found) {
        close(found->fd);
        *found = cuda->lent[--cuda->lent_count];
    }
}

void cuda_lent_close(struct cuda_device *cuda)
{
    for (uint32_t i = 0; i < cuda->lent_count; i++) {
        close(cuda->lent[i].fd);
    }
    free(cuda->lent);
    cuda->lent = NULL;
    cuda->lent_count = 0;
}

static int lend(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    const struct device_slot *slot = slots_find(&table->resources.handles, call->id);
    if (!slot) {
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NOT_FOUND, "there is no such handle of physical memory");
    }
    const struct cuda_lent_memory *known = lent_find(cuda, slot->value);
    if (known) {
        *(int *)call->out = known->fd;
        return VARVE_OK;
    }
    if (!ARRAY_GROW(cuda->lent, cuda->lent_capacity, cuda->lent_count + 1)) {
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of an export");
    }
    int fd = -1;
    int error = cuda_failed(cuda, cuda->driver->vmm_export(&fd, slot->value, CUDA_HANDLE_TYPE_FD, 0),
                            "cuMemExportToShareableHandle");
    if (error == VARVE_OK) {
        cuda->lent[cuda->lent_count++] = (struct cuda_lent_memory){slot->value, fd};
        *(int *)call->out = fd;
    }
    return error;
}

int cuda_vmm_export(struct varve_device *device, uint64_t handle, int *fd_out)
{
    return device_run(device, (struct device_call){.id = handle, .out = fd_out}, lend);
}

static int borrow(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    uint64_t handle;
    int error = resources_handle_create(&table->resources, call->bytes, &handle);
    if (error != VARVE_OK) {
        return error;
    }
    cuda_memory memory = 0;
    error = cuda_failed(
        cuda, cuda->driver->vmm_import(&memory, (void *)(uintptr_t) * (const int *)call->argument, CUDA_HANDLE_TYPE_FD),
        "cuMemImportFromShareableHandle of %llu bytes", (unsigned long long)call->bytes);
    if (error != VARVE_OK) {
        resources_handle_cancel(&table->resources, handle);
        return error;
    }
    slots_find(&table->resources.handles, handle)->value = memory;
    *(uint64_t *)call->out = handle;
    return VARVE_OK;
}

int cuda_vmm_import(struct varve_device *device, int fd, uint64_t bytes, uint64_t *handle_out)
{
    return device_run(device, (struct device_call){.bytes = bytes, .argument = &fd, .out = handle_out}, borrow);
}

static int wait_for_all(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    (void)call;
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->context_synchronize();
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuCtxSynchronize");
}

int cuda_synchronize(struct varve_device *device)
{
    return device_run(device, (struct device_call){.kind = DEVICE_CALL_UNCOUNTED}, wait_for_all);
}
