/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's requests. A cached allocation goes through here thousands of times per training step: it costs a
 * load for the device and, while a trace is recorded, a walk of the stack. PyTorch says which device a block
 * is from, except where it has only an address; those are looked for on all devices, whose addresses never
 * overlap.
 */
#include "alloc/frontend/torch_requests.h"
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch.h"
#include "base/error.h"
#include "trace/emit.h"

#include <stdio.h>

static int device_count;

static void fail_text(const struct frontend_device *device, int error, struct varve_message *message)
{
    if (error == VARVE_ERROR_NO_MEMORY || error == VARVE_ERROR_INVALID) {
        return; /* the allocator's own words say it all */
    }
    struct varve_message reason;
    device->device->ops->reason(device->device, &reason);
    if (reason.text[0] != '\0') {
        varve_message_set(message, error, "%s", reason.text);
    }
}

static __attribute__((noinline)) void tell_profiler(const struct frontend_device *device, int error, uint64_t bytes,
                                                    uint64_t addr)
{
    struct varve_block_info block;
    if (error == VARVE_ERROR_NO_MEMORY) {
        torch_profiler_report_oom(device, bytes);
    } else if (error == VARVE_OK && varve_alloc_get_block(device->alloc, addr, &block) == VARVE_OK) {
        torch_profiler_report(device, addr, (int64_t)block.bytes);
    }
}

static __attribute__((noinline)) int allocate_slowly(uint64_t bytes, int ordinal, uint64_t stream, uint64_t *addr_out,
                                                     struct varve_message *message)
{
    struct frontend_device *device;
    int error = registry_get(ordinal, &device, message);
    return error == VARVE_OK ? torch_allocate(bytes, ordinal, stream, addr_out, message) : error;
}

int torch_allocate(uint64_t bytes, int ordinal, uint64_t stream, uint64_t *addr_out, struct varve_message *message)
{
    struct frontend_device *device = registry_find(ordinal);
    *addr_out = 0;
    if (bytes == 0) {
        return VARVE_OK;
    }
    if (__builtin_expect(device == NULL, 0)) {
        return allocate_slowly(bytes, ordinal, stream, addr_out, message);
    }
    if (device->is_recorded) {
        frontend_callsite_set(device, varve_callsite_here());
    }
    int error = varve_alloc_raw_alloc_with_stream(device->alloc, bytes, stream, addr_out, message);
    if (__builtin_expect(error != VARVE_OK, 0)) {
        fail_text(device, error, message);
    }
    if (__builtin_expect(torch_profiler_wants(), 0)) {
        tell_profiler(device, error, bytes, *addr_out);
    }
    return error;
}

/* VARVE_ERROR_NOT_FOUND: the device has no such block in use. */
static int free_on(const struct frontend_device *device, uint64_t addr)
{
    struct varve_block_info block = {0};
    const bool is_told =
        __builtin_expect(torch_profiler_wants(), 0) && varve_alloc_get_block(device->alloc, addr, &block) == VARVE_OK;
    int error = varve_alloc_raw_delete(device->alloc, addr, NULL);
    if (is_told && error == VARVE_OK) {
        torch_profiler_report(device, addr, -(int64_t)block.bytes);
    }
    return error;
}

void varve_torch_free(void *addr, size_t bytes, int ordinal, void *stream)
{
    const struct frontend_device *device = registry_find(ordinal);
    (void)bytes;
    (void)stream;
    if (device != NULL) {
        free_on(device, (uint64_t)(uintptr_t)addr);
    }
}

void torch_free(uint64_t addr)
{
    const struct frontend_device *device = registry_next(-1);
    while (device != NULL && free_on(device, addr) == VARVE_ERROR_NOT_FOUND) {
        device = registry_next(device->ordinal);
    }
}

void torch_failure_text(int error, uint64_t bytes, int device, const struct varve_message *message, char *text,
                        size_t size)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double amount = (double)bytes;
    if (error != VARVE_ERROR_NO_MEMORY) {
        snprintf(text, size, "CUDA memory of device %d: %s", device, message->text);
        return;
    }
    size_t unit = 0;
    for (; amount >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++) {
        amount /= 1024;
    }
    snprintf(text, size, "CUDA out of memory. Tried to allocate %.*f %s on GPU %d. varve says: %s", unit > 0 ? 2 : 0,
             amount, units[unit], device, message->text);
}

/* ---- what comes with an address only ---- */

int torch_record_stream(uint64_t addr, uint64_t stream, struct varve_message *message)
{
    if (addr == 0) {
        return VARVE_OK; /* of an empty tensor */
    }
    int error = VARVE_ERROR_NOT_FOUND;
    for (struct frontend_device *device = registry_next(-1); device != NULL && error == VARVE_ERROR_NOT_FOUND;
         device = registry_next(device->ordinal)) {
        error = varve_alloc_record_stream(device->alloc, addr, stream, message);
    }
    return error == VARVE_ERROR_NOT_FOUND ? VARVE_OK : error; /* allocations of other libraries are left alone */
}

void *varve_torch_base_alloc(void *addr, size_t *bytes_out)
{
    uint64_t base = (uint64_t)(uintptr_t)addr, bytes = 0;
    for (struct frontend_device *device = registry_next(-1); device != NULL; device = registry_next(device->ordinal)) {
        if (varve_alloc_get_base_allocation(device->alloc, base, &base, &bytes) == VARVE_OK) {
            break;
        }
    }
    if (bytes_out != NULL) {
        *bytes_out = bytes;
    }
    return (void *)(uintptr_t)base;
}

/* ---- the other hooks ---- */

void varve_torch_init(int count)
{
    __atomic_store_n(&device_count, count, __ATOMIC_RELAXED);
}

int varve_torch_device_count(void)
{
    return __atomic_load_n(&device_count, __ATOMIC_RELAXED);
}

void varve_torch_reset(void)
{
    varve_torch_empty_cache(-1, 0, 0);
}

void varve_torch_memory_fraction(double fraction, int device)
{
    varve_torch_set_memory_fraction(device, fraction);
}
