/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the driver that lib_cuda_fake.c pretends to be, what is allocated in their order, pools,
 * waiting.
 */
#include "programs/cuda/driver/fake.h"

#include <stdlib.h>

int cuStreamCreate(void **stream_out, unsigned flags)
{
    struct fake_stream *stream = calloc(1, sizeof(*stream));
    (void)flags;
    stream->device = fake_device();
    *stream_out = stream;
    return fake_state_context();
}

static bool is_special(const void *stream)
{
    return (uintptr_t)stream <= CUDA_STREAM_PER_THREAD;
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
    (void)mode;
    ((struct fake_stream *)stream)->is_captured = true;
    return fake_state_context();
}

int cuStreamEndCapture(void *stream, void **graph_out)
{
    ((struct fake_stream *)stream)->is_captured = false;
    *graph_out = NULL;
    return fake_state_context();
}

static int is_capturing(void *stream, int *status_out)
{
    *status_out = !is_special(stream) && ((struct fake_stream *)stream)->is_captured ? CUDA_CAPTURE_ACTIVE : 0;
    return fake_logged("?cuStreamIsCapturing", fake_state_context(), "-");
}

int cuStreamIsCapturing(void *stream, int *status_out)
{
    return is_capturing(stream, status_out);
}

int cuStreamIsCapturing_ptsz(void *stream, int *status_out)
{
    return is_capturing(stream, status_out);
}

int cuStreamGetDevice(void *stream, int *device_out)
{
    *device_out = is_special(stream) ? fake_device() : ((struct fake_stream *)stream)->device;
    return fake_logged("?cuStreamGetDevice", fake_state(), "-");
}

/* ---- allocating ---- */

/* Lines have the device and the stream that a record should have: of the pool, and 2 for a thread's own. */
static int alloc(const char *function, uint64_t *addr_out, size_t bytes, void *pool, void *stream, bool is_own)
{
    int device = is_special(stream) ? fake_device() : ((struct fake_stream *)stream)->device;
    bool is_captured = !is_special(stream) && ((struct fake_stream *)stream)->is_captured;
    int result = fake_state_bytes(bytes);
    const struct fake_object *from = pool == NULL && device >= 0 ? fake.current_pools[device] : pool;
    if (from != NULL && (from < fake.default_pools || from >= fake.default_pools + FAKE_DEVICES)) {
        device = from->device;
    } else {
        from = NULL; /* a default pool has no number */
    }
    if (result == 0) {
        *addr_out = fake_add(FAKE_MEMORY, device, bytes);
    }
    for (int i = 0; i < FAKE_DEVICES; i++) {
        pool = pool == &fake.default_pools[i] ? NULL : pool;
    }
    return fake_logged(function, result, "addr=%#lx bytes=%zu pool=%#lx stream=%#lx place=%d captured=%d " FAKE_ORIGIN,
                       result == 0 ? (unsigned long)*addr_out : 0UL, bytes, (unsigned long)(uintptr_t)from,
                       (unsigned long)(is_own && stream == NULL ? CUDA_STREAM_PER_THREAD : (uintptr_t)stream), device,
                       is_captured, FAKE_HERE);
}

int cuMemAllocAsync(uint64_t *addr_out, size_t bytes, void *stream)
{
    return alloc("cuMemAllocAsync", addr_out, bytes, NULL, stream, false);
}

int cuMemAllocAsync_ptsz(uint64_t *addr_out, size_t bytes, void *stream)
{
    return alloc("cuMemAllocAsync_ptsz", addr_out, bytes, NULL, stream, true);
}

int cuMemAllocFromPoolAsync(uint64_t *addr_out, size_t bytes, void *pool, void *stream)
{
    return alloc("cuMemAllocFromPoolAsync", addr_out, bytes, pool, stream, false);
}

int cuMemAllocFromPoolAsync_ptsz(uint64_t *addr_out, size_t bytes, void *pool, void *stream)
{
    return alloc("cuMemAllocFromPoolAsync_ptsz", addr_out, bytes, pool, stream, true);
}

