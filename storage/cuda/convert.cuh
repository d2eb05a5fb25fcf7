/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element from any type to any other, with the results that storage/array.h gives at varve_array_copy. An element
 * is read into a carrier that holds it exactly (float, double, int32_t or int64_t) and written from that with one
 * rounding. The GPU's own conversions make one pattern of every NaN, so NaN goes by its bits.
 */
#ifndef VARVE_STORAGE_CUDA_CONVERT_CUH
#define VARVE_STORAGE_CUDA_CONVERT_CUH

#include <cuda_fp16.h>

#include <stdint.h>

/* Types of elements, by the names of VARVE_DTYPE_LIST; those without a type of C are structures, so
 * that they differ. */
struct f16_t {
    uint16_t bits;
};
struct bf16_t {
    uint16_t bits;
};
struct bool_t {
    uint8_t byte;
};

using element_F64 = double;
using element_F32 = float;
using element_F16 = f16_t;
using element_BF16 = bf16_t;
using element_I64 = int64_t;
using element_I32 = int32_t;
using element_I16 = int16_t;
using element_I8 = int8_t;
using element_U8 = uint8_t;
using element_BOOL = bool_t;

#define DEVICE static __device__ __forceinline__

/* ---- reading: carry ---- */

DEVICE double carry(double x)
{
    return x;
}

DEVICE float carry(float x)
{
    return x;
}

DEVICE float carry(f16_t x)
{
    uint32_t bits = x.bits;

    if ((bits & 0x7fff) > 0x7c00) {
        return __uint_as_float((bits & 0x8000) << 16 | 0x7fc00000 | (bits & 0x3ff) << 13);
    }
    return __half2float(__ushort_as_half(x.bits));
}

