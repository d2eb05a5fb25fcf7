/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of one shape, walked together. Axes of size 1 disappear, the others are put into the order in which the first
 * array lies in memory, and neighbours that all arrays can walk as one axis become one: most loops end up with one or
 * two axes. Called by what copies, fills and computes.
 */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_LOOP_H
#define VARVE_STORAGE_TENSORS_ELEMENT_LOOP_H

#include "storage/array.h"

#define ELEMENTS_OPERANDS_MAX 3

struct elements_loop {
    unsigned operands;
    unsigned ndim; /* at least 1 */
    int64_t shape[VARVE_DIMS_MAX];
    ptrdiff_t strides[ELEMENTS_OPERANDS_MAX][VARVE_DIMS_MAX]; /* bytes; those of operand 0 are not negative */
    char *data[ELEMENTS_OPERANDS_MAX];                        /* the element that the loop begins with */
};

/// The element [0, 0, …] of an array.
char *elements_begin(const struct varve_array *array);
/// The loop over `arrays`, which all have the shape of the first one. `operands` is 1 to ELEMENTS_OPERANDS_MAX.
void elements_loop_init(struct elements_loop *loop, unsigned operands, const struct varve_array *const *arrays);

uint64_t elements_loop_count(const struct elements_loop *loop);

/// Called with the address of each operand's element where the innermost axes begin.
typedef void elements_inner(const struct elements_loop *loop, char *const *data, const void *context);
/// Walk all axes but the `inner_ndim` last ones, which `inner` walks. A loop without elements makes no call.
void elements_loop_walk(const struct elements_loop *loop, unsigned inner_ndim, elements_inner *inner,
                        const void *context);

#endif
