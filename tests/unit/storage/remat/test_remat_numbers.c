/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores are Python's quotients, and random choices Python's, bit by bit (python_table.py); scores also against exact rational
 * comparison.
 */
#include "python_table.h"
#include "storage/remat/score.h"
#include "storage/remat/twister.h"
#include "support/random.h"

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

TEST(test_quotients)
{
    for (unsigned i = 0; i < sizeof(quotients) / sizeof(quotients[0]); i++) {
        score_wide den = (score_wide)quotients[i].den_high << 64 | quotients[i].den_low;
        double quotient = score_round((struct score){.num = quotients[i].num, .den = den});

        if (bits_of(quotient) != bits_of(quotients[i].quotient) &&
            !(quotient == 0 && quotients[i].quotient == 0)) {
            fail_msg("row %u: %" PRId64 " / ...: %a, not %a", i, quotients[i].num, quotient,
                     quotients[i].quotient);
        }
        assert_true(fabs(score_estimate((struct score){.num = quotients[i].num, .den = den}) - quotient) <=
                    fabs(quotient) * 0x1p-50);
    }
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
    for (unsigned i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        struct twister twister = {.next = 0};
        uint32_t later = 0;

        twister_seed(&twister, choices[i].seed);
        for (unsigned j = 0; j < CHOICES; j++) {
            assert_int_equal(twister_below(&twister, choices[i].below), choices[i].first[j]);
        }
        for (unsigned j = 0; j < 2000; j++) {
            later = twister_below(&twister, choices[i].below);
        }
        assert_int_equal(later, choices[i].later);
    }
}
