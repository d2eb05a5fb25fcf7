/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays, the memory of textures: their address is a handle.
 */
#include "trace/recorder/cuda/array.h"
#include "trace/recorder/cuda/call.h"
#include "trace/recorder/cuda/entry.h"
#include "trace/record.h"

static void begin(struct cuda_scope *scope, const struct cuda_entry *entry, enum varve_cause cause,
                  const struct cuda_array_3d *array, unsigned levels)
{
    cuda_begin(scope, entry, VARVE_KIND_DEV_ALLOC, cause, VARVE_MEMORY_ARRAY);
    scope->call.is_alloc = true;
    scope->call.bytes = array != NULL ? cuda_array_bytes(array, levels) : 0;
}

static int end(struct cuda_scope *scope, int result, void *const *array_out)
{
    if (cuda_returned(scope, result) == 0) {
        scope->call.addr = (uintptr_t)*array_out;
    }
    return cuda_end(scope);
}

static int create_2d(const struct cuda_entry *entry, void **array_out, const struct cuda_array_2d *wanted)
{
    struct cuda_scope scope;
    struct cuda_array_3d array = {0};

    if (wanted != NULL) {
        array = cuda_array_flat(wanted);
    }
    begin(&scope, entry, VARVE_CAUSE_CU_ARRAY_CREATE, &array, 1);
    return end(&scope, CUDA_REAL(entry, cuArrayCreate_v2)(array_out, wanted), array_out);
}

static int create_3d(const struct cuda_entry *entry, void **array_out, const struct cuda_array_3d *wanted)
{
    struct cuda_scope scope;

    begin(&scope, entry, VARVE_CAUSE_CU_ARRAY_3D_CREATE, wanted, 1);
    return end(&scope, CUDA_REAL(entry, cuArray3DCreate_v2)(array_out, wanted), array_out);
}

static int create_mipmapped(const struct cuda_entry *entry, void **array_out,
                            const struct cuda_array_3d *wanted, unsigned levels)
{
    struct cuda_scope scope;

    begin(&scope, entry, VARVE_CAUSE_CU_MIPMAPPED_ARRAY_CREATE, wanted, levels);
    return end(&scope, CUDA_REAL(entry, cuMipmappedArrayCreate)(array_out, wanted, levels), array_out);
}

static void begin_destroy(struct cuda_scope *scope, const struct cuda_entry *entry, void *array,
                          enum varve_cause cause)
{
    cuda_begin(scope, entry, VARVE_KIND_DEV_FREE, cause, VARVE_MEMORY_ARRAY);
    scope->is_recorded = scope->is_recorded && array != NULL;
    scope->call.addr = (uintptr_t)array;
    cuda_free_emit(scope);
}

static int destroy(const struct cuda_entry *entry, void *array)
{
    struct cuda_scope scope;

    begin_destroy(&scope, entry, array, VARVE_CAUSE_CU_ARRAY_DESTROY);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuArrayDestroy)(array));
}

static int destroy_mipmapped(const struct cuda_entry *entry, void *array)
{
    struct cuda_scope scope;

    begin_destroy(&scope, entry, array, VARVE_CAUSE_CU_MIPMAPPED_ARRAY_DESTROY);
    return cuda_free_end(&scope, CUDA_REAL(entry, cuMipmappedArrayDestroy)(array));
}

CUDA_ENTRIES(cuArrayCreate_v2, (void **array_out, const struct cuda_array_2d *wanted), (array_out, wanted),
             create_2d(entry, array_out, wanted));
CUDA_ENTRIES(cuArray3DCreate_v2, (void **array_out, const struct cuda_array_3d *wanted), (array_out, wanted),
             create_3d(entry, array_out, wanted));
CUDA_ENTRIES(cuMipmappedArrayCreate, (void **array_out, const struct cuda_array_3d *wanted, unsigned levels),
             (array_out, wanted, levels), create_mipmapped(entry, array_out, wanted, levels));
CUDA_ENTRIES(cuArrayDestroy, (void *array), (array), destroy(entry, array));
CUDA_ENTRIES(cuMipmappedArrayDestroy, (void *array), (array), destroy_mipmapped(entry, array));
