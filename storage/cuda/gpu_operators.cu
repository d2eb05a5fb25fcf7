/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the operators. They have the names that kernel_list.h lists. */
#include "storage/cuda/elementwise.cuh"
#include "storage/cuda/generators.cuh"
#include "storage/cuda/matmul.cuh"
#include "storage/cuda/reduction.cuh"
