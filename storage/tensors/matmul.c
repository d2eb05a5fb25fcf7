/* SPDX-License-Identifier: Apache-2.0 */
/*
 * matmul: operands as gemm wants them, in f64, f32 or i64 and with one dense axis, and the batch of matrices walked.
 * What does not lie so is set aside first.
 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element_loop.h"

#include <stdlib.h>

struct product {
    struct gemm gemm;
    struct varve_array out, inputs[2];
    void *memory[3]; /* to free, or NULL */
};

static bool is_aligned(const struct varve_array *array)
{
    return (uintptr_t)elements_begin(array) % varve_dtype_bytes(array->dtype) == 0;
}

bool gemm_is_dense(const struct varve_geometry *geometry, unsigned row_axis, unsigned column_axis, int64_t *lead_out)
{
    int64_t rows = geometry->shape[row_axis];
    int64_t columns = geometry->shape[column_axis];
    int64_t least = columns > 0 ? columns : 1;
    *lead_out = rows <= 1 ? least : geometry->strides[row_axis];
    return (columns <= 1 || geometry->strides[column_axis] == 1) && *lead_out >= least;
}

static int matmul_input_prepare(struct product *product, unsigned number, const struct varve_array *input,
                                struct varve_message *message)
{
    struct gemm *gemm = &product->gemm;
    struct varve_array *prepared = &product->inputs[number];
    unsigned last = input->geometry.ndim - 1;
    *prepared = *input;
    if (input->dtype == gemm->dtype && is_aligned(input)) {
        if (gemm_is_dense(&input->geometry, last - 1, last, &gemm->lead[number])) {
            return VARVE_OK;
        }
        if ((number == 0 || gemm_takes_turned(gemm->dtype)) &&
            gemm_is_dense(&input->geometry, last, last - 1, &gemm->lead[number])) {
            gemm->is_turned[number] = true;
            return VARVE_OK;
        }
    }
    int error = elements_set_aside(input, gemm->dtype, prepared, message);
    if (error == 0) {
        product->memory[number] = prepared->data;
        gemm_is_dense(&prepared->geometry, last - 1, last, &gemm->lead[number]);
    }
    return error;
}

static int output_prepare(struct product *product, const struct varve_array *out, const struct varve_array *a,
                          const struct varve_array *b, struct varve_message *message)
{
    struct gemm *gemm = &product->gemm;
    unsigned last = out->geometry.ndim - 1;
    size_t bytes = (size_t)varve_geometry_count(&out->geometry) * varve_dtype_bytes(gemm->dtype);
    product->out = *out;
    if (out->dtype == gemm->dtype && is_aligned(out) && !elements_overlap(out, a) && !elements_overlap(out, b) &&
        gemm_is_dense(&out->geometry, last - 1, last, &gemm->out_lead)) {
        return VARVE_OK;
    }
    product->out.dtype = gemm->dtype;
    int error = varve_geometry_contiguous(last + 1, out->geometry.shape, &product->out.geometry, message);
    if (error != 0) {
        return error;
    }
    product->memory[2] = malloc(bytes + 1);
    product->out.data = product->memory[2];
    if (product->memory[2] == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "matmul: no memory for a result of %zu bytes", bytes);
    }
    gemm_is_dense(&product->out.geometry, last - 1, last, &gemm->out_lead);
    return VARVE_OK;
}

static void inner_gemm(const struct elements_loop *loop, char *const *data, const void *context)
{
    (void)loop;
    gemm_run(context, data[0], data[1], data[2]);
}

/* The axes of the batch alone, expanded to those of the result. */
static int matmul_batch_of(struct varve_array *batch, const struct varve_array *array, const struct varve_geometry *out,
                           struct varve_message *message)
{
    *batch = *array;
    batch->geometry.ndim -= 2;
    return varve_geometry_expand(&batch->geometry, out->ndim - 2, out->shape, message);
}

static int product_run(struct product *product, struct varve_message *message)
{
    const struct varve_geometry *shape = &product->out.geometry;
    struct varve_array out, a;
    int error = matmul_batch_of(&out, &product->out, shape, message);
    VARVE_THEN(error, matmul_batch_of(&a, &product->inputs[0], shape, message));
    struct varve_array b;
    VARVE_THEN(error, matmul_batch_of(&b, &product->inputs[1], shape, message));
    struct elements_loop loop;
    if (error == 0) {
        elements_loop_init(&loop, 3, (const struct varve_array *const[]){&out, &a, &b});
        elements_loop_walk(&loop, 0, inner_gemm, &product->gemm);
    }
    return error;
}

static int product_of(struct product *product, const struct varve_array *out, const struct varve_array *a,
                      const struct varve_array *b, struct varve_message *message)
{
    unsigned last = out->geometry.ndim - 1;
    *product = (struct product){.gemm = {.dtype = out->dtype == VARVE_DTYPE_F64 ? VARVE_DTYPE_F64
                                                  : dtype_is_float(out->dtype)  ? VARVE_DTYPE_F32
                                                                                : VARVE_DTYPE_I64,
                                         .rows = out->geometry.shape[last - 1],
                                         .columns = out->geometry.shape[last],
                                         .depth = a->geometry.shape[a->geometry.ndim - 1]}};
    int error = matmul_input_prepare(product, 0, a, message);
    VARVE_THEN(error, matmul_input_prepare(product, 1, b, message));
    VARVE_THEN(error, output_prepare(product, out, a, b, message));
    VARVE_THEN(error, product_run(product, message));
    if (error == 0 && product->memory[2] != NULL) {
        elements_copy(out, &product->out);
    }
    for (int i = 0; i < 3; i++) {
        free(product->memory[i]);
    }
    return error;
}

int matmul_check(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message)
{
    const struct varve_array *const inputs[] = {a, b};
    int64_t shape[VARVE_DIMS_MAX];
    unsigned ndim;
    int error = operands_check(VARVE_OPERATOR_MATMUL, out, a->dtype, inputs, 2, false, message);
    VARVE_THEN(error, varve_op_binary_shape(VARVE_OPERATOR_MATMUL, a, b, &ndim, shape, message));
    if (error == 0 && !varve_geometry_has_shape(&out->geometry, ndim, shape)) {
        error = operands_refuse_shape(VARVE_OPERATOR_MATMUL, out, ndim, shape, message);
    }
    return error;
}

int varve_op_matmul(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                    struct varve_message *message)
{
    struct product product;
    int error = matmul_check(out, a, b, message);
    return error != 0 ? error : product_of(&product, out, a, b, message);
}
