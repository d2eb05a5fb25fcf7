/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop for each pair of types, made of how a type is read and how it is written: 10 + 10 rules give 100 loops. Each
 * is compiled twice on x86-64: for any processor, and for those with AVX2.
 */
#include "storage/tensors/element_loop.h"

#include "storage/tensors/element.h"
#include "storage/tensors/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- floating point to integers: truncated, saturated, NaN is 0 ---- */

#define TWO_31 2147483648.0F
#define BELOW_TWO_31 2147483520.0F
#define TWO_63 9223372036854775808.0

static inline int32_t i32_from_f32(float value)
{
    float number = value == value ? value : 0;
    float above = number > -TWO_31 ? number : -TWO_31;
    int32_t result = (int32_t)(above < TWO_31 ? above : BELOW_TWO_31);
    return above < TWO_31 ? result : INT32_MAX;
}

static inline int32_t i32_from_f64(double value)
{
    double number = value == value ? value : 0;
    double above = number > INT32_MIN ? number : INT32_MIN;
    return (int32_t)(above < INT32_MAX ? above : INT32_MAX);
}

static inline int64_t i64_beyond(double value)
{
    return value >= TWO_63 ? INT64_MAX : value <= -TWO_63 ? INT64_MIN : 0;
}

#if defined(__x86_64__)
/* The instruction gives INT64_MIN for all that does not fit. */
static inline int64_t i64_from_f64(double value)
{
    int64_t result = _mm_cvttsd_si64(_mm_set_sd(value));
    return __builtin_expect(result == INT64_MIN, 0) ? i64_beyond(value) : result;
}

static inline int64_t i64_from_f32(float value)
{
    int64_t result = _mm_cvttss_si64(_mm_set_ss(value));
    return __builtin_expect(result == INT64_MIN, 0) ? i64_beyond((double)value) : result;
}
#else
static inline int64_t i64_from_f64(double value)
{
    bool is_inside = value > -TWO_63 && value < TWO_63;

    return __builtin_expect(is_inside, 1) ? (int64_t)value : i64_beyond(value);
}

static inline int64_t i64_from_f32(float value)
{
    return i64_from_f64((double)value);
}
#endif

/* ---- how each type is read and written ---- */

#define READ_F64(element) (element)
#define READ_F32(element) (element)
#define READ_F16(element) f32_from_f16(element)
#define READ_BF16(element) f32_from_bf16(element)
#define READ_I64(element) (element)
#define READ_I32(element) (element)
#define READ_I16(element) (element)
#define READ_I8(element) (element)
#define READ_U8(element) (element)
#define READ_BOOL(element) ((uint8_t)((element) != 0))

/* Integers above 65,520 are infinite as f16 and those below 2^24 exact as float, so f16 takes all of
 * them from float. */
#define WRITE_F64(value) ((double)(value))
#define WRITE_F32(value) ((float)(value))
#define WRITE_F16(value) \
    _Generic((value), double : f16_from_f64((double)(value)), default : f16_from_f32((float)(value)))
#define WRITE_BF16(value)                               \
    _Generic((value), double                            \
             : bf16_from_f64((double)(value)), int64_t  \
             : bf16_from_i64((int64_t)(value)), int32_t \
             : bf16_from_f64((double)(value)), default  \
             : bf16_from_f32((float)(value)))
#define WRITE_INTEGER(value, integer, from)        \
    _Generic((value), double                       \
             : from##_f64((double)(value)), float  \
             : from##_f32((float)(value)), default \
             : (integer)(value))
#define WRITE_I64(value) WRITE_INTEGER(value, int64_t, i64_from)
#define WRITE_I32(value) WRITE_INTEGER(value, int32_t, i32_from)
/* From integers; floating point goes by way of i32. */
#define WRITE_I16(value) ((int16_t)(value))
#define WRITE_I8(value) ((int8_t)(value))
#define WRITE_U8(value) ((uint8_t)(value))
#define WRITE_BOOL(value) ((uint8_t)((value) != 0))

/* ---- loops ---- */

