/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores are CPython's quotients and random choices CPython's, bit by bit: a child prints them.
 *
 * Costs: 1 s
 */
#include "storage/remat/planner.h"
#include "storage/remat/twister.h"
#include "support/random.h"

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of all magnitudes; beside ties, exact, and one off them: num, den's halves, num / den. */
static const char quotients[] =
    "rng = random.Random(1)\n"
    "bits = rng.getrandbits\n"
    "for _ in range(240):\n"
    "    row(bits(rng.randint(1, 62)) * rng.choice((1, 1, 1, -1)), bits(rng.randint(1, 125)) | 1 << rng.randint(0, "
    "124))\n"
    "for _ in range(60):\n" /* half way between two doubles, or nearly */
    "    shift = rng.randint(0, 7)\n"
    "    tie = (1 << 53 | bits(53)) * 2 + 1 << shift\n"
    "    for num in (tie, tie + 1, tie - 1):\n"
    "        row(num * rng.choice((1, -1)), 1 << rng.randint(0, 124))\n"
    "for _ in range(60):\n" /* the same, not by a power of two: (2 m + 1) d / (2 d) */
    "    den = bits(7) | 1\n"
    "    row(((1 << 53 | bits(53)) * 2 + 1) * den, den << rng.randint(54, 110))\n"
    "for num in (0, 1, -1, 2**53, 2**53 + 1, 2**62 - 1, 2**63 - 1, -(2**63) + 1):\n"
    "    for den in (1, 3, 2**53 - 1, 2**53 + 1, 2**64 - 1, 2**64, 2**64 + 1, 2**125 - 1):\n"
    "        row(num, den)\n";

/* seed, below, the 1st to the 12th choice, the 2,012th. */
static const char choices[] =
    "rng = random.Random(2)\n"
    "seeds = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1] + [rng.getrandbits(64) for _ in "
    "range(10)]\n"
    "for seed in seeds:\n"
    "    for below in (1, 2, 3, 1000, 2**31, 2**31 + 1, 2**32 - 1, rng.randint(1, 2**32 - 1)):\n"
    "        python = random.Random(seed)\n"
    "        made = [python.randrange(below) for _ in range(2012)]\n"
    "        print(seed, below, *made[:12], made[-1])\n";

static FILE *python(const char *script)
{
    static char command[4000];
    snprintf(command, sizeof(command),
             "python3 -c 'import random\n"
             "def row(num, den):\n"
             "    if abs(num) < 2**63:\n"
             "        print(num, den >> 64, den %% 2**64, (num / den).hex())\n"
             "%s'",
             script);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    return pipe;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

TEST(test_quotients)
{
    FILE *pipe = python(quotients);
    unsigned rows = 0;
    uint64_t high, low;
    int64_t num;
    double expected;
    for (; fscanf(pipe, "%" SCNd64 "%" SCNu64 "%" SCNu64 "%lf", &num, &high, &low, &expected) == 4; rows++) {
        struct score score = {.num = num, .den = (score_wide)high << 64 | low};
        double quotient = score_round(score);
        if (bits_of(quotient) != bits_of(expected) && !(quotient == 0 && expected == 0)) {
            fail_msg("%" PRId64 " / (%" PRIu64 " << 64 | %" PRIu64 "): %a, not %a", num, high, low, quotient, expected);
        }
        assert_true(fabs(score_estimate(score) - quotient) <= fabs(quotient) * 0x1p-50);
    }
    assert_int_equal(pclose(pipe), 0);
    assert_true(rows > 400);
    assert_true(isinf(score_round((struct score){.num = 5, .den = 0})));
}

TEST(test_choices)
{
    FILE *pipe = python(choices);
    unsigned rows = 0;
    uint64_t seed;
    uint32_t below;
    for (; fscanf(pipe, "%" SCNu64 "%" SCNu32, &seed, &below) == 2; rows++) {
        struct twister twister = {.next = 0};
        twister_seed(&twister, seed);
        for (unsigned i = 0; i < 2012; i++) {
            uint32_t choice = twister_below(&twister, below), expected = 0;
            if (i < 12 || i == 2011) {
                assert_int_equal(fscanf(pipe, "%" SCNu32, &expected), 1);
                assert_int_equal(choice, expected);
            }
        }
    }
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(rows, 19 * 8);
}
