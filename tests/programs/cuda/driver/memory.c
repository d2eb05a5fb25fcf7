/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the driver that lib_cuda_fake.c pretends to be: linear, of the host, arrays, virtual memory.
 */
#include "programs/cuda/driver/fake.h"

#include <dlfcn.h>
#include <string.h>

/* ---- linear memory ---- */

static int alloc(const char *function, enum fake_kind kind, uint64_t *addr_out, size_t bytes)
{
    int result = fake_state_bytes(bytes);
    if (result == 0) {
        *addr_out = fake_add(kind, fake_device(), bytes);
    }
    return fake_logged(function, result, "addr=%#lx bytes=%zu " FAKE_ORIGIN,
                       result == 0 ? (unsigned long)*addr_out : 0UL, bytes, FAKE_HERE);
}

int cuMemAlloc(unsigned *addr_out, unsigned bytes)
{
    *addr_out = 0x1000;
    return fake_logged("old_cuMemAlloc", 0, "bytes=%u", bytes);
}

int cuMemAlloc_v2(uint64_t *addr_out, size_t bytes)
{
    return alloc("cuMemAlloc_v2", FAKE_MEMORY, addr_out, bytes);
}

/* By way of another look-up, as no driver does it: that call is no call of the program. */
int cuMemAllocPitch_v2(uint64_t *addr_out, size_t *pitch_out, size_t width, size_t height, unsigned element)
{
    size_t pitch = (width + FAKE_PITCH - 1) / FAKE_PITCH * FAKE_PITCH;
    void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    (void)element;
    cuda_type_cuMemAlloc_v2 *inner;
    memcpy(&inner, &found, sizeof(found));
    fake_depth++;
    int result = inner(addr_out, width == FAKE_BYTES_INVALID ? 0 : pitch * height);
    fake_depth--;
    *pitch_out = result == 0 ? pitch : 0;
    return fake_logged("cuMemAllocPitch_v2", result, "addr=%#lx bytes=%zu asked=%zu " FAKE_ORIGIN,
                       result == 0 ? (unsigned long)*addr_out : 0UL, pitch * height, width * height, FAKE_HERE);
}

int cuMemAllocManaged(uint64_t *addr_out, size_t bytes, unsigned flags)
{
    return alloc("cuMemAllocManaged", FAKE_MEMORY, addr_out, flags != 1 ? FAKE_BYTES_INVALID : bytes);
}

static int drop(const char *function, enum fake_kind kind, uint64_t addr)
{
    int result = addr == 0 ? fake_state() : fake_drop(kind, addr);
    return fake_logged(function, result, "addr=%#lx " FAKE_ORIGIN, (unsigned long)addr, FAKE_HERE);
}

int cuMemFree_v2(uint64_t addr)
{
    return drop("cuMemFree_v2", FAKE_MEMORY, addr);
}

int cuMemGetAddressRange_v2(uint64_t *base_out, size_t *bytes_out, uint64_t addr)
{
    const struct fake_object *object = fake_find(FAKE_MEMORY, addr);
    if (object != NULL) {
        *base_out = addr;
        *bytes_out = object->bytes;
    }
    return fake_logged("?cuMemGetAddressRange", object != NULL ? 0 : FAKE_INVALID, "-");
}

static int alloc_host(const char *function, void **memory_out, size_t bytes)
{
    uint64_t addr = 0;
    int result = alloc(function, FAKE_HOST, &addr, bytes);
    if (result == 0) {
        *memory_out = (void *)addr;
    }
    return result;
}

int cuMemAllocHost_v2(void **memory_out, size_t bytes)
{
    return alloc_host("cuMemAllocHost_v2", memory_out, bytes);
}

int cuMemHostAlloc(void **memory_out, size_t bytes, unsigned flags)
{
    (void)flags;
    return alloc_host("cuMemHostAlloc", memory_out, bytes);
}

