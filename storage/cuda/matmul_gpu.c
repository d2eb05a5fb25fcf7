/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul by cuBLAS, which wants matrices with one dense axis and batches with one stride, or by the kernel that takes
 * everything. What cuBLAS cannot take as it lies is set aside first.
 */
#include "storage/cuda/gpu_copy.h"
#include "storage/cuda/cublas.h"
#include "storage/cuda/gpu_operators.h"

#include "storage/tensors/element_loop.h"
#include "storage/tensors/operands.h"

#include <limits.h>

#define OPERANDS 3

/* out, a, b; the batch walked as one loop, whose strides are bytes. */
struct product {
    const struct gpu_work *work;
    struct varve_array arrays[OPERANDS];
    struct varve_allocation set_aside[OPERANDS];
    struct elements_loop batch;
    struct matmul_launch launch;
    struct cublas_gemm gemm;
    enum kernel kernel;
    int error;
};

/* ---- our kernel ---- */

static enum kernel matmul_gpu_kernel_find(enum varve_dtype dtype)
{
    static const unsigned short kernels[VARVE_DTYPE_LIMIT] = {
#define KERNEL_OF_LIST(name, TYPE) [VARVE_DTYPE_##TYPE] = KERNEL_##name##_##TYPE,
        KERNELS_MATMUL_LIST(KERNEL_OF_LIST)
#undef KERNEL_OF_LIST
            [VARVE_DTYPE_U8] = KERNEL_matmul_I8, /* the same bits */
    };
    return kernels[dtype];
}

static int matmul_gpu_walk_launch(const struct walk *walk, void *context)
{
    struct product *product = context;
    uint64_t tiles = divide_up((uint64_t)product->launch.rows, MATMUL_TILE) *
                     divide_up((uint64_t)product->launch.columns, MATMUL_TILE);
    product->launch.batch = *walk;
    return work_launch(product->work, product->kernel, tiles,
                       walk->count < MATMUL_BATCHES_MAX ? walk->count : MATMUL_BATCHES_MAX, &product->launch);
}

static void matrix_strides(const struct varve_array *array, int64_t *strides)
{
    const struct varve_geometry *geometry = &array->geometry;
    for (unsigned i = 0; i < 2; i++) {
        strides[i] = geometry->strides[geometry->ndim - 2 + i] * (int64_t)varve_dtype_bytes(array->dtype);
    }
}

static int run_kernel(struct product *product)
{
    matrix_strides(&product->arrays[0], product->launch.out_strides);
    matrix_strides(&product->arrays[1], product->launch.a_strides);
    matrix_strides(&product->arrays[2], product->launch.b_strides);
    product->kernel = matmul_gpu_kernel_find(product->arrays[0].dtype);
    return walk_each(&product->batch, matmul_gpu_walk_launch, product);
}

/* ---- cuBLAS ---- */

static bool fits_cublas(const struct product *product)
{
    const struct matmul_launch *launch = &product->launch;
    return dtype_is_float(product->arrays[0].dtype) && launch->depth > 0 && launch->rows <= INT_MAX &&
           launch->columns <= INT_MAX && launch->depth <= INT_MAX && cublas_is_there(product->work->gpu);
}

/* As a matrix of rows, or turned; false: as neither. */
static bool lies_well(const struct varve_array *array, bool *is_turned, int64_t *lead)
{
    unsigned last = array->geometry.ndim - 1;
    *is_turned = false;
    if (gemm_is_dense(&array->geometry, last - 1, last, lead)) {
        return *lead <= INT_MAX;
    }
    *is_turned = true;
    return gemm_is_dense(&array->geometry, last, last - 1, lead) && *lead <= INT_MAX;
}

/* The operand `number` of ours is the other one of BLAS, in whose order of columns each matrix is turned. */
static int matmul_gpu_input_prepare(struct product *product, unsigned number)
{
    struct varve_array *array = &product->arrays[number];
    bool *is_turned = &product->gemm.is_turned[OPERANDS - 1 - number];
    int64_t *lead = &product->gemm.lead[OPERANDS - 1 - number];
    if (lies_well(array, is_turned, lead)) {
        return VARVE_OK;
    }
    struct varve_array whole;
    int error = work_array(product->work, array, &whole, &product->set_aside[number]);
    if (error == VARVE_OK) {
        error = gpu_copy(product->work->gpu, &whole, array, product->work->stream, product->work->message);
        *array = whole;
        lies_well(array, is_turned, lead);
    }
    return error;
}