static int free_ordered(const char *function, uint64_t addr, void *stream, bool is_own)
{
    int device = is_special(stream) ? fake_device() : ((struct fake_stream *)stream)->device;
    return fake_logged(
        function, fake_drop(FAKE_MEMORY, addr), "addr=%#lx stream=%#lx place=%d " FAKE_ORIGIN, (unsigned long)addr,
        (unsigned long)(is_own && stream == NULL ? CUDA_STREAM_PER_THREAD : (uintptr_t)stream), device, FAKE_HERE);
}

int cuMemFreeAsync(uint64_t addr, void *stream)
{
    return free_ordered("cuMemFreeAsync", addr, stream, false);
}

int cuMemFreeAsync_ptsz(uint64_t addr, void *stream)
{
    return free_ordered("cuMemFreeAsync_ptsz", addr, stream, true);
}

/* ---- pools ---- */

int cuMemPoolCreate(void **pool_out, const struct cuda_pool_properties *wanted)
{
    int result = wanted->type == 0 ? FAKE_INVALID : fake_state();
    int device = wanted->location.type == CUDA_LOCATION_DEVICE ? wanted->location.id : -1;
    struct fake_object *pool = result == 0 ? calloc(1, sizeof(*pool)) : NULL;
    if (pool != NULL) {
        pool->device = device;
        *pool_out = pool;
    }
    return fake_logged("cuMemPoolCreate", result, "addr=%#lx pool=%#lx place=%d " FAKE_ORIGIN,
                       (unsigned long)(uintptr_t)pool, (unsigned long)(uintptr_t)pool, device, FAKE_HERE);
}

static int reported_of(const char *function, void *pool, unsigned long arg)
{
    const struct fake_object *object = pool;
    return fake_logged(function, fake_state(), "addr=%#lx pool=%#lx place=%d arg=%lu " FAKE_ORIGIN,
                       (unsigned long)(uintptr_t)pool, (unsigned long)(uintptr_t)pool, object->device, arg, FAKE_HERE);
}

int cuMemPoolDestroy(void *pool)
{
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake.current_pools[i] = fake.current_pools[i] == pool ? &fake.default_pools[i] : fake.current_pools[i];
    }
    return reported_of("cuMemPoolDestroy", pool, 0); /* it stays in memory: a handle is given out once */
}

int cuMemPoolTrimTo(void *pool, size_t bytes_to_keep)
{
    return reported_of("cuMemPoolTrimTo", pool, bytes_to_keep);
}

int cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
    unsigned long arg = attribute == CUDA_POOL_THRESHOLD ? *(unsigned long *)value : *(unsigned *)value;
    return reported_of(attribute == CUDA_POOL_THRESHOLD ? "cuMemPoolSetAttribute" : "?cuMemPoolSetAttribute", pool,
                       arg);
}

/* ---- waiting ---- */

int cuCtxSynchronize(void)
{
    return fake_logged("cuCtxSynchronize", fake_state_context(), FAKE_ORIGIN, FAKE_HERE);
}

int cuCtxSynchronize_v2(void *context)
{
    (void)context;
    return fake_logged("cuCtxSynchronize_v2", fake_state_context(), FAKE_ORIGIN, FAKE_HERE);
}

static int synchronize(const char *function, void *stream, bool is_own)
{
    bool is_captured = !is_special(stream) && ((struct fake_stream *)stream)->is_captured;
    return fake_logged(function, is_captured ? 900 : fake_state_context(), "stream=%#lx " FAKE_ORIGIN,
                       (unsigned long)(is_own && stream == NULL ? CUDA_STREAM_PER_THREAD : (uintptr_t)stream),
                       FAKE_HERE);
}

int cuStreamSynchronize(void *stream)
{
    return synchronize("cuStreamSynchronize", stream, false);
}

int cuStreamSynchronize_ptsz(void *stream)
{
    return synchronize("cuStreamSynchronize_ptsz", stream, true);
}

int cuEventSynchronize(void *event)
{
    return fake_logged("cuEventSynchronize", fake_state_context(), "addr=%#lx " FAKE_ORIGIN,
                       (unsigned long)(uintptr_t)event, FAKE_HERE);
}
