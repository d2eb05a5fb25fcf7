/* SPDX-License-Identifier: Apache-2.0 */
/* The product of two matrices, by a BLAS that is looked for once or by loops of our own. */
#ifndef VARVE_STORAGE_TENSORS_GEMM_H
#define VARVE_STORAGE_TENSORS_GEMM_H

#include "storage/array.h"

struct gemm {
    enum varve_dtype dtype; /* of all three: F64, F32 or I64 */
    int64_t rows, columns, depth;
    bool is_turned[2]; /* inputs: is the first axis the dense one? */
    int64_t lead[2];   /* elements between rows, or columns if turned */
    int64_t out_lead;  /* elements between rows of the result */
};

/// May the library that gemm_run() calls take turned inputs of that type as they are?
bool gemm_takes_turned(enum varve_dtype dtype);
/// Are the matrices in these two axes rows that lie densely, one after the other? Axes of size 1 have any stride.
/// `lead_out`: elements between rows, at least 1.
bool gemm_is_dense(const struct varve_geometry *geometry, unsigned row_axis, unsigned column_axis, int64_t *lead_out);
/// out = a b. Addresses are multiples of the element's size, and `out` shares nothing with the inputs.
void gemm_run(const struct gemm *gemm, void *out, const void *a, const void *b);

#endif
