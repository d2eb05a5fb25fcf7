/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the operators. They have the names that kernels.h lists. */
#include "storage/cuda/operators/elementwise.cuh"
#include "storage/cuda/operators/generators.cuh"
#include "storage/cuda/operators/matmul.cuh"
#include "storage/cuda/operators/reduction.cuh"
