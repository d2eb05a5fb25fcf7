#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints python_table.h: quotients of integers and random choices as CPython has them, for test_remat_numbers.c."""

import random

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* C only: a table, printed by python_table.py. */
/* clang-format off */
#ifndef VARVE_TESTS_UNIT_STORAGE_REMAT_PYTHON_TABLE_H
#define VARVE_TESTS_UNIT_STORAGE_REMAT_PYTHON_TABLE_H

#include <stdint.h>
"""


def quotients():
    """Of all magnitudes; beside ties, exact, and one off them."""
    rng = random.Random(1)
    for _ in range(240):
        num = rng.getrandbits(rng.randint(1, 62)) * rng.choice((1, 1, 1, -1))
        yield num, rng.getrandbits(rng.randint(1, 125)) | 1 << rng.randint(0, 124)
    for _ in range(60):  # num / den is half way between two doubles, or nearly
        odd = (1 << 53 | rng.getrandbits(53)) * 2 + 1
        shift = rng.randint(0, 7)
        for num in (odd << shift, (odd << shift) + 1, (odd << shift) - 1):
            yield num * rng.choice((1, -1)), 1 << rng.randint(0, 124)
    for _ in range(60):  # the same, not by a power of two: (2 m + 1) d / (2 d)
        den = rng.getrandbits(7) | 1
        yield ((1 << 53 | rng.getrandbits(53)) * 2 + 1) * den >> 0, den << rng.randint(54, 110)
    for num in (0, 1, -1, 2**53, 2**53 + 1, 2**62 - 1, 2**63 - 1, -(2**63) + 1):
        for den in (1, 3, 2**53 - 1, 2**53 + 1, 2**64 - 1, 2**64, 2**64 + 1, 2**125 - 1):
            yield num, den


def main():
    rng = random.Random(2)
    print(HEAD)
    print("static const struct {\n    int64_t num;\n    uint64_t den_high, den_low;\n    double quotient;\n} quotients[] = {")
    for num, den in quotients():
        if abs(num) < 2**63:
            print(f"    {{INT64_C({num}), UINT64_C({den >> 64}), UINT64_C({den % 2**64}), {(num / den).hex()}}},")
    print("};\n\n#define CHOICES 12\n\nstatic const struct {\n    uint64_t seed;\n    uint32_t below, first[CHOICES];")
    print("    uint32_t later; /* the 2,000th after these */\n} choices[] = {")
    seeds = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1] + [rng.getrandbits(64) for _ in range(10)]
    for seed in seeds:
        for below in (1, 2, 3, 1000, 2**31, 2**31 + 1, 2**32 - 1, rng.randint(1, 2**32 - 1)):
            python = random.Random(seed)
            first = [python.randrange(below) for _ in range(12)]
            later = [python.randrange(below) for _ in range(2000)][-1]
            print(f"    {{UINT64_C({seed}), UINT32_C({below}), {{{', '.join(f'{n}U' for n in first)}}}, {later}U}},")
    print("};\n\n#endif")


main()
