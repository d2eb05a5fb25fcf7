/* SPDX-License-Identifier: Apache-2.0 */
/* Axes are sorted by the first array's strides, since scattered stores cost more than scattered loads. */
#include "storage/tensors/element_loop.h"

#include <stdlib.h>

char *elements_begin(const struct varve_array *array)
{
    ptrdiff_t bytes = (ptrdiff_t)varve_dtype_bytes(array->dtype);
    return array->data == NULL ? NULL : (char *)array->data + array->geometry.offset * bytes;
}

/* An axis that the first array walks downwards is walked upwards instead. */
static void axis_flip(struct elements_loop *loop, unsigned axis)
{
    for (unsigned i = 0; i < loop->operands; i++) {
        loop->data[i] += (loop->shape[axis] - 1) * loop->strides[i][axis];
        loop->strides[i][axis] = -loop->strides[i][axis];
    }
}

static void axes_exchange(struct elements_loop *loop, unsigned axis, unsigned other)
{
    int64_t size = loop->shape[axis];
    loop->shape[axis] = loop->shape[other];
    loop->shape[other] = size;
    for (unsigned i = 0; i < loop->operands; i++) {
        ptrdiff_t stride = loop->strides[i][axis];
        loop->strides[i][axis] = loop->strides[i][other];
        loop->strides[i][other] = stride;
    }
}

/* Does `axis` belong outside of `other`? Where the first array does not tell them apart, the next one may. */
static bool axis_is_outer(const struct elements_loop *loop, unsigned axis, unsigned other)
{
    for (unsigned i = 0; i < loop->operands; i++) {
        ptrdiff_t stride = labs(loop->strides[i][axis]);
        ptrdiff_t other_stride = labs(loop->strides[i][other]);
        if (stride != other_stride) {
            return stride > other_stride;
        }
    }
    return false;
}

static void axes_sort(struct elements_loop *loop)
{
    for (unsigned i = 1; i < loop->ndim; i++) {
        for (unsigned k = i; k > 0 && axis_is_outer(loop, k, k - 1); k--) {
            axes_exchange(loop, k, k - 1);
        }
    }
}

static bool element_loop_axes_join(const struct elements_loop *loop, unsigned outer, unsigned inner)
{
    for (unsigned i = 0; i < loop->operands; i++) {
        if (loop->strides[i][outer] != loop->shape[inner] * loop->strides[i][inner]) {
            return false;
        }
    }
    return true;
}

/* Axis `axis` in the place of axis `last`. */
static void axis_move(struct elements_loop *loop, unsigned last, unsigned axis)
{
    loop->shape[last] = loop->shape[axis];
    for (unsigned i = 0; i < loop->operands; i++) {
        loop->strides[i][last] = loop->strides[i][axis];
    }
}

static void axes_join_all(struct elements_loop *loop)
{
    unsigned last = 0;
    for (unsigned i = 1; i < loop->ndim; i++) {
        if (element_loop_axes_join(loop, last, i)) {
            int64_t size = loop->shape[last];
            axis_move(loop, last, i);
            loop->shape[last] *= size;
        } else {
            axis_move(loop, ++last, i);
        }
    }
    loop->ndim = last + 1;
}

void elements_loop_init(struct elements_loop *loop, unsigned operands, const struct varve_array *const *arrays)
{
    const struct varve_geometry *first = &arrays[0]->geometry;
    *loop = (struct elements_loop){.operands = operands};
    for (unsigned i = 0; i < operands; i++) {
        loop->data[i] = elements_begin(arrays[i]);
    }
    if (varve_geometry_count(first) == 0) {
        loop->ndim = 1;
        return;
    }
    for (unsigned axis = 0; axis < first->ndim; axis++) {
        if (first->shape[axis] == 1) {
            continue;
        }
        loop->shape[loop->ndim] = first->shape[axis];
        for (unsigned i = 0; i < operands; i++) {
            loop->strides[i][loop->ndim] =
                arrays[i]->geometry.strides[axis] * (ptrdiff_t)varve_dtype_bytes(arrays[i]->dtype);
        }
        if (loop->strides[0][loop->ndim] < 0) {
            axis_flip(loop, loop->ndim);
        }
        loop->ndim++;
    }
    if (loop->ndim == 0) {
        loop->shape[loop->ndim++] = 1;
    }
    axes_sort(loop);
    axes_join_all(loop);
}

uint64_t elements_loop_count(const struct elements_loop *loop)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < loop->ndim; i++) {
        count *= (uint64_t)loop->shape[i];
    }
    return count;
}

/* The next place of the outer axes; false: that was the last one. */
static bool loop_step(const struct elements_loop *loop, unsigned outer, int64_t *index, char **data)
{
    for (unsigned axis = outer; axis-- > 0;) {
        int64_t step = ++index[axis] < loop->shape[axis] ? 1 : 1 - index[axis];
        for (unsigned i = 0; i < loop->operands; i++) {
            data[i] += step * loop->strides[i][axis];
        }
        if (index[axis] < loop->shape[axis]) {
            return true;
        }
        index[axis] = 0;
    }
    return false;
}

void elements_loop_walk(const struct elements_loop *loop, unsigned inner_ndim, elements_inner *inner,
                        const void *context)
{
    unsigned outer = loop->ndim > inner_ndim ? loop->ndim - inner_ndim : 0;
    int64_t index[VARVE_DIMS_MAX] = {0};
    for (unsigned axis = 0; axis < loop->ndim; axis++) {
        if (loop->shape[axis] == 0) {
            return;
        }
    }
    char *data[ELEMENTS_OPERANDS_MAX];
    for (unsigned i = 0; i < loop->operands; i++) {
        data[i] = loop->data[i];
    }
    do {
        inner(loop, data, context);
    } while (loop_step(loop, outer, index, data));
}
