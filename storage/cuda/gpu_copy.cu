/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements moved, converted and set in a GPU's memory. Each thread has several elements in flight, since only many
 * loads at a time keep the memory busy; neighbouring threads take neighbouring elements of the target.
 */
#include "storage/cuda/convert.cuh"
#include "storage/cuda/gpu_copy.h"

#include "storage/array.h"

#define KERNEL extern "C" __global__ void __launch_bounds__(GPU_BLOCK)

/* ---- one type, any strides ---- */

template <class UNIT> DEVICE void move(const struct walk &walk)
{
    const uint32_t first = blockIdx.x * (GPU_BLOCK * COPY_PER_THREAD) + threadIdx.x;
    UNIT units[COPY_PER_THREAD];
    int64_t targets[COPY_PER_THREAD];

#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        uint32_t index = first + i * GPU_BLOCK;

        if (index < walk.count) {
            int64_t offsets[2];

            walk_find<2>(walk, index, offsets);
            targets[i] = offsets[0];
            units[i] = *(const UNIT *)(walk.addrs[1] + offsets[1]);
        }
    }
#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < walk.count) {
            *(UNIT *)(walk.addrs[0] + targets[i]) = units[i];
        }
    }
}

#define MOVE(bytes, type)                                              \
    KERNEL move_##bytes(const __grid_constant__ struct copy_strided p) \
    {                                                                  \
        move<type>(p.walk);                                            \
    }

MOVE(1, uint8_t)
MOVE(2, uint16_t)
MOVE(4, uint32_t)
MOVE(8, uint2)
MOVE(16, uint4)

/* ---- transpositions ---- */

/* A tile is read along the source's rows and written along the target's. The padding keeps threads that read a column
 * of the tile on different banks. */
template <class UNIT> DEVICE void transpose(const struct copy_transpose &p)
{
    constexpr int SIDE = COPY_TILE(sizeof(UNIT));
    constexpr int PADDING = sizeof(UNIT) < 4 ? 4 / sizeof(UNIT) : 1;
    __shared__ UNIT tile[SIDE][SIDE + PADDING];
    const uint32_t tiles = p.row_tiles * p.column_tiles;
    const uint32_t matrix = blockIdx.x / tiles, number = blockIdx.x % tiles;
    const uint32_t row = number % p.row_tiles * SIDE, column = number / p.row_tiles * SIDE;
    int64_t offsets[2];

    walk_find<2>(p.batch, matrix, offsets);
    for (uint32_t c = threadIdx.y; c < SIDE && column + c < p.columns; c += COPY_TILE_THREADS) {
        const UNIT *source = (const UNIT *)(p.batch.addrs[1] + offsets[1] + (column + c) * p.source_column_stride);

        for (uint32_t r = threadIdx.x; r < SIDE && row + r < p.rows; r += 32) {
            tile[c][r] = source[row + r];
        }
    }
    __syncthreads();
    for (uint32_t r = threadIdx.y; r < SIDE && row + r < p.rows; r += COPY_TILE_THREADS) {
        UNIT *target = (UNIT *)(p.batch.addrs[0] + offsets[0] + (row + r) * p.target_row_stride);

        for (uint32_t c = threadIdx.x; c < SIDE && column + c < p.columns; c += 32) {
            target[column + c] = tile[c][r];
        }
    }
}

#define TRANSPOSE(bytes, type)                                                \
    KERNEL transpose_##bytes(const __grid_constant__ struct copy_transpose p) \
    {                                                                         \
        transpose<type>(p);                                                   \
    }

TRANSPOSE(1, uint8_t)
TRANSPOSE(2, uint16_t)
TRANSPOSE(4, uint32_t)
TRANSPOSE(8, uint2)
TRANSPOSE(16, uint4)

/* ---- conversions of neighbours ---- */

template <class ELEMENT, int COUNT> struct alignas(sizeof(ELEMENT) * COUNT) vector {
    ELEMENT elements[COUNT];
};

template <class TO, class FROM, int COUNT> DEVICE vector<TO, COUNT> convert_all(const vector<FROM, COUNT> &from)
{
    vector<TO, COUNT> to;

#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        to.elements[i] = convert<TO>(from.elements[i]);
    }
    return to;
}

template <class TO, class FROM> DEVICE void cast(const struct copy_cast &p)
{
    constexpr int COUNT = COPY_VECTOR_BYTES / (sizeof(TO) > sizeof(FROM) ? sizeof(TO) : sizeof(FROM));
    const uint64_t vectors = p.count / COUNT;
    const uint64_t first = (uint64_t)blockIdx.x * (GPU_BLOCK * COPY_PER_THREAD) + threadIdx.x;
    vector<FROM, COUNT> from[COPY_PER_THREAD];

#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < vectors) {
            from[i] = ((const vector<FROM, COUNT> *)p.source)[first + i * GPU_BLOCK];
        }
    }
