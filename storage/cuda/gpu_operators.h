/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on a GPU's memory, by kernels and cuBLAS. */
#ifndef VARVE_STORAGE_CUDA_GPU_OPERATORS_H
#define VARVE_STORAGE_CUDA_GPU_OPERATORS_H

#include "storage/cuda/gpu_work.h"
#include "storage/tensors/operator_table.h"

/// Can kernels read and write the operands where they lie? Not at addresses that are no multiples of
/// the element's size.
bool gpu_operation_fits(const struct operation *operation);
/// Enqueue a checked operation that fits, on arrays in the GPU's memory, with at least one element in the result; any
/// operator but fill. Memory for what lies between comes from `alloc`, on that stream. Threads: any. Errors:
/// VARVE_ERROR_NO_MEMORY, the device's.
int gpu_operation(struct gpu *gpu, struct varve_alloc *alloc, const struct operation *operation, uint64_t stream,
                  struct varve_message *message);

#endif
