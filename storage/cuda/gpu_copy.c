/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses how elements go from one place of a GPU's memory to another. Elements of one type are moved in units as large
 * as addresses and strides allow; where the source's dense axis is another than the target's they go by tiles;
 * neighbours are converted in vectors.
 */
#include "storage/cuda/gpu_copy.h"

#define TARGET 0
#define SOURCE 1
#define UNIT_MAX 16U
#define TILE_AXIS_MIN 16 /* units of an axis that are worth tiles */

/* ---- kernels ---- */

enum kernel {
    KERNEL_MOVE,
    KERNEL_TRANSPOSE = KERNEL_MOVE + 5,
    KERNEL_FILL = KERNEL_TRANSPOSE + 5,
    KERNEL_CAST_STRIDED = KERNEL_FILL + 4,
    KERNEL_CAST,
    KERNEL_LIMIT = KERNEL_CAST + VARVE_DTYPE_LIMIT * VARVE_DTYPE_LIMIT,
};

#define UNIT_NAMES(kernel) kernel "_1", kernel "_2", kernel "_4", kernel "_8"
#define CAST_NAME(TO, FROM) "cast_" #TO "_" #FROM,
#define CAST_NAMES(TO)  \
    CAST_NAME(TO, F64)  \
    CAST_NAME(TO, F32)  \
    CAST_NAME(TO, F16)  \
    CAST_NAME(TO, BF16) \
    CAST_NAME(TO, I64)  \
    CAST_NAME(TO, I32) CAST_NAME(TO, I16) CAST_NAME(TO, I8) CAST_NAME(TO, U8) CAST_NAME(TO, BOOL)

/* There are no casts from a type to itself, which is a move: their names are never looked up. */
static const char *const names[KERNEL_LIMIT] = {
    /* clang-format off */
    UNIT_NAMES("move"), "move_16", UNIT_NAMES("transpose"), "transpose_16", UNIT_NAMES("fill"), "cast_strided",
#define CAST_ROW(code, NAME, name, bytes) CAST_NAMES(NAME)
    VARVE_DTYPE_LIST(CAST_ROW)
#undef CAST_ROW
    /* clang-format on */
};

_Static_assert(KERNEL_LIMIT <= GPU_KERNELS_MAX, "a program has room for them");

/* What a walk is launched with. */
struct order {
    struct gpu *gpu;
    unsigned kernel;
    uint64_t stream;
    struct varve_message *message;
    uint32_t target_dtype, source_dtype;
    uint64_t pattern;
};

static int launch(const struct order *order, uint64_t blocks, void *argument)
{
    return gpu_launch_blocks(order->gpu, GPU_PROGRAM_COPY, names, order->kernel, blocks, argument, order->stream,
                             order->message);
}

static uint64_t blocks_for(uint64_t count)
{
    return divide_up(count, GPU_BLOCK * COPY_PER_THREAD);
}

static unsigned unit_number(unsigned unit)
{
    return (unsigned)__builtin_ctz(unit);
}

/* ---- units ---- */

/* The lowest set bit of all that a unit must divide is the largest unit. */
static uint64_t bits_of(const struct elements_loop *loop, unsigned operands, unsigned axes)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < operands; i++) {
        bits |= (uint64_t)(uintptr_t)loop->data[i];
        for (unsigned axis = 0; axis < axes; axis++) {
            bits |= (uint64_t)loop->strides[i][axis];
        }
    }
    return bits;
}

static unsigned unit_of(uint64_t bits)
{
    return bits % UNIT_MAX == 0 ? UNIT_MAX : 1U << __builtin_ctzll(bits);
}

static bool is_dense(const struct elements_loop *loop, unsigned operands, unsigned axis, unsigned bytes)
{
    bool is = true;
    for (unsigned i = 0; i < loop->operands; i++) {
        is = is && loop->strides[i][axis] == (i < operands ? (ptrdiff_t)bytes : 0);
    }
    return is;
}

static void axis_drop_last(struct elements_loop *loop)
{
    if (loop->shape[loop->ndim - 1] == 1 && loop->ndim > 1) {
        loop->ndim--;
    }
}

