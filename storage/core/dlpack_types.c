/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/core/dlpack_types.h"

#include <assert.h>
#include <string.h>

/* Other libraries are compiled with structures of their own: these are DLPack's only as long as they look like this. */
static_assert(sizeof(struct varve_dlpack_version) == 8, "DLPackVersion");
static_assert(sizeof(struct varve_dlpack_device) == 8, "DLDevice");
static_assert(sizeof(struct varve_dlpack_dtype) == 4, "DLDataType");
#if UINTPTR_MAX == UINT64_MAX
#define AT(structure, field, offset) static_assert(offsetof(struct structure, field) == (offset), #field)
static_assert(sizeof(struct varve_dlpack_tensor) == 48, "DLTensor");
AT(varve_dlpack_tensor, device, 8);
AT(varve_dlpack_tensor, ndim, 16);
AT(varve_dlpack_tensor, dtype, 20);
AT(varve_dlpack_tensor, shape, 24);
AT(varve_dlpack_tensor, strides, 32);
AT(varve_dlpack_tensor, byte_offset, 40);
static_assert(sizeof(struct varve_dlpack_managed) == 64, "DLManagedTensor");
AT(varve_dlpack_managed, context, 48);
AT(varve_dlpack_managed, deleter, 56);
static_assert(sizeof(struct varve_dlpack_versioned) == 80, "DLManagedTensorVersioned");
AT(varve_dlpack_versioned, context, 8);
AT(varve_dlpack_versioned, deleter, 16);
AT(varve_dlpack_versioned, flags, 24);
AT(varve_dlpack_versioned, tensor, 32);
#undef AT
#endif

static const uint8_t codes[VARVE_DTYPE_LIMIT] = {
    [VARVE_DTYPE_F64] = VARVE_DLPACK_FLOAT, [VARVE_DTYPE_F32] = VARVE_DLPACK_FLOAT,
    [VARVE_DTYPE_F16] = VARVE_DLPACK_FLOAT, [VARVE_DTYPE_BF16] = VARVE_DLPACK_BFLOAT,
    [VARVE_DTYPE_I64] = VARVE_DLPACK_INT,   [VARVE_DTYPE_I32] = VARVE_DLPACK_INT,
    [VARVE_DTYPE_I16] = VARVE_DLPACK_INT,   [VARVE_DTYPE_I8] = VARVE_DLPACK_INT,
    [VARVE_DTYPE_U8] = VARVE_DLPACK_UINT,   [VARVE_DTYPE_BOOL] = VARVE_DLPACK_BOOL,
};

struct varve_dlpack_dtype dlpack_dtype(enum varve_dtype dtype)
{
    return (struct varve_dlpack_dtype){codes[dtype], (uint8_t)(8 * varve_dtype_bytes(dtype)), 1};
}

int dlpack_dtype_find(struct varve_dlpack_dtype dlpack, enum varve_dtype *dtype_out, struct varve_message *message)
{
    for (unsigned i = 0; i < VARVE_DTYPE_LIMIT; i++) {
        struct varve_dlpack_dtype own = dlpack_dtype((enum varve_dtype)i);
        if (own.code == dlpack.code && own.bits == dlpack.bits && own.lanes == dlpack.lanes) {
            *dtype_out = (enum varve_dtype)i;
            return VARVE_OK;
        }
    }
    return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "elements of DLPack's type %u with %u bits and %u lanes",
                             dlpack.code, dlpack.bits, dlpack.lanes);
}

int dlpack_device(const struct varve_memory *memory, struct varve_dlpack_device *device_out,
                  struct varve_message *message)
{
    if (varve_memory_is_addressable(memory)) {
        *device_out = (struct varve_dlpack_device){VARVE_DLPACK_CPU, 0};
        return VARVE_OK;
    }
    const struct varve_device *device = varve_alloc_get_device(varve_memory_alloc(memory));
    if (strcmp(device->ops->name, "cuda") != 0) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "DLPack knows no memory of the device '%s'",
                                 device->ops->name);
    }
    *device_out = (struct varve_dlpack_device){VARVE_DLPACK_CUDA, varve_cuda_ordinal(device)};
    return VARVE_OK;
}
