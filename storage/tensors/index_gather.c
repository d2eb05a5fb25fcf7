/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements from picked positions to an array in order, or back. Around the loop over positions runs one over the axes
 * before them, and for each position one over the axes behind them, which often lie side by side on both sides: a
 * block. The loops over positions are compiled for each usual size of a block.
 */
#include "storage/tensors/index_internal.h"

#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* ---- axes of both sides ---- */

/* Sizes and the steps of both sides in bytes, neighbours joined where both sides lie so. */
struct move_axes {
    unsigned count;
    int64_t size[VARVE_DIMS_MAX];
    int64_t packed[VARVE_DIMS_MAX];
    int64_t indexed[VARVE_DIMS_MAX];
};

struct move {
    struct move_axes outer;
    struct move_axes list; /* of the packed side */
    struct move_axes inner;
    int64_t list_step; /* packed, of its last axis */
    size_t element_bytes;
    size_t block_bytes; /* 0: the inner axes lie otherwise */
    bool is_put;
};

static void axes_push(struct move_axes *axes, int64_t size, int64_t packed, int64_t indexed)
{
    unsigned last = axes->count - 1;
    if (size == 1) {
        return;
    }
    if (axes->count > 0 && axes->packed[last] == size * packed && axes->indexed[last] == size * indexed) {
        axes->size[last] *= size;
    } else {
        last = axes->count++;
        axes->size[last] = size;
    }
    axes->packed[last] = packed;
    axes->indexed[last] = indexed;
}

/* To the next entry of the first `count` axes; false: that was the last one. */
static bool axes_next(const struct move_axes *axes, unsigned count, int64_t *at, char **packed, char **indexed)
{
    for (unsigned i = count; i-- > 0;) {
        *packed += axes->packed[i];
        *indexed += axes->indexed[i];
        if (++at[i] < axes->size[i]) {
            return true;
        }
        *packed -= axes->size[i] * axes->packed[i];
        *indexed -= axes->size[i] * axes->indexed[i];
        at[i] = 0;
    }
    return false;
}

/* ---- one block ---- */

static ALWAYS_INLINE void block_move(char *packed, char *indexed, size_t bytes, bool is_put)
{
    if (is_put) {
        memcpy(indexed, packed, bytes);
    } else {
        memcpy(packed, indexed, bytes);
    }
}

/* One element to 64 side by side, from a copy of it, which the compiler knows not to change on the way. */
static ALWAYS_INLINE void index_gather_fill_64(const char *element, char *indexed, size_t bytes)
{
    char copy[8];
    memcpy(copy, element, bytes);
    for (size_t i = 0; i < 64; i++) {
        memcpy(indexed + i * bytes, copy, bytes);
    }
}

static ALWAYS_INLINE void row_move_of(char *packed, int64_t packed_step, char *indexed, int64_t indexed_step,
                                      int64_t count, size_t bytes, bool is_put)
{
    int64_t i = 0;
    if (is_put && packed_step == 0 && indexed_step == (int64_t)bytes) {
        for (; i + 64 <= count; i += 64) {
            index_gather_fill_64(packed, indexed + i * indexed_step, bytes);
        }
    }
    for (; i < count; i++) {
        block_move(packed + i * packed_step, indexed + i * indexed_step, bytes, is_put);
    }
}

static void row_move(const struct move *move, char *packed, char *indexed)
{
    const struct move_axes *inner = &move->inner;
    int64_t count = inner->size[inner->count - 1];
    int64_t packed_step = inner->packed[inner->count - 1], indexed_step = inner->indexed[inner->count - 1];
    int64_t bytes = (int64_t)move->element_bytes;
    if (packed_step == bytes && indexed_step == bytes) {
        block_move(packed, indexed, (size_t)(count * bytes), move->is_put);
        return;
    }
    switch (bytes) {
    case 1:
        row_move_of(packed, packed_step, indexed, indexed_step, count, 1, move->is_put);
        break;
    case 2:
        row_move_of(packed, packed_step, indexed, indexed_step, count, 2, move->is_put);
        break;
    case 4:
        row_move_of(packed, packed_step, indexed, indexed_step, count, 4, move->is_put);
        break;
    default:
        row_move_of(packed, packed_step, indexed, indexed_step, count, 8, move->is_put);
        break;
    }
}

