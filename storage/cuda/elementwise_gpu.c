/* SPDX-License-Identifier: Apache-2.0 */
/* Operands without gaps go to the kernels that read vectors, all others to those that walk. */
#include "storage/cuda/gpu_copy.h"
#include "storage/cuda/gpu_operators.h"

#include "storage/tensors/element_loop.h"

enum {
#define INDEX_OF_LIST(code, NAME, name, KIND) INDEX_##name = (code),
    VARVE_OPERATOR_LIST(INDEX_OF_LIST)
#undef INDEX_OF_LIST
        INDEX_LIMIT = VARVE_OPERATOR_LIMIT,
};

/* The kernel for what lies without gaps; the next one walks. */
static enum kernel elementwise_gpu_kernel_find(unsigned index, enum varve_dtype dtype)
{
    static const unsigned short kernels[INDEX_LIMIT][VARVE_DTYPE_LIMIT] = {
#define KERNEL_OF_LIST(name, TYPE) [INDEX_##name][VARVE_DTYPE_##TYPE] = KERNEL_##name##_##TYPE##_flat,
        KERNELS_BINARY_LIST(KERNEL_OF_LIST) KERNELS_UNARY_LIST(KERNEL_OF_LIST)
#undef KERNEL_OF_LIST
    };
    return kernels[index][dtype];
}

struct elementwise_launch {
    const struct gpu_work *work;
    enum kernel kernel;
};

static int elementwise_gpu_walk_launch(const struct walk *walk, void *context)
{
    const struct elementwise_launch *launch = context;
    struct walk argument = *walk;
    return work_launch(launch->work, launch->kernel + 1, divide_up(walk->count, WALK_STEPS * GPU_BLOCK), 1, &argument);
}

/* false: the loop is not for the kernels that read vectors. */
static bool flat_of(const struct elements_loop *loop, ptrdiff_t bytes, struct flat *flat)
{
    uint64_t out = (uint64_t)(uintptr_t)loop->data[0];
    uint64_t over = out % VECTOR_BYTES;
    uint64_t head = over != 0 ? (VECTOR_BYTES - over) / (uint64_t)bytes : 0;
    if (loop->ndim != 1 || loop->strides[0][0] != bytes) {
        return false;
    }
    *flat = (struct flat){.out_addr = out, .count = (uint64_t)loop->shape[0]};
    flat->head = (uint32_t)(head < flat->count ? head : flat->count);
    for (unsigned i = 1; i < loop->operands; i++) {
        flat->input_addrs[i - 1] = (uint64_t)(uintptr_t)loop->data[i];
        flat->is_repeated[i - 1] = loop->strides[i][0] == 0;
        if (loop->strides[i][0] != 0 &&
            (loop->strides[i][0] != bytes || flat->input_addrs[i - 1] % VECTOR_BYTES != over)) {
            return false;
        }
    }
    return true;
}

static int loop_launch(const struct gpu_work *work, enum kernel kernel, const struct elements_loop *loop, size_t bytes)
{
    struct elementwise_launch launch = {work, kernel};
    struct flat flat;
    if (!flat_of(loop, (ptrdiff_t)bytes, &flat)) {
        return walk_each(loop, elementwise_gpu_walk_launch, &launch);
    }
    uint64_t vectors = (flat.count - flat.head) * bytes / VECTOR_BYTES;
    return work_launch(work, kernel, vectors > 0 ? divide_up(vectors, FLAT_VECTORS * GPU_BLOCK) : 1, 1, &flat);
}

/* Those that are not negative stay as they are. */
static int relu_unsigned(const struct gpu_work *work, const struct varve_array *out, const struct varve_array *a)
{
    return elements_are_same(out, a) ? VARVE_OK : gpu_copy(work->gpu, out, a, work->stream, work->message);
}

int gpu_elementwise(const struct gpu_work *work, const struct operation *operation)
{
    const struct varve_geometry *shape = &operation->out.geometry;
    struct varve_array inputs[OPERANDS_MAX];
    enum varve_dtype dtype = operation->out.dtype;
    for (unsigned i = 0; i < operation->count; i++) {
        inputs[i] = operation->inputs[i];
        VARVE_TRY(varve_geometry_expand(&inputs[i].geometry, shape->ndim, shape->shape, work->message));
    }
    if (dtype == VARVE_DTYPE_U8) {
        if (operation->code == VARVE_OPERATOR_RELU) {
            return relu_unsigned(work, &operation->out, &inputs[0]);
        }
        dtype = VARVE_DTYPE_I8; /* the same bits */
    }
    struct elements_loop loop;
    elements_loop_init(&loop, operation->count + 1,
                       (const struct varve_array *const[]){&operation->out, &inputs[0], &inputs[1]});
    return loop_launch(work, elementwise_gpu_kernel_find(operation->code, dtype), &loop, varve_dtype_bytes(dtype));
}
