/* SPDX-License-Identifier: Apache-2.0 */
/* Each element from those at the same place: by vectors where operands have no gaps, else element by element. */
#ifndef VARVE_STORAGE_CUDA_OPERATORS_ELEMENTWISE_CUH
#define VARVE_STORAGE_CUDA_OPERATORS_ELEMENTWISE_CUH

#include "storage/cuda/convert.cuh"
#include "storage/cuda/kernel_list.h"

/* Read and written as one. */
template <class T> struct alignas(VECTOR_BYTES) vector {
    static constexpr int COUNT = VECTOR_BYTES / sizeof(T);

    T items[COUNT];
};

/* A result into its element; NaN keeps the bits that the computation gave it where nothing is rounded. */
template <class T, class CARRIER> DEVICE void put(T &to, CARRIER x)
{
    store(to, x);
}

DEVICE void put(double &to, double x)
{
    to = x;
}

DEVICE void put(float &to, float x)
{
    to = x;
}

/* ---- operators: on what carry() makes of elements; T is their type. Integers wrap. ---- */

DEVICE double unsigned_of(double x)
{
    return x;
}

DEVICE float unsigned_of(float x)
{
    return x;
}

DEVICE uint32_t unsigned_of(int32_t x)
{
    return (uint32_t)x;
}

DEVICE uint64_t unsigned_of(int64_t x)
{
    return (uint64_t)x;
}

template <class T> struct op_add {
    template <class C> DEVICE C of(C x, C y)
    {
        return (C)(unsigned_of(x) + unsigned_of(y));
    }
};

template <class T> struct op_sub {
    template <class C> DEVICE C of(C x, C y)
    {
        return (C)(unsigned_of(x) - unsigned_of(y));
    }
};

template <class T> struct op_mul {
    template <class C> DEVICE C of(C x, C y)
    {
        return (C)(unsigned_of(x) * unsigned_of(y));
    }
};

template <class T> struct op_div {
    template <class C> DEVICE C of(C x, C y)
    {
        return x / y;
    }
};

template <class T> struct op_pow {
    template <class C> DEVICE C of(C x, C y)
    {
        return pow(x, y);
    }
};

/* powf may be wrong by 4 units in the last place. */
template <> struct op_pow<float> {
    DEVICE float of(float x, float y)
    {
        return (float)pow((double)x, (double)y);
    }
};

template <class T> struct op_exp {
    template <class C> DEVICE C of(C x)
    {
        return exp(x);
    }
};

template <class T> struct op_relu {
    template <class C> DEVICE C of(C x)
    {
        return x < 0 ? 0 : x;
    }
};

/* ---- inputs: one or two ---- */

template <class T, template <class> class OP> DEVICE T apply(T x)
{
    T to;

    put(to, OP<T>::of(carry(x)));
    return to;
}

template <class T, template <class> class OP> DEVICE T apply(T x, T y)
{
    T to;

    put(to, OP<T>::of(carry(x), carry(y)));
    return to;
}

template <class T, template <class> class OP, int INPUTS> DEVICE T apply_to(const T *elements)
{
    if constexpr (INPUTS == 1) {
        return apply<T, OP>(elements[0]);
    } else {
        return apply<T, OP>(elements[0], elements[1]);
    }
}

/* ---- without gaps ---- */

template <class T, int INPUTS> DEVICE vector<T> flat_read(const struct flat &flat, int input, uint64_t element)
{
    const T *from = (const T *)flat.input_addrs[input];
    vector<T> values;

    if (!flat.is_repeated[input]) {
        return *(const vector<T> *)(from + element);
    }
    for (int i = 0; i < vector<T>::COUNT; i++) {
        values.items[i] = *from;
    }
    return values;
}

template <class T, template <class> class OP, int INPUTS>
DEVICE void flat_one(const struct flat &flat, uint64_t element)
{
    T inputs[INPUTS];

    for (int k = 0; k < INPUTS; k++) {
        inputs[k] = ((const T *)flat.input_addrs[k])[flat.is_repeated[k] ? 0 : element];
    }
    ((T *)flat.out_addr)[element] = apply_to<T, OP, INPUTS>(inputs);
}