unsigned gpu_widen(struct elements_loop *loop, unsigned operands, unsigned bytes, uint64_t also)
{
    unsigned last = loop->ndim - 1, unit;
    if (!is_dense(loop, operands, last, bytes)) {
        unit = unit_of(bits_of(loop, operands, loop->ndim) | also | bytes);
        if (unit == bytes) {
            return unit;
        }
        if (loop->ndim == VARVE_DIMS_MAX) {
            return 0;
        }
        last = loop->ndim++; /* parts of an element, which are neighbours */
        loop->shape[last] = 1;
        for (unsigned i = 0; i < loop->operands; i++) {
            loop->strides[i][last] = 0;
        }
    } else {
        unit = unit_of(bits_of(loop, operands, last) | also | (uint64_t)loop->shape[last] * bytes);
    }
    loop->shape[last] = loop->shape[last] * bytes / unit;
    for (unsigned i = 0; i < operands; i++) {
        loop->strides[i][last] = (ptrdiff_t)unit;
    }
    axis_drop_last(loop);
    return unit;
}

/* ---- moves ---- */

static int move_visit(const struct walk *walk, void *context)
{
    const struct order *order = context;
    struct copy_strided argument = {*walk, order->target_dtype, order->source_dtype};
    return launch(order, blocks_for(walk->count), &argument);
}

/* The axis that is dense in the source, if it is another one than the target's; else the last one. */
static unsigned gpu_copy_axis_of_source(const struct elements_loop *loop, unsigned unit)
{
    unsigned last = loop->ndim - 1;
    if (loop->strides[TARGET][last] != (ptrdiff_t)unit || loop->shape[last] < TILE_AXIS_MIN ||
        loop->shape[last] > UINT32_MAX) {
        return last;
    }
    for (unsigned i = 0; i < last; i++) {
        if (loop->strides[SOURCE][i] == (ptrdiff_t)unit && loop->shape[i] >= TILE_AXIS_MIN &&
            loop->shape[i] <= UINT32_MAX) {
            return i;
        }
    }
    return last;
}

struct transposing {
    const struct order *order;
    struct copy_transpose argument;
};

static int transpose_visit(const struct walk *batch, void *context)
{
    struct transposing *transposing = context;
    struct copy_transpose *argument = &transposing->argument;
    const struct varve_launch order = {
        .blocks = {batch->count * argument->row_tiles * argument->column_tiles, 1, 1},
        .threads = {GPU_BLOCK / COPY_TILE_THREADS, COPY_TILE_THREADS, 1},
        .arguments = (void *[]){argument},
    };
    argument->batch = *batch;
    return gpu_launch(transposing->order->gpu, GPU_PROGRAM_COPY, names, transposing->order->kernel, &order,
                      transposing->order->stream, transposing->order->message);
}

/* A loop without an axis; one without any has one of size 1. */
static void gpu_copy_axis_remove(struct elements_loop *loop, unsigned axis)
{
    for (unsigned k = axis; k + 1 < loop->ndim; k++) {
        loop->shape[k] = loop->shape[k + 1];
        for (unsigned i = 0; i < loop->operands; i++) {
            loop->strides[i][k] = loop->strides[i][k + 1];
        }
    }
    loop->ndim--;
    if (loop->ndim == 0) {
        loop->shape[loop->ndim++] = 1;
    }
}

/* `row_axis` is the source's dense one. */
static int transpose(struct order *order, struct elements_loop *loop, unsigned row_axis, unsigned unit)
{
    unsigned last = loop->ndim - 1;
    uint64_t row_tiles = divide_up((uint64_t)loop->shape[row_axis], COPY_TILE(unit));
    uint64_t column_tiles = divide_up((uint64_t)loop->shape[last], COPY_TILE(unit));
    struct transposing transposing = {
        .order = order,
        .argument = {.rows = (uint32_t)loop->shape[row_axis],
                     .columns = (uint32_t)loop->shape[last],
                     .row_tiles = (uint32_t)row_tiles,
                     .column_tiles = (uint32_t)column_tiles,
                     .target_row_stride = loop->strides[TARGET][row_axis],
                     .source_column_stride = loop->strides[SOURCE][last]},
    };
    order->kernel = KERNEL_TRANSPOSE + unit_number(unit);
    gpu_copy_axis_remove(loop, last);
    gpu_copy_axis_remove(loop, row_axis);
    return walk_each(loop, transpose_visit, &transposing);
}

