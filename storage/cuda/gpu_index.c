/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan keeps of indices as the GPU reads it, and its launch. Threads put values in no order, so of equal
 * positions all but the last are left out when the list is written.
 */
#include "storage/cuda/gpu_index.h"

#include "storage/cuda/gpu_copy.h"
#include "storage/tensors/element_loop.h"

#include <stdlib.h>
#include <string.h>

/* ---- kernels ---- */

enum kernel {
    KERNEL_PICK,
    KERNEL_PUT = KERNEL_PICK + 10,
    KERNEL_SET = KERNEL_PUT + 10,
    KERNEL_PICK_MASK = KERNEL_SET + 8,
    KERNEL_PUT_MASK = KERNEL_PICK_MASK + 4,
    KERNEL_SET_MASK = KERNEL_PUT_MASK + 4,
    KERNEL_PICK_ROWS = KERNEL_SET_MASK + 4,
    KERNEL_PUT_ROWS = KERNEL_PICK_ROWS + 2,
    KERNEL_LIMIT = KERNEL_PUT_ROWS + 2,
};

#define LIST_NAMES(way, bytes) way "_" bytes "_32", way "_" bytes "_64"
#define LIST_NAMES_8(way) LIST_NAMES(way, "1"), LIST_NAMES(way, "2"), LIST_NAMES(way, "4"), LIST_NAMES(way, "8")
#define MASK_NAMES(way) way "_mask_1", way "_mask_2", way "_mask_4", way "_mask_8"

static const char *const names[KERNEL_LIMIT] = {
    LIST_NAMES_8("pick"), LIST_NAMES("pick", "16"), LIST_NAMES_8("put"), LIST_NAMES("put", "16"),
    LIST_NAMES_8("set"),  MASK_NAMES("pick"),       MASK_NAMES("put"),   MASK_NAMES("set"),
    "pick_rows_32",       "pick_rows_64",           "put_rows_32",       "put_rows_64",
};

/* ---- what is kept ---- */

static const struct index_plan *inner_of(const struct varve_index_plan *plan)
{
    return (const struct index_plan *)plan;
}

static bool is_put(const struct index_plan *inner)
{
    return inner->plan.kind == VARVE_PLAN_SCATTER;
}

/* Bits serve where each is one element; else they are written as a list. */
static bool is_by_mask(const struct index_plan *inner)
{
    return inner->positions.list == NULL && varve_geometry_count(&inner->rest) == 1;
}

static uint64_t gpu_index_words_of(const struct index_plan *inner)
{
    return (uint64_t)index_bits_words(&inner->positions.bits);
}

static uint64_t parts_of(const struct index_plan *inner)
{
    return divide_up(gpu_index_words_of(inner), INDEX_PART_WORDS);
}

static size_t position_bytes(const struct index_plan *inner)
{
    return inner->positions.is_wide ? sizeof(int64_t) : sizeof(int32_t);
}

uint64_t gpu_index_bytes(const struct varve_index_plan *plan)
{
    const struct index_plan *inner = inner_of(plan);
    return is_by_mask(inner) ? (parts_of(inner) + gpu_index_words_of(inner)) * sizeof(uint64_t)
                             : (uint64_t)inner->positions.count * position_bytes(inner);
}

/* The ranks of all parts, then the words. */
static void mask_write(const struct index_plan *inner, uint64_t *out)
{
    const uint64_t *words = inner->positions.bits.words;
    uint64_t count = gpu_index_words_of(inner), rank = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (i % INDEX_PART_WORDS == 0) {
            *out++ = rank;
        }
        rank += (uint64_t)__builtin_popcountll(words[i]);
    }
    memcpy(out, words, count * sizeof(*words));
}

static int64_t position_get(const struct index_plan *inner, const void *list, int64_t i)
{
    return inner->positions.is_wide ? ((const int64_t *)list)[i] : ((const int32_t *)list)[i];
}

static void position_set(const struct index_plan *inner, void *list, int64_t i, int64_t position)
{
    if (inner->positions.is_wide) {
        ((int64_t *)list)[i] = position;
    } else {
        ((int32_t *)list)[i] = (int32_t)position;
    }
}

static void bits_write_as_list(const struct index_plan *inner, void *out)
{
    const struct index_positions *positions = &inner->positions;
    int64_t at = 0;
    for (int64_t i = 0; i < index_bits_words(&positions->bits); i++) {
        for (uint64_t word = positions->bits.words[i]; word != 0; word &= word - 1) {
            position_set(inner, out, at++, (i * 64 + __builtin_ctzll(word)) * positions->bit_stride);
        }
    }
}

/* The range of a list's positions, and all their bits. */
struct extent {
    int64_t least, most;
    uint64_t bits;
};

