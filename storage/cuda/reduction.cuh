/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum, mean and max. A thread folds what it reads at a time and adds that to its accumulator; the accumulators of a
 * block are then added by halves. Sums of floating point are accumulated in f64 together with what the additions lose
 * (Knuth, The Art of Computer Programming, volume 2, 4.2.2, theorem B).
 */
#ifndef VARVE_STORAGE_CUDA_OPERATORS_REDUCTION_CUH
#define VARVE_STORAGE_CUDA_OPERATORS_REDUCTION_CUH

#include "storage/cuda/elementwise.cuh"

#define WARP 32U

/* As carry(), whatever becomes of the bits of NaN. */
template <class T> DEVICE auto plain(T x)
{
    return carry(x);
}

DEVICE float plain(f16_t x)
{
    return __half2float(__ushort_as_half(x.bits));
}

DEVICE float plain(bf16_t x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

/* ---- accumulators: `value` is what an element becomes, `part` what a part of a row is kept as ---- */

struct sum_real {
    using value = double;
    using part = double2; /* the sum and what it has lost, which is no number once a sum is infinite */

    double sum, lost;

    DEVICE sum_real none()
    {
        return {0, 0};
    }

    template <class T> DEVICE value of(T element)
    {
        return (double)plain(element);
    }

    DEVICE value fold(value x, value y)
    {
        return x + y;
    }

    __device__ __forceinline__ void add(value x)
    {
        double old = sum, added;

        sum = old + x;
        added = sum - old;
        lost += (old - (sum - added)) + (x - added);
    }

    __device__ __forceinline__ void merge(sum_real other)
    {
        add(other.sum);
        lost += other.lost;
    }

    DEVICE sum_real down(sum_real x, uint32_t lanes)
    {
        return {__shfl_down_sync(~0U, x.sum, lanes), __shfl_down_sync(~0U, x.lost, lanes)};
    }

    __device__ __forceinline__ void keep(part *to) const
    {
        *to = make_double2(sum, isfinite(sum) ? lost : 0);
    }

    template <class R> __device__ __forceinline__ void finish(R *to, double divisor) const
    {
        store(*to, (isfinite(sum) ? sum + lost : sum) / divisor);
    }
};

/* VALUE: as wide as what a thread folds at a time needs. */
template <class VALUE> struct sum_integer {
    using value = VALUE;
    using part = int64_t;

    int64_t sum;

    DEVICE sum_integer none()
    {
        return {0};
    }

    template <class T> DEVICE value of(T element)
    {
        return carry(element);
    }

    DEVICE value fold(value x, value y)
    {
        return (value)((uint64_t)x + (uint64_t)y);
    }

    __device__ __forceinline__ void add(int64_t x)
    {
        sum = (int64_t)((uint64_t)sum + (uint64_t)x);
    }

    __device__ __forceinline__ void merge(sum_integer other)
    {
        add(other.sum);
    }

    DEVICE sum_integer down(sum_integer x, uint32_t lanes)
    {
        return {__shfl_down_sync(~0U, x.sum, lanes)};
    }

    __device__ __forceinline__ void keep(part *to) const
    {
        *to = sum;
    }

    template <class R> __device__ __forceinline__ void finish(R *to, double) const
    {
        store(*to, sum);
    }
};

DEVICE double least(double)
{
    return -INFINITY;
}

DEVICE float least(float)
{
    return -INFINITY;
}

DEVICE int32_t least(int32_t)
{
    return INT32_MIN;
}

DEVICE int64_t least(int64_t)
{
    return INT64_MIN;
}

template <class T> struct max_of {
    using value = decltype(plain(T()));
    using part = T;

    value most;

    DEVICE max_of none()
    {
        return {least(value())};
    }

    DEVICE value of(T element)
    {
        return plain(element);
    }

    DEVICE value fold(value x, value y) /* NaN wins */
    {
        return x > y || x != x ? x : y;
    }

    __device__ __forceinline__ void add(value x)
    {
        most = fold(most, x);
    }

    __device__ __forceinline__ void merge(max_of other)
    {
        add(other.most);
    }

    DEVICE max_of down(max_of x, uint32_t lanes)
    {
        return {__shfl_down_sync(~0U, x.most, lanes)};
    }

    __device__ __forceinline__ void keep(part *to) const
    {
        store(*to, most);
    }

    template <class R> __device__ __forceinline__ void finish(R *to, double) const
    {
        store(*to, most);
    }
};

template <bool IS_SMALL> struct small_or_wide {
    using type = int64_t;
};

template <> struct small_or_wide<true> {
    using type = int32_t;
};

/* What sums elements of type T. */
template <class T, class RESULT> struct sum_choice {
    using type = sum_real;
};

template <class T> struct sum_choice<T, int64_t> {
    using type = sum_integer<typename small_or_wide<(sizeof(T) < 4)>::type>;
};

template <class T, class RESULT> using accumulator_sum = typename sum_choice<T, RESULT>::type;
template <class T, class RESULT> using accumulator_max = max_of<T>;

/* ---- what threads have read, folded by halves ---- */

template <class A, int COUNT> DEVICE typename A::value fold_all(const typename A::value *values)
{
    if constexpr (COUNT == 1) {
        return values[0];
    } else {
        return A::fold(fold_all<A, COUNT / 2>(values), fold_all<A, COUNT / 2>(values + COUNT / 2));
    }
}

template <class A, class T> DEVICE typename A::value fold_vector(const uint4 &words)
{
    typename A::value values[vector<T>::COUNT];
    vector<T> elements;

    memcpy(&elements, &words, sizeof(elements));
#pragma unroll
    for (int i = 0; i < vector<T>::COUNT; i++) {
        values[i] = A::of(elements.items[i]);
    }
    return fold_all<A, vector<T>::COUNT>(values);
}

/* ---- rows: the threads of a row, `lanes` of them, share its elements `begin` to `end` ---- */

template <class A, class T>
DEVICE void row_by_elements(A &sum, const struct reduction_launch &launch, uint64_t row, uint64_t begin, uint64_t end,
                            uint32_t lane)
{
    for (uint64_t i = begin + lane; i < end; i += launch.lanes) {
        int64_t offset;

        if (launch.reduced.axis_count > 1) {
            walk_find<1>(launch.reduced, (uint32_t)i, &offset);
        } else {
            offset = (int64_t)i * launch.stride;
        }
        sum.add(A::of(*(const T *)(row + offset)));
    }
}

template <class A, class T>
DEVICE void row_by_vectors(A &sum, const uint4 *vectors, uint64_t count, uint32_t lane, uint32_t lanes)
{
    uint64_t i = lane;

    for (; i + (ROWS_VECTORS - 1) * lanes < count; i += ROWS_VECTORS * lanes) {
        typename A::value values[ROWS_VECTORS];
        uint4 read[ROWS_VECTORS];

#pragma unroll
        for (uint32_t k = 0; k < ROWS_VECTORS; k++) {
            read[k] = vectors[i + k * lanes];
        }
#pragma unroll
        for (uint32_t k = 0; k < ROWS_VECTORS; k++) {
            values[k] = fold_vector<A, T>(read[k]);
        }
        sum.add(fold_all<A, ROWS_VECTORS>(values));
    }
    for (; i < count; i += lanes) {
        sum.add(fold_vector<A, T>(vectors[i]));
    }
}

/* Without gaps: elements before and behind the vectors by themselves. */
template <class A, class T>
DEVICE void row_dense(A &sum, const T *row, uint64_t begin, uint64_t end, uint32_t lane, uint32_t lanes)
{
    uint64_t over = (uint64_t)(row + begin) % VECTOR_BYTES;
    uint64_t head = over != 0 ? (VECTOR_BYTES - over) / sizeof(T) : 0;
    uint64_t first = begin + head < end ? begin + head : end;
    uint64_t vectors = (end - first) / vector<T>::COUNT;

    for (uint64_t i = begin + lane; i < first; i += lanes) {
        sum.add(A::of(row[i]));
    }
    row_by_vectors<A, T>(sum, (const uint4 *)(row + first), vectors, lane, lanes);
    for (uint64_t i = first + vectors * vector<T>::COUNT + lane; i < end; i += lanes) {
        sum.add(A::of(row[i]));
    }
}

/* The accumulators of `lanes` threads that follow each other, in the first of them. All threads of
 * the block are here. */
template <class A> DEVICE A lanes_merge(A sum, uint32_t lanes)
{
    __shared__ A warps[GPU_BLOCK / WARP];

    for (uint32_t half = min(lanes, WARP) / 2; half > 0; half /= 2) {
        sum.merge(A::down(sum, half));
    }
    if (lanes <= WARP) {
        return sum;
    }
    if (threadIdx.x % WARP == 0) {
        warps[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t i = 1; i < GPU_BLOCK / WARP; i++) {
            sum.merge(warps[i]);
        }
    }
    return sum;
}

template <class A, class RESULT>
DEVICE void reduction_end(const A &sum, const struct reduction_launch &launch, uint32_t number, uint32_t part,
                          int64_t out_offset)
{
    if (launch.parts_addr != 0) {
        sum.keep((typename A::part *)launch.parts_addr + (uint64_t)number * launch.parts + launch.part_first + part);
    } else {
        sum.finish((RESULT *)(launch.kept.addrs[0] + out_offset), launch.divisor);
    }
}

/* Block x: so many rows as its threads serve; block y: a part of each. */
template <class A, class T, class RESULT> DEVICE void rows_run(const struct reduction_launch &launch)
{
    const uint32_t lanes = launch.lanes, lane = threadIdx.x % lanes;
    const uint32_t number = blockIdx.x * (GPU_BLOCK / lanes) + threadIdx.x / lanes;
    const uint64_t begin = blockIdx.y * launch.part_count;
    const uint64_t end = min(begin + launch.part_count, launch.count);
    const bool is_row = number < launch.kept.count;
    int64_t offsets[2] = {0, 0};
    A sum = A::none();

    if (is_row) {
        walk_find<2>(launch.kept, number, offsets);
        if (launch.stride == (int64_t)sizeof(T) && launch.reduced.axis_count <= 1) {
            row_dense<A, T>(sum, (const T *)(launch.kept.addrs[1] + offsets[1]), begin, end, lane, lanes);
        } else {
            row_by_elements<A, T>(sum, launch, launch.kept.addrs[1] + offsets[1], begin, end, lane);
        }
    }
    sum = lanes_merge(sum, lanes);
    if (is_row && lane == 0) {
        reduction_end<A, RESULT>(sum, launch, number, blockIdx.y, offsets[0]);
    }
}

/* ---- columns: the threads of a block are so many columns, and so many elements of each ---- */

template <class A, class T>
DEVICE void column_read(A &sum, uint64_t column, int64_t stride, uint64_t begin, uint64_t end, uint32_t step)
{
    uint64_t i = begin;

    for (; i + (uint64_t)(COLUMNS_STEPS - 1) * step < end; i += (uint64_t)COLUMNS_STEPS * step) {
        typename A::value values[COLUMNS_STEPS];
        T read[COLUMNS_STEPS];

#pragma unroll
        for (uint32_t k = 0; k < COLUMNS_STEPS; k++) {
            read[k] = *(const T *)(column + (int64_t)(i + k * step) * stride);
        }
#pragma unroll
        for (uint32_t k = 0; k < COLUMNS_STEPS; k++) {
            values[k] = A::of(read[k]);
        }
        sum.add(fold_all<A, COLUMNS_STEPS>(values));
    }
    for (; i < end; i += step) {
        sum.add(A::of(*(const T *)(column + (int64_t)i * stride)));
    }
}

template <class A, class T, class RESULT> DEVICE void columns_run(const struct reduction_launch &launch)
{
    __shared__ A sums[GPU_BLOCK];
    const uint32_t width = launch.lanes, height = GPU_BLOCK / width;
    const uint32_t x = threadIdx.x % width, y = threadIdx.x / width;
    const uint32_t number = blockIdx.x * width + x, part = blockIdx.y;
    const uint64_t begin = part * launch.part_count;
    A sum = A::none();
    int64_t offsets[2] = {0, 0};

    if (number < launch.kept.count) {
        walk_find<2>(launch.kept, number, offsets);
        column_read<A, T>(sum, launch.kept.addrs[1] + offsets[1], launch.stride, begin + y,
                          min(begin + launch.part_count, launch.count), height);
    }
    sums[threadIdx.x] = sum;
    for (uint32_t half = height / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half) {
            sums[threadIdx.x].merge(sums[threadIdx.x + half * width]);
        }
    }
    if (y == 0 && number < launch.kept.count) {
        reduction_end<A, RESULT>(sums[threadIdx.x], launch, number, part, offsets[0]);
    }
}

/* ---- kernels ---- */

#define REDUCTION_KERNEL(form, name, TYPE, RESULT)                                                                  \
    extern "C" __global__ void __launch_bounds__(GPU_BLOCK)                                                         \
        form##_##name##_##TYPE##_##RESULT(const __grid_constant__ struct reduction_launch launch)                   \
    {                                                                                                               \
        form##_run<accumulator_##name<element_##TYPE, element_##RESULT>, element_##TYPE, element_##RESULT>(launch); \
    }
#define ROWS_KERNEL(name, TYPE, RESULT) REDUCTION_KERNEL(rows, name, TYPE, RESULT)
#define COLUMNS_KERNEL(name, TYPE, RESULT) REDUCTION_KERNEL(columns, name, TYPE, RESULT)
KERNELS_ROWS_LIST(ROWS_KERNEL)
KERNELS_COLUMNS_LIST(COLUMNS_KERNEL)

#endif