#define CAST_DEFINE(FROM, TO, suffix, attributes)                                                      \
    attributes static void cast_##FROM##_##TO##suffix(void *target, const void *source, int64_t count) \
    {                                                                                                  \
        element_##TO *to = target;                                                                     \
        const element_##FROM *from = source;                                                           \
                                                                                                       \
        ELEMENTS_LOOP                                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                          \
            to[i] = WRITE_##TO(READ_##FROM(from[i]));                                                  \
        }                                                                                              \
    }

/* Floating point to the narrow integers: to i32, as much as the nearest cache holds, and from there saturated again. */
#define NARROW_COUNT 1024

#define CAST_NARROW_DEFINE(FROM, TO, suffix, attributes)                                               \
    attributes static void cast_##FROM##_##TO##suffix(void *target, const void *source, int64_t count) \
    {                                                                                                  \
        element_##TO *to = target;                                                                     \
        const element_##FROM *from = source;                                                           \
        int32_t wide[NARROW_COUNT];                                                                    \
                                                                                                       \
        for (int64_t done = 0; done < count; done += NARROW_COUNT) {                                   \
            int64_t part = count - done < NARROW_COUNT ? count - done : NARROW_COUNT;                  \
                                                                                                       \
            cast_##FROM##_I32##suffix(wide, from + done, part);                                        \
            for (int64_t i = 0; i < part; i++) {                                                       \
                int32_t value = wide[i] > MOST_##TO ? MOST_##TO : wide[i];                             \
                                                                                                       \
                to[done + i] = (element_##TO)(value < LEAST_##TO ? LEAST_##TO : value);                \
            }                                                                                          \
        }                                                                                              \
    }

#define LEAST_I16 INT16_MIN
#define MOST_I16 INT16_MAX
#define LEAST_I8 INT8_MIN
#define MOST_I8 INT8_MAX
#define LEAST_U8 0
#define MOST_U8 UINT8_MAX

#if ELEMENTS_HAS_AVX2
#define CAST_ONE(FROM, TO) CAST_PLAIN(FROM, TO) CAST_DEFINE(FROM, TO, _avx2, ELEMENTS_AVX2)
#define CAST_NARROW(FROM, TO) CAST_NARROW_DEFINE(FROM, TO, _plain, ) CAST_NARROW_DEFINE(FROM, TO, _avx2, ELEMENTS_AVX2)
#else
#define CAST_ONE(FROM, TO) CAST_PLAIN(FROM, TO)
#define CAST_NARROW(FROM, TO) CAST_NARROW_DEFINE(FROM, TO, _plain, )
#endif
#define CAST_PLAIN(FROM, TO) CAST_DEFINE(FROM, TO, _plain, )

#define CAST_TARGETS_OTHER(X, FROM) X(FROM, F64) X(FROM, F32) X(FROM, F16) X(FROM, BF16) X(FROM, I64) X(FROM, BOOL)
#define CAST_TARGETS_NARROW(X, FROM) X(FROM, I16) X(FROM, I8) X(FROM, U8)
#define CAST_TARGETS(X, FROM) CAST_TARGETS_OTHER(X, FROM) X(FROM, I32) CAST_TARGETS_NARROW(X, FROM)

#if ELEMENTS_HAS_AVX2
/* What compilers make of i32_from_f32 and i32_from_f64 takes three times as many instructions: they may not use the
 * minimum and maximum of the processor, which differ from C's comparisons in the sign of zero. */
ELEMENTS_AVX2 static void cast_F32_I32_avx2(void *target, const void *source, int64_t count)
{
    const __m256 limit = _mm256_set1_ps(TWO_31);
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 value = _mm256_loadu_ps((const float *)source + i);
        __m256 number = _mm256_and_ps(value, _mm256_cmp_ps(value, value, _CMP_ORD_Q));
        /* Out of range gives INT32_MIN, and what is above becomes the complement of that. */
        __m256i result = _mm256_cvttps_epi32(number);
        __m256i above = _mm256_castps_si256(_mm256_cmp_ps(number, limit, _CMP_GE_OQ));
        _mm256_storeu_si256((__m256i *)((int32_t *)target + i), _mm256_xor_si256(result, above));
    }
    for (; i < count; i++) {
        ((element_I32 *)target)[i] = i32_from_f32(((const element_F32 *)source)[i]);
    }
}

