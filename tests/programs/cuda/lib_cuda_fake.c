/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pretends to be the CUDA driver, libcuda.so.1, for tests of the CUDA recorder: gives out addresses, refuses
 * what it cannot do, and writes down every call: one line in the file that FAKE_CUDA_LOG names, written when the call
 * has done its work, to be compared with what was recorded. Lines are `PID DEPTH FUNCTION RESULT key=value…`, of which
 * later ones of a key count; functions that the recorder may ask by itself begin with `?`. Like the real one it works
 * in the process that initialized it alone, ends with an exit handler of its own, and answers cuGetProcAddress. Devices
 * have no memory, and addresses are imaginary: nobody looks at what lies there.
 */
#include "programs/cuda/driver/fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The functions are CUDA's, with all their parameters, and no header of ours declares those that only the recorder
 * asks. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Functions that do nothing but say so. */
#define LOGGED(name, parameters, result, ...)      \
    int name parameters                            \
    {                                              \
        return logged(#name, result, __VA_ARGS__); \
    }

#define OBJECTS 4096
#define BYTES_TOTAL ((size_t)80 << 30)
#define PITCH 512U
#define FIRST_ADDRESS UINT64_C(0x7e0000000000)
#define WINDOW_BYTES (UINT64_C(16) << 20) /* addresses per object; none of the tests is larger */

enum kind { NONE, MEMORY, HOST, ARRAY, HANDLE, ADDRESSES, MAPPING };

struct object {
    enum kind kind;
    int device;
    uint64_t addr;
    uint64_t bytes;
    uint64_t count; /* references of physical memory */
};

struct context {
    int device;
    bool is_primary;
    bool is_alive;
    unsigned retained;
};

struct stream {
    int device;
    bool is_captured;
};

static struct {
    pthread_mutex_t lock;
    pid_t pid; /* that called cuInit */
    bool has_ended;
    int log_fd;
    size_t used;
    struct object objects[OBJECTS];
    struct context primary[FAKE_DEVICES];
    struct object default_pools[FAKE_DEVICES];
    void *current_pools[FAKE_DEVICES];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .log_fd = -1};
static __thread struct context *current;
static __thread unsigned depth; /* calls of its own symbols */
static __thread int mode;

/* Of the current context; -1 without one. */
static int current_device(void)
{
    return current != NULL ? current->device : -1;
}

/* A line of the log, with where the call takes place. Returns the result. */
__attribute__((format(printf, 3, 4))) static int logged(const char *function, int result, const char *format, ...)
{
    char line[512];
    va_list list;
    int length = snprintf(line, sizeof(line), "%d %u %s %d device=%d context=%#lx ", (int)getpid(), depth, function,
                          result, current_device(), (uintptr_t)current);
    va_start(list, format);
    length += vsnprintf(line + length, sizeof(line) - (size_t)length, format, list);
    va_end(list);
    line[length++] = '\n';
    if (fake.log_fd >= 0 && write(fake.log_fd, line, (size_t)length) != length) {
        abort();
    }
    return result;
}

/* What calls begin with: 0, or why they cannot work: at all; without a context; with so many bytes. */
static int state(void)
{
    if (fake.has_ended) {
        return CUDA_RESULT_DEINITIALIZED;
    }
    return fake.pid != getpid() ? CUDA_RESULT_NOT_INITIALIZED : 0;
}

static int state_context(void)
{
    int result = state();
    return result == 0 && (current == NULL || !current->is_alive) ? FAKE_NO_CONTEXT : result;
}

static int state_bytes(size_t bytes)
{
    int result = state_context();
    if (result == 0 && (bytes == FAKE_BYTES_INVALID || bytes == 0)) {
        return FAKE_INVALID;
    }
    return result == 0 && bytes > BYTES_TOTAL ? FAKE_OUT_OF_MEMORY : result;
}

static struct object *find(enum kind kind, uint64_t addr)
{
    for (size_t i = 0; i < fake.used; i++) {
        if (fake.objects[i].kind == kind && fake.objects[i].addr == addr) {
            return &fake.objects[i];
        }
    }
    return NULL;
}

/* Addresses of what was given back are given out again at once, as a driver does. */
static uint64_t add(enum kind kind, int device, uint64_t bytes)
{
    struct object *slot = NULL;
    pthread_mutex_lock(&fake.lock);
    for (size_t i = 0; i < fake.used && slot == NULL; i++) {
        slot = fake.objects[i].kind == NONE ? &fake.objects[i] : NULL;
    }
    if (slot == NULL && fake.used == OBJECTS) {
        abort();
    }
    if (slot == NULL) {
        slot = &fake.objects[fake.used++];
    }
    if (slot->addr == 0) {
        slot->addr = FIRST_ADDRESS + (uint64_t)(slot - fake.objects) * WINDOW_BYTES;
    }
    slot->kind = kind;
    slot->device = device;
    slot->bytes = bytes;
    slot->count = 1;
    pthread_mutex_unlock(&fake.lock);
    return slot->addr;
}

static int drop(enum kind kind, uint64_t addr)
{
    int result = state();
    pthread_mutex_lock(&fake.lock);
    struct object *object = find(kind, addr);
    if (result == 0 && object == NULL) {
        result = FAKE_INVALID;
    } else if (result == 0 && --object->count == 0) {
        object->kind = NONE;
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
    return flags != 0 ? FAKE_INVALID : state();
}

/* ---- devices and contexts ---- */

/* Functions that say one thing of a device, or of where they are called. */
#define ANSWERS(name, parameters, out, value, result) \
    int name parameters                               \
    {                                                 \
        *(out) = (value);                             \
        return logged("?" #name, result, "-");        \
    }

ANSWERS(cuDriverGetVersion, (int *version_out), version_out, 13000, 0)
ANSWERS(cuDeviceGetCount, (int *count_out), count_out, FAKE_DEVICES, state())
ANSWERS(cuDeviceGet, (int *device_out, int ordinal), device_out, ordinal, ordinal < FAKE_DEVICES ? state() : 101)
ANSWERS(cuDeviceTotalMem_v2, (size_t * bytes_out, int device), bytes_out, BYTES_TOTAL, state())
ANSWERS(cuDeviceGetDefaultMemPool, (void **pool_out, int device), pool_out, &fake.default_pools[device], state())
ANSWERS(cuDeviceGetMemPool, (void **pool_out, int device), pool_out, fake.current_pools[device], state())
ANSWERS(cuDevicePrimaryCtxGetState, (int device, unsigned *flags_out, int *is_active_out), is_active_out,
        fake.primary[device].is_alive, state())
ANSWERS(cuCtxGetCurrent, (void **context_out), context_out, current, state())
ANSWERS(cuCtxGetDevice, (int *device_out), device_out, current_device(), state_context())

int cudbgApiInit(unsigned arg)
{
    return (int)arg;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Imaginary GPU %d with a name too long to keep", device);
    return logged("?cuDeviceGetName", state(), "-");
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    memset(uuid, 0x10 + device, 16);
    return logged("?cuDeviceGetUuid", state(), "-");
}

int cuDeviceSetMemPool(int device, void *pool)
{
    fake.current_pools[device] = pool;
    return state();
}

int cuDevicePrimaryCtxRetain(void **context_out, int device)
{
    int result = state();
    if (result == 0) {
        fake.primary[device].retained++;
        fake.primary[device].is_alive = true;
        *context_out = &fake.primary[device];
    }
    return result;
}

/* All that was allocated on the device is gone; one context of it counts for all. */
static void end_primary(int device)
{
    for (size_t i = 0; i < fake.used; i++) {
        if (fake.objects[i].device == device) {
            fake.objects[i].kind = NONE;
        }
    }
    fake.primary[device].is_alive = false;
    fake.primary[device].retained = 0;
}

int cuDevicePrimaryCtxReset_v2(int device)
{
    int result = state();
    if (result == 0) {
        end_primary(device);
    }
    return logged("cuDevicePrimaryCtxReset_v2", result, "device=%d", device);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int result = state();
    if (result == 0 && fake.primary[device].retained == 0) {
        result = FAKE_NO_CONTEXT;
    }
    if (result == 0 && --fake.primary[device].retained == 0) {
        end_primary(device);
    }
    return logged("cuDevicePrimaryCtxRelease_v2", result, "device=%d active=%d", device, fake.primary[device].is_alive);
}

int cuCtxCreate_v2(void **context_out, unsigned flags, int device)
{
    struct context *context = calloc(1, sizeof(*context));
    context->device = device;
    context->is_alive = true;
    *context_out = current = context;
    return state();
}

int cuCtxDestroy_v2(cuda_context context)
{
    struct context *gone = (struct context *)context;
    int result = state();
    result = result == 0 && (gone == NULL || !gone->is_alive || gone->is_primary) ? FAKE_INVALID : result;
    if (result == 0) {
        gone->is_alive = false; /* it stays in memory: programs may hold it yet */
    }
    return logged("cuCtxDestroy_v2", result, "device=%d context=%#lx", result == 0 ? gone->device : -1,
                  (uintptr_t)context);
}

int cuCtxSetCurrent(void *context)
{
    current = context;
    return state();
}

int cuMemGetInfo_v2(size_t *free_out, size_t *total_out)
{
    *free_out = BYTES_TOTAL / 2;
    *total_out = BYTES_TOTAL;
    return logged("?cuMemGetInfo", mode == CUDA_CAPTURE_RELAXED ? state_context() : 900, "-");
}

int cuThreadExchangeStreamCaptureMode(int *mode_inout)
{
    int before = mode;
    mode = *mode_inout;
    *mode_inout = before;
    return 0;
}

/* ---- linear memory, of the host, arrays ---- */

static int alloc(const char *function, enum kind kind, void *out, size_t bytes)
{
    int result = state_bytes(bytes);
    uint64_t addr = result == 0 ? add(kind, current_device(), bytes) : 0;
    if (result == 0) {
        memcpy(out, &addr, sizeof(addr)); /* an address or a pointer */
    }
    return logged(function, result, "addr=%#lx bytes=%zu", addr, bytes);
}

static int take_back(const char *function, enum kind kind, uint64_t addr)
{
    return logged(function, addr == 0 ? state() : drop(kind, addr), "addr=%#lx", addr);
}

/* What allocates so many bytes of a kind, and what gives them back. */
#define ALLOCATES(name, parameters, kind, out, bytes) \
    int name parameters                               \
    {                                                 \
        return alloc(#name, kind, out, bytes);        \
    }
#define TAKES_BACK(name, parameters, kind, addr)         \
    int name parameters                                  \
    {                                                    \
        return take_back(#name, kind, (uint64_t)(addr)); \
    }

ALLOCATES(cuMemAlloc_v2, (uint64_t * addr_out, size_t bytes), MEMORY, addr_out, bytes)
ALLOCATES(cuMemAllocManaged, (uint64_t * addr_out, size_t bytes, unsigned flags), MEMORY, addr_out,
          flags != 1 ? FAKE_BYTES_INVALID : bytes)
ALLOCATES(cuIpcOpenMemHandle_v2, (uint64_t * addr_out, struct cuda_ipc_memory handle, unsigned flags), MEMORY, addr_out,
          handle.bytes[63] == 'h' ? 1 : FAKE_BYTES_INVALID)
ALLOCATES(cuMemAllocHost_v2, (void **memory_out, size_t bytes), HOST, memory_out, bytes)
ALLOCATES(cuMemHostAlloc, (void **memory_out, size_t bytes, unsigned flags), HOST, memory_out, bytes)
ALLOCATES(cuArrayCreate_v2, (void **array_out, const struct cuda_array_2d *wanted), ARRAY, array_out, wanted->width)
ALLOCATES(cuArray3DCreate_v2, (void **array_out, const struct cuda_array_3d *wanted), ARRAY, array_out, wanted->width)
ALLOCATES(cuMipmappedArrayCreate, (void **array_out, const struct cuda_array_3d *wanted, unsigned levels), ARRAY,
          array_out, wanted->width)
ALLOCATES(cuMemAddressReserve,
          (uint64_t * addr_out, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags), ADDRESSES,
          addr_out, bytes)
TAKES_BACK(cuMemFree_v2, (uint64_t addr), MEMORY, addr)
TAKES_BACK(cuIpcCloseMemHandle, (uint64_t addr), MEMORY, addr)
TAKES_BACK(cuMemFreeHost, (void *memory), HOST, memory)
TAKES_BACK(cuArrayDestroy, (void *array), ARRAY, array)
TAKES_BACK(cuMipmappedArrayDestroy, (void *array), ARRAY, array)

int cuMemAlloc(unsigned *addr_out, unsigned bytes)
{
    *addr_out = 0x1000;
    return logged("old_cuMemAlloc", 0, "bytes=%u", bytes);
}

/* By way of another look-up, as no driver does it: that call is no call of the program. */
int cuMemAllocPitch_v2(uint64_t *addr_out, size_t *pitch_out, size_t width, size_t height, unsigned element)
{
    size_t pitch = (width + PITCH - 1) / PITCH * PITCH;
    void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    cuda_type_cuMemAlloc_v2 *inner;
    memcpy(&inner, &found, sizeof(found));
    depth++;
    int result = inner(addr_out, width == FAKE_BYTES_INVALID ? 0 : pitch * height);
    depth--;
    *pitch_out = result == 0 ? pitch : 0;
    return logged("cuMemAllocPitch_v2", result, "addr=%#lx bytes=%zu asked=%zu", result == 0 ? *addr_out : 0,
                  pitch * height, width * height);
}

int cuMemGetAddressRange_v2(uint64_t *base_out, size_t *bytes_out, uint64_t addr)
{
    const struct object *object = find(MEMORY, addr);
    if (object != NULL) {
        *base_out = addr;
        *bytes_out = object->bytes;
    }
    return logged("?cuMemGetAddressRange", object != NULL ? 0 : FAKE_INVALID, "-");
}

LOGGED(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), state_bytes(bytes), "addr=%#lx bytes=%zu",
       (uintptr_t)memory, bytes)
LOGGED(cuMemHostUnregister, (void *memory), state(), "addr=%#lx", (uintptr_t)memory)

int cuIpcGetMemHandle(struct cuda_ipc_memory *handle_out, uint64_t addr)
{
    memset(handle_out, 'h', sizeof(*handle_out));
    return logged("?cuIpcGetMemHandle", find(MEMORY, addr) != NULL ? 0 : FAKE_INVALID, "-");
}

/* ---- virtual memory ---- */

LOGGED(cuMemAddressFree, (uint64_t addr, size_t bytes), drop(ADDRESSES, addr), "addr=%#lx bytes=%zu", addr, bytes)
LOGGED(cuMemSetAccess, (uint64_t addr, size_t bytes, const struct cuda_access *access, size_t count),
       access->flags == 3 ? 0 : FAKE_INVALID, "addr=%#lx bytes=%zu count=%zu", addr, bytes, count)

static int device_of(uint64_t handle)
{
    const struct object *object = find(HANDLE, handle);
    return object != NULL ? object->device : current_device();
}

int cuMemCreate(uint64_t *handle_out, size_t bytes, const struct cuda_memory_kind *wanted, unsigned long long flags)
{
    int device = wanted->location.type == CUDA_LOCATION_DEVICE ? wanted->location.id : -1;
    int result = state_bytes(bytes);
    if (result == 0) {
        *handle_out = add(HANDLE, device, bytes);
    }
    return logged("cuMemCreate", result, "handle=%#lx bytes=%zu place=%d", result == 0 ? *handle_out : 0, bytes,
                  device);
}

int cuMemRelease(uint64_t handle)
{
    int device = device_of(handle);
    return logged("cuMemRelease", drop(HANDLE, handle), "handle=%#lx place=%d", handle, device);
}

int cuMemRetainAllocationHandle(uint64_t *handle_out, void *addr)
{
    struct object *mapping = find(MAPPING, (uintptr_t)addr);
    struct object *handle = mapping != NULL ? find(HANDLE, mapping->bytes) : NULL;
    if (handle != NULL) {
        handle->count++;
        *handle_out = handle->addr;
    }
    return logged("cuMemRetainAllocationHandle", handle != NULL ? 0 : FAKE_INVALID, "handle=%#lx place=%d",
                  handle != NULL ? handle->addr : 0, handle != NULL ? handle->device : current_device());
}

int cuMemImportFromShareableHandle(uint64_t *handle_out, void *shared, int type)
{
    *handle_out = type == 1 ? add(HANDLE, 1, 1) : 0;
    return logged("cuMemImportFromShareableHandle", type == 1 ? 0 : FAKE_INVALID, "handle=%#lx place=1", *handle_out);
}

int cuMemGetAllocationPropertiesFromHandle(struct cuda_memory_kind *properties, uint64_t handle)
{
    const struct object *object = find(HANDLE, handle);
    if (object != NULL) {
        properties->location.type = object->device >= 0 ? CUDA_LOCATION_DEVICE : 2;
        properties->location.id = object->device;
    }
    return logged("?cuMemGetAllocationPropertiesFromHandle", object != NULL ? 0 : FAKE_INVALID, "-");
}

/* A mapping lies where it was asked for, and its `bytes` are the handle. */
int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    int result = find(HANDLE, handle) != NULL ? 0 : FAKE_INVALID;
    if (result == 0) {
        uint64_t made = add(MAPPING, device_of(handle), handle);
        find(MAPPING, made)->addr = addr;
    }
    return logged("cuMemMap", result, "addr=%#lx bytes=%zu handle=%#lx place=%d", addr, bytes, handle,
                  device_of(handle));
}

int cuMemUnmap(uint64_t addr, size_t bytes)
{
    struct object *mapping = find(MAPPING, addr);
    if (mapping != NULL) {
        mapping->kind = NONE;
        mapping->addr = 0;
    }
    return logged("cuMemUnmap", mapping != NULL ? 0 : FAKE_INVALID, "addr=%#lx bytes=%zu", addr, bytes);
}

/* ---- streams, and what is allocated in their order ---- */

int cuStreamCreate(void **stream_out, unsigned flags)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    stream->device = current_device();
    *stream_out = stream;
    return state_context();
}

int cuStreamBeginCapture_v2(void *stream, int capture_mode)
{
    ((struct stream *)stream)->is_captured = true;
    return state_context();
}

int cuStreamEndCapture(void *stream, void **graph_out)
{
    ((struct stream *)stream)->is_captured = false;
    *graph_out = NULL;
    return state_context();
}

/* What streams are that programs have not made: 0 and the thread's own. */
static struct stream stream_of(const void *stream)
{
    return (uintptr_t)stream <= CUDA_STREAM_PER_THREAD ? (struct stream){.device = current_device()}
                                                       : *(const struct stream *)stream;
}

ANSWERS(cuStreamIsCapturing, (void *stream, int *status_out), status_out,
        stream_of(stream).is_captured ? CUDA_CAPTURE_ACTIVE : 0, state_context())
ANSWERS(cuStreamIsCapturing_ptsz, (void *stream, int *status_out), status_out,
        stream_of(stream).is_captured ? CUDA_CAPTURE_ACTIVE : 0, state_context())
ANSWERS(cuStreamGetDevice, (void *stream, int *device_out), device_out, stream_of(stream).device, state())

/* Lines have the device and the stream that a record should have: of the pool, and 2 for a thread's own. */
static uintptr_t shown(const void *stream, bool is_own)
{
    return is_own && stream == NULL ? CUDA_STREAM_PER_THREAD : (uintptr_t)stream;
}

static int alloc_ordered(const char *function, uint64_t *addr_out, size_t bytes, void *pool, void *stream, bool is_own)
{
    struct stream order = stream_of(stream);
    int result = state_bytes(bytes);
    const struct object *from = pool == NULL && order.device >= 0 ? fake.current_pools[order.device] : pool;
    if (from != NULL && (from < fake.default_pools || from >= fake.default_pools + FAKE_DEVICES)) {
        order.device = from->device;
    } else {
        from = NULL; /* a default pool has no number */
    }
    if (result == 0) {
        *addr_out = add(MEMORY, order.device, bytes);
    }
    return logged(function, result, "addr=%#lx bytes=%zu pool=%#lx stream=%#lx place=%d captured=%d",
                  result == 0 ? *addr_out : 0, bytes, (uintptr_t)from, shown(stream, is_own), order.device,
                  order.is_captured);
}

static int free_ordered(const char *function, uint64_t addr, void *stream, bool is_own)
{
    return logged(function, drop(MEMORY, addr), "addr=%#lx stream=%#lx place=%d", addr, shown(stream, is_own),
                  stream_of(stream).device);
}

static int synchronize(const char *function, void *stream, bool is_own)
{
    return logged(function, stream_of(stream).is_captured ? 900 : state_context(), "stream=%#lx",
                  shown(stream, is_own));
}

/* By the default stream of all threads, and by each thread's own. */
#define ORDERED(suffix, is_own)                                                                               \
    int cuMemAllocAsync##suffix(uint64_t *addr_out, size_t bytes, cuda_stream stream)                         \
    {                                                                                                         \
        return alloc_ordered("cuMemAllocAsync" #suffix, addr_out, bytes, NULL, stream, is_own);               \
    }                                                                                                         \
    int cuMemAllocFromPoolAsync##suffix(uint64_t *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream) \
    {                                                                                                         \
        return alloc_ordered("cuMemAllocFromPoolAsync" #suffix, addr_out, bytes, pool, stream, is_own);       \
    }                                                                                                         \
    int cuMemFreeAsync##suffix(uint64_t addr, cuda_stream stream)                                             \
    {                                                                                                         \
        return free_ordered("cuMemFreeAsync" #suffix, addr, stream, is_own);                                  \
    }                                                                                                         \
    int cuStreamSynchronize##suffix(cuda_stream stream)                                                       \
    {                                                                                                         \
        return synchronize("cuStreamSynchronize" #suffix, stream, is_own);                                    \
    }

ORDERED(, false)
ORDERED(_ptsz, true)

LOGGED(cuCtxSynchronize, (void), state_context(), "-")
LOGGED(cuCtxSynchronize_v2, (cuda_context context), state_context(), "-")
LOGGED(cuEventSynchronize, (cuda_event event), state_context(), "addr=%#lx", (uintptr_t)event)

/* ---- pools ---- */

static int pool_logged(const char *function, const struct object *pool, unsigned long arg)
{
    return logged(function, state(), "addr=%#lx pool=%#lx place=%d arg=%lu", (uintptr_t)pool, (uintptr_t)pool,
                  pool->device, arg);
}

int cuMemPoolCreate(cuda_pool *pool_out, const struct cuda_pool_kind *wanted)
{
    struct object *pool = calloc(1, sizeof(*pool));
    pool->device = wanted->location.type == CUDA_LOCATION_DEVICE ? wanted->location.id : -1;
    *pool_out = (cuda_pool)pool;
    return pool_logged("cuMemPoolCreate", pool, 0);
}

int cuMemPoolDestroy(cuda_pool handle)
{
    struct object *pool = (struct object *)handle;
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake.current_pools[i] = fake.current_pools[i] == pool ? &fake.default_pools[i] : fake.current_pools[i];
    }
    return pool_logged("cuMemPoolDestroy", pool, 0); /* it stays in memory: a handle is given out once */
}

int cuMemPoolTrimTo(cuda_pool pool, size_t bytes_to_keep)
{
    return pool_logged("cuMemPoolTrimTo", (struct object *)pool, bytes_to_keep);
}

int cuMemPoolSetAttribute(cuda_pool pool, enum cuda_pool_attribute attribute, void *value)
{
    bool is_threshold = attribute == CUDA_POOL_RELEASE_THRESHOLD;
    return pool_logged(is_threshold ? "cuMemPoolSetAttribute" : "?cuMemPoolSetAttribute", (struct object *)pool,
                       is_threshold ? *(unsigned long *)value : *(unsigned *)value);
}

/* ---- looking functions up ---- */

/* What the name means to programs of CUDA 14 that do not exist yet: another prototype. */
static int alloc_of_the_future(uint64_t *addr_out, size_t bytes, int where)
{
    *addr_out = (uint64_t)where;
    return logged("future_cuMemAlloc", 0, "bytes=%zu", bytes);
}

static const struct row {
    const char *symbol;
    int version;
    unsigned flags;
    void (*function)(void);
} rows[] = {
#define X(exported, symbol, version, flags, ...) {#symbol, version, flags, (void (*)(void))exported},
    CUDA_HOOK_LIST(X)
#undef X
        {"cuMemAlloc", 2000, 0, (void (*)(void))cuMemAlloc},
    {"cuMemAlloc", 14000, 0, (void (*)(void))alloc_of_the_future},
    {"cuInit", 2000, 0, (void (*)(void))cuInit},
};

int cuGetProcAddress_v2(const char *symbol, void **function_out, int version, uint64_t flags,
                        enum cuda_address_status *status_out)
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
    return cuGetProcAddress_v2(symbol, function_out, version, flags, NULL);
}
