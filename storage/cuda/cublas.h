/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS, found at run time: our own declarations of the little that is used. */
#ifndef VARVE_STORAGE_CUDA_CUBLAS_H
#define VARVE_STORAGE_CUDA_CUBLAS_H

#include "storage/cuda/gpu_work.h"

#include <stdbool.h>

typedef struct cublasContext *cublas_handle;
typedef struct CUstream_st *cublas_stream;

typedef enum { CUBLAS_SUCCESS = 0, CUBLAS_NO_MEMORY = 3 } cublas_status;
typedef enum { CUBLAS_AS_IT_IS = 0, CUBLAS_TURNED = 1 } cublas_turn;
typedef enum { CUBLAS_F32 = 0, CUBLAS_F64 = 1, CUBLAS_F16 = 2, CUBLAS_BF16 = 14 } cublas_type;
/* `exact`: without the shorter types that f32 may otherwise be multiplied in. */
typedef enum { CUBLAS_IN_F32 = 68, CUBLAS_IN_F32_EXACT = 69, CUBLAS_IN_F64 = 70 } cublas_compute;
typedef enum { CUBLAS_NO_SHORT_SUMS = 16 } cublas_math;
typedef enum { CUBLAS_ANY_ALGORITHM = -1 } cublas_algorithm;

/* X(field, symbol, result, arguments) */
#define CUBLAS_LIST(X)                                                                                               \
    X(create, cublasCreate_v2, cublas_status, (cublas_handle *))                                                     \
    X(destroy, cublasDestroy_v2, cublas_status, (cublas_handle))                                                     \
    X(set_stream, cublasSetStream_v2, cublas_status, (cublas_handle, cublas_stream))                                 \
    X(set_math, cublasSetMathMode, cublas_status, (cublas_handle, cublas_math))                                      \
    X(gemm, cublasGemmStridedBatchedEx, cublas_status,                                                               \
      (cublas_handle, cublas_turn, cublas_turn, int, int, int, const void *, const void *, cublas_type, int,         \
       long long, const void *, cublas_type, int, long long, const void *, void *, cublas_type, int, long long, int, \
       cublas_compute, cublas_algorithm))

/* A batch of products in the order of columns, as BLAS has it. Strides count elements. */
struct cublas_gemm {
    cublas_type type;
    bool is_turned[2];
    int64_t rows, columns, depth; /* of the result in that order */
    int64_t lead[2], out_lead;
    int64_t strides[2], out_stride, batches;
    uint64_t addrs[2], out_addr;
};

/// May the process use it on that GPU?
bool cublas_is_there(struct gpu *gpu);
/// Enqueue; sizes are at least 1 and at most INT_MAX. Threads: any. Errors: VARVE_ERROR_NO_MEMORY, IO.
int cublas_run(struct gpu *gpu, const struct cublas_gemm *gemm, uint64_t stream, struct varve_message *message);

#endif
