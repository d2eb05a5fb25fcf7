/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that depend on their place alone, as storage/operators.h defines them. Products and sums are rounded one by
 * one, as the processor does.
 */
#ifndef VARVE_STORAGE_CUDA_OPERATORS_GENERATORS_CUH
#define VARVE_STORAGE_CUDA_OPERATORS_GENERATORS_CUH

#include "storage/cuda/elementwise.cuh"

/* The elements of a thread into their place, as one where that is aligned so. */
template <class T> DEVICE void generated_put(const struct generator_launch &launch, uint64_t first, const T *values)
{
    constexpr size_t BYTES = GENERATED * sizeof(T);
    struct alignas(BYTES < VECTOR_BYTES ? BYTES : VECTOR_BYTES) all {
        T items[GENERATED];
    } together;
    T *out = (T *)launch.out_addr + first;

    if (launch.count - first >= GENERATED && (uint64_t)out % alignof(struct all) == 0) {
        for (uint32_t i = 0; i < GENERATED; i++) {
            together.items[i] = values[i];
        }
        *(struct all *)out = together;
        return;
    }
    for (uint32_t i = 0; i < GENERATED && i < launch.count - first; i++) {
        out[i] = values[i];
    }
}

/* ---- sequences ---- */

template <class T> DEVICE void generate_arange(const struct generator_launch &launch, uint64_t first, T *values)
{
    for (uint32_t i = 0; i < GENERATED; i++) {
        if (launch.is_real) {
            store(values[i], __dadd_rn(launch.a, __dmul_rn((double)(first + i), launch.b)));
        } else {
            store(values[i], (int64_t)((uint64_t)launch.start + (first + i) * (uint64_t)launch.step));
        }
    }
}

/* ---- random numbers ---- */

/* Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011). */
DEVICE void philox(const struct generator_launch &launch, uint64_t number, uint32_t *words)
{
    uint32_t x = (uint32_t)number, y = (uint32_t)(number >> 32);
    uint32_t z = (uint32_t)launch.sequence, w = (uint32_t)(launch.sequence >> 32);
    uint32_t key = (uint32_t)launch.seed, other_key = (uint32_t)(launch.seed >> 32);

#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t even = (uint64_t)0xD2511F53U * x;
        uint64_t odd = (uint64_t)0xCD9E8D57U * z;

        x = (uint32_t)(odd >> 32) ^ y ^ key;
        z = (uint32_t)(even >> 32) ^ w ^ other_key;
        y = (uint32_t)odd;
        w = (uint32_t)even;
        key += 0x9E3779B9U;
        other_key += 0xBB67AE85U;
    }
    words[0] = x;
    words[1] = y;
    words[2] = z;
    words[3] = w;
}

template <class T> DEVICE void generate_uniform(const struct generator_launch &launch, uint64_t first, T *values)
{
    float low = (float)launch.a, width = __fsub_rn((float)launch.b, low);
    uint32_t words[4];

    philox(launch, first / 4, words);
    for (uint32_t i = 0; i < GENERATED; i++) {
        float unit = (float)(words[i] >> 8) * 0x1p-24F;

        store(values[i], __fadd_rn(low, __fmul_rn(unit, width)));
    }
}

/* Two of f64 for each block of words. */
DEVICE void generate_uniform(const struct generator_launch &launch, uint64_t first, double *values)
{
    double width = __dsub_rn(launch.b, launch.a);

    for (uint32_t i = 0; i < GENERATED; i += 2) {
        uint32_t words[4];

        philox(launch, (first + i) / 2, words);
        for (uint32_t k = 0; k < 2; k++) {
            uint64_t bits = (uint64_t)words[2 * k + 1] << 32 | words[2 * k];
            double unit = (double)(bits >> 11) * 0x1p-53;

            values[i + k] = __dadd_rn(launch.a, __dmul_rn(unit, width));
        }
    }
}

template <class T> DEVICE void generate_normal(const struct generator_launch &launch, uint64_t first, T *values)
{
    const double two_pi = 6.283185307179586476925286766559;
    uint32_t words[4];

    philox(launch, first / 4, words);
    for (uint32_t i = 0; i < GENERATED; i += 2) {
        double radius = sqrt(-2.0 * log(((double)words[i] + 1.0) * 0x1p-32));
        double sine, cosine;

        sincos(two_pi * ((double)words[i + 1] * 0x1p-32), &sine, &cosine);
        store(values[i], __dadd_rn(launch.a, __dmul_rn(launch.b, __dmul_rn(radius, cosine))));
        store(values[i + 1], __dadd_rn(launch.a, __dmul_rn(launch.b, __dmul_rn(radius, sine))));
    }
}

/* ---- kernels ---- */

#define GENERATOR_KERNEL(name, TYPE)                                                   \
    extern "C" __global__ void __launch_bounds__(GPU_BLOCK)                            \
        name##_##TYPE(const __grid_constant__ struct generator_launch launch)          \
    {                                                                                  \
        uint64_t first = ((uint64_t)blockIdx.x * GPU_BLOCK + threadIdx.x) * GENERATED; \
        element_##TYPE values[GENERATED];                                              \
                                                                                       \
        if (first < launch.count) {                                                    \
            generate_##name(launch, first, values);                                    \
            generated_put(launch, first, values);                                      \
        }                                                                              \
    }
KERNELS_GENERATOR_LIST(GENERATOR_KERNEL)

#endif