static void batch_enqueue(const struct elements_loop *loop, char *const *data, const void *context)
{
    struct product *product = (struct product *)(uintptr_t)context;
    int64_t bytes = (int64_t)varve_dtype_bytes(product->arrays[0].dtype);
    struct cublas_gemm gemm = product->gemm;
    unsigned last = loop->ndim - 1;
    gemm.out_addr = (uint64_t)(uintptr_t)data[0];
    gemm.addrs[0] = (uint64_t)(uintptr_t)data[2];
    gemm.addrs[1] = (uint64_t)(uintptr_t)data[1];
    gemm.batches = loop->shape[last];
    gemm.out_stride = loop->strides[0][last] / bytes;
    gemm.strides[0] = loop->strides[2][last] / bytes;
    gemm.strides[1] = loop->strides[1][last] / bytes;
    VARVE_THEN(product->error, cublas_run(product->work->gpu, &gemm, product->work->stream, product->work->message));
}

/* A loop whose last axis is one that cuBLAS walks itself; else one of size 1. */
static void batch_adjust(struct elements_loop *loop)
{
    unsigned last = loop->ndim - 1;
    if (loop->strides[1][last] >= 0 && loop->strides[2][last] >= 0 && loop->shape[last] <= INT_MAX) {
        return;
    }
    loop->shape[loop->ndim] = 1;
    for (unsigned i = 0; i < OPERANDS; i++) {
        loop->strides[i][loop->ndim] = 0;
    }
    loop->ndim++;
}

static int run_cublas(struct product *product)
{
    static const cublas_type types[] = {[VARVE_DTYPE_F64] = CUBLAS_F64,
                                        [VARVE_DTYPE_F32] = CUBLAS_F32,
                                        [VARVE_DTYPE_F16] = CUBLAS_F16,
                                        [VARVE_DTYPE_BF16] = CUBLAS_BF16};
    const struct varve_geometry *out = &product->arrays[0].geometry;
    product->gemm.type = types[product->arrays[0].dtype];
    product->gemm.rows = product->launch.columns;
    product->gemm.columns = product->launch.rows;
    product->gemm.depth = product->launch.depth;
    gemm_is_dense(out, out->ndim - 2, out->ndim - 1, &product->gemm.out_lead);
    if (product->gemm.out_lead > INT_MAX) {
        return run_kernel(product);
    }
    batch_adjust(&product->batch);
    elements_loop_walk(&product->batch, 1, batch_enqueue, product);
    return product->error;
}

/* ---- the batch ---- */

static int matmul_gpu_batch_of(struct product *product)
{
    const struct varve_geometry *out = &product->arrays[0].geometry;
    struct varve_array batches[OPERANDS];
    for (unsigned i = 0; i < OPERANDS; i++) {
        batches[i] = product->arrays[i];
        batches[i].geometry.ndim -= 2;
        VARVE_TRY(varve_geometry_expand(&batches[i].geometry, out->ndim - 2, out->shape, product->work->message));
    }
    elements_loop_init(&product->batch, OPERANDS,
                       (const struct varve_array *const[]){&batches[0], &batches[1], &batches[2]});
    return VARVE_OK;
}

static int matmul_gpu_run(struct product *product)
{
    bool is_for_cublas = fits_cublas(product);
    int error = VARVE_OK;
    for (unsigned i = 1; i < OPERANDS && is_for_cublas && error == VARVE_OK; i++) {
        error = matmul_gpu_input_prepare(product, i);
    }
    VARVE_THEN(error, matmul_gpu_batch_of(product));
    if (error != VARVE_OK) {
        return error;
    }
    return is_for_cublas ? run_cublas(product) : run_kernel(product);
}

int gpu_matmul(const struct gpu_work *work, const struct operation *operation)
{
    const struct varve_geometry *out = &operation->out.geometry, *a = &operation->inputs[0].geometry;
    struct product product = {
        .work = work,
        .arrays = {operation->out, operation->inputs[0], operation->inputs[1]},
        .launch = {.rows = out->shape[out->ndim - 2],
                   .columns = out->shape[out->ndim - 1],
                   .depth = a->shape[a->ndim - 1]},
    };
    int error = matmul_gpu_run(&product);
    for (unsigned i = 0; i < OPERANDS; i++) {
        varve_alloc_free(work->alloc, product.set_aside[i], NULL);
    }
    return error;
}