/* Inner axes that are no block. */
static void rows_move(const struct move *move, char *packed, char *indexed)
{
    int64_t at[VARVE_DIMS_MAX] = {0};
    do {
        row_move(move, packed, indexed);
    } while (axes_next(&move->inner, move->inner.count - 1, at, &packed, &indexed));
}

/* ---- lists of positions ---- */

static ALWAYS_INLINE void list_move_of(char *packed, int64_t step, char *indexed, const void *list, bool is_wide,
                                       int64_t count, size_t bytes, bool is_put)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t position = is_wide ? ((const int64_t *)list)[i] : ((const int32_t *)list)[i];
        block_move(packed + i * step, indexed + position, bytes, is_put);
    }
}

static ALWAYS_INLINE void list_move_sized(const struct move *move, char *packed, char *indexed, const void *list,
                                          bool is_wide, int64_t count, size_t bytes)
{
    if (move->is_put) {
        list_move_of(packed, move->list_step, indexed, list, is_wide, count, bytes, true);
    } else {
        list_move_of(packed, move->list_step, indexed, list, is_wide, count, bytes, false);
    }
}

static ALWAYS_INLINE void list_move_wide(const struct move *move, char *packed, char *indexed, const void *list,
                                         bool is_wide, int64_t count)
{
    switch (move->block_bytes) {
    case 0:
        for (int64_t i = 0; i < count; i++) {
            int64_t position = is_wide ? ((const int64_t *)list)[i] : ((const int32_t *)list)[i];
            rows_move(move, packed + i * move->list_step, indexed + position);
        }
        break;
    case 1:
        list_move_sized(move, packed, indexed, list, is_wide, count, 1);
        break;
    case 2:
        list_move_sized(move, packed, indexed, list, is_wide, count, 2);
        break;
    case 4:
        list_move_sized(move, packed, indexed, list, is_wide, count, 4);
        break;
    case 8:
        list_move_sized(move, packed, indexed, list, is_wide, count, 8);
        break;
    case 16:
        list_move_sized(move, packed, indexed, list, is_wide, count, 16);
        break;
    case 32:
        list_move_sized(move, packed, indexed, list, is_wide, count, 32);
        break;
    default:
        list_move_sized(move, packed, indexed, list, is_wide, count, move->block_bytes);
        break;
    }
}

/* Positions of one row of the packed side. */
static void list_move(const struct move *move, char *packed, char *indexed, const void *list, bool is_wide,
                      int64_t count)
{
    if (is_wide) {
        list_move_wide(move, packed, indexed, list, true, count);
    } else {
        list_move_wide(move, packed, indexed, list, false, count);
    }
}

static void lists_move(const struct move *move, const struct index_positions *positions, char *packed, char *indexed)
{
    int64_t at[VARVE_DIMS_MAX] = {0};
    size_t width = positions->is_wide ? sizeof(int64_t) : sizeof(int32_t);
    const char *list = positions->list;
    unsigned axes = move->list.count > 0 ? move->list.count - 1 : 0;
    int64_t row = move->list.count > 0 ? move->list.size[axes] : 1;
    do {
        list_move(move, packed, indexed, list, positions->is_wide, row);
        list += (size_t)row * width;
    } while (axes_next(&move->list, axes, at, &packed, &indexed));
}

/* ---- bits of a mask ---- */

/* What lies along the mask's axis: steps of both sides, and how many words of bits. */
struct bits_run {
    const uint64_t *words;
    int64_t count;
    int64_t step;   /* packed */
    int64_t stride; /* indexed */
};

