/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transposition reads along one axis and writes along the other. Both sides are touched a whole cache line at a time:
 * a tile has as many rows as a line has elements, is read row by row into a buffer, and is turned in registers on its
 * way out. Rows that lie a power of two apart share a set of the cache, so nothing of the source is
 * needed a second time.
 */
#include "storage/tensors/element_loop.h"

#include "storage/tensors/element.h"

#include <string.h>

/* Elements at any address, of any type. */
typedef uint8_t any_1 __attribute__((may_alias));
typedef uint16_t any_2 __attribute__((may_alias, aligned(1)));
typedef uint32_t any_4 __attribute__((may_alias, aligned(1)));
typedef uint64_t any_8 __attribute__((may_alias, aligned(1)));

#define LINE_BYTES 64

/* ---- runs ---- */

#define REPEAT_DEFINE(bytes, suffix, attributes)                                                        \
    attributes static void move_repeat_##bytes##suffix(char *target, const char *source, int64_t count) \
    {                                                                                                   \
        any_##bytes value = *(const any_##bytes *)source;                                               \
                                                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                           \
            ((any_##bytes *)target)[i] = value;                                                         \
        }                                                                                               \
    }

#define MOVE_RUN(bytes)                                                                                              \
    REPEAT_DEFINE(bytes, _plain, )                                                                                   \
    static void move_run_##bytes(char *target, ptrdiff_t target_stride, const char *source, ptrdiff_t source_stride, \
                                 int64_t count)                                                                      \
    {                                                                                                                \
        if (target_stride == (bytes)) {                                                                              \
            _Pragma("GCC unroll 8") for (int64_t i = 0; i < count; i++)                                              \
            {                                                                                                        \
                ((any_##bytes *)target)[i] = *(const any_##bytes *)(source + i * source_stride);                     \
            }                                                                                                        \
        } else {                                                                                                     \
            _Pragma("GCC unroll 8") for (int64_t i = 0; i < count; i++)                                              \
            {                                                                                                        \
                *(any_##bytes *)(target + i * target_stride) = *(const any_##bytes *)(source + i * source_stride);   \
            }                                                                                                        \
        }                                                                                                            \
    }

MOVE_RUN(1)
MOVE_RUN(2)
MOVE_RUN(4)
MOVE_RUN(8)
#undef MOVE_RUN
#if ELEMENTS_HAS_AVX2
REPEAT_DEFINE(2, _avx2, ELEMENTS_AVX2)
REPEAT_DEFINE(4, _avx2, ELEMENTS_AVX2)
REPEAT_DEFINE(8, _avx2, ELEMENTS_AVX2)
#endif

/* One element over a run. A loop of single bytes becomes memset. */
static void move_repeat(char *target, const char *source, int64_t count, size_t bytes)
{
#if ELEMENTS_HAS_AVX2
    if (bytes > 1 && __builtin_cpu_supports("avx2")) {
        if (bytes == 2) {
            move_repeat_2_avx2(target, source, count);
        } else if (bytes == 4) {
            move_repeat_4_avx2(target, source, count);
        } else {
            move_repeat_8_avx2(target, source, count);
        }
        return;
    }
#endif
    if (bytes == 1) {
        move_repeat_1_plain(target, source, count);
    } else if (bytes == 2) {
        move_repeat_2_plain(target, source, count);
    } else if (bytes == 4) {
        move_repeat_4_plain(target, source, count);
    } else {
        move_repeat_8_plain(target, source, count);
    }
}

void elements_move(char *target, ptrdiff_t target_stride, const char *source, ptrdiff_t source_stride, int64_t count,
                   size_t bytes)
{
    if (target_stride == (ptrdiff_t)bytes && source_stride == (ptrdiff_t)bytes) {
        memcpy(target, source, (size_t)count * bytes);
    } else if (target_stride == (ptrdiff_t)bytes && source_stride == 0) {
        move_repeat(target, source, count, bytes);
    } else if (bytes == 1) {
        move_run_1(target, target_stride, source, source_stride, count);
    } else if (bytes == 2) {
        move_run_2(target, target_stride, source, source_stride, count);
    } else if (bytes == 4) {
        move_run_4(target, target_stride, source, source_stride, count);
    } else {
        move_run_8(target, target_stride, source, source_stride, count);
    }
}

/* ---- planes ---- */

#define VECTOR_BYTES 16

typedef uint8_t vector_1 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vector_2 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vector_4 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vector_8 __attribute__((vector_size(VECTOR_BYTES)));

/* The lanes of two vectors in turn: of their lower halves, of their upper halves. */
#define LOW_1(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_1(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_2(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_2(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_8(a, b) __builtin_shufflevector(a, b, 0, 2)
#define HIGH_8(a, b) __builtin_shufflevector(a, b, 1, 3)

/* A square of as many rows as a vector has lanes: interleaving row i with row i + n/2 moves one bit of the row's number
 * to the column's, so log2(n) rounds transpose. */
#define MOVE_SQUARE(bytes)                                                                            \
    static inline void move_square_##bytes(char *target, ptrdiff_t target_stride, const char *source) \
    {                                                                                                 \
        enum { LANES = VECTOR_BYTES / (bytes) };                                                      \
        vector_##bytes rows[LANES], next[LANES];                                                      \
                                                                                                      \
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)                                      \
        {                                                                                             \
            memcpy(&rows[i], source + i * LINE_BYTES, VECTOR_BYTES);                                  \
        }                                                                                             \
        _Pragma("GCC unroll 4") for (int round = 1; round < LANES; round *= 2)                        \
        {                                                                                             \
            _Pragma("GCC unroll 8") for (int i = 0; i < LANES / 2; i++)                               \
            {                                                                                         \
                next[2 * i] = LOW_##bytes(rows[i], rows[i + LANES / 2]);                              \
                next[2 * i + 1] = HIGH_##bytes(rows[i], rows[i + LANES / 2]);                         \
            }                                                                                         \
            memcpy(rows, next, sizeof(rows));                                                         \
        }                                                                                             \
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)                                      \
        {                                                                                             \
            memcpy(target + i * target_stride, &rows[i], VECTOR_BYTES);                               \
        }                                                                                             \
    }

/* A tile: lines of the source, along the target's outer axis, become lines of the target, along its inner one. */
#define MOVE_TILE(bytes)                                                                                              \
    static void move_tile_##bytes(char *target, ptrdiff_t target_stride, const char *source, ptrdiff_t source_stride) \
    {                                                                                                                 \
        enum { LANES = VECTOR_BYTES / (bytes), SIDE = LINE_BYTES / (bytes) };                                         \
        char lines[SIDE * LINE_BYTES] __attribute__((aligned(LINE_BYTES)));                                           \
                                                                                                                      \
        for (int i = 0; i < SIDE; i++) {                                                                              \
            memcpy(lines + i * LINE_BYTES, source + i * source_stride, LINE_BYTES);                                   \
        }                                                                                                             \
        for (int row = 0; row < SIDE; row += LANES) {                                                                 \
            for (int column = 0; column < SIDE; column += LANES) {                                                    \
                move_square_##bytes(target + row * target_stride + column * (bytes), target_stride,                   \
                                    lines + column * LINE_BYTES + row * (bytes));                                     \
            }                                                                                                         \
        }                                                                                                             \
    }

