/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on a GPU's memory, by kernels and cuBLAS. */
#ifndef VARVE_STORAGE_CUDA_GPU_OPERATORS_H
#define VARVE_STORAGE_CUDA_GPU_OPERATORS_H

#include "storage/cuda/gpu_work.h"
#include "storage/cuda/kernel_list.h"
#include "storage/tensors/operands.h"

/// Can kernels read and write the operands where they lie? Not at addresses that are no multiples of
/// the element's size.
bool gpu_operation_fits(const struct operation *operation);
/// Enqueue a checked operation that fits, on arrays in the GPU's memory, with at least one element in the result; any
/// operator but fill. Memory for what lies between comes from `alloc`, on that stream. Threads: any. Errors:
/// VARVE_ERROR_NO_MEMORY, the device's.
int gpu_operation(struct gpu *gpu, struct varve_alloc *alloc, const struct operation *operation, uint64_t stream,
                  struct varve_message *message);

/* Kernels by number, the memory that lies between them, and what the files of this folder do for each other. */

enum kernel {
#define KERNEL_ELEMENTWISE(name, TYPE) KERNEL_##name##_##TYPE##_flat, KERNEL_##name##_##TYPE##_walk,
#define KERNEL_ROWS(name, TYPE, RESULT) KERNEL_rows_##name##_##TYPE##_##RESULT,
#define KERNEL_COLUMNS(name, TYPE, RESULT) KERNEL_columns_##name##_##TYPE##_##RESULT,
#define KERNEL_OTHER(name, TYPE) KERNEL_##name##_##TYPE,
    KERNELS_BINARY_LIST(KERNEL_ELEMENTWISE) KERNELS_UNARY_LIST(KERNEL_ELEMENTWISE) KERNELS_ROWS_LIST(KERNEL_ROWS)
        KERNELS_COLUMNS_LIST(KERNEL_COLUMNS) KERNELS_GENERATOR_LIST(KERNEL_OTHER) KERNELS_MATMUL_LIST(KERNEL_OTHER)
            KERNEL_LIMIT,
};

/* Where work goes. */
struct gpu_work {
    struct gpu *gpu;
    struct varve_alloc *alloc;
    uint64_t stream;
    struct varve_message *message;
};

/// Enqueue a kernel in blocks of GPU_BLOCK.
int work_launch(const struct gpu_work *work, enum kernel kernel, uint64_t blocks, uint64_t blocks_y, void *argument);
/// Memory for what is enqueued from now on. Freed at once by varve_alloc_free, it serves only what comes
/// later on the stream.
int work_allocate(const struct gpu_work *work, uint64_t bytes, struct varve_allocation *allocation_out);

/// The operators by their kinds, on operands that need no memory in between.
int gpu_elementwise(const struct gpu_work *work, const struct operation *operation);
int gpu_reduction(const struct gpu_work *work, const struct operation *operation);
int gpu_generator(const struct gpu_work *work, const struct operation *operation);
int gpu_matmul(const struct gpu_work *work, const struct operation *operation);
/// A contiguous array of that shape and type in new memory.
int work_array(const struct gpu_work *work, const struct varve_array *like, struct varve_array *array_out,
               struct varve_allocation *allocation_out);

#endif
