/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exponential function without branches, so that loops of it become vector code: e^x = 2^n e^r with n the whole
 * number next to x / ln 2, and e^r = 1 + r + r^2 q(r) with a polynomial q that interpolates at the Chebyshev points of
 * |r| <= ln 2 / 2. The error is below 1.1 units of the last place, of subnormal results too: 2^n comes as two factors
 * with half of n each, so that only the last product is rounded to them. What is too large becomes infinity, what is
 * too small 0, NaN stays NaN. Expects the processor to round to nearest.
 */
#ifndef VARVE_STORAGE_TENSORS_EXPONENTIAL_H
#define VARVE_STORAGE_TENSORS_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

#define EXPONENTIAL_INLINED static inline __attribute__((always_inline)) /* into loops for several processors */

/* Adding this rounds to a whole number, which the lowest bits of the sum then hold with twice the bias of exponents
 * added to it: half of them is an exponent. What lies above them is shifted out. */
#define EXPONENTIAL_ROUND_F64 (0x1.8p52 + 2 * 1023)
#define EXPONENTIAL_ROUND_F32 (0x1.8p23F + 2 * 127)

EXPONENTIAL_INLINED double exponential_f64_scale(uint64_t exponent)
{
    double factor;

    exponent <<= 52;
    memcpy(&factor, &exponent, sizeof(factor));
    return factor;
}

EXPONENTIAL_INLINED double exponential_f64(double x)
{
    double limited = x > 710 ? 710 : x;
    double bounded = limited < -746 ? -746 : limited;
    double rounded = bounded * 0x1.71547652b82fep+0 + EXPONENTIAL_ROUND_F64;
    double n = rounded - EXPONENTIAL_ROUND_F64;
    double r = bounded - n * 0x1.62e42fefa3800p-1 - n * 0x1.ef35793c76730p-45;
    double s = r * r;
    double even, odd;
    uint64_t bits;

    even = 0x1.1f731ea5352cap-29;
    even = even * s + 0x1.27e4db57442fbp-22;
    even = even * s + 0x1.a01a01a6dcaffp-16;
    even = even * s + 0x1.6c16c16c162ccp-10;
    even = even * s + 0x1.5555555555556p-5;
    even = even * s + 0x1p-1;
    odd = 0x1.af4e196027428p-26;
    odd = odd * s + 0x1.71de021a90822p-19;
    odd = odd * s + 0x1.a01a01abef415p-13;
    odd = odd * s + 0x1.11111111100cep-7;
    odd = odd * s + 0x1.5555555555557p-3;
    memcpy(&bits, &rounded, sizeof(bits));
    return (1 + (r + s * (even + odd * r))) * exponential_f64_scale(bits >> 1) *
           exponential_f64_scale(bits - (bits >> 1));
}

EXPONENTIAL_INLINED float exponential_f32_scale(uint32_t exponent)
{
    float factor;

    exponent <<= 23;
    memcpy(&factor, &exponent, sizeof(factor));
    return factor;
}

EXPONENTIAL_INLINED float exponential_f32(float x)
{
    float limited = x > 89 ? 89 : x;
    float bounded = limited < -104 ? -104 : limited;
    float rounded = bounded * 0x1.715476p+0F + EXPONENTIAL_ROUND_F32;
    float n = rounded - EXPONENTIAL_ROUND_F32;
    float r = bounded - n * 0x1.62e4p-1F - n * 0x1.7f7d1cp-20F;
    float s = r * r;
    float q;
    uint32_t bits;

    q = 0x1.a12528p-13F;
    q = q * r + 0x1.6d4362p-10F;
    q = q * r + 0x1.1110e0p-7F;
    q = q * r + 0x1.5554e8p-5F;
    q = q * r + 0x1.555556p-3F;
    q = q * r + 0x1p-1F;
    memcpy(&bits, &rounded, sizeof(bits));
    return (1 + (r + s * q)) * exponential_f32_scale(bits >> 1) * exponential_f32_scale(bits - (bits >> 1));
}

#endif