#define MOVE_TRANSPOSED(bytes) MOVE_SQUARE(bytes) MOVE_TILE(bytes)
MOVE_TRANSPOSED(1)
MOVE_TRANSPOSED(2)
MOVE_TRANSPOSED(4)
MOVE_TRANSPOSED(8)
#undef MOVE_TRANSPOSED
#undef MOVE_TILE
#undef MOVE_SQUARE

static void move_tile(char *target, const char *source, const struct elements_plane *plane, size_t bytes)
{
    ptrdiff_t rows = plane->target_strides[0];
    ptrdiff_t lines = plane->source_strides[1];
    if (bytes == 1) {
        move_tile_1(target, rows, source, lines);
    } else if (bytes == 2) {
        move_tile_2(target, rows, source, lines);
    } else if (bytes == 4) {
        move_tile_4(target, rows, source, lines);
    } else {
        move_tile_8(target, rows, source, lines);
    }
}

/* What no tile covers. The longer axis is the inner one, for fewer calls. */
static void move_part(char *target, const char *source, const struct elements_plane *plane, const int64_t *begin,
                      const int64_t *end, size_t bytes)
{
    int inner = end[0] - begin[0] > end[1] - begin[1] ? 0 : 1;
    int outer = 1 - inner;
    if (begin[0] >= end[0] || begin[1] >= end[1]) {
        return;
    }
    target += begin[inner] * plane->target_strides[inner];
    source += begin[inner] * plane->source_strides[inner];
    for (int64_t i = begin[outer]; i < end[outer]; i++) {
        elements_move(target + i * plane->target_strides[outer], plane->target_strides[inner],
                      source + i * plane->source_strides[outer], plane->source_strides[inner],
                      end[inner] - begin[inner], bytes);
    }
}

/* Squares of a side that keeps the lines of both sides in the cache until they are done. */
static void move_by_parts(char *target, const char *source, const struct elements_plane *plane, const int64_t *begin,
                          size_t bytes)
{
    int64_t side = LINE_BYTES;
    for (int64_t i = begin[0]; i < plane->shape[0]; i += side) {
        for (int64_t k = begin[1]; k < plane->shape[1]; k += side) {
            int64_t from[2] = {i, k};
            int64_t to[2] = {i + side < plane->shape[0] ? i + side : plane->shape[0],
                             k + side < plane->shape[1] ? k + side : plane->shape[1]};
            move_part(target, source, plane, from, to, bytes);
        }
    }
}

/* Lines of so many rows of the source are walked before the next lines: their pages stay known to the processor. */
#define BAND_ROWS 512

static void move_by_tiles(char *target, const char *source, const struct elements_plane *plane, const int64_t *end,
                          int64_t side, size_t bytes)
{
    for (int64_t band = 0; band < end[1]; band += BAND_ROWS) {
        int64_t stop = band + BAND_ROWS < end[1] ? band + BAND_ROWS : end[1];
        for (int64_t i = 0; i < end[0]; i += side) {
            for (int64_t k = band; k < stop; k += side) {
                move_tile(target + i * plane->target_strides[0] + k * plane->target_strides[1],
                          source + i * plane->source_strides[0] + k * plane->source_strides[1], plane, bytes);
            }
        }
    }
}

void elements_move_plane(char *target, const char *source, const struct elements_plane *plane, size_t bytes)
{
    int64_t side = LINE_BYTES / (int64_t)bytes;
    int64_t tiled[2] = {plane->shape[0] / side * side, plane->shape[1] / side * side};
    int64_t none[2] = {0, 0};
    if (plane->target_strides[1] != (ptrdiff_t)bytes || plane->source_strides[0] != (ptrdiff_t)bytes) {
        move_by_parts(target, source, plane, none, bytes);
        return;
    }
    move_by_tiles(target, source, plane, tiled, side, bytes);
    move_part(target, source, plane, (int64_t[]){tiled[0], 0}, plane->shape, bytes);
    move_part(target, source, plane, (int64_t[]){0, tiled[1]}, (int64_t[]){tiled[0], plane->shape[1]}, bytes);
}
