/* SPDX-License-Identifier: Apache-2.0 */
/* C and CUDA: private to storage/ */
/*
 * Arrays of one shape as kernels walk them: a thread finds the place of the element with its number by dividing that
 * number by the sizes of the axes, the innermost first. A division is a multiplication and a shift, worked out once by
 * the host (Granlund and Montgomery: Division by invariant integers using multiplication, 1994, figure 4.1), for
 * numbers below 2^31; where there are more elements the host makes several walks.
 */
#ifndef VARVE_STORAGE_CUDA_GPU_WALK_H
#define VARVE_STORAGE_CUDA_GPU_WALK_H

#include <stdint.h>

#define GPU_BLOCK 256U /* threads of a block, of all kernels */

#define WALK_AXES_MAX 16
#define WALK_OPERANDS_MAX 3
#define WALK_COUNT_MAX ((uint64_t)1 << 31) /* of elements, exclusive */

struct walk_axis {
    uint32_t size, multiplier, shift;
    int64_t strides[WALK_OPERANDS_MAX]; /* bytes, or whatever the kernel counts */
};

struct walk {
    uint32_t count; /* elements */
    uint32_t axis_count;
    uint64_t addrs[WALK_OPERANDS_MAX];    /* of the first element of each operand */
    struct walk_axis axes[WALK_AXES_MAX]; /* the innermost first */
};

#ifdef __CUDACC__

/* Where element `index` of each of `OPERANDS` operands lies, counted from the first. */
template <int OPERANDS>
static __device__ __forceinline__ void walk_find(const struct walk &walk, uint32_t index, int64_t *offsets)
{
    for (int k = 0; k < OPERANDS; k++) {
        offsets[k] = 0;
    }
    for (uint32_t i = 0; i + 1 < walk.axis_count; i++) {
        const struct walk_axis &axis = walk.axes[i];
        uint32_t quotient = (__umulhi(index, axis.multiplier) + index) >> axis.shift;
        uint32_t place = index - quotient * axis.size;

        for (int k = 0; k < OPERANDS; k++) {
            offsets[k] += place * axis.strides[k];
        }
        index = quotient;
    }
    for (int k = 0; k < OPERANDS; k++) {
        offsets[k] += index * walk.axes[walk.axis_count - 1].strides[k];
    }
}

#else

#include "storage/tensors/element_loop.h"

/// An axis of that size, 1 to WALK_COUNT_MAX - 1, without strides.
struct walk_axis walk_axis_of(uint32_t size);

/// Called for each walk; a negative result ends the walking and is what walk_each returns.
typedef int walk_visit(const struct walk *walk, void *context);
/// The elements of a loop as walks of less than WALK_COUNT_MAX elements each. Nothing is read at the addresses of the
/// loop. A loop without elements makes no call.
int walk_each(const struct elements_loop *loop, walk_visit *visit, void *context);

#endif

#endif