static struct extent extent_of(const struct index_plan *inner, const void *list)
{
    struct extent extent = {0};
    for (int64_t i = 0; i < inner->positions.count; i++) {
        int64_t position = position_get(inner, list, i);
        extent.bits |= (uint64_t)position;
        extent.least = position < extent.least ? position : extent.least;
        extent.most = position > extent.most ? position : extent.most;
    }
    return extent;
}

/* Of equal positions the last one stays. A bit for each place that there could be one. */
static int list_leave_out(const struct index_plan *inner, const struct extent *extent, void *list,
                          struct varve_message *message)
{
    int64_t none = inner->positions.is_wide ? INT64_MIN : INT32_MIN;
    int64_t step = extent->bits == 0 ? 1 : (int64_t)1 << __builtin_ctzll(extent->bits);
    uint64_t *seen = calloc((uint64_t)((extent->most - extent->least) / step) / 64 + 1, sizeof(*seen));
    if (seen == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to look for equal indices");
    }
    for (int64_t i = inner->positions.count; i-- > 0;) {
        uint64_t place = (uint64_t)((position_get(inner, list, i) - extent->least) / step);
        uint64_t bit = UINT64_C(1) << place % 64;
        if ((seen[place / 64] & bit) != 0) {
            position_set(inner, list, i, none);
        }
        seen[place / 64] |= bit;
    }
    free(seen);
    return VARVE_OK;
}

int gpu_index_write(const struct varve_index_plan *plan, void *bytes_out, uint64_t *positions_out,
                    struct varve_message *message)
{
    const struct index_plan *inner = inner_of(plan);
    bool has_list = inner->positions.list != NULL;
    *positions_out = 0;
    if (is_by_mask(inner)) {
        mask_write(inner, bytes_out);
        return VARVE_OK;
    }
    if (has_list) {
        memcpy(bytes_out, inner->positions.list, gpu_index_bytes(plan));
    } else {
        bits_write_as_list(inner, bytes_out); /* no bit comes twice */
    }
    struct extent extent = extent_of(inner, bytes_out);
    *positions_out = extent.bits;
    return has_list && is_put(inner) && !inner->is_number ? list_leave_out(inner, &extent, bytes_out, message)
                                                          : VARVE_OK;
}

/* ---- runs ---- */

_Static_assert(KERNEL_LIMIT <= GPU_KERNELS_MAX, "a program has room for them");

/* What a walk is launched with. */
struct order {
    struct gpu *gpu;
    unsigned kernel;
    unsigned rows_kernel; /* 0: none does */
    size_t position_bytes;
    uint64_t stream, number;
    struct varve_message *message;
};

static uint64_t gpu_index_number_of(const struct index_plan *inner)
{
    uint64_t number = 0;
    memcpy(&number, inner->number, varve_dtype_bytes(inner->plan.dtype));
    return number;
}

/* Long rows of the largest unit, one position each? */
static bool is_rows(const struct order *order, const struct walk *walk)
{
    const struct walk_axis *unit = &walk->axes[0], *row = &walk->axes[1];
    return order->rows_kernel != 0 && walk->axis_count == 2 && unit->size >= INDEX_ROW_UNITS_MIN &&
           unit->strides[0] == 16 && unit->strides[1] == 16 && unit->strides[2] == 0 && row->strides[1] == 0 &&
           row->strides[2] == (ptrdiff_t)order->position_bytes;
}

static int rows_launch(const struct order *order, const struct walk *walk)
{
    struct index_rows argument = {
        .packed = walk->addrs[0],
        .indexed = walk->addrs[1],
        .list = walk->addrs[2],
        .packed_stride = walk->axes[1].strides[0],
        .row_units = walk->axes[0].size,
        .parts = (uint32_t)divide_up(walk->axes[0].size, GPU_BLOCK * INDEX_PER_THREAD),
    };
    return gpu_launch_blocks(order->gpu, GPU_PROGRAM_INDEX, names, order->rows_kernel,
                             (uint64_t)walk->axes[1].size * argument.parts, &argument, order->stream, order->message);
}

static int list_visit(const struct walk *walk, void *context)
{
    const struct order *order = context;
    struct index_list argument = {*walk, order->number};
    uint64_t blocks = divide_up(walk->count, GPU_BLOCK * INDEX_PER_THREAD);
    if (is_rows(order, walk)) {
        return rows_launch(order, walk);
    }
    return gpu_launch_blocks(order->gpu, GPU_PROGRAM_INDEX, names, order->kernel, blocks, &argument, order->stream,
                             order->message);
}

/* The axes of the result in the indexed array (those of positions do not move there) and in the list
 * (the others do not). */
