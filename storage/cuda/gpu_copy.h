/* SPDX-License-Identifier: Apache-2.0 */
/* C and CUDA: private to storage/ */
/* Copies, conversions and fills of elements in a GPU's memory: what gpu_copy.cu does, and what the host gives it to do.
 * */
#ifndef VARVE_STORAGE_CUDA_GPU_COPY_H
#define VARVE_STORAGE_CUDA_GPU_COPY_H

#include "storage/cuda/gpu_walk.h"

#define COPY_PER_THREAD 4    /* elements, or vectors of them */
#define COPY_VECTOR_BYTES 16 /* of the wider type of a conversion of neighbours */

/* Kernel move_UNIT, cast_strided: operand 0 of the walk is the target, 1 the source. */
struct copy_strided {
    struct walk walk;
    uint32_t target_dtype, source_dtype; /* of cast_strided */
};

/* Kernel transpose_UNIT: rows that are dense in the source and columns that are dense in the target, by tiles; `batch`
 * walks what is around such a matrix. */
struct copy_transpose {
    struct walk batch;
    uint32_t rows, columns;
    uint32_t row_tiles, column_tiles;
    int64_t target_row_stride, source_column_stride; /* bytes */
};

#define COPY_TILE(unit) ((unit) < 4 ? 64 : 32) /* a side of a tile, in units */
#define COPY_TILE_THREADS 8                    /* rows of threads, each as long as a warp */

/* Kernel cast_TARGET_SOURCE, of two types: `count` neighbours. Both addresses are multiples of what a vector takes. */
struct copy_cast {
    uint64_t target, source, count;
};

/* Kernel fill_UNIT. */
struct copy_fill {
    struct walk walk;
    uint64_t pattern;
};

#ifndef __CUDACC__

#include "storage/cuda/gpu_work.h"
#include "storage/array.h"

/// Copy between two arrays of one shape in the device's memory that share no memory, converted where the types differ,
/// behind what `stream` has. Errors: VARVE_ERROR_UNSUPPORTED (addresses that are no multiples of the element's size,
/// for elements that are converted or lie in VARVE_DIMS_MAX axes that can't be joined), the device's.
int gpu_copy(struct gpu *gpu, const struct varve_array *target, const struct varve_array *source, uint64_t stream,
             struct varve_message *message);
/// Set all elements to the lowest bytes of `pattern`. Errors: VARVE_ERROR_UNSUPPORTED (an address that is no multiple
/// of the element's size), the device's.
int gpu_fill(struct gpu *gpu, const struct varve_array *target, uint64_t pattern, uint64_t stream,
             struct varve_message *message);
/// The largest unit of 1 to 16 bytes that the first `operands` operands of a loop over elements of `bytes` bytes can be
/// moved in, where `also` (a bit field) must be a multiple of it too; the loop then walks units. 0: the loop has too
/// many axes for it.
unsigned gpu_widen(struct elements_loop *loop, unsigned operands, unsigned bytes, uint64_t also);

#endif

#endif