DEVICE float carry(bf16_t x)
{
    uint32_t bits = (uint32_t)x.bits << 16;

    return __uint_as_float((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits);
}

DEVICE int64_t carry(int64_t x)
{
    return x;
}

DEVICE int32_t carry(int32_t x)
{
    return x;
}

DEVICE int32_t carry(int16_t x)
{
    return x;
}

DEVICE int32_t carry(int8_t x)
{
    return x;
}

DEVICE int32_t carry(uint8_t x)
{
    return x;
}

DEVICE int32_t carry(bool_t x)
{
    return x.byte != 0;
}

/* ---- writing: store ---- */

DEVICE uint64_t nan_bits(float x) /* of the double with that NaN: sign, quiet, payload */
{
    uint64_t bits = __float_as_uint(x);

    return (bits & 0x80000000) << 32 | 0x7ff8000000000000 | (bits & 0x3fffff) << 29;
}

DEVICE uint64_t nan_bits(double x)
{
    return (uint64_t)__double_as_longlong(x) | 0x0008000000000000;
}

DEVICE void store(double &to, double x)
{
    to = x != x ? __longlong_as_double((int64_t)nan_bits(x)) : x;
}

DEVICE void store(double &to, float x)
{
    to = x != x ? __longlong_as_double((int64_t)nan_bits(x)) : (double)x;
}

DEVICE void store(double &to, int32_t x)
{
    to = (double)x;
}

DEVICE void store(double &to, int64_t x)
{
    to = __ll2double_rn(x);
}

template <class REAL> DEVICE uint32_t nan_bits_32(REAL x)
{
    uint64_t bits = nan_bits(x);

    return (uint32_t)(bits >> 32 & 0x80000000) | 0x7fc00000 | (uint32_t)(bits >> 29 & 0x3fffff);
}

DEVICE void store(float &to, double x)
{
    to = x != x ? __uint_as_float(nan_bits_32(x)) : __double2float_rn(x);
}

DEVICE void store(float &to, float x)
{
    to = x != x ? __uint_as_float(nan_bits_32(x)) : x;
}

DEVICE void store(float &to, int32_t x)
{
    to = __int2float_rn(x);
}

DEVICE void store(float &to, int64_t x)
{
    to = __ll2float_rn(x);
}

template <class REAL> DEVICE uint16_t nan_bits_f16(REAL x)
{
    uint64_t bits = nan_bits(x);

    return (uint16_t)((bits >> 48 & 0x8000) | 0x7e00 | (bits >> 42 & 0x1ff));
}

DEVICE void store(f16_t &to, double x)
{
    to.bits = x != x ? nan_bits_f16(x) : __half_as_ushort(__double2half(x));
}

DEVICE void store(f16_t &to, float x)
{
    to.bits = x != x ? nan_bits_f16(x) : __half_as_ushort(__float2half_rn(x));
}

DEVICE void store(f16_t &to, int32_t x)
{
    to.bits = __half_as_ushort(__int2half_rn(x));
}

DEVICE void store(f16_t &to, int64_t x)
{
    to.bits = __half_as_ushort(__ll2half_rn(x));
}

DEVICE void store(bf16_t &to, float x)
{
    uint32_t bits = __float_as_uint(x);

    to.bits = x != x ? (uint16_t)(bits >> 16 | 0x40) : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A number cut off with its last bit set where something was lost ("round to odd") is rounded to fewer bits as the
 * whole would have been. */
DEVICE void store(bf16_t &to, double x)
{
    float cut = __double2float_rz(x);

    if (x != x) {
        cut = __uint_as_float(nan_bits_32(x));
    } else if ((double)cut != x) {
        cut = __uint_as_float(__float_as_uint(cut) | 1);
    }
    store(to, cut);
}

DEVICE void store(bf16_t &to, int32_t x)
{
    store(to, (double)x);
}

DEVICE void store(bf16_t &to, int64_t x)
{
    float cut = __ll2float_rz(x);

    if (__float2ll_rz(cut) != x) {
        cut = __uint_as_float(__float_as_uint(cut) | 1);
    }
    store(to, cut);
}

DEVICE int64_t saturate_64(float x)
{
    return x != x ? 0 : x >= 0x1p63F ? INT64_MAX : x <= -0x1p63F ? INT64_MIN : __float2ll_rz(x);
}

DEVICE int64_t saturate_64(double x)
{
    return x != x ? 0 : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : __double2ll_rz(x);
}

DEVICE int64_t saturate_64(int32_t x)
{
    return x;
}

DEVICE int64_t saturate_64(int64_t x)
{
    return x;
}

DEVICE int32_t saturate_32(float x)
{
    return x != x ? 0 : x >= 0x1p31F ? INT32_MAX : x <= -0x1p31F ? INT32_MIN : __float2int_rz(x);
}

DEVICE int32_t saturate_32(double x)
{
    return x != x ? 0 : x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : __double2int_rz(x);
}

/* Integers keep their low bits. */
DEVICE int32_t saturate_32(int32_t x)
{
    return x;
}

DEVICE int32_t saturate_32(int64_t x)
{
    return (int32_t)x;
}

DEVICE int32_t narrow(float x, int32_t least, int32_t most)
{
    return min(max(saturate_32(x), least), most);
}

DEVICE int32_t narrow(double x, int32_t least, int32_t most)
{
    return min(max(saturate_32(x), least), most);
}

DEVICE int32_t narrow(int32_t x, int32_t, int32_t)
{
    return x;
}

DEVICE int32_t narrow(int64_t x, int32_t, int32_t)
{
    return (int32_t)x;
}

template <class CARRIER> DEVICE void store(int64_t &to, CARRIER x)
{
    to = saturate_64(x);
}

template <class CARRIER> DEVICE void store(int32_t &to, CARRIER x)
{
    to = saturate_32(x);
}

template <class CARRIER> DEVICE void store(int16_t &to, CARRIER x)
{
    to = (int16_t)narrow(x, INT16_MIN, INT16_MAX);
}

template <class CARRIER> DEVICE void store(int8_t &to, CARRIER x)
{
    to = (int8_t)narrow(x, INT8_MIN, INT8_MAX);
}

template <class CARRIER> DEVICE void store(uint8_t &to, CARRIER x)
{
    to = (uint8_t)narrow(x, 0, UINT8_MAX);
}

template <class CARRIER> DEVICE void store(bool_t &to, CARRIER x)
{
    to.byte = x != 0;
}

template <class TO, class FROM> DEVICE TO convert(FROM x)
{
    TO to;

    store(to, carry(x));
    return to;
}

#endif
