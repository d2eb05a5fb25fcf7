/* SPDX-License-Identifier: Apache-2.0 */
/* C and CUDA: private to storage/ */
/*
 * Index plans in a GPU's memory: what gpu_index.cu does, and what the host gives it to do. What a plan keeps of indices
 * is brought to the GPU once: a list of positions, or a mask's bits with the number of those before each of its parts.
 */
#ifndef VARVE_STORAGE_CUDA_GPU_INDEX_H
#define VARVE_STORAGE_CUDA_GPU_INDEX_H

#include "storage/cuda/gpu_walk.h"

#define INDEX_PER_THREAD 4  /* units */
#define INDEX_PART_WORDS 16 /* of 64 bits, the part of a mask that a warp takes */

/* Kernels pick_UNIT_BITS, put_UNIT_BITS, set_UNIT_BITS: from a list of positions of that many bits. Operand 0 of the
 * walk is packed, 1 is indexed, at the sum of its place and the position, 2 is the list. A position of the least
 * number is left out. */
struct index_list {
    struct walk walk;
    uint64_t number; /* of set */
};

/* Kernels pick_rows_BITS, put_rows_BITS: rows of many units of 16 bytes that lie side by side on both sides; a position
 * for each. A row is taken by `parts` blocks. */
struct index_rows {
    uint64_t packed, indexed, list; /* addresses */
    int64_t packed_stride;          /* bytes from row to row */
    uint32_t row_units, parts;
};

#define INDEX_ROW_UNITS_MIN 128 /* shorter ones go by the list alone */

/* Kernels pick_mask_UNIT, put_mask_UNIT, set_mask_UNIT: from a mask's bits. Bit i is the indexed element i
 * * indexed_stride. */
struct index_mask {
    uint64_t packed, indexed;
    uint64_t words, ranks; /* addresses; ranks has one for each part, of its first bit */
    uint64_t word_count;
    int64_t packed_stride, indexed_stride; /* bytes */
    uint64_t number;
};

#ifndef __CUDACC__

#include "storage/cuda/gpu_work.h"
#include "storage/tensors/index_internal.h"

/* What is kept of indices. */
struct gpu_kept {
    uint64_t addr;      /* in the GPU's memory */
    uint64_t positions; /* all their bits */
};

/// Bytes of what is kept of indices on the GPU, of a GATHER or SCATTER.
uint64_t gpu_index_bytes(const struct varve_index_plan *plan);
/// Write them; `positions_out` has all bits of positions, which are multiples of the lowest one. Errors:
/// VARVE_ERROR_NO_MEMORY.
int gpu_index_write(const struct varve_index_plan *plan, void *bytes_out, uint64_t *positions_out,
                    struct varve_message *message);
/// Run a GATHER or SCATTER behind what `stream` has. `packed` has the result's shape and the plan's type, or is
/// anything where the plan sets a number; what is indexed is given as to index_move. They do not overlap. Errors:
/// VARVE_ERROR_UNSUPPORTED (units that the GPU can't address), the device's.
int gpu_index_run(struct gpu *gpu, const struct index_plan *plan, const struct gpu_kept *kept,
                  const struct varve_array *packed, void *indexed_data, int64_t indexed_offset, uint64_t stream,
                  struct varve_message *message);

#endif

#endif