static int move(struct order *order, struct elements_loop *loop, unsigned bytes)
{
    unsigned unit = gpu_widen(loop, loop->operands, bytes, 0);
    if (unit == 0) {
        return varve_message_set(order->message, VARVE_ERROR_UNSUPPORTED,
                                 "elements at addresses that are no multiples of their size, in %u axes",
                                 VARVE_DIMS_MAX);
    }
    unsigned row_axis = gpu_copy_axis_of_source(loop, unit);
    if (row_axis + 1 < loop->ndim && elements_loop_count(loop) < WALK_COUNT_MAX * TILE_AXIS_MIN) {
        return transpose(order, loop, row_axis, unit);
    }
    order->kernel = KERNEL_MOVE + unit_number(unit);
    return walk_each(loop, move_visit, order);
}

/* ---- conversions ---- */

static int cast(struct order *order, const struct elements_loop *loop)
{
    unsigned to = (unsigned)varve_dtype_bytes((enum varve_dtype)order->target_dtype);
    unsigned from = (unsigned)varve_dtype_bytes((enum varve_dtype)order->source_dtype);
    unsigned vector = COPY_VECTOR_BYTES / (to > from ? to : from);
    uint64_t target = (uint64_t)(uintptr_t)loop->data[TARGET];
    uint64_t source = (uint64_t)(uintptr_t)loop->data[SOURCE];
    if (loop->ndim == 1 && loop->strides[TARGET][0] == (ptrdiff_t)to && loop->strides[SOURCE][0] == (ptrdiff_t)from &&
        target % (vector * to) == 0 && source % (vector * from) == 0) {
        struct copy_cast argument = {target, source, (uint64_t)loop->shape[0]};
        order->kernel = KERNEL_CAST + order->target_dtype * VARVE_DTYPE_LIMIT + order->source_dtype;
        return launch(order, blocks_for(argument.count / vector + 1), &argument);
    }
    for (unsigned i = 0; i < 2; i++) {
        unsigned bytes = i == TARGET ? to : from;
        if ((uint64_t)(uintptr_t)loop->data[i] % bytes != 0) {
            return varve_message_set(order->message, VARVE_ERROR_UNSUPPORTED,
                                     "elements of %u bytes to be converted at %p", bytes, (void *)loop->data[i]);
        }
    }
    order->kernel = KERNEL_CAST_STRIDED;
    return walk_each(loop, move_visit, order);
}

int gpu_copy(struct gpu *gpu, const struct varve_array *target, const struct varve_array *source, uint64_t stream,
             struct varve_message *message)
{
    const struct varve_array *arrays[2] = {[TARGET] = target, [SOURCE] = source};
    struct order order = {
        .gpu = gpu,
        .stream = stream,
        .message = message,
        .target_dtype = (uint32_t)target->dtype,
        .source_dtype = (uint32_t)source->dtype,
    };
    struct elements_loop loop;
    elements_loop_init(&loop, 2, arrays);
    if (elements_loop_count(&loop) == 0) {
        return VARVE_OK;
    }
    return target->dtype == source->dtype ? move(&order, &loop, (unsigned)varve_dtype_bytes(target->dtype))
                                          : cast(&order, &loop);
}

/* ---- fills ---- */

static int fill_visit(const struct walk *walk, void *context)
{
    const struct order *order = context;
    struct copy_fill argument = {*walk, order->pattern};
    return launch(order, blocks_for(walk->count), &argument);
}

int gpu_fill(struct gpu *gpu, const struct varve_array *target, uint64_t pattern, uint64_t stream,
             struct varve_message *message)
{
    unsigned bytes = (unsigned)varve_dtype_bytes(target->dtype);
    struct order order = {
        .gpu = gpu,
        .kernel = KERNEL_FILL + unit_number(bytes),
        .stream = stream,
        .message = message,
        .pattern = pattern,
    };
    struct elements_loop loop;
    elements_loop_init(&loop, 1, &target);
    if (elements_loop_count(&loop) == 0) {
        return VARVE_OK;
    }
    if ((uint64_t)(uintptr_t)loop.data[TARGET] % bytes != 0) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "elements of %u bytes to be set at %p", bytes,
                                 (void *)loop.data[TARGET]);
    }
    return walk_each(&loop, fill_visit, &order);
}
