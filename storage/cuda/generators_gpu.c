/* SPDX-License-Identifier: Apache-2.0 */
/* arange, uniform and normal, into contiguous results. */
#include "storage/cuda/gpu_operators.h"

#include "storage/tensors/element_loop.h"

static enum kernel generators_gpu_kernel_find(enum varve_operator code, enum varve_dtype dtype)
{
#define KERNEL_arange(TYPE) [VARVE_OPERATOR_ARANGE][VARVE_DTYPE_##TYPE] = KERNEL_arange_##TYPE
#define KERNEL_uniform(TYPE) [VARVE_OPERATOR_UNIFORM][VARVE_DTYPE_##TYPE] = KERNEL_uniform_##TYPE
#define KERNEL_normal(TYPE) [VARVE_OPERATOR_NORMAL][VARVE_DTYPE_##TYPE] = KERNEL_normal_##TYPE
#define KERNEL_OF_LIST(name, TYPE) KERNEL_##name(TYPE),
    static const unsigned short kernels[VARVE_OPERATOR_LIMIT][VARVE_DTYPE_LIMIT] = {
        KERNELS_GENERATOR_LIST(KERNEL_OF_LIST)};
    return kernels[code][dtype];
}

int gpu_generator(const struct gpu_work *work, const struct operation *operation)
{
    bool is_arange = operation->code == VARVE_OPERATOR_ARANGE;
    struct generator_launch launch = {
        .out_addr = (uint64_t)(uintptr_t)elements_begin(&operation->out),
        .count = (uint64_t)varve_geometry_count(&operation->out.geometry),
        .seed = operation->seed,
        .sequence = operation->sequence,
        .a = is_arange ? scalar_real(operation->start) : operation->a,
        .b = is_arange ? scalar_real(operation->step) : operation->b,
        .start = operation->start.integer,
        .step = operation->step.integer,
        .is_real = is_arange && operation_is_real(operation),
    };
    return work_launch(work, generators_gpu_kernel_find(operation->code, operation->out.dtype),
                       divide_up(launch.count, GENERATED * GPU_BLOCK), 1, &launch);
}
