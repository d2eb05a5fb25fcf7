/* SPDX-License-Identifier: Apache-2.0 */
/* C and CUDA: private to storage/ */
/*
 * The kernels of gpu_operators.cu and their arguments. Strides are bytes, and addresses are multiples of
 * the element's size.
 */
#ifndef VARVE_STORAGE_CUDA_KERNEL_LIST_H
#define VARVE_STORAGE_CUDA_KERNEL_LIST_H

#include "storage/cuda/gpu_walk.h"

#define VECTOR_BYTES 16U /* that a thread reads or writes at once */

/* ---- elementwise: name_TYPE_flat and name_TYPE_walk ----
 *
 * Integers of 8 bits are computed as I8, whichever they are; relu leaves U8 as it is. */

#define KERNELS_FLOAT(X, name) X(name, F64) X(name, F32) X(name, F16) X(name, BF16)
#define KERNELS_INTEGER(X, name) X(name, I64) X(name, I32) X(name, I16) X(name, I8)
#define KERNELS_BINARY_LIST(X) \
    KERNELS_FLOAT(X, add)      \
    KERNELS_INTEGER(X, add)    \
    X(add, BOOL)               \
    KERNELS_FLOAT(X, sub)      \
    KERNELS_INTEGER(X, sub)    \
    KERNELS_FLOAT(X, mul)      \
    KERNELS_INTEGER(X, mul)    \
    X(mul, BOOL)               \
    KERNELS_FLOAT(X, div)      \
    KERNELS_FLOAT(X, pow)
#define KERNELS_UNARY_LIST(X) \
    KERNELS_FLOAT(X, exp)     \
    KERNELS_FLOAT(X, relu)    \
    KERNELS_INTEGER(X, relu)

/* Operands without gaps, or one element for all: `count` elements, of which `head` come before the first vector of
 * `out`. All operands that are not repeated have the same distance from a multiple of VECTOR_BYTES. */
struct flat {
    uint64_t out_addr, input_addrs[2];
    uint64_t count;
    uint32_t head;
    uint32_t is_repeated[2];
};

#define FLAT_VECTORS 2U /* of a thread */
#define WALK_STEPS 4U   /* elements of a thread */

/* reductions: rows_TYPE_RESULT…, columns_TYPE_RESULT… */

#define KERNELS_SUM_LIST(X) \
    X(sum, F64, F64)        \
    X(sum, F32, F32)        \
    X(sum, F16, F16)        \
    X(sum, BF16, BF16)      \
    X(sum, I64, I64)        \
    X(sum, I32, I64)        \
    X(sum, I16, I64)        \
    X(sum, I8, I64)         \
    X(sum, U8, I64)         \
    X(sum, BOOL, I64)
#define KERNELS_MAX_LIST(X) \
    X(max, F64, F64)        \
    X(max, F32, F32)        \
    X(max, F16, F16)        \
    X(max, BF16, BF16)      \
    X(max, I64, I64)        \
    X(max, I32, I32)        \
    X(max, I16, I16)        \
    X(max, I8, I8)          \
    X(max, U8, U8)          \
    X(max, BOOL, BOOL)
#define KERNELS_COLUMNS_LIST(X) KERNELS_SUM_LIST(X) KERNELS_MAX_LIST(X)
/* Those of parts that are f64, into other types. */
#define KERNELS_ROWS_LIST(X) \
    KERNELS_COLUMNS_LIST(X)  \
    X(sum, F64, F32)         \
    X(sum, F64, F16)         \
    X(sum, F64, BF16)

/* One result of `count` elements for each of `kept`, whose operands are the result and the first of its elements. A row
 * may be divided into parts, each for a block: a part of a sum of floating point becomes two numbers at `parts_addr`,
 * the sum and what it has lost, other parts become one of the result's type; those of a row follow each other. */
struct reduction_launch {
    struct walk kept;
    /* of several axes, with one operand: where `count` is less than WALK_COUNT_MAX; else axis_count 1 */
    struct walk reduced;
    uint64_t count, part_count; /* elements of a row, and of a part of it */
    int64_t stride;             /* of a row with one axis */
    uint64_t parts_addr;        /* 0: there is one part, which goes to the result */
    uint32_t parts, part_first; /* of a row, and the first that this launch makes */
    uint32_t lanes; /* rows: threads of one, 4, 32 or GPU_BLOCK. columns: columns of a block, a power of two */
    double divisor; /* of sums in floating point */
};

#define ROWS_VECTORS 4U  /* that a thread reads before it adds */
#define COLUMNS_STEPS 8U /* elements that a thread reads before it adds */

/* generators: contiguous results */

#define KERNELS_ALL_TYPES(X, name) KERNELS_FLOAT(X, name) KERNELS_INTEGER(X, name) X(name, U8) X(name, BOOL)
#define KERNELS_GENERATOR_LIST(X) \
    KERNELS_ALL_TYPES(X, arange)  \
    KERNELS_FLOAT(X, uniform)     \
    KERNELS_FLOAT(X, normal)

struct generator_launch {
    uint64_t out_addr, count;
    uint64_t seed, sequence;
    double a, b; /* start and step, bounds, or mean and deviation */
    int64_t start, step;
    uint32_t is_real; /* arange */
};

#define GENERATED 4U /* elements of a thread */

/* matmul: our own, of any strides */

#define KERNELS_MATMUL_LIST(X) KERNELS_FLOAT(X, matmul) KERNELS_INTEGER(X, matmul) X(matmul, BOOL)

struct matmul_launch {
    struct walk batch; /* operands out, a, b */
    int64_t rows, columns, depth;
    int64_t out_strides[2], a_strides[2], b_strides[2]; /* of rows and columns */
};

#define MATMUL_TILE 64            /* rows and columns of a block */
#define MATMUL_DEPTH 16           /* at a time */
#define MATMUL_BATCHES_MAX 65535U /* blocks */

#endif