/* All 64 elements of a word. */
static ALWAYS_INLINE void word_move_full(const struct bits_run *run, char *packed, char *indexed, size_t bytes,
                                         bool is_put)
{
    if (run->stride == (int64_t)bytes && run->step == (int64_t)bytes) {
        block_move(packed, indexed, 64 * bytes, is_put);
    } else {
        row_move_of(packed, run->step, indexed, run->stride, 64, bytes, is_put);
    }
}

/* Do enough elements follow each other to be moved together? Most words are answered by whether eight do at all:
 * counting bits takes longer. */
static ALWAYS_INLINE bool word_has_runs(uint64_t word, bool is_dense)
{
    uint64_t eight = word & word >> 1;
    eight &= eight >> 2;
    eight &= eight >> 4;
    return eight != 0 && __builtin_popcountll(word) >= (is_dense ? 8 : 16) * __builtin_popcountll(word & ~(word << 1));
}

/* Picked elements that follow each other, all at once. */
static ALWAYS_INLINE char *word_move_runs(const struct bits_run *run, char *packed, char *indexed, uint64_t word,
                                          size_t bytes, bool is_put)
{
    bool is_dense = run->stride == (int64_t)bytes && run->step == (int64_t)bytes;
    while (word != 0) {
        int skipped = __builtin_ctzll(word);
        word = ~(word >> skipped);
        int count = word == 0 ? 64 : __builtin_ctzll(word);
        indexed += skipped * run->stride;
        if (is_dense) {
            block_move(packed, indexed, (size_t)count * bytes, is_put);
        } else {
            row_move_of(packed, run->step, indexed, run->stride, count, bytes, is_put);
        }
        packed += count * run->step;
        indexed += count * run->stride;
        word = count == 64 ? 0 : ~word >> count;
    }
    return packed;
}

/* Most of 64: all up to the last one are moved, but one that is not picked is overwritten by the next. Not for puts:
 * what is not picked may belong to another thread. */
static ALWAYS_INLINE char *word_take_most(const struct bits_run *run, char *packed, char *indexed, uint64_t word,
                                          size_t bytes)
{
    for (; word != 0; word >>= 1) {
        block_move(packed, indexed, bytes, false);
        packed += run->step & -(int64_t)(word & 1);
        indexed += run->stride;
    }
    return packed;
}

static ALWAYS_INLINE void bits_move_of(const struct bits_run *run, char *packed, char *indexed, size_t bytes,
                                       bool is_put)
{
    bool is_dense = run->stride == (int64_t)bytes && run->step == (int64_t)bytes;
    for (int64_t i = 0; i < run->count; i++, indexed += 64 * run->stride) {
        uint64_t word = run->words[i];
        if (word == UINT64_MAX) {
            word_move_full(run, packed, indexed, bytes, is_put);
            packed += 64 * run->step;
        } else if (word_has_runs(word, is_dense)) {
            packed = word_move_runs(run, packed, indexed, word, bytes, is_put);
        } else if (!is_put && __builtin_popcountll(word) > 40) {
            packed = word_take_most(run, packed, indexed, word, bytes);
        } else {
            for (; word != 0; word &= word - 1, packed += run->step) {
                block_move(packed, indexed + __builtin_ctzll(word) * run->stride, bytes, is_put);
            }
        }
    }
}

static ALWAYS_INLINE void bits_move_sized(const struct bits_run *run, char *packed, char *indexed, size_t bytes,
                                          bool is_put)
{
    if (is_put) {
        bits_move_of(run, packed, indexed, bytes, true);
    } else {
        bits_move_of(run, packed, indexed, bytes, false);
    }
}