static void sides_make(const struct index_plan *inner, struct varve_geometry *indexed, struct varve_geometry *list)
{
    const struct index_positions *positions = &inner->positions;
    struct varve_geometry order;
    unsigned at = inner->advanced_at;
    (void)varve_geometry_contiguous(positions->ndim, positions->shape, &order, NULL);
    *indexed = inner->plan.result;
    *list = inner->plan.result;
    indexed->offset = 0;
    list->offset = 0;
    unsigned from = 0;
    for (unsigned i = 0; i < inner->plan.result.ndim; i++) {
        bool is_listed = i >= at && i < at + positions->ndim;
        indexed->strides[i] = is_listed ? 0 : inner->rest.strides[from++];
        list->strides[i] = is_listed ? order.strides[i - at] : 0;
    }
}

static int list_run(struct order *order, const struct index_plan *inner, const struct gpu_kept *kept,
                    const struct varve_array *packed, void *indexed_data, int64_t indexed_offset)
{
    struct varve_array own = *packed, other = {.data = indexed_data}, list = {.data = (void *)(uintptr_t)kept->addr};
    unsigned bytes = (unsigned)varve_dtype_bytes(inner->plan.dtype);
    list.dtype = inner->positions.is_wide ? VARVE_DTYPE_I64 : VARVE_DTYPE_I32;
    sides_make(inner, &other.geometry, &list.geometry);
    other.geometry.offset = indexed_offset;
    other.dtype = inner->plan.dtype;
    const struct varve_array *arrays[3];
    arrays[0] = inner->is_number ? &other : &own;
    arrays[1] = &other;
    arrays[2] = &list;
    struct elements_loop loop;
    elements_loop_init(&loop, 3, arrays);
    unsigned unit = inner->is_number ? bytes : gpu_widen(&loop, 2, bytes, kept->positions);
    if (unit == 0 || (uint64_t)(uintptr_t)loop.data[1] % unit != 0) {
        return varve_message_set(order->message, VARVE_ERROR_UNSUPPORTED, "elements of %u bytes to be indexed at %p",
                                 bytes, (void *)loop.data[1]);
    }
    order->kernel = (inner->is_number ? KERNEL_SET
                     : is_put(inner)  ? KERNEL_PUT
                                      : KERNEL_PICK) +
                    2 * (unsigned)__builtin_ctz(unit) + inner->positions.is_wide;
    order->position_bytes = position_bytes(inner);
    if (unit == 16) {
        order->rows_kernel = (is_put(inner) ? KERNEL_PUT_ROWS : KERNEL_PICK_ROWS) + inner->positions.is_wide;
    }
    return walk_each(&loop, list_visit, order);
}

static int mask_run(struct order *order, const struct index_plan *inner, const struct gpu_kept *kept,
                    const struct varve_array *packed, void *indexed_data, int64_t indexed_offset)
{
    uint64_t bytes = varve_dtype_bytes(inner->plan.dtype);
    struct index_mask argument = {
        .indexed = (uint64_t)(uintptr_t)indexed_data + (uint64_t)indexed_offset * bytes,
        .ranks = kept->addr,
        .words = kept->addr + parts_of(inner) * sizeof(uint64_t),
        .word_count = gpu_index_words_of(inner),
        .indexed_stride = inner->positions.bit_stride,
        .number = order->number,
    };
    unsigned way = inner->is_number ? KERNEL_SET_MASK : is_put(inner) ? KERNEL_PUT_MASK : KERNEL_PICK_MASK;
    if (!inner->is_number) {
        argument.packed = (uint64_t)(uintptr_t)packed->data + (uint64_t)packed->geometry.offset * bytes;
        argument.packed_stride = packed->geometry.strides[inner->advanced_at] * (int64_t)bytes;
    }
    if ((argument.indexed | argument.packed) % bytes != 0) {
        return varve_message_set(order->message, VARVE_ERROR_UNSUPPORTED,
                                 "elements of %llu bytes at addresses that are no multiples of it",
                                 (unsigned long long)bytes);
    }
    return gpu_launch_blocks(order->gpu, GPU_PROGRAM_INDEX, names, way + (unsigned)__builtin_ctzll(bytes),
                             divide_up(parts_of(inner), GPU_BLOCK / 32), &argument, order->stream, order->message);
}

int gpu_index_run(struct gpu *gpu, const struct index_plan *inner, const struct gpu_kept *kept,
                  const struct varve_array *packed, void *indexed_data, int64_t indexed_offset, uint64_t stream,
                  struct varve_message *message)
{
    struct order order = {.gpu = gpu, .stream = stream, .number = gpu_index_number_of(inner), .message = message};
    if (inner->plan.element_count == 0) {
        return VARVE_OK;
    }
    return is_by_mask(inner) ? mask_run(&order, inner, kept, packed, indexed_data, indexed_offset)
                             : list_run(&order, inner, kept, packed, indexed_data, indexed_offset);
}
