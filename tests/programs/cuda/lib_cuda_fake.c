/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pretends to be the CUDA driver, libcuda.so.1, for tests of the CUDA recorder: gives out addresses, refuses
 * what it cannot do, and writes down every call (driver/fake.h). Like the real one it works in the process that
 * initialized it alone, ends with an exit handler of its own, and answers cuGetProcAddress.
 */
#include "programs/cuda/driver/fake.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_driver fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .log_fd = -1};
__thread struct fake_context *fake_current;
__thread unsigned fake_depth;
__thread int fake_mode;

int fake_logged(const char *function, int result, const char *format, ...)
{
    char line[512];
    va_list list;
    int length = snprintf(line, sizeof(line), "%d %u %s %d ", (int)getpid(), fake_depth, function, result);
    va_start(list, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length, format, list);
    va_end(list);
    line[length++] = '\n';
    if (fake.log_fd >= 0 && write(fake.log_fd, line, (size_t)length) != length) {
        abort();
    }
    return result;
}

/* What every call begins with: 0, or why it cannot work. */
int fake_state(void)
{
    if (fake.has_ended) {
        return CUDA_RESULT_DEINITIALIZED;
    }
    return fake.pid != getpid() ? CUDA_RESULT_NOT_INITIALIZED : 0;
}

int fake_state_context(void)
{
    int result = fake_state();
    return result == 0 && (fake_current == NULL || !fake_current->is_alive) ? FAKE_NO_CONTEXT : result;
}

int fake_state_bytes(size_t bytes)
{
    int result = fake_state_context();
    if (result == 0 && (bytes == FAKE_BYTES_INVALID || bytes == 0)) {
        return FAKE_INVALID;
    }
    return result == 0 && bytes > FAKE_BYTES_TOTAL ? FAKE_OUT_OF_MEMORY : result;
}

int fake_device(void)
{
    return fake_current != NULL ? fake_current->device : -1;
}

struct fake_object *fake_find(enum fake_kind kind, uint64_t addr)
{
    for (size_t i = 0; i < fake.used; i++) {
        if (fake.objects[i].kind == kind && fake.objects[i].addr == addr) {
            return &fake.objects[i];
        }
    }
    return NULL;
}

/* Addresses of what was given back are given out again at once, as a driver does. */
uint64_t fake_add(enum fake_kind kind, int device, uint64_t bytes)
{
    struct fake_object *slot = NULL;
    pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < fake.used && slot == NULL; i++) {
        slot = fake.objects[i].kind == FAKE_NONE ? &fake.objects[i] : NULL;
    }
    if (slot == NULL && fake.used == FAKE_OBJECTS) {
        abort();
    }
    if (slot == NULL) {
        slot = &fake.objects[fake.used++];
    }
    if (slot->addr == 0) {
        slot->addr = FAKE_FIRST_ADDRESS + (uint64_t)(slot - fake.objects) * FAKE_WINDOW_BYTES;
    }
    slot->kind = kind;
    slot->device = device;
    slot->bytes = bytes;
    slot->count = 1;
    pthread_mutex_unlock(&fake.lock);
    return slot->addr;
}

