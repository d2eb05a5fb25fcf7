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
#include "alloc/frontend/registry.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/replacement.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define NOT_OURS (-1)

/* The driver's CUresult, as far as programs get one from here. */
enum result {
    RESULT_SUCCESS = 0,
    RESULT_INVALID_VALUE = 1,
    RESULT_OUT_OF_MEMORY = 2,
    RESULT_NOT_INITIALIZED = 3,
    RESULT_DEINITIALIZED = 4,
    RESULT_UNKNOWN = 999,
};

static const struct frontend frontend = {
    .prefix = "VARVE_REPLACE",
    .alloc_variable = "VARVE_REPLACE_CONF",
    .records = VARVE_RECORDS_CUDA,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void replace_malloc_begin(void)
{
    registry_begin(&frontend);
}

/* The CUresult that stands for an enum varve_error. */
static int result_of(int error)
{
    switch (error) {
    case VARVE_OK:
        return RESULT_SUCCESS;
    case VARVE_ERROR_NO_MEMORY:
        return RESULT_OUT_OF_MEMORY;
    case VARVE_ERROR_INVALID:
    case VARVE_ERROR_NOT_FOUND:
        return RESULT_INVALID_VALUE;
    case VARVE_ERROR_UNSUPPORTED:
        return RESULT_DEINITIALIZED;
    default:
        return RESULT_UNKNOWN;
    }
}

/* ---- allocating ---- */

static struct {
    pthread_once_t once;
    int (*allocate)(uint64_t *addr_out, size_t bytes);
    int (*synchronize)(void);
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
    return driver.allocate != NULL ? driver.allocate(addr_out, bytes) : RESULT_UNKNOWN;
}

static void replace_malloc_complain(const char *reason)
{
    static uint32_t has_complained;
    if (__atomic_exchange_n(&has_complained, 1, __ATOMIC_RELAXED) == 0) {
        fprintf(stderr, "varve: cudaMalloc is served by the driver: %s\n", reason);
    }
}

static int replace_alloc(int ordinal, uint64_t bytes, uint32_t callsite, uint64_t *addr_out)
{
    struct varve_message message = {""};
    *addr_out = 0;
    if (bytes == 0) {
        return RESULT_INVALID_VALUE;
    }
    pthread_once(&once, replace_malloc_begin);
    if (registry_is_inherited()) {
        return RESULT_NOT_INITIALIZED;
    }
    struct frontend_device *device;
    if (registry_get(ordinal, &device, &message) != VARVE_OK) {
        replace_malloc_complain(message.text);
        return driver_alloc(bytes, addr_out);
    }
    if (frontend_device_is_cuda(device->device) && !varve_cuda_is_current(device->device)) {
        return driver_alloc(bytes, addr_out); /* the program made a context of its own */
    }
    if (device->is_recorded) {
        frontend_callsite_set(device, callsite);
    }
    return result_of(varve_alloc_raw_alloc(device->alloc, bytes, addr_out, NULL));
}

/* ---- freeing ---- */

/* Is `addr` the first one of a block in use? */
static bool has_block(struct frontend_device *device, uint64_t addr)
{
    struct varve_block_info block;
    return varve_alloc_get_block(device->alloc, addr, &block) == VARVE_OK;
}

/* All work of the device is done then, or the program gets the driver's error. */
static int wait_for_device(const struct frontend_device *device)
{
    if (!frontend_device_is_cuda(device->device)) {
        return result_of(device->device->ops->stream_synchronize(device->device, 0));
    }
    pthread_once(&driver.once, driver_find);
    if (driver.synchronize == NULL) {
        return RESULT_UNKNOWN;
    }
    int result = varve_cuda_push(device->device);
    if (result == RESULT_SUCCESS) {
        result = driver.synchronize();
        varve_cuda_pop(device->device);
    }
    return result;
}

static int replace_free(uint64_t addr)
{
    struct frontend_device *device = registry_next(-1);
    while (device != NULL && !has_block(device, addr)) {
        device = registry_next(device->ordinal);
    }
    if (device == NULL) {
        return NOT_OURS;
    }
    int result = wait_for_device(device);
    if (result != RESULT_SUCCESS) {
        return result;
    }
    return result_of(varve_alloc_raw_delete(device->alloc, addr, NULL));
}

/* ---- address ranges ---- */

static int replace_range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out)
{
    for (struct frontend_device *device = registry_next(-1); device != NULL; device = registry_next(device->ordinal)) {
        struct varve_block_info block;
        if (varve_alloc_find_block(device->alloc, addr, &block) == VARVE_OK) {
            *base_out = block.addr;
            *bytes_out = block.requested;
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
    .forget = registry_forget,
};
