/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What storage/cuda/cublas.h says of cuBLAS, against the toolkit's own header: numbers, and each function's
 * prototype. The compiler does the comparing: with a toolkit at hand, a program that was built has passed. Without
 * one it is skipped.
 * Costs: 1 s
 */

#include <cmocka.h>

#include "storage/cuda/cublas.h"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#elif __has_include(</usr/local/cuda/include/cublas_v2.h>)
#include </usr/local/cuda/include/cublas_v2.h>
#endif

#ifdef CUBLAS_VER_MAJOR

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CUBLAS_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(CUBLAS_NO_MEMORY, CUBLAS_STATUS_ALLOC_FAILED);
SAME(CUBLAS_AS_IT_IS, CUBLAS_OP_N);
SAME(CUBLAS_TURNED, CUBLAS_OP_T);
SAME(CUBLAS_F32, CUDA_R_32F);
SAME(CUBLAS_F64, CUDA_R_64F);
SAME(CUBLAS_F16, CUDA_R_16F);
SAME(CUBLAS_BF16, CUDA_R_16BF);
SAME(CUBLAS_IN_F32, CUBLAS_COMPUTE_32F);
SAME(CUBLAS_IN_F32_EXACT, CUBLAS_COMPUTE_32F_PEDANTIC);
SAME(CUBLAS_IN_F64, CUBLAS_COMPUTE_64F);
SAME(CUBLAS_NO_SHORT_SUMS, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
SAME(CUBLAS_ANY_ALGORITHM, CUBLAS_GEMM_DEFAULT);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), "size of " #theirs)
SAME_SIZE(cublas_handle, cublasHandle_t);
SAME_SIZE(cublas_stream, cudaStream_t);
SAME_SIZE(cublas_status, cublasStatus_t);
SAME_SIZE(cublas_turn, cublasOperation_t);
SAME_SIZE(cublas_type, cudaDataType);
SAME_SIZE(cublas_compute, cublasComputeType_t);
SAME_SIZE(cublas_math, cublasMath_t);
SAME_SIZE(cublas_algorithm, cublasGemmAlgo_t);

/* Prototypes: ours, written with the library's types from here on. */
#define cublas_handle cublasHandle_t
#define cublas_stream cudaStream_t
#define cublas_status cublasStatus_t
#define cublas_turn cublasOperation_t
#define cublas_type cudaDataType
#define cublas_compute cublasComputeType_t
#define cublas_math cublasMath_t
#define cublas_algorithm cublasGemmAlgo_t
#define SAME_FUNCTION(field, symbol, result, arguments) \
    _Static_assert(__builtin_types_compatible_p(result(*) arguments, __typeof__(&(symbol))), #symbol);
CUBLAS_LIST(SAME_FUNCTION)

TEST(test_declarations)
{
    (void)state; /* the compiler has compared them */
    assert_true(CUBLAS_VER_MAJOR >= 11);
}

#else

TEST(test_declarations)
{
    skip("there is no cublas_v2.h here to compare the declarations with");
}

#endif
