/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/cuda/gpu_walk.h"

struct walk_axis walk_axis_of(uint32_t size)
{
    struct walk_axis axis = {.size = size};
    while (((uint64_t)1 << axis.shift) < size) {
        axis.shift++;
    }
    axis.multiplier = (uint32_t)((((((uint64_t)1 << axis.shift) - size) << 32) / size) + 1);
    return axis;
}

/* `loop` has less than WALK_COUNT_MAX elements, and at least one. */
static int visit_whole(const struct elements_loop *loop, walk_visit *visit, void *context)
{
    struct walk walk = {.count = 1, .axis_count = loop->ndim};
    for (unsigned i = 0; i < loop->operands; i++) {
        walk.addrs[i] = (uint64_t)(uintptr_t)loop->data[i];
    }
    for (unsigned i = 0; i < loop->ndim; i++) {
        unsigned from = loop->ndim - 1 - i;
        walk.axes[i] = walk_axis_of((uint32_t)loop->shape[from]);
        walk.count *= walk.axes[i].size;
        for (unsigned k = 0; k < loop->operands; k++) {
            walk.axes[i].strides[k] = loop->strides[k][from];
        }
    }
    return visit(&walk, context);
}

/* `axis` and those behind it, in parts of its sizes; those before it have size 1 by now. */
static int visit_parts(struct elements_loop loop, unsigned axis, walk_visit *visit, void *context)
{
    int64_t size = loop.shape[axis], behind = 1;
    for (unsigned i = axis + 1; i < loop.ndim; i++) {
        behind *= loop.shape[i];
    }
    int64_t part = behind < (int64_t)WALK_COUNT_MAX ? ((int64_t)WALK_COUNT_MAX - 1) / behind : 0;
    if (part >= size) {
        return visit_whole(&loop, visit, context);
    }
    int error = 0;
    for (int64_t begin = 0; begin < size && error >= 0; begin += part > 0 ? part : 1) {
        struct elements_loop some = loop;
        some.shape[axis] = part == 0 ? 1 : size - begin < part ? size - begin : part;
        for (unsigned i = 0; i < loop.operands; i++) {
            some.data[i] += begin * loop.strides[i][axis];
        }
        error = part > 0 ? visit_whole(&some, visit, context) : visit_parts(some, axis + 1, visit, context);
    }
    return error;
}

int walk_each(const struct elements_loop *loop, walk_visit *visit, void *context)
{
    for (unsigned i = 0; i < loop->ndim; i++) {
        if (loop->shape[i] == 0) {
            return 0;
        }
    }
    return visit_parts(*loop, 0, visit, context);
}