int cuMemFreeHost(void *memory)
{
    return drop("cuMemFreeHost", FAKE_HOST, (uintptr_t)memory);
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    int result = fake_state_bytes(bytes);
    (void)flags;
    return fake_logged("cuMemHostRegister_v2", result, "addr=%#lx bytes=%zu " FAKE_ORIGIN, (unsigned long)memory, bytes,
                       FAKE_HERE);
}

int cuMemHostUnregister(void *memory)
{
    return fake_logged("cuMemHostUnregister", fake_state(), "addr=%#lx " FAKE_ORIGIN, (unsigned long)memory, FAKE_HERE);
}

int cuIpcOpenMemHandle_v2(uint64_t *addr_out, struct cuda_ipc_memory handle, unsigned flags)
{
    (void)flags;
    return alloc("cuIpcOpenMemHandle_v2", FAKE_MEMORY, addr_out, handle.bytes[63] == 'h' ? 1 : FAKE_BYTES_INVALID);
}

int cuIpcGetMemHandle(struct cuda_ipc_memory *handle_out, uint64_t addr)
{
    memset(handle_out, 'h', sizeof(*handle_out));
    return fake_logged("?cuIpcGetMemHandle", fake_find(FAKE_MEMORY, addr) != NULL ? 0 : FAKE_INVALID, "-");
}

int cuIpcCloseMemHandle(uint64_t addr)
{
    return drop("cuIpcCloseMemHandle", FAKE_MEMORY, addr);
}

/* ---- arrays ---- */

static int alloc_array(const char *function, void **array_out, size_t width)
{
    uint64_t addr = 0;
    int result = alloc(function, FAKE_ARRAY, &addr, width);
    if (result == 0) {
        *array_out = (void *)addr;
    }
    return result;
}

int cuArrayCreate_v2(void **array_out, const struct cuda_array_2d *wanted)
{
    return alloc_array("cuArrayCreate_v2", array_out, wanted->width);
}

int cuArray3DCreate_v2(void **array_out, const struct cuda_array_3d *wanted)
{
    return alloc_array("cuArray3DCreate_v2", array_out, wanted->width);
}

int cuMipmappedArrayCreate(void **array_out, const struct cuda_array_3d *wanted, unsigned levels)
{
    (void)levels;
    return alloc_array("cuMipmappedArrayCreate", array_out, wanted->width);
}

int cuArrayDestroy(void *array)
{
    return drop("cuArrayDestroy", FAKE_ARRAY, (uintptr_t)array);
}

int cuMipmappedArrayDestroy(void *array)
{
    return drop("cuMipmappedArrayDestroy", FAKE_ARRAY, (uintptr_t)array);
}

/* ---- virtual memory ---- */

int cuMemAddressReserve(uint64_t *addr_out, size_t bytes, size_t alignment, uint64_t hint, unsigned long long flags)
{
    (void)alignment;
    (void)hint;
    (void)flags;
    return alloc("cuMemAddressReserve", FAKE_ADDRESSES, addr_out, bytes);
}

int cuMemAddressFree(uint64_t addr, size_t bytes)
{
    return fake_logged("cuMemAddressFree", fake_drop(FAKE_ADDRESSES, addr), "addr=%#lx bytes=%zu " FAKE_ORIGIN,
                       (unsigned long)addr, bytes, FAKE_HERE);
}

int cuMemCreate(uint64_t *handle_out, size_t bytes, const struct cuda_properties *wanted, unsigned long long flags)
{
    int device = wanted->location.type == CUDA_LOCATION_DEVICE ? wanted->location.id : -1;
    int result = fake_state_bytes(bytes);
    (void)flags;
    if (result == 0) {
        *handle_out = fake_add(FAKE_HANDLE, device, bytes);
    }
    return fake_logged("cuMemCreate", result, "handle=%#lx bytes=%zu place=%d " FAKE_ORIGIN,
                       result == 0 ? (unsigned long)*handle_out : 0UL, bytes, device, FAKE_HERE);
}