/* Blocks of any size, and inner axes that are no block. */
static void bits_move_blocks(const struct move *move, const struct bits_run *run, char *packed, char *indexed)
{
    bool is_dense = move->block_bytes != 0 && (int64_t)move->block_bytes == run->stride && run->step == run->stride;
    for (int64_t i = 0; i < run->count; i++, indexed += 64 * run->stride) {
        if (is_dense && run->words[i] == UINT64_MAX) {
            block_move(packed, indexed, 64 * move->block_bytes, move->is_put);
            packed += 64 * run->step;
            continue;
        }
        int64_t list[64], count = 0;
        for (uint64_t word = run->words[i]; word != 0; word &= word - 1) {
            list[count++] = __builtin_ctzll(word) * run->stride;
        }
        list_move(move, packed, indexed, list, true, count);
        packed += count * run->step;
    }
}

static void bits_move(const struct move *move, const struct index_positions *positions, char *packed, char *indexed)
{
    struct bits_run run = {
        .words = positions->bits.words,
        .count = index_bits_words(&positions->bits),
        .step = move->list_step,
        .stride = positions->bit_stride,
    };
    switch (move->block_bytes) {
    case 1:
        bits_move_sized(&run, packed, indexed, 1, move->is_put);
        break;
    case 2:
        bits_move_sized(&run, packed, indexed, 2, move->is_put);
        break;
    case 4:
        bits_move_sized(&run, packed, indexed, 4, move->is_put);
        break;
    case 8:
        bits_move_sized(&run, packed, indexed, 8, move->is_put);
        break;
    default:
        bits_move_blocks(move, &run, packed, indexed);
        break;
    }
}

/* ---- everything ---- */

static void move_plan(const struct index_plan *plan, const struct varve_geometry *packed, struct move *move)
{
    const struct varve_geometry *rest = &plan->rest;
    const struct move_axes *inner = &move->inner;
    int64_t bytes = (int64_t)move->element_bytes;
    unsigned behind = plan->positions.ndim;
    move->outer.count = 0;
    move->list.count = 0;
    move->inner.count = 0;
    move->block_bytes = 0;
    for (unsigned i = 0; i < plan->advanced_at; i++) {
        axes_push(&move->outer, rest->shape[i], packed->strides[i] * bytes, rest->strides[i] * bytes);
    }
    for (unsigned i = 0; i < plan->positions.ndim; i++) {
        unsigned axis = plan->advanced_at + i;
        axes_push(&move->list, packed->shape[axis], packed->strides[axis] * bytes, 0);
    }
    for (unsigned i = plan->advanced_at; i < rest->ndim; i++) {
        axes_push(&move->inner, rest->shape[i], packed->strides[i + behind] * bytes, rest->strides[i] * bytes);
    }
    move->list_step = move->list.count > 0 ? move->list.packed[move->list.count - 1] : 0;
    if (inner->count == 0) {
        move->block_bytes = move->element_bytes;
    } else if (inner->count == 1 && inner->packed[0] == bytes && inner->indexed[0] == bytes) {
        move->block_bytes = (size_t)(inner->size[0] * bytes);
    }
}

void index_move(const struct index_plan *plan, const struct varve_array *packed, void *indexed_data,
                int64_t indexed_offset, bool is_put)
{
    int64_t bytes = (int64_t)varve_dtype_bytes(plan->plan.dtype);
    char *indexed = (char *)indexed_data + indexed_offset * bytes;
    char *at_packed = (char *)packed->data + packed->geometry.offset * bytes;
    if (plan->plan.element_count == 0) {
        return;
    }
    struct move move;
    move.element_bytes = (size_t)bytes;
    move.is_put = is_put;
    move_plan(plan, &packed->geometry, &move);
    int64_t at[VARVE_DIMS_MAX] = {0};
    do {
        if (plan->positions.list != NULL) {
            lists_move(&move, &plan->positions, at_packed, indexed);
        } else {
            bits_move(&move, &plan->positions, at_packed, indexed);
        }
    } while (axes_next(&move.outer, move.outer.count, at, &at_packed, &indexed));
}
