/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of 16 bits as bits, from and to float and double: f16 is IEEE binary16, bf16 the upper half of a float.
 * Rounding is to nearest, ties to even, and happens once. NaN keeps its sign and the upper bits of its payload and
 * becomes quiet. Everything is free of branches, so that loops of it become vector code, and expects the processor to
 * round to nearest.
 */
#ifndef VARVE_STORAGE_TENSORS_HALF_H
#define VARVE_STORAGE_TENSORS_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of_f32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define F32_INFINITY_BITS 0x7f800000U
#define F32_QUIET_BIT 0x00400000U
#define F16_UNIT_BITS 0x33800000U       /* 2^-24 as float: the least f16 above 0 */
#define F16_NORMAL_MIN_BITS 0x38800000U /* 2^-14 as float */
#define F16_LIMIT_BITS 0x47800000U      /* 2^16 as float: above all of f16 */

static inline float f32_from_f16(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffU;
    uint32_t fraction = magnitude << 13;
    uint32_t normal = fraction + (112U << 23);
    uint32_t special = fraction | F32_INFINITY_BITS | (magnitude > 0x7c00 ? F32_QUIET_BIT : 0);
    /* Below 2^-14 a number counts units of 2^-24. */
    uint32_t small = bits_of_f32((float)(int32_t)magnitude * f32_of_bits(F16_UNIT_BITS));
    uint32_t bits = magnitude >= 0x7c00 ? special : magnitude < 0x0400 ? small : normal;

    return f32_of_bits(bits | (uint32_t)(half & 0x8000U) << 16);
}

static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = bits_of_f32(value);
    uint32_t magnitude = bits & 0x7fffffffU;
    uint32_t normal = (magnitude - (112U << 23) + 0xfffU + (magnitude >> 13 & 1)) >> 13;
    uint32_t special = magnitude > F32_INFINITY_BITS ? 0x7e00U | (magnitude >> 13 & 0x3ffU) : 0x7c00U;
    /* The unit of the last place of 0.5 is 2^-24, so this addition rounds to units of f16's subnormal numbers. */
    uint32_t small = bits_of_f32(f32_of_bits(magnitude) + 0.5F) - bits_of_f32(0.5F);
    uint32_t half = magnitude >= F16_LIMIT_BITS ? special : magnitude < F16_NORMAL_MIN_BITS ? small : normal;

    return (uint16_t)(half | (bits >> 16 & 0x8000U));
}

static inline float f32_from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;

    return f32_of_bits(bits | ((bits & 0x7fffffffU) > F32_INFINITY_BITS ? F32_QUIET_BIT : 0));
}

static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = bits_of_f32(value);
    uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1);
    uint32_t quiet = bits | F32_QUIET_BIT;

    return (uint16_t)(((bits & 0x7fffffffU) > F32_INFINITY_BITS ? quiet : rounded) >> 16);
}

/* What float can't hold is rounded towards zero with its last bit set: rounding that to a type with at least two bits
 * less gives what rounding the double gives. Source: Boldo, Melquiond: Emulation of FMA and correctly
 * rounded sums, 2008. */
static inline float f32_to_odd(double value)
{
    float nearest = (float)value;
    double back = (double)nearest;
    double magnitude = value < 0 ? -value : value;
    double back_magnitude = back < 0 ? -back : back;
    uint32_t bits = bits_of_f32(nearest) - (back_magnitude > magnitude ? 1U : 0U);

    return f32_of_bits(bits | (back != value ? 1U : 0U));
}

static inline uint16_t f16_from_f64(double value)
{
    return f16_from_f32(f32_to_odd(value));
}

static inline uint16_t bf16_from_f64(double value)
{
    return bf16_from_f32(f32_to_odd(value));
}

/* The 11 lower bits become one that says whether there were any: what is left is exact as double. */
static inline uint16_t bf16_from_i64(int64_t value)
{
    int64_t odd = (value >> 11 | ((value & 0x7ff) != 0 ? 1 : 0)) * 2048;
    int64_t is_small = value >= -(INT64_C(1) << 52) && value <= INT64_C(1) << 52;

    return bf16_from_f64((double)(is_small ? value : odd));
}

#endif
