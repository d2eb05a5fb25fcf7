/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores are Python's quotients, and random choices Python's, bit by bit, as python_numbers.py prints them; scores also
 * against exact rational comparison.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/remat/score.h"
#include "storage/remat/twister.h"
#include "support/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHOICES 12

#define PYTHON "exec python3 " VARVE_SOURCE_DIR "/tests/unit/storage/remat/python_numbers.py "

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

TEST(test_quotients)
{
    FILE *lines = popen(PYTHON "quotients", "r");
    int64_t num;
    uint64_t den_high, den_low;
    double expected;
    unsigned count = 0;

    for (;
         fscanf(lines, "%" SCNd64 " %" SCNu64 " %" SCNu64 " %la", &num, &den_high, &den_low, &expected) == 4;
         count++) {
        struct score score = {.num = num, .den = (score_wide)den_high << 64 | den_low};
        double quotient = score_round(score);

        if (bits_of(quotient) != bits_of(expected) && !(quotient == 0 && expected == 0)) {
            fail_msg("row %u: %" PRId64 " / ...: %a, not %a", count, num, quotient, expected);
        }
        assert_true(fabs(score_estimate(score) - quotient) <= fabs(quotient) * 0x1p-50);
    }
    assert_int_equal(pclose(lines), 0);
    assert_true(count > 400);
    assert_true(isinf(score_round((struct score){.num = 5, .den = 0})));
}

/* Is num / den below the middle between `quotient` and the next double? In integers: den below 2^62, the quotient below 2. */
static int against_middle(int64_t num, score_wide den, double quotient)
{
    int exponent;
    score_wide doubled = 2 * (score_wide)ldexp(frexp(quotient, &exponent), 53) + 1, left = (score_wide)num;

    /* num / den against doubled * 2^(exponent - 54) */
    exponent -= 54;
    doubled *= (score_wide)den;
    left <<= -exponent;
    return left < doubled ? -1 : left > doubled;
}

/* Quotients near 1, so that 128 bits hold both sides: rounded up and down as they should be, ties to even. */
TEST(test_nearest)
{
    uint64_t random = test_first_seed(1);

    for (unsigned i = 0; i < 200000; i++) {
        uint64_t den = (random_next(&random) >> 2 | UINT64_C(1) << 61) + random_below(&random, 3);
        int64_t num = (int64_t)(den - random_below(&random, UINT64_C(1) << (1 + random_below(&random, 60))));
        double quotient = score_round((struct score){.num = num, .den = den});
        double below = nextafter(quotient, 0);
        int above_it = against_middle(num, den, quotient), below_it = against_middle(num, den, below);
        bool is_even = (bits_of(quotient) & 1) == 0;

        if (above_it > 0 || below_it < 0 || (above_it == 0 && !is_even) || (below_it == 0 && !is_even)) {
            fail_msg("%" PRId64 " / %" PRIu64 " is not %a", num, den, quotient);
        }
        assert_true(score_round((struct score){.num = -num, .den = den}) == -quotient);
    }
}

TEST(test_choices)
{
    FILE *lines = popen(PYTHON "choices", "r");
    uint64_t seed;
    uint32_t below, expected, later = 0;
    unsigned count = 0;

    for (; fscanf(lines, "%" SCNu64 " %" SCNu32, &seed, &below) == 2; count++) {
        struct twister twister = {.next = 0};

        twister_seed(&twister, seed);
        for (unsigned i = 0; i < CHOICES; i++) {
            assert_int_equal(fscanf(lines, " %" SCNu32, &expected), 1);
            assert_int_equal(twister_below(&twister, below), expected);
        }
        for (unsigned i = 0; i < 2000; i++) {
            later = twister_below(&twister, below);
        }
        assert_int_equal(fscanf(lines, " %" SCNu32, &expected), 1);
        assert_int_equal(later, expected);
    }
    assert_int_equal(pclose(lines), 0);
    assert_true(count > 100);
}
