/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernels an operation takes. A result that overlaps its inputs, and is not exactly one, is made in memory
 * of its own first.
 */
#include "storage/cuda/gpu_operators.h"
#include "storage/cuda/gpu_copy.h"

#include "storage/tensors/element_loop.h"
#include "storage/tensors/operands.h"

static const char *const kernel_names[KERNEL_LIMIT] = {
#define NAME_ELEMENTWISE(name, TYPE)                           \
    [KERNEL_##name##_##TYPE##_flat] = #name "_" #TYPE "_flat", \
    [KERNEL_##name##_##TYPE##_walk] = #name "_" #TYPE "_walk",
#define NAME_ROWS(name, TYPE, RESULT) [KERNEL_rows_##name##_##TYPE##_##RESULT] = "rows_" #name "_" #TYPE "_" #RESULT,
#define NAME_COLUMNS(name, TYPE, RESULT) \
    [KERNEL_columns_##name##_##TYPE##_##RESULT] = "columns_" #name "_" #TYPE "_" #RESULT,
#define NAME_OTHER(name, TYPE) [KERNEL_##name##_##TYPE] = #name "_" #TYPE,
    KERNELS_BINARY_LIST(NAME_ELEMENTWISE) KERNELS_UNARY_LIST(NAME_ELEMENTWISE) KERNELS_ROWS_LIST(NAME_ROWS)
        KERNELS_COLUMNS_LIST(NAME_COLUMNS) KERNELS_GENERATOR_LIST(NAME_OTHER) KERNELS_MATMUL_LIST(NAME_OTHER)};

_Static_assert(KERNEL_LIMIT <= GPU_KERNELS_MAX, "a program has room for them");

int work_launch(const struct gpu_work *work, enum kernel kernel, uint64_t blocks, uint64_t blocks_y, void *argument)
{
    const struct varve_launch launch = {
        .blocks = {(unsigned)blocks, (unsigned)blocks_y, 1},
        .threads = {GPU_BLOCK, 1, 1},
        .arguments = &argument,
    };
    return gpu_launch(work->gpu, GPU_PROGRAM_OPERATORS, kernel_names, kernel, &launch, work->stream, work->message);
}

int work_allocate(const struct gpu_work *work, uint64_t bytes, struct varve_allocation *allocation_out)
{
    return varve_alloc_allocate(work->alloc, bytes, work->stream, allocation_out, work->message);
}

int work_array(const struct gpu_work *work, const struct varve_array *like, struct varve_array *array_out,
               struct varve_allocation *allocation_out)
{
    const struct varve_geometry *geometry = &like->geometry;
    *array_out = (struct varve_array){.dtype = like->dtype};
    int error = varve_geometry_contiguous(geometry->ndim, geometry->shape, &array_out->geometry, work->message);
    VARVE_THEN(error, work_allocate(work, (uint64_t)varve_geometry_count(geometry) * varve_dtype_bytes(like->dtype),
                                    allocation_out));
    if (error == VARVE_OK) {
        array_out->data = (void *)(uintptr_t)varve_allocation_addr(*allocation_out);
    }
    return error;
}

static bool array_fits(const struct varve_array *array)
{
    return (uintptr_t)elements_begin(array) % varve_dtype_bytes(array->dtype) == 0;
}

bool gpu_operation_fits(const struct operation *operation)
{
    bool fits = array_fits(&operation->out);
    for (unsigned i = 0; i < operation->count; i++) {
        fits = fits && array_fits(&operation->inputs[i]);
    }
    return fits;
}

static bool is_elementwise(const struct operation *operation)
{
    enum operation_kind kind = operation_kind(operation->code);
    return (kind == OPERATION_BINARY || kind == OPERATION_UNARY) && operation->code != VARVE_OPERATOR_MATMUL;
}

/* Must the result be made elsewhere? */
static bool needs_detour(const struct operation *operation)
{
    const struct varve_array *out = &operation->out;
    for (unsigned i = 0; i < operation->count; i++) {
        const struct varve_array *input = &operation->inputs[i];
        if (elements_overlap(out, input) && !(is_elementwise(operation) && elements_are_same(out, input))) {
            return true;
        }
    }
    if (operation->code == VARVE_OPERATOR_MATMUL) {
        unsigned last = out->geometry.ndim - 1;
        int64_t lead;
        return !gemm_is_dense(&out->geometry, last - 1, last, &lead);
    }
    return operation->count == 0 && !varve_geometry_is_contiguous(&out->geometry);
}

static int run_directly(const struct gpu_work *work, const struct operation *operation)
{
    switch (operation_kind(operation->code)) {
    case OPERATION_REDUCTION:
        return gpu_reduction(work, operation);
    case OPERATION_BINARY:
    case OPERATION_UNARY:
        return is_elementwise(operation) ? gpu_elementwise(work, operation) : gpu_matmul(work, operation);
    default:
        return gpu_generator(work, operation);
    }
}

int gpu_operation(struct gpu *gpu, struct varve_alloc *alloc, const struct operation *operation, uint64_t stream,
                  struct varve_message *message)
{
    const struct gpu_work work = {gpu, alloc, stream, message};
    struct operation detour = *operation;
    if (!needs_detour(operation)) {
        return run_directly(&work, operation);
    }
    struct varve_allocation allocation;
    VARVE_TRY(work_array(&work, &operation->out, &detour.out, &allocation));
    int error = run_directly(&work, &detour);
    VARVE_THEN(error, gpu_copy(gpu, &operation->out, &detour.out, stream, message));
    varve_alloc_free(alloc, allocation, NULL);
    return error;
}
