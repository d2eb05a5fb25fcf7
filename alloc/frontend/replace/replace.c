/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudaMalloc and cudaFree of an unmodified program, served by an allocator of ours: what the preload library
 * calls where a recording asks for it. A program may rely on what cudaFree does besides: it waits until the
 * device has done all work, of all streams. Only after that wait may a block be handed out again, so the wait
 * stays and what is saved is the driver's own work.
 *
 * Memory here belongs to the device's primary context, which is the run-time API's. A program that made
 * contexts of its own gets memory of those from the driver, as before; so does every program where no
 * allocator can be opened.
 */
#include "alloc/device/cuda/cuda.h"
#include "alloc/frontend/torch/state.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RESULT_UNKNOWN 999
#define NOT_OURS (-1)

static const struct torch_plan plan = {
    .prefix = "VARVE_REPLACE",
    .config = "VARVE_REPLACE_CONF",
    .records = VARVE_RECORDS_CUDA,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin(void)
{
    torch_begin(&plan);
}

/* What the program is told. */
static int result_of(int error)
{
    switch (error) {
    case VARVE_OK:
        return CUDA_RESULT_SUCCESS;
    case VARVE_ERROR_NO_MEMORY:
        return CUDA_RESULT_OUT_OF_MEMORY;
    case VARVE_ERROR_INVALID:
    case VARVE_ERROR_NOT_FOUND:
        return CUDA_RESULT_INVALID_VALUE;
    case VARVE_ERROR_UNSUPPORTED:
        return CUDA_RESULT_DEINITIALIZED;
    default:
        return RESULT_UNKNOWN;
    }
}

/* NULL for a device that is not one of CUDA's. */
static const struct cuda_device *cuda_behind(const struct torch_device *device)
{
    const struct varve_device *behind = device->device;

    return strcmp(behind->ops->name, torch_device_kind_name(TORCH_DEVICE_CUDA)) == 0 ? cuda_of(behind) : NULL;
}

/* ---- allocating ---- */

static struct {
    pthread_once_t once;
    cuda_result (*allocate)(cuda_address *addr_out, size_t bytes);
    cuda_result (*synchronize)(void);
} driver = {.once = PTHREAD_ONCE_INIT};

/* Through the hooks, so it is recorded. The library is that of the program, which has called it. */
static void driver_find(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *allocate = library != NULL ? dlsym(library, "cuMemAlloc_v2") : NULL;
    void *synchronize = library != NULL ? dlsym(library, "cuCtxSynchronize") : NULL;

    memcpy(&driver.allocate, &allocate, sizeof(allocate));
    memcpy(&driver.synchronize, &synchronize, sizeof(synchronize));
}

static int driver_alloc(uint64_t bytes, uint64_t *addr_out)
{
    pthread_once(&driver.once, driver_find);
    return driver.allocate != NULL ? (int)driver.allocate(addr_out, bytes) : RESULT_UNKNOWN;
}

static void complain(const char *reason)
{
    static uint32_t has_complained;

    if (__atomic_exchange_n(&has_complained, 1, __ATOMIC_RELAXED) == 0) {
        fprintf(stderr, "varve: cudaMalloc is served by the driver: %s\n", reason);
    }
}

static bool is_foreign_context(const struct cuda_device *cuda)
{
    cuda_context current = NULL;

    return cuda->driver->context_current(&current) != CUDA_RESULT_SUCCESS || current != cuda->context;
}

static int replace_alloc(int ordinal, uint64_t bytes, uint32_t callsite, uint64_t *addr_out)
{
    struct varve_message message = {""};
    struct torch_device *device;
    const struct cuda_device *cuda;

    *addr_out = 0;
    if (bytes == 0) {
        return CUDA_RESULT_INVALID_VALUE;
    }
    pthread_once(&once, begin);
    if (torch_is_inherited()) {
        return CUDA_RESULT_NOT_INITIALIZED;
    }
    if (torch_device_get(ordinal, &device, &message) != VARVE_OK) {
        complain(message.text);
        return driver_alloc(bytes, addr_out);
    }
    cuda = cuda_behind(device);
    if (cuda != NULL && is_foreign_context(cuda)) {
        return driver_alloc(bytes, addr_out);
    }
    if (device->is_recorded) {
        torch_callsite_set(device, callsite);
    }
    return result_of(varve_alloc_raw_alloc(device->alloc, bytes, addr_out, NULL));
}

/* ---- freeing ---- */

/* Is `addr` the first one of a block in use? */
static bool has_block(struct torch_device *device, uint64_t addr)
{
    const struct block *block;
    bool is_found;

    alloc_lock(device->alloc);
    block = block_map_find(&device->alloc->map, addr);
    is_found = block != NULL && block->is_allocated;
    alloc_unlock(device->alloc);
    return is_found;
}

/* All work of the device is done then, or the program hears why not. */
static int wait_for_device(const struct torch_device *device)
{
    const struct cuda_device *cuda = cuda_behind(device);
    cuda_context popped;
    cuda_result result;

    if (cuda == NULL) {
        return result_of(device->device->ops->stream_synchronize(device->device, 0));
    }
    pthread_once(&driver.once, driver_find);
    if (driver.synchronize == NULL) {
        return RESULT_UNKNOWN;
    }
    result = cuda->driver->context_push(cuda->context);
    if (result == CUDA_RESULT_SUCCESS) {
        result = driver.synchronize();
        cuda->driver->context_pop(&popped);
    }
    return (int)result;
}

static int replace_free(uint64_t addr)
{
    struct torch_device *device = torch_device_after(-1);
    int result;

    while (device != NULL && !has_block(device, addr)) {
        device = torch_device_after(device->ordinal);
    }
    if (device == NULL) {
        return NOT_OURS;
    }
    result = wait_for_device(device);
    if (result != CUDA_RESULT_SUCCESS) {
        return result;
    }
    return result_of(varve_alloc_raw_delete(device->alloc, addr, NULL));
}

/* ---- looking ---- */

/* Programs ask with a block's first address as a rule; for one inside, all blocks are looked at. */
static const struct block *block_around(struct varve_alloc *alloc, uint64_t addr)
{
    const struct block *block = block_map_find(&alloc->map, addr);

    for (uint64_t i = 0; block == NULL && alloc->map.count > 0 && i < UINT64_C(1) << alloc->map.bits; i++) {
        const struct block *candidate = alloc->map.slots[i].block;

        if (candidate != NULL && addr - candidate->addr < candidate->requested) {
            block = candidate;
        }
    }
    return block != NULL && block->is_allocated ? block : NULL;
}

static int replace_range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out)
{
    for (struct torch_device *device = torch_device_after(-1); device != NULL;
         device = torch_device_after(device->ordinal)) {
        const struct block *block;

        alloc_lock(device->alloc);
        block = block_around(device->alloc, addr);
        if (block != NULL) {
            *base_out = block->addr;
            *bytes_out = block->requested;
        }
        alloc_unlock(device->alloc);
        if (block != NULL) {
            return 1;
        }
    }
    return 0;
}

extern VARVE_API const struct varve_replacement varve_cuda_replacement;
const struct varve_replacement varve_cuda_replacement = {
    .version = VARVE_REPLACEMENT_VERSION,
    .alloc = replace_alloc,
    .free = replace_free,
    .range = replace_range,
    .forget = torch_device_forget,
};