#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < vectors) {
            ((vector<TO, COUNT> *)p.target)[first + i * GPU_BLOCK] = convert_all<TO>(from[i]);
        }
    }
    if (first < p.count % COUNT) { /* what fills no vector: the first threads of all */
        uint64_t index = vectors * COUNT + first;

        ((TO *)p.target)[index] = convert<TO>(((const FROM *)p.source)[index]);
    }
}

#define CAST(TO, FROM)                                                    \
    KERNEL cast_##TO##_##FROM(const __grid_constant__ struct copy_cast p) \
    {                                                                     \
        cast<element_##TO, element_##FROM>(p);                            \
    }
/* Each pair of types; from a type to itself is a move. */
/* clang-format off */
#define CAST_PAIRS(X)                                                                                           \
    X(F64, F32) X(F64, F16) X(F64, BF16) X(F64, I64) X(F64, I32) X(F64, I16) X(F64, I8) X(F64, U8) X(F64, BOOL) \
    X(F32, F16) X(F32, BF16) X(F32, I64) X(F32, I32) X(F32, I16) X(F32, I8) X(F32, U8) X(F32, BOOL)             \
    X(F16, BF16) X(F16, I64) X(F16, I32) X(F16, I16) X(F16, I8) X(F16, U8) X(F16, BOOL)                         \
    X(BF16, I64) X(BF16, I32) X(BF16, I16) X(BF16, I8) X(BF16, U8) X(BF16, BOOL)                                \
    X(I64, I32) X(I64, I16) X(I64, I8) X(I64, U8) X(I64, BOOL)                                                  \
    X(I32, I16) X(I32, I8) X(I32, U8) X(I32, BOOL)                                                              \
    X(I16, I8) X(I16, U8) X(I16, BOOL)                                                                          \
    X(I8, U8) X(I8, BOOL)                                                                                       \
    X(U8, BOOL)
/* clang-format on */
#define CAST_BOTH(ONE, OTHER) CAST(ONE, OTHER) CAST(OTHER, ONE)

CAST_PAIRS(CAST_BOTH)

/* ---- conversions with strides: the types are known when it runs ---- */

struct number {
    double real;
    int64_t integer;
    bool is_integer;
};

DEVICE void number_set(struct number &number, double x)
{
    number.real = x;
    number.is_integer = false;
}

DEVICE void number_set(struct number &number, float x)
{
    store(number.real, x);
    number.is_integer = false;
}

DEVICE void number_set(struct number &number, int64_t x)
{
    number.integer = x;
    number.is_integer = true;
}

DEVICE void number_set(struct number &number, int32_t x)
{
    number_set(number, (int64_t)x);
}

DEVICE struct number number_load(uint32_t dtype, uint64_t addr)
{
    struct number number = {};

    switch (dtype) {
#define LOAD(code, NAME, name, bytes)                               \
    case code:                                                      \
        number_set(number, carry(*(const element_##NAME *)(addr))); \
        break;
        VARVE_DTYPE_LIST(LOAD)
#undef LOAD
    }
    return number;
}

DEVICE void number_store(const struct number &number, uint32_t dtype, uint64_t addr)
{
    switch (dtype) {
#define STORE(code, NAME, name, bytes)                        \
    case code:                                                \
        if (number.is_integer) {                              \
            store(*(element_##NAME *)(addr), number.integer); \
        } else {                                              \
            store(*(element_##NAME *)(addr), number.real);    \
        }                                                     \
        break;
        VARVE_DTYPE_LIST(STORE)
#undef STORE
    }
}

KERNEL cast_strided(const __grid_constant__ struct copy_strided p)
{
    const uint32_t first = blockIdx.x * (GPU_BLOCK * COPY_PER_THREAD) + threadIdx.x;
    struct number numbers[COPY_PER_THREAD];
    int64_t targets[COPY_PER_THREAD];

#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < p.walk.count) {
            int64_t offsets[2];

            walk_find<2>(p.walk, first + i * GPU_BLOCK, offsets);
            targets[i] = offsets[0];
            numbers[i] = number_load(p.source_dtype, p.walk.addrs[1] + offsets[1]);
        }
    }
#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < p.walk.count) {
            number_store(numbers[i], p.target_dtype, p.walk.addrs[0] + targets[i]);
        }
    }
}

/* ---- fills with strides ---- */

template <class UNIT> DEVICE void fill(const struct copy_fill &p)
{
    const uint32_t first = blockIdx.x * (GPU_BLOCK * COPY_PER_THREAD) + threadIdx.x;

#pragma unroll
    for (int i = 0; i < COPY_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < p.walk.count) {
            int64_t offset;

            walk_find<1>(p.walk, first + i * GPU_BLOCK, &offset);
            *(UNIT *)(p.walk.addrs[0] + offset) = (UNIT)p.pattern;
        }
    }
}

#define FILL(bytes, type)                                           \
    KERNEL fill_##bytes(const __grid_constant__ struct copy_fill p) \
    {                                                               \
        fill<type>(p);                                              \
    }

FILL(1, uint8_t)
FILL(2, uint16_t)
FILL(4, uint32_t)
FILL(8, uint64_t)
