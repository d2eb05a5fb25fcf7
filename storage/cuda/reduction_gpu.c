/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a reduction is divided among blocks: by rows where the elements of a result lie closer together than those of its
 * neighbour, else by columns. Where there are few results, each is made of parts, which a second launch
 * brings together.
 */
#include "storage/cuda/gpu_operators.h"

#include <stdlib.h>

#define BLOCKS_WANTED 4096U /* that keep any GPU busy, several times over */
#define PART_ELEMENTS 8192U /* at least, of a row */
#define ROUNDS_LEAST 4U     /* of a part of a column */
#define ROW_SHORT 64        /* elements of a row for 4 threads, at most */
#define ROW_MIDDLE 2048     /* for a warp */

struct reduction {
    const struct gpu_work *work;
    enum varve_operator code;
    enum varve_dtype dtype;
    struct elements_loop kept;    /* operands: the result, the first element of each */
    struct elements_loop reduced; /* of one result */
    struct reduction_launch launch;
    enum kernel kernel;
    uint64_t part_total; /* of all launches */
    bool is_columns;
};

/* ---- kernels ---- */

static enum kernel reduction_gpu_kernel_find(const struct reduction *reduction)
{
#define PLACE_sum 0
#define PLACE_max 1
#define ROWS_OF_LIST(name, TYPE, RESULT) [0][PLACE_##name][VARVE_DTYPE_##TYPE] = KERNEL_rows_##name##_##TYPE##_##RESULT,
#define COLUMNS_OF_LIST(name, TYPE, RESULT) \
    [1][PLACE_##name][VARVE_DTYPE_##TYPE] = KERNEL_columns_##name##_##TYPE##_##RESULT,
    /* rows of the same list as columns: those that begin with parts are found below */
    static const unsigned short kernels[2][2][VARVE_DTYPE_LIMIT] = {KERNELS_COLUMNS_LIST(ROWS_OF_LIST)
                                                                        KERNELS_COLUMNS_LIST(COLUMNS_OF_LIST)};
    return kernels[reduction->is_columns][reduction->code == VARVE_OPERATOR_MAX][reduction->dtype];
}

static bool has_real_parts(const struct reduction *reduction)
{
    return reduction->code != VARVE_OPERATOR_MAX && dtype_is_float(reduction->dtype);
}

/* Of what brings parts together: they are f64, i64 or the input's type. */
static enum kernel kernel_of_parts(const struct reduction *reduction)
{
    struct reduction parts = {.code = reduction->code, .dtype = reduction->dtype};
    if (!has_real_parts(reduction)) {
        parts.dtype = reduction->code == VARVE_OPERATOR_MAX ? reduction->dtype : VARVE_DTYPE_I64;
        return reduction_gpu_kernel_find(&parts);
    }
    switch (reduction->dtype) {
    case VARVE_DTYPE_F64:
        return KERNEL_rows_sum_F64_F64;
    case VARVE_DTYPE_F32:
        return KERNEL_rows_sum_F64_F32;
    case VARVE_DTYPE_F16:
        return KERNEL_rows_sum_F64_F16;
    default:
        return KERNEL_rows_sum_F64_BF16;
    }
}

static uint64_t part_bytes(const struct reduction *reduction)
{
    return has_real_parts(reduction)               ? 2 * sizeof(double)
           : reduction->code == VARVE_OPERATOR_MAX ? varve_dtype_bytes(reduction->dtype)
                                                   : sizeof(int64_t);
}

/* ---- how it is divided ---- */

static uint32_t row_lanes(uint64_t count)
{
    return count <= ROW_SHORT ? 4 : count <= ROW_MIDDLE ? 32 : GPU_BLOCK;
}

/* As many columns as there are, and more than that fills a line of memory only where rows are short. */
static uint32_t column_width(uint64_t kept, uint64_t count)
{
    uint32_t width = 1;
    while (width < 32 && width < kept) {
        width *= 2;
    }
    while (width < GPU_BLOCK && width < kept && GPU_BLOCK / width > count) {
        width *= 2;
    }
    return width;
}

/* `count` elements in parts that are all in use. */
static void reduction_gpu_divide(struct reduction_launch *launch, uint64_t count, uint64_t blocks, uint64_t least)
{
    uint64_t parts = BLOCKS_WANTED / blocks;
    parts = parts < count / least ? parts : count / least;
    parts = parts > 0 ? parts : 1;
    launch->count = count;
    launch->part_count = count > 0 ? divide_up(count, parts) : 1;
    launch->parts = count > 0 ? (uint32_t)divide_up(count, launch->part_count) : 1;
}

static void divide_rows(struct reduction *reduction, uint64_t kept, uint64_t count)
{
    struct reduction_launch *launch = &reduction->launch;
    launch->lanes = row_lanes(count);
    reduction_gpu_divide(launch, count, divide_up(kept, GPU_BLOCK / launch->lanes),
                         launch->lanes == GPU_BLOCK ? PART_ELEMENTS : UINT64_MAX);
}

static void divide_columns(struct reduction *reduction, uint64_t kept, uint64_t count)
{
    struct reduction_launch *launch = &reduction->launch;
    launch->lanes = column_width(kept, count);
    uint64_t height = GPU_BLOCK / launch->lanes;
    reduction_gpu_divide(launch, count, divide_up(kept, launch->lanes), height * COLUMNS_STEPS * ROUNDS_LEAST);
}

/* ---- launches ---- */

static int kept_launch(const struct walk *walk, void *context)
{
    const struct reduction *reduction = context;
    struct reduction_launch launch = reduction->launch;
    uint64_t per_block = reduction->is_columns ? launch.lanes : GPU_BLOCK / launch.lanes;
    launch.kept = *walk;
    return work_launch(reduction->work, reduction->kernel, divide_up(walk->count, per_block),
                       divide_up(launch.count > 0 ? launch.count : 1, launch.part_count), &launch);
}

/* One axis is reduced, or several that lie as one. */
static int run_axis(struct reduction *reduction)
{
    reduction->launch.reduced.axis_count = 1;
    return walk_each(&reduction->kept, kept_launch, reduction);
}

/* The only result, of several axes: a launch for each walk of them. */
static int reduced_count(const struct walk *walk, void *context)
{
    struct reduction *reduction = context;
    divide_rows(reduction, 1, walk->count);
    reduction->part_total += reduction->launch.parts;
    return 0;
}

static int reduced_launch(const struct walk *walk, void *context)
{
    struct reduction *reduction = context;
    divide_rows(reduction, 1, walk->count);
    uint32_t parts = reduction->launch.parts;
    reduction->launch.parts = (uint32_t)reduction->part_total;
    reduction->launch.reduced = *walk;
    reduction->kept.data[1] = (char *)(uintptr_t)walk->addrs[0];
    int error = walk_each(&reduction->kept, kept_launch, reduction);
    reduction->launch.part_first += parts;
    return error;
}

static int run_parts(struct reduction *reduction)
{
    return reduction->reduced.ndim > 1 ? walk_each(&reduction->reduced, reduced_launch, reduction)
                                       : run_axis(reduction);
}

/* The results of rows of parts, which follow each other in the order of the loop. */
static int merge_parts(const struct reduction *reduction, uint64_t parts_addr)
{
    uint64_t row = reduction->part_total * part_bytes(reduction);
    struct reduction second = *reduction;
    second.kernel = kernel_of_parts(reduction);
    second.is_columns = false;
    second.kept.data[1] = (char *)(uintptr_t)parts_addr;
    for (unsigned axis = second.kept.ndim; axis-- > 0;) {
        second.kept.strides[1][axis] = (ptrdiff_t)row;
        row *= (uint64_t)second.kept.shape[axis];
    }
    second.launch.parts_addr = 0;
    second.launch.part_first = 0;
    second.launch.parts = 1;
    second.launch.stride = (int64_t)(has_real_parts(reduction) ? sizeof(double) : part_bytes(reduction));
    second.launch.count = reduction->part_total * (has_real_parts(reduction) ? 2 : 1);
    second.launch.part_count = second.launch.count;
    second.launch.lanes = row_lanes(second.launch.count);
    return run_axis(&second);
}

static int reduction_gpu_run(struct reduction *reduction)
{
    const struct gpu_work *work = reduction->work;
    if (reduction->part_total == 1) {
        return run_parts(reduction);
    }
    struct varve_allocation allocation;
    VARVE_TRY(work_allocate(work, elements_loop_count(&reduction->kept) * reduction->part_total * part_bytes(reduction),
                            &allocation));
    reduction->launch.parts_addr = varve_allocation_addr(allocation);
    int error = run_parts(reduction);
    VARVE_THEN(error, merge_parts(reduction, reduction->launch.parts_addr));
    varve_alloc_free(work->alloc, allocation, NULL);
    return error;
}

/* ---- axes ---- */

/* The axes that are reduced, or the others. */
static struct varve_array array_part(const struct varve_array *array, const struct reduction_axes *axes,
                                     bool is_reduced)
{
    const struct varve_geometry *from = &array->geometry;
    struct varve_array part = {.data = array->data, .dtype = array->dtype};
    part.geometry.offset = from->offset;
    for (unsigned i = 0; i < from->ndim; i++) {
        if (axes->is_reduced[i] == is_reduced) {
            part.geometry.shape[part.geometry.ndim] = from->shape[i];
            part.geometry.strides[part.geometry.ndim++] = from->strides[i];
        }
    }
    return part;
}

static void reduction_gpu_loops_of(struct reduction *reduction, const struct varve_array *out,
                                   const struct varve_array *a, const struct reduction_axes *axes)
{
    bool has_axis = out->geometry.ndim == axes->kept_ndim; /* of size 1 */
    const struct varve_array result = has_axis ? array_part(out, axes, false) : *out;
    const struct varve_array kept = array_part(a, axes, false), reduced = array_part(a, axes, true);
    elements_loop_init(&reduction->kept, 2, (const struct varve_array *const[]){&result, &kept});
    elements_loop_init(&reduction->reduced, 1, (const struct varve_array *const[]){&reduced});
    reduction->kept.data[1] += reduction->reduced.data[0] - elements_begin(a); /* it may begin at an end */
}

static bool is_by_columns(const struct reduction *reduction, uint64_t kept)
{
    const struct elements_loop *loop = &reduction->kept;
    return reduction->reduced.ndim == 1 && reduction->reduced.shape[0] > 1 && kept > 1 &&
           labs(loop->strides[1][loop->ndim - 1]) < reduction->reduced.strides[0][0];
}

int gpu_reduction(const struct gpu_work *work, const struct operation *operation)
{
    const struct varve_array *out = &operation->out, *a = &operation->inputs[0];
    struct reduction reduction = {.work = work, .code = operation->code, .dtype = a->dtype};
    struct reduction_axes axes;
    int error = reduction_check(operation->code, out, a, operation->axis, &axes, work->message);
    if (error != VARVE_OK) {
        return error;
    }
    reduction_gpu_loops_of(&reduction, out, a, &axes);
    uint64_t kept = elements_loop_count(&reduction.kept);
    reduction.is_columns = is_by_columns(&reduction, kept);
    reduction.kernel = reduction_gpu_kernel_find(&reduction);
    reduction.launch.divisor = operation->code == VARVE_OPERATOR_MEAN ? (double)axes.divisor : 1;
    if (reduction.reduced.ndim > 1) {
        error = walk_each(&reduction.reduced, reduced_count, &reduction);
    } else {
        uint64_t count = (uint64_t)reduction.reduced.shape[0];
        reduction.launch.stride = reduction.reduced.strides[0][0];
        (reduction.is_columns ? divide_columns : divide_rows)(&reduction, kept, count);
        reduction.part_total = reduction.launch.parts;
    }
    return error == VARVE_OK ? reduction_gpu_run(&reduction) : error;
}
