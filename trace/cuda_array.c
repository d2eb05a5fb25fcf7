/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays, the memory of textures: their address is a handle, and their size what their description comes to,
 * without the padding that the driver adds. Formats whose texels share blocks, and arrays that get their
 * memory later, count 0 bytes.
 */
#include "trace/cuda_internal.h"

#define LAYERED 0x01U
#define CUBEMAP 0x04U
#define WITHOUT_MEMORY 0xc0U /* sparse, or to be mapped later */

static unsigned channel_bytes(unsigned format)
{
    switch (format) {
    case 0x01: /* integers of 8, 16, 32 bits */
    case 0x08:
        return 1;
    case 0x02:
    case 0x09:
    case 0x10: /* half */
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20: /* float */
        return 4;
    case 0xc0: /* normalized: 8 bits, unsigned and signed, of 1, 2, 4 channels */
    case 0xc1:
    case 0xc2:
    case 0xc6:
    case 0xc7:
    case 0xc8:
        return 1;
    case 0xc3: /* 16 bits */
    case 0xc4:
    case 0xc5:
    case 0xc9:
    case 0xca:
    case 0xcb:
        return 2;
    default:
        return 0;
    }
}

static uint64_t at_least_one(uint64_t count)
{
    return count > 0 ? count : 1;
}

static uint64_t array_bytes(const struct cuda_array_3d *array, unsigned levels)
{
    bool is_stack = (array->flags & (LAYERED | CUBEMAP)) != 0;
    uint64_t width = array->width, height = array->height, depth = array->depth;
    uint64_t texels = 0;

    if ((array->flags & WITHOUT_MEMORY) != 0) {
        return 0;
    }
    for (unsigned level = 0; level < levels; level++) {
        texels += at_least_one(width) * at_least_one(height) * at_least_one(depth);
        width /= 2;
        height /= 2;
        depth = is_stack ? depth : depth / 2;
    }
    return texels * array->channels * channel_bytes(array->format);
}

static void begin(struct cuda_scope *scope, const struct cuda_road *road, enum varve_cause cause,
                  const struct cuda_array_3d *array, unsigned levels)
{
    cuda_begin(scope, road, VARVE_KIND_DEV_ALLOC, cause, VARVE_MEMORY_ARRAY);
    scope->call.is_alloc = true;
    scope->call.bytes = array != NULL ? array_bytes(array, levels) : 0;
}

static int end(struct cuda_scope *scope, int result, void *const *array_out)
{
    if (cuda_returned(scope, result) == 0) {
        scope->call.addr = (uintptr_t)*array_out;
    }
    return cuda_end(scope);
}

static int create_2d(const struct cuda_road *road, void **array_out, const struct cuda_array_2d *wanted)
{
    struct cuda_scope scope;
    struct cuda_array_3d array = {0};

    if (wanted != NULL) {
        array.width = wanted->width;
        array.height = wanted->height;
        array.format = wanted->format;
        array.channels = wanted->channels;
    }
    begin(&scope, road, VARVE_CAUSE_CU_ARRAY_CREATE, &array, 1);
    return end(&scope, CUDA_REAL(road, cuArrayCreate_v2)(array_out, wanted), array_out);
}

static int create_3d(const struct cuda_road *road, void **array_out, const struct cuda_array_3d *wanted)
{
    struct cuda_scope scope;

    begin(&scope, road, VARVE_CAUSE_CU_ARRAY_3D_CREATE, wanted, 1);
    return end(&scope, CUDA_REAL(road, cuArray3DCreate_v2)(array_out, wanted), array_out);
}

static int create_mipmapped(const struct cuda_road *road, void **array_out,
                            const struct cuda_array_3d *wanted, unsigned levels)
{
    struct cuda_scope scope;

    begin(&scope, road, VARVE_CAUSE_CU_MIPMAPPED_ARRAY_CREATE, wanted, levels);
    return end(&scope, CUDA_REAL(road, cuMipmappedArrayCreate)(array_out, wanted, levels), array_out);
}

static void begin_destroy(struct cuda_scope *scope, const struct cuda_road *road, void *array,
                          enum varve_cause cause)
{
    cuda_begin(scope, road, VARVE_KIND_DEV_FREE, cause, VARVE_MEMORY_ARRAY);
    scope->is_told = scope->is_told && array != NULL;
    scope->call.addr = (uintptr_t)array;
    cuda_free_tell(scope);
}

static int destroy(const struct cuda_road *road, void *array)
{
    struct cuda_scope scope;

    begin_destroy(&scope, road, array, VARVE_CAUSE_CU_ARRAY_DESTROY);
    return cuda_free_end(&scope, CUDA_REAL(road, cuArrayDestroy)(array));
}

static int destroy_mipmapped(const struct cuda_road *road, void *array)
{
    struct cuda_scope scope;

    begin_destroy(&scope, road, array, VARVE_CAUSE_CU_MIPMAPPED_ARRAY_DESTROY);
    return cuda_free_end(&scope, CUDA_REAL(road, cuMipmappedArrayDestroy)(array));
}

CUDA_ENTRIES(cuArrayCreate_v2, (void **array_out, const struct cuda_array_2d *wanted), (array_out, wanted),
             create_2d(road, array_out, wanted));
CUDA_ENTRIES(cuArray3DCreate_v2, (void **array_out, const struct cuda_array_3d *wanted), (array_out, wanted),
             create_3d(road, array_out, wanted));
CUDA_ENTRIES(cuMipmappedArrayCreate, (void **array_out, const struct cuda_array_3d *wanted, unsigned levels),
             (array_out, wanted, levels), create_mipmapped(road, array_out, wanted, levels));
CUDA_ENTRIES(cuArrayDestroy, (void *array), (array), destroy(road, array));
CUDA_ENTRIES(cuMipmappedArrayDestroy, (void *array), (array), destroy_mipmapped(road, array));
