/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp against the C library's in long double, over all numbers that there are: at most 1.1 units of the last place
 * off, where the results are subnormal too, and without a step between a result and infinity or 0. The operator,
 * which takes the loop for this processor, and the function as the compiler makes it for any.
 *
 * Costs: 1 s, full 6 s
 */
#include "storage/operators/exponential.h"
#include "storage/storage.h"

#include "cmocka.h"
#include "support/structure.h"

#include <float.h>
#include <math.h>

#define COUNT 4096
#define UNITS_MAX 1.1L

static union {
    float f32[COUNT];
    double f64[COUNT];
} numbers, results;

static void operator_run(enum varve_dtype dtype)
{
    struct varve_array a = {.data = &numbers, .dtype = dtype}, out = {.data = &results, .dtype = dtype};
    const int64_t shape[] = {COUNT};
    varve_geometry_contiguous(1, shape, &a.geometry, NULL);
    varve_geometry_contiguous(1, shape, &out.geometry, NULL);
    assert_int_equal(varve_op_exp(&out, &a, NULL), VARVE_OK);
}

/* Infinity counts as the number behind the largest one, which is where it is rounded to. */
static void result_check(double number, double result, int digits, int exponent_min, int exponent_max)
{
    long double exact = expl((long double)number);
    long double limit = ldexpl(1, exponent_max);
    if (isnan(number) || exact >= limit || exact == 0) {
        if (isnan(number) ? !isnan(result) : result != (exact == 0 ? 0 : (double)INFINITY)) {
            fail_msg("exp(%a) is %a", number, result);
        }
        return;
    }
    int exponent;
    frexpl(exact, &exponent);
    long double unit = ldexpl(1, (exponent > exponent_min ? exponent : exponent_min) - digits);
    if (isnan(result) || fabsl((isinf(result) ? limit : (long double)result) - exact) > UNITS_MAX * unit) {
        fail_msg("exp(%a) is %a, not %La", number, result, exact);
    }
}

static void f32_check(void)
{
    operator_run(VARVE_DTYPE_F32);
    for (int i = 0; i < COUNT; i++) {
        double number = (double)numbers.f32[i];
        result_check(number, (double)results.f32[i], FLT_MANT_DIG, FLT_MIN_EXP, FLT_MAX_EXP);
        result_check(number, (double)exponential_f32(numbers.f32[i]), FLT_MANT_DIG, FLT_MIN_EXP, FLT_MAX_EXP);
    }
}

static void f64_check(void)
{
    operator_run(VARVE_DTYPE_F64);
    for (int i = 0; i < COUNT; i++) {
        double number = numbers.f64[i];
        result_check(number, results.f64[i], DBL_MANT_DIG, DBL_MIN_EXP, DBL_MAX_EXP);
        result_check(number, exponential_f64(number), DBL_MANT_DIG, DBL_MIN_EXP, DBL_MAX_EXP);
    }
}

/* Every so many of all bit patterns. */
TEST(test_f32_everywhere)
{
    uint32_t step = test_is_full() ? 1001 : 21001;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += (uint64_t)step * COUNT) {
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t one = (uint32_t)bits + i * step;
            memcpy(&numbers.f32[i], &one, sizeof(one));
        }
        f32_check();
    }
}

TEST(test_f64_everywhere)
{
    static const struct {
        double least, most;
    } ranges[] = {{-1, 1}, {-40, 40}, {-750, 720}, {-746, -707}, {709, 710}, {-1e-8, 1e-8}, {-745.2, -744.3}};
    random_state = test_first_seed(36);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned range = 0; range < sizeof(ranges) / sizeof(ranges[0]); range++) {
            for (int i = 0; i < COUNT; i++) {
                double part = (double)(random_next(&random_state) >> 11) * 0x1p-53;
                numbers.f64[i] = ranges[range].least + part * (ranges[range].most - ranges[range].least);
            }
            f64_check();
        }
        for (int i = 0; i < COUNT; i++) { /* any bits */
            uint64_t bits = random_next(&random_state);
            memcpy(&numbers.f64[i], &bits, sizeof(bits));
        }
        f64_check();
    }
}

/* The numbers next to each other around those where a result changes its kind. */
TEST(test_borders)
{
    static const double borders[] = {0,
                                     0x1.62e42fefa39efp9 /* infinity in f64 */,
                                     -0x1.74910d52d3051p9 /* 0 */,
                                     -0x1.6232bdd7abcd2p9 /* subnormal */,
                                     88.72,
                                     -103.97,
                                     -87.34,
                                     1};
    for (unsigned border = 0; border < sizeof(borders) / sizeof(borders[0]); border++) {
        float low = (float)borders[border], high = low;
        double low_64 = borders[border], high_64 = low_64;
        for (int i = 0; i < COUNT; i += 2) {
            numbers.f32[i] = low = nextafterf(low, -INFINITY);
            numbers.f32[i + 1] = high = nextafterf(high, INFINITY);
        }
        f32_check();
        for (int i = 0; i < COUNT; i += 2) {
            numbers.f64[i] = low_64 = nextafter(low_64, (double)-INFINITY);
            numbers.f64[i + 1] = high_64 = nextafter(high_64, (double)INFINITY);
        }
        f64_check();
    }
}

TEST(test_exact)
{
    static const double given[] = {0, -0.0, (double)INFINITY, (double)-INFINITY, 1e300, -1e300};
    static const double expected[] = {1, 1, (double)INFINITY, 0, (double)INFINITY, 0};
    const int count = (int)(sizeof(given) / sizeof(given[0]));
    for (int i = 0; i < COUNT; i++) {
        numbers.f64[i] = i % (count + 1) == count ? (double)NAN : given[i % (count + 1)];
    }
    operator_run(VARVE_DTYPE_F64);
    for (int i = 0; i < COUNT; i++) {
        if (i % (count + 1) == count) {
            assert_true(isnan(results.f64[i]));
        } else {
            assert_true(results.f64[i] == expected[i % (count + 1)] && !signbit(results.f64[i]));
        }
    }
}
