#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quotients of integers and random choices as CPython has them, a line each, for test_remat_numbers.c:

    python_numbers.py quotients     NUM DEN_HIGH DEN_LOW QUOTIENT, this one in hexadecimal notation
    python_numbers.py choices       SEED BELOW FIRST… LATER: twelve, and the 2,000th after these
"""

import random
import sys


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


def print_quotients():
    for num, den in quotients():
        if abs(num) < 2**63:
            print(num, den >> 64, den % 2**64, (num / den).hex())


def print_choices():
    rng = random.Random(2)
    seeds = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1] + [rng.getrandbits(64) for _ in range(10)]
    for seed in seeds:
        for below in (1, 2, 3, 1000, 2**31, 2**31 + 1, 2**32 - 1, rng.randint(1, 2**32 - 1)):
            python = random.Random(seed)
            choices = [python.randrange(below) for _ in range(2012)]
            print(seed, below, *choices[:12], choices[-1])


{"quotients": print_quotients, "choices": print_choices}[sys.argv[1]]()