static int device_of(uint64_t handle)
{
    const struct fake_object *object = fake_find(FAKE_HANDLE, handle);
    return object != NULL ? object->device : fake_device();
}

int cuMemRelease(uint64_t handle)
{
    int device = device_of(handle);
    return fake_logged("cuMemRelease", fake_drop(FAKE_HANDLE, handle), "handle=%#lx place=%d " FAKE_ORIGIN,
                       (unsigned long)handle, device, FAKE_HERE);
}

int cuMemRetainAllocationHandle(uint64_t *handle_out, void *addr)
{
    struct fake_object *mapping = fake_find(FAKE_MAPPING, (uintptr_t)addr);
    struct fake_object *handle = mapping != NULL ? fake_find(FAKE_HANDLE, mapping->bytes) : NULL;
    int result = handle != NULL ? 0 : FAKE_INVALID;
    if (result == 0) {
        handle->count++;
        *handle_out = handle->addr;
    }
    return fake_logged("cuMemRetainAllocationHandle", result, "handle=%#lx place=%d " FAKE_ORIGIN,
                       result == 0 ? (unsigned long)*handle_out : 0UL, result == 0 ? handle->device : fake_device(),
                       FAKE_HERE);
}

int cuMemImportFromShareableHandle(uint64_t *handle_out, void *shared, int type)
{
    int result = type == 1 ? 0 : FAKE_INVALID;
    (void)shared;
    if (result == 0) {
        *handle_out = fake_add(FAKE_HANDLE, 1, 1);
    }
    return fake_logged("cuMemImportFromShareableHandle", result, "handle=%#lx place=1 " FAKE_ORIGIN,
                       result == 0 ? (unsigned long)*handle_out : 0UL, FAKE_HERE);
}

int cuMemGetAllocationPropertiesFromHandle(struct cuda_properties *properties, uint64_t handle)
{
    const struct fake_object *object = fake_find(FAKE_HANDLE, handle);
    if (object != NULL) {
        properties->location.type = object->device >= 0 ? CUDA_LOCATION_DEVICE : 2;
        properties->location.id = object->device;
    }
    return fake_logged("?cuMemGetAllocationPropertiesFromHandle", object != NULL ? 0 : FAKE_INVALID, "-");
}

/* A mapping lies where it was asked for, and its `bytes` are the handle. */
int cuMemMap(uint64_t addr, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    int result = fake_find(FAKE_HANDLE, handle) != NULL ? 0 : FAKE_INVALID;
    (void)offset;
    (void)flags;
    if (result == 0) {
        uint64_t made = fake_add(FAKE_MAPPING, device_of(handle), handle);
        fake_find(FAKE_MAPPING, made)->addr = addr;
    }
    return fake_logged("cuMemMap", result, "addr=%#lx bytes=%zu handle=%#lx place=%d " FAKE_ORIGIN, (unsigned long)addr,
                       bytes, (unsigned long)handle, device_of(handle), FAKE_HERE);
}

int cuMemUnmap(uint64_t addr, size_t bytes)
{
    struct fake_object *mapping = fake_find(FAKE_MAPPING, addr);
    int result = mapping != NULL ? 0 : FAKE_INVALID;
    if (mapping != NULL) {
        mapping->kind = FAKE_NONE;
        mapping->addr = 0;
    }
    return fake_logged("cuMemUnmap", result, "addr=%#lx bytes=%zu " FAKE_ORIGIN, (unsigned long)addr, bytes, FAKE_HERE);
}

int cuMemSetAccess(uint64_t addr, size_t bytes, const struct cuda_access *access, size_t count)
{
    return fake_logged("cuMemSetAccess", access->flags == 3 ? 0 : FAKE_INVALID,
                       "addr=%#lx bytes=%zu count=%zu " FAKE_ORIGIN, (unsigned long)addr, bytes, count, FAKE_HERE);
}