ELEMENTS_AVX2 static void cast_F64_I32_avx2(void *target, const void *source, int64_t count)
{
    const __m256d most = _mm256_set1_pd(INT32_MAX);
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        __m256d value = _mm256_loadu_pd((const double *)source + i);
        __m256d number = _mm256_and_pd(value, _mm256_cmp_pd(value, value, _CMP_ORD_Q));
        __m256d inside = _mm256_min_pd(number, most);
        _mm_storeu_si128((__m128i *)((int32_t *)target + i), _mm256_cvttpd_epi32(inside));
    }
    for (; i < count; i++) {
        ((element_I32 *)target)[i] = i32_from_f64(((const element_F64 *)source)[i]);
    }
}
#endif

/* The two with an I32 of their own, then those whose I32 is like the others. */
#define CAST_FROM_WIDE_FLOAT(FROM) \
    CAST_TARGETS_OTHER(CAST_ONE, FROM) CAST_PLAIN(FROM, I32) CAST_TARGETS_NARROW(CAST_NARROW, FROM)
#define CAST_FROM_HALF(FROM) \
    CAST_TARGETS_OTHER(CAST_ONE, FROM) CAST_ONE(FROM, I32) CAST_TARGETS_NARROW(CAST_NARROW, FROM)

CAST_FROM_WIDE_FLOAT(F64)
CAST_FROM_WIDE_FLOAT(F32)
CAST_FROM_HALF(F16)
CAST_FROM_HALF(BF16)
CAST_TARGETS(CAST_ONE, I64)
CAST_TARGETS(CAST_ONE, I32)
CAST_TARGETS(CAST_ONE, I16)
CAST_TARGETS(CAST_ONE, I8)
CAST_TARGETS(CAST_ONE, U8)
CAST_TARGETS(CAST_ONE, BOOL)

/* One type to itself is no conversion: NaN stays as it is, whatever its bits. */
#define CAST_SAME(bytes)                                                           \
    static void cast_same_##bytes(void *target, const void *source, int64_t count) \
    {                                                                              \
        memmove(target, source, (size_t)count *(bytes));                           \
    }
CAST_SAME(1)
CAST_SAME(2)
CAST_SAME(4)
CAST_SAME(8)

#define CAST_ROW(code, FROM, name, bytes) [VARVE_DTYPE_##FROM] = {CAST_TARGETS(CAST_ENTRY, FROM)},

#define CAST_ENTRY(FROM, TO) [VARVE_DTYPE_##TO] = cast_##FROM##_##TO##_plain,
static elements_cast *const casts_plain[VARVE_DTYPE_LIMIT][VARVE_DTYPE_LIMIT] = {VARVE_DTYPE_LIST(CAST_ROW)};
#undef CAST_ENTRY

#if ELEMENTS_HAS_AVX2
#define CAST_ENTRY(FROM, TO) [VARVE_DTYPE_##TO] = cast_##FROM##_##TO##_avx2,
static elements_cast *const casts_avx2[VARVE_DTYPE_LIMIT][VARVE_DTYPE_LIMIT] = {VARVE_DTYPE_LIST(CAST_ROW)};
#undef CAST_ENTRY
#endif

elements_cast *elements_cast_find_plain(enum varve_dtype target, enum varve_dtype source)
{
    static elements_cast *const same[] = {[1] = cast_same_1, [2] = cast_same_2, [4] = cast_same_4, [8] = cast_same_8};
    return target == source ? same[varve_dtype_bytes(target)] : casts_plain[source][target];
}

elements_cast *elements_cast_find(enum varve_dtype target, enum varve_dtype source)
{
#if ELEMENTS_HAS_AVX2
    if (target != source && __builtin_cpu_supports("avx2")) {
        return casts_avx2[source][target];
    }
#endif
    return elements_cast_find_plain(target, source);
}
