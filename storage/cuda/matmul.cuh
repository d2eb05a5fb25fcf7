/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of matrices of any strides, for what cuBLAS does not take. A block makes a tile of the result, each of its
 * threads 4 x 4 elements of that, from strips of both matrices in shared memory.
 */
#ifndef VARVE_STORAGE_CUDA_OPERATORS_MATMUL_CUH
#define VARVE_STORAGE_CUDA_OPERATORS_MATMUL_CUH

#include "storage/cuda/elementwise.cuh"
#include "storage/cuda/reduction.cuh"

#define MATMUL_SIDE 16                          /* threads in each direction */
#define MATMUL_EACH (MATMUL_TILE / MATMUL_SIDE) /* elements of a thread in each direction */

/* Sums of integers wrap, in as many bits as they have at least. */
template <class T, class S> DEVICE void product_put(T &to, S sum)
{
    put(to, sum);
}

template <class T> DEVICE void product_put(T &to, uint64_t sum)
{
    store(to, (int64_t)sum);
}

template <class T> DEVICE void product_put(T &to, uint32_t sum)
{
    store(to, (int32_t)sum);
}

template <class T, class S> struct strips {
    S a[MATMUL_DEPTH][MATMUL_TILE + 1];
    S b[MATMUL_DEPTH][MATMUL_TILE + 1];

    /* `count` elements from `first` on of the axis `line`, of which there are `limit`; `depth` is the
     * axis that is summed. */
    DEVICE void fill(S (*strip)[MATMUL_TILE + 1], uint64_t addr, int64_t line_stride, int64_t depth_stride,
                     int64_t lines, int64_t depths)
    {
        const bool is_turned = llabs(line_stride) < llabs(depth_stride); /* which axis threads follow */

        for (int i = threadIdx.x; i < MATMUL_TILE * MATMUL_DEPTH; i += GPU_BLOCK) {
            int line = is_turned ? i % MATMUL_TILE : i / MATMUL_DEPTH;
            int depth = is_turned ? i / MATMUL_TILE : i % MATMUL_DEPTH;
            bool is_inside = line < lines && depth < depths;

            strip[depth][line] =
                is_inside ? unsigned_of(plain(*(const T *)(addr + line * line_stride + depth * depth_stride))) : 0;
        }
    }

    __device__ __forceinline__ void multiply(S (*sums)[MATMUL_EACH], int x, int y) const
    {
        for (int k = 0; k < MATMUL_DEPTH; k++) {
            S left[MATMUL_EACH], right[MATMUL_EACH];

            for (int i = 0; i < MATMUL_EACH; i++) {
                left[i] = a[k][y + i * MATMUL_SIDE];
                right[i] = b[k][x + i * MATMUL_SIDE];
            }
            for (int i = 0; i < MATMUL_EACH; i++) {
                for (int j = 0; j < MATMUL_EACH; j++) {
                    sums[i][j] += left[i] * right[j];
                }
            }
        }
    }
};

/* The tile at `row`, `column` of one matrix. */
template <class T, class S>
DEVICE void tile_run(const struct matmul_launch &launch, strips<T, S> &shared, const int64_t *offsets, int64_t row,
                     int64_t column)
{
    const int x = threadIdx.x % MATMUL_SIDE, y = threadIdx.x / MATMUL_SIDE;
    const uint64_t out = launch.batch.addrs[0] + offsets[0];
    const uint64_t a = launch.batch.addrs[1] + offsets[1] + row * launch.a_strides[0];
    const uint64_t b = launch.batch.addrs[2] + offsets[2] + column * launch.b_strides[1];
    S sums[MATMUL_EACH][MATMUL_EACH] = {};

    for (int64_t k = 0; k < launch.depth; k += MATMUL_DEPTH) {
        __syncthreads();
        shared.fill(shared.a, a + k * launch.a_strides[1], launch.a_strides[0], launch.a_strides[1], launch.rows - row,
                    launch.depth - k);
        shared.fill(shared.b, b + k * launch.b_strides[0], launch.b_strides[1], launch.b_strides[0],
                    launch.columns - column, launch.depth - k);
        __syncthreads();
        shared.multiply(sums, x, y);
    }
    for (int i = 0; i < MATMUL_EACH; i++) {
        for (int j = 0; j < MATMUL_EACH; j++) {
            int64_t at = row + y + i * MATMUL_SIDE, at_column = column + x + j * MATMUL_SIDE;

            if (at < launch.rows && at_column < launch.columns) {
                product_put(*(T *)(out + at * launch.out_strides[0] + at_column * launch.out_strides[1]), sums[i][j]);
            }
        }
    }
}

template <class T> DEVICE void matmul_run(const struct matmul_launch &launch)
{
    using sum = decltype(unsigned_of(plain(T())));
    __shared__ strips<T, sum> shared;
    const uint32_t tiles = (uint32_t)((launch.columns + MATMUL_TILE - 1) / MATMUL_TILE);
    const int64_t row = (int64_t)(blockIdx.x / tiles) * MATMUL_TILE;
    const int64_t column = (int64_t)(blockIdx.x % tiles) * MATMUL_TILE;

    for (uint32_t number = blockIdx.y; number < launch.batch.count; number += gridDim.y) {
        int64_t offsets[3];

        walk_find<3>(launch.batch, number, offsets);
        tile_run<T, sum>(launch, shared, offsets, row, column);
    }
}

#define MATMUL_KERNEL(name, TYPE)                                          \
    extern "C" __global__ void __launch_bounds__(GPU_BLOCK)                \
        name##_##TYPE(const __grid_constant__ struct matmul_launch launch) \
    {                                                                      \
        matmul_run<element_##TYPE>(launch);                                \
    }
KERNELS_MATMUL_LIST(MATMUL_KERNEL)

#endif
