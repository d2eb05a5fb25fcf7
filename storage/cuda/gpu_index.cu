/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements picked from, and put to, positions in a GPU's memory. Neighbouring threads take neighbouring units of the
 * packed side; with a mask, a warp takes 32 elements at a time and each thread finds its rank by counting the
 * bits below its own.
 */
#include "storage/cuda/gpu_index.h"

#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(GPU_BLOCK)

enum way { PICK, PUT, SET };

/* ---- lists ---- */

template <class POSITION> struct skipped;
template <> struct skipped<int32_t> {
    static constexpr int32_t value = INT32_MIN;
};
template <> struct skipped<int64_t> {
    static constexpr int64_t value = INT64_MIN;
};

template <enum way WAY, class UNIT, class POSITION> DEVICE void by_list(const struct index_list &p)
{
    const uint32_t first = blockIdx.x * (GPU_BLOCK * INDEX_PER_THREAD) + threadIdx.x;
    int64_t packed[INDEX_PER_THREAD], indexed[INDEX_PER_THREAD];
    bool is_wanted[INDEX_PER_THREAD];
    UNIT units[INDEX_PER_THREAD];

#pragma unroll
    for (int i = 0; i < INDEX_PER_THREAD; i++) {
        is_wanted[i] = first + i * GPU_BLOCK < p.walk.count;
        if (is_wanted[i]) {
            int64_t offsets[3];
            POSITION position;

            walk_find<3>(p.walk, first + i * GPU_BLOCK, offsets);
            position = *(const POSITION *)(p.walk.addrs[2] + offsets[2]);
            is_wanted[i] = WAY == PICK || position != skipped<POSITION>::value;
            packed[i] = offsets[0];
            indexed[i] = offsets[1] + position;
        }
    }
#pragma unroll
    for (int i = 0; i < INDEX_PER_THREAD; i++) {
        if (is_wanted[i] && WAY != SET) {
            units[i] = WAY == PICK ? *(const UNIT *)(p.walk.addrs[1] + indexed[i])
                                   : *(const UNIT *)(p.walk.addrs[0] + packed[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < INDEX_PER_THREAD; i++) {
        if (!is_wanted[i]) {
            continue;
        }
        if constexpr (WAY == PICK) {
            *(UNIT *)(p.walk.addrs[0] + packed[i]) = units[i];
        } else if constexpr (WAY == PUT) {
            *(UNIT *)(p.walk.addrs[1] + indexed[i]) = units[i];
        } else {
            *(UNIT *)(p.walk.addrs[1] + indexed[i]) = (UNIT)p.number;
        }
    }
}

#define BY_LIST(way, WAY, bytes, type)                                     \
    KERNEL way##_##bytes##_32(const __grid_constant__ struct index_list p) \
    {                                                                      \
        by_list<WAY, type, int32_t>(p);                                    \
    }                                                                      \
    KERNEL way##_##bytes##_64(const __grid_constant__ struct index_list p) \
    {                                                                      \
        by_list<WAY, type, int64_t>(p);                                    \
    }

BY_LIST(pick, PICK, 1, uint8_t)
BY_LIST(pick, PICK, 2, uint16_t)
BY_LIST(pick, PICK, 4, uint32_t)
BY_LIST(pick, PICK, 8, uint2)
BY_LIST(pick, PICK, 16, uint4)
BY_LIST(put, PUT, 1, uint8_t)
BY_LIST(put, PUT, 2, uint16_t)
BY_LIST(put, PUT, 4, uint32_t)
BY_LIST(put, PUT, 8, uint2)
BY_LIST(put, PUT, 16, uint4)
BY_LIST(set, SET, 1, uint8_t)
BY_LIST(set, SET, 2, uint16_t)
BY_LIST(set, SET, 4, uint32_t)
BY_LIST(set, SET, 8, uint64_t)

/* ---- rows ---- */

/* Nothing is divided and the position is the same for a whole block, so that few registers let many blocks
 * wait for memory. */
template <enum way WAY, class POSITION> DEVICE void by_rows(const struct index_rows &p)
{
    const uint32_t row = blockIdx.x / p.parts, part = blockIdx.x - row * p.parts;
    const uint32_t first = part * (GPU_BLOCK * INDEX_PER_THREAD) + threadIdx.x;
    const POSITION position = ((const POSITION *)p.list)[row];
    uint4 *packed = (uint4 *)(p.packed + row * p.packed_stride);
    uint4 *indexed = (uint4 *)(p.indexed + position);
    uint4 units[INDEX_PER_THREAD];

    if (WAY == PUT && position == skipped<POSITION>::value) {
        return;
    }
#pragma unroll
    for (int i = 0; i < INDEX_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < p.row_units) {
            units[i] = (WAY == PICK ? indexed : packed)[first + i * GPU_BLOCK];
        }
    }
#pragma unroll
    for (int i = 0; i < INDEX_PER_THREAD; i++) {
        if (first + i * GPU_BLOCK < p.row_units) {
            (WAY == PICK ? packed : indexed)[first + i * GPU_BLOCK] = units[i];
        }
    }
}

#define BY_ROWS(way, WAY)                                             \
    KERNEL way##_rows_32(const __grid_constant__ struct index_rows p) \
    {                                                                 \
        by_rows<WAY, int32_t>(p);                                     \
    }                                                                 \
    KERNEL way##_rows_64(const __grid_constant__ struct index_rows p) \
    {                                                                 \
        by_rows<WAY, int64_t>(p);                                     \
    }

BY_ROWS(pick, PICK)
BY_ROWS(put, PUT)

/* ---- masks ---- */

#define WARP 32
#define WORDS_AT_A_TIME 4 /* so many loads are in flight */
#define HALVES (2 * WORDS_AT_A_TIME)

/* The elements of WORDS_AT_A_TIME words from word `word` on; returns the rank behind them. */
template <enum way WAY, class UNIT>
DEVICE uint64_t by_words(const struct index_mask &p, uint64_t word, const uint32_t *halves, uint64_t rank)
{
    const uint32_t lane = threadIdx.x % WARP;
    uint64_t packed[HALVES], indexed[HALVES];
    UNIT units[HALVES];

#pragma unroll
    for (int i = 0; i < HALVES; i++) {
        indexed[i] = p.indexed + (int64_t)(word * 64 + i * WARP + lane) * p.indexed_stride;
        packed[i] = p.packed + (int64_t)(rank + __popc(halves[i] & ((1U << lane) - 1))) * p.packed_stride;
        rank += __popc(halves[i]);
        if (WAY != SET && (halves[i] >> lane & 1) != 0) {
            units[i] = *(const UNIT *)(WAY == PICK ? indexed[i] : packed[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < HALVES; i++) {
        if ((halves[i] >> lane & 1) != 0) {
            *(UNIT *)(WAY == PICK ? packed[i] : indexed[i]) = WAY == SET ? (UNIT)p.number : units[i];
        }
    }
    return rank;
}

/* One part of a mask for each warp. */
template <enum way WAY, class UNIT> DEVICE void by_mask(const struct index_mask &p)
{
    const uint32_t lane = threadIdx.x % WARP;
    const uint64_t part = ((uint64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) / WARP;
    const uint64_t first = part * INDEX_PART_WORDS;
    uint32_t own = 0; /* half a word of the part */
    uint64_t rank;

    if (first >= p.word_count) {
        return;
    }
    if (first + lane / 2 < p.word_count) {
        own = ((const uint32_t *)p.words)[2 * first + lane];
    }
    rank = ((const uint64_t *)p.ranks)[part];
    for (int word = 0; word < INDEX_PART_WORDS; word += WORDS_AT_A_TIME) {
        uint32_t halves[HALVES];

#pragma unroll
        for (int i = 0; i < HALVES; i++) {
            halves[i] = __shfl_sync(0xffffffff, own, 2 * word + i);
        }
        rank = by_words<WAY, UNIT>(p, first + word, halves, rank);
    }
}

static_assert(INDEX_PART_WORDS * 2 == WARP, "each thread of a warp has one half of a word");

#define BY_MASK(bytes, type)                                              \
    KERNEL pick_mask_##bytes(const __grid_constant__ struct index_mask p) \
    {                                                                     \
        by_mask<PICK, type>(p);                                           \
    }                                                                     \
    KERNEL put_mask_##bytes(const __grid_constant__ struct index_mask p)  \
    {                                                                     \
        by_mask<PUT, type>(p);                                            \
    }                                                                     \
    KERNEL set_mask_##bytes(const __grid_constant__ struct index_mask p)  \
    {                                                                     \
        by_mask<SET, type>(p);                                            \
    }

BY_MASK(1, uint8_t)
BY_MASK(2, uint16_t)
BY_MASK(4, uint32_t)
BY_MASK(8, uint64_t)