int fake_drop(enum fake_kind kind, uint64_t addr)
{
    int result = fake_state();
    pthread_mutex_lock(&fake.lock);
    struct fake_object *object = fake_find(kind, addr);
    if (result == 0 && object == NULL) {
        result = FAKE_INVALID;
    } else if (result == 0 && --object->count == 0) {
        object->kind = FAKE_NONE;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static void end(void)
{
    fake.has_ended = true;
}

int cuInit(unsigned flags)
{
    const char *log = getenv("FAKE_CUDA_LOG");
    if (fake.pid == 0) {
        fake.pid = getpid();
        fake.log_fd = log != NULL ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
        for (int device = 0; device < FAKE_DEVICES; device++) {
            fake.current_pools[device] = &fake.default_pools[device];
            fake.primary[device].device = device;
            fake.primary[device].is_primary = true;
        }
        atexit(end);
    }
    return flags != 0 ? FAKE_INVALID : fake_state();
}

/* ---- devices and contexts ---- */

int cuDriverGetVersion(int *version_out)
{
    *version_out = 13000;
    return 0;
}

int cudbgApiInit(unsigned arg)
{
    return (int)arg;
}

int cuDeviceGetCount(int *count_out)
{
    *count_out = FAKE_DEVICES;
    return fake_state();
}

int cuDeviceGet(int *device_out, int ordinal)
{
    *device_out = ordinal;
    return ordinal < FAKE_DEVICES ? fake_state() : 101;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Imaginary GPU %d with a name too long to keep", device);
    return fake_logged("?cuDeviceGetName", fake_state(), "device=%d", device);
}

int cuDeviceTotalMem_v2(size_t *bytes_out, int device)
{
    *bytes_out = FAKE_BYTES_TOTAL;
    return fake_logged("?cuDeviceTotalMem", fake_state(), "device=%d", device);
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    memset(uuid, 0x10 + device, 16);
    return fake_logged("?cuDeviceGetUuid", fake_state(), "device=%d", device);
}

int cuDeviceGetDefaultMemPool(void **pool_out, int device)
{
    *pool_out = &fake.default_pools[device];
    return fake_logged("?cuDeviceGetDefaultMemPool", fake_state(), "device=%d", device);
}

int cuDeviceGetMemPool(void **pool_out, int device)
{
    *pool_out = fake.current_pools[device];
    return fake_logged("?cuDeviceGetMemPool", fake_state(), "device=%d", device);
}

int cuDeviceSetMemPool(int device, void *pool)
{
    fake.current_pools[device] = pool;
    return fake_state();
}

int cuDevicePrimaryCtxRetain(void **context_out, int device)
{
    int result = fake_state();
    if (result == 0) {
        fake.primary[device].retained++;
        fake.primary[device].is_alive = true;
        *context_out = &fake.primary[device];
    }
    return result;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags_out, int *is_active_out)
{
    *flags_out = 0;
    *is_active_out = fake.primary[device].is_alive;
    return fake_logged("?cuDevicePrimaryCtxGetState", fake_state(), "device=%d", device);
}

/* All that was allocated on the device is gone; one context of it counts for all. */
void fake_drop_all(int device)
{
    for (size_t i = 0; i < fake.used; i++) {
        if (fake.objects[i].device == device) {
            fake.objects[i].kind = FAKE_NONE;
        }
    }
}

int cuDevicePrimaryCtxReset_v2(int device)
{
    int result = fake_state();
    if (result == 0) {
        fake_drop_all(device);
        fake.primary[device].is_alive = false;
        fake.primary[device].retained = 0;
    }
    return fake_logged("cuDevicePrimaryCtxReset_v2", result, "device=%d", device);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int result = fake_state();
    if (result == 0 && fake.primary[device].retained == 0) {
        result = FAKE_NO_CONTEXT;
    }
    if (result == 0 && --fake.primary[device].retained == 0) {
        fake_drop_all(device);
        fake.primary[device].is_alive = false;
    }
    return fake_logged("cuDevicePrimaryCtxRelease_v2", result, "device=%d active=%d", device,
                       fake.primary[device].is_alive);
}

int cuCtxCreate_v2(void **context_out, unsigned flags, int device)
{
    struct fake_context *context = calloc(1, sizeof(*context));
    (void)flags;
    context->device = device;
    context->is_alive = true;
    *context_out = fake_current = context;
    return fake_state();
}

int cuCtxDestroy_v2(void *context)
{
    struct fake_context *gone = context;
    int result = fake_state();
    result = result == 0 && (gone == NULL || !gone->is_alive || gone->is_primary) ? FAKE_INVALID : result;
    if (result == 0) {
        gone->is_alive = false; /* it stays in memory: programs may hold it yet */
    }
    return fake_logged("cuCtxDestroy_v2", result, "device=%d context=%#lx", result == 0 ? gone->device : -1,
                       (unsigned long)(uintptr_t)context);
}

int cuCtxGetCurrent(void **context_out)
{
    *context_out = fake_current;
    return fake_logged("?cuCtxGetCurrent", fake_state(), "-");
}

int cuCtxSetCurrent(void *context)
{
    fake_current = context;
    return fake_state();
}

int cuCtxGetDevice(int *device_out)
{
    *device_out = fake_device();
    return fake_logged("?cuCtxGetDevice", fake_state_context(), "-");
}

int cuMemGetInfo_v2(size_t *free_out, size_t *total_out)
{
    *free_out = FAKE_BYTES_TOTAL / 2;
    *total_out = FAKE_BYTES_TOTAL;
    return fake_logged("?cuMemGetInfo", fake_mode == CUDA_CAPTURE_RELAXED ? fake_state_context() : 900, "device=%d",
                       fake_device());
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = fake_mode;
    fake_mode = *mode;
    *mode = before;
    return 0;
}

/* ---- looking functions up ---- */

/* What the name means to programs of CUDA 14 that do not exist yet: another prototype. */
static int alloc_of_the_future(uint64_t *addr_out, size_t bytes, int where)
{
    *addr_out = (uint64_t)where;
    return fake_logged("future_cuMemAlloc", 0, "bytes=%zu", bytes);
}

struct row {
    const char *exported;
    const char *symbol;
    int version;
    unsigned flags;
    void (*function)(void);
};

static const struct row rows[] = {
#define X(exported, symbol, version, flags, ...) {#exported, #symbol, version, flags, (void (*)(void))exported},
    CUDA_HOOK_LIST(X)
#undef X
        {"cuMemAlloc", "cuMemAlloc", 2000, 0, (void (*)(void))cuMemAlloc},
    {"", "cuMemAlloc", 14000, 0, (void (*)(void))alloc_of_the_future},
    {"", "cuInit", 2000, 0, (void (*)(void))cuInit},
};

int cuGetProcAddress_v2(const char *symbol, void **function_out, int version, uint64_t flags, int *status_out)
{
    const struct row *best = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_own = (rows[i].flags & CUDA_HOOK_PER_THREAD) != 0;
        if (strcmp(rows[i].symbol, symbol) == 0 && rows[i].version <= version &&
            (!is_own || (flags & CUDA_ADDRESS_PER_THREAD) != 0) &&
            (best == NULL || is_own || rows[i].version > best->version)) {
            best = &rows[i];
        }
    }
    *function_out = NULL;
    if (best != NULL) {
        memcpy(function_out, &best->function, sizeof(best->function));
    }
    if (status_out != NULL) {
        *status_out = best == NULL;
    }
    return best != NULL ? 0 : 500;
}

int cuGetProcAddress(const char *symbol, void **function_out, int version, uint64_t flags)
{
    fake_depth++;
    int status = cuGetProcAddress_v2(symbol, function_out, version, flags, NULL);
    fake_depth--;
    return status;
}
