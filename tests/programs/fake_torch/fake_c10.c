/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What alloc/frontend/python finds by name in PyTorch's C++ libraries, for tests, which compile this file twice:
 * libc10_cuda.so (with FAKE_C10) has the pointer to the allocator in use; libtorch_cuda.so the table of
 * virtual functions of the pluggable class, behind whose two leading words an object points, and three
 * objects.
 */
#include <stddef.h>
#include <stdint.h>

#define CLASS "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE"
#define METHOD "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm"

typedef void method(void *self, int8_t device, size_t *largest);

struct object {
    method *const *functions;
};

extern struct object *fake_current __asm__("_ZN3c104cuda20CUDACachingAllocator9allocatorE");

#ifdef FAKE_C10
struct object *fake_current;
#else
method fake_other;
extern method fake_cache_info __asm__(METHOD);
size_t fake_ask_cache_info(int8_t device);

void fake_other(void *self, int8_t device, size_t *largest)
{
    (void)self;
    (void)device;
    *largest = 1;
}

/* Here PyTorch throws. */
void fake_cache_info(void *self, int8_t device, size_t *largest)
{
    (void)self;
    (void)device;
    *largest = 2;
}

extern method *const fake_class[6] __asm__(CLASS);
method *const fake_class[6] = {NULL, NULL, fake_other, fake_cache_info, fake_other, fake_other};
static method *const native_class[2] = {fake_other, fake_other};

struct object fake_native = {native_class};
struct object fake_pluggable = {fake_class + 2};
struct object fake_second = {fake_class + 2};

/* What cuDNN's search for plans does: a virtual call of the allocator in use. */
size_t fake_ask_cache_info(int8_t device)
{
    size_t largest = 0;
    fake_current->functions[1](fake_current, device, &largest);
    return largest;
}
#endif
