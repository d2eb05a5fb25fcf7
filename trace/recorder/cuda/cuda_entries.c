/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points of the functions that are recorded, one pair for each row of cuda_hooks.h, and of two that are
 * answered differently while cudaMalloc is served by an allocator of ours (cuda_replace.c).
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/driver_calls.h"
#include "trace/recorder/cuda/cuda_hooks.h"

#include <stddef.h>

#define FIELDS(...) \
    {               \
        __VA_ARGS__ \
    }
#define RECORDED(exported, symbol, version, flags, parameters, arguments, layout, described)                   \
    CUDA_ENTRIES(                                                                                              \
        exported, parameters, arguments,                                                                       \
        cuda_call_begin(&scope, CUDA_CALL_##exported, &(const struct cuda_arguments_##layout)FIELDS described) \
            ? cuda_call_end(&scope, CUDA_REAL(scope.entry.real, exported) arguments)                           \
            : scope.call.result);
CUDA_RECORDED_LIST(RECORDED)

static int address_range(cuda_function real, uint64_t *base_out, size_t *bytes_out, uint64_t addr)
{
    uint64_t base;
    uint64_t bytes;
    if (cuda_replace_is_on() && cuda_replace_range(addr, &base, &bytes)) {
        if (base_out != NULL) {
            *base_out = base;
        }
        if (bytes_out != NULL) {
            *bytes_out = bytes;
        }
        return 0;
    }
    return CUDA_REAL(real, cuMemGetAddressRange_v2)(base_out, bytes_out, addr);
}

/* A handle would be the whole segment's, which the other process would take for the block. */
static int ipc_get(cuda_function real, struct cuda_ipc_memory *handle_out, uint64_t addr)
{
    uint64_t base, bytes;
    if (cuda_replace_is_on() && cuda_replace_range(addr, &base, &bytes)) {
        return CUDA_RESULT_NOT_SUPPORTED;
    }
    return CUDA_REAL(real, cuIpcGetMemHandle)(handle_out, addr);
}

CUDA_ENTRIES(cuMemGetAddressRange_v2, (uint64_t * base_out, size_t *bytes_out, uint64_t addr),
             (base_out, bytes_out, addr), address_range(scope.entry.real, base_out, bytes_out, addr));
CUDA_ENTRIES(cuIpcGetMemHandle, (struct cuda_ipc_memory * handle_out, uint64_t addr), (handle_out, addr),
             ipc_get(scope.entry.real, handle_out, addr));