template <class T, template <class> class OP, int INPUTS>
DEVICE void flat_vector(const vector<T> *inputs, vector<T> *out)
{
    vector<T> result;

#pragma unroll
    for (int i = 0; i < vector<T>::COUNT; i++) {
        T elements[INPUTS];

        for (int k = 0; k < INPUTS; k++) {
            elements[k] = inputs[k].items[i];
        }
        result.items[i] = apply_to<T, OP, INPUTS>(elements);
    }
    *out = result;
}

/* The first threads take the elements before and behind the vectors, too, of which there are less than
 * VECTOR_BYTES each. */
template <class T, template <class> class OP, int INPUTS> DEVICE void flat_run(const struct flat &flat)
{
    const uint64_t vectors = (flat.count - flat.head) / vector<T>::COUNT;
    const uint64_t tail = flat.head + vectors * vector<T>::COUNT;
    const uint64_t begin = (uint64_t)blockIdx.x * (FLAT_VECTORS * GPU_BLOCK) + threadIdx.x;
    vector<T> inputs[FLAT_VECTORS][INPUTS];

    if (begin < flat.head) {
        flat_one<T, OP, INPUTS>(flat, begin);
    }
    if (begin < flat.count - tail) {
        flat_one<T, OP, INPUTS>(flat, tail + begin);
    }
#pragma unroll
    for (uint32_t step = 0; step < FLAT_VECTORS; step++) {
        uint64_t number = begin + step * GPU_BLOCK;

        for (int k = 0; k < INPUTS && number < vectors; k++) {
            inputs[step][k] = flat_read<T, INPUTS>(flat, k, flat.head + number * vector<T>::COUNT);
        }
    }
#pragma unroll
    for (uint32_t step = 0; step < FLAT_VECTORS; step++) {
        uint64_t number = begin + step * GPU_BLOCK;

        if (number < vectors) {
            flat_vector<T, OP, INPUTS>(inputs[step], (vector<T> *)((T *)flat.out_addr + flat.head) + number);
        }
    }
}

/* ---- of any strides: operand 0 is the result ---- */

template <class T, template <class> class OP, int INPUTS> DEVICE void walk_run(const struct walk &walk)
{
    const uint32_t begin = blockIdx.x * (WALK_STEPS * GPU_BLOCK) + threadIdx.x;
    int64_t offsets[WALK_STEPS][INPUTS + 1];
    T inputs[WALK_STEPS][INPUTS];

#pragma unroll
    for (uint32_t step = 0; step < WALK_STEPS; step++) {
        uint32_t index = begin + step * GPU_BLOCK;

        if (index < walk.count) {
            walk_find<INPUTS + 1>(walk, index, offsets[step]);
            for (int k = 0; k < INPUTS; k++) {
                inputs[step][k] = *(const T *)(walk.addrs[k + 1] + offsets[step][k + 1]);
            }
        }
    }
#pragma unroll
    for (uint32_t step = 0; step < WALK_STEPS; step++) {
        if (begin + step * GPU_BLOCK < walk.count) {
            *(T *)(walk.addrs[0] + offsets[step][0]) = apply_to<T, OP, INPUTS>(inputs[step]);
        }
    }
}

/* ---- kernels ---- */

#define ELEMENTWISE_KERNELS(name, TYPE, INPUTS)                        \
    extern "C" __global__ void __launch_bounds__(GPU_BLOCK)            \
        name##_##TYPE##_flat(const __grid_constant__ struct flat flat) \
    {                                                                  \
        flat_run<element_##TYPE, op_##name, INPUTS>(flat);             \
    }                                                                  \
    extern "C" __global__ void __launch_bounds__(GPU_BLOCK)            \
        name##_##TYPE##_walk(const __grid_constant__ struct walk walk) \
    {                                                                  \
        walk_run<element_##TYPE, op_##name, INPUTS>(walk);             \
    }
#define BINARY_KERNELS(name, TYPE) ELEMENTWISE_KERNELS(name, TYPE, 2)
#define UNARY_KERNELS(name, TYPE) ELEMENTWISE_KERNELS(name, TYPE, 1)
KERNELS_BINARY_LIST(BINARY_KERNELS)
KERNELS_UNARY_LIST(UNARY_KERNELS)

#endif
