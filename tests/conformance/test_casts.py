#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python.
"""Conversions of varve_array_copy, all pairs of types: every number of 16 bits, the edges of the other types and random
bits, beside exact models and beside NumPy's astype where that is defined; strided, overlapping and unaligned arrays."""

import os
import random
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from elements_library import (DTYPES, FLOATS, NUMPY, as_f64, call, converted, copy, describe, np,  # noqa: E402
                              rounded, rounded_integer, scalar)

try:
    import ml_dtypes
except ImportError: # the models below are exact without it
    ml_dtypes = None

SEED = int(os.environ.get("VARVE_TEST_SEED") or 20)
ALL_16 = np.arange(65536, dtype=np.uint16)
BITS = {"f64": np.uint64, "f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}
FRACTION_BITS = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}
LIMITS = {name: np.iinfo(NUMPY[name]) for name in ("i64", "i32", "i16", "i8", "u8")}


def around(values, dtype):
    """Each number and its neighbours, both signs."""
    with np.errstate(all="ignore"):
        near = np.array(values, np.float64).astype(dtype)
        some = [near]
        for _ in range(2):
            some.append(np.nextafter(some[-1], dtype(np.inf)))
        for _ in range(2):
            some.append(np.nextafter(some[-1] if len(some) > 3 else near, dtype(-np.inf)))
        found = np.concatenate(some)
        return np.concatenate([found, -found])


def ties_of(dtype, generator):
    """Numbers half way between two of a narrower type, normal and subnormal, as float64."""
    narrow = {"f32": np.float32, "f16": np.float16}.get(dtype)
    if narrow is None: # bf16
        bits = generator.integers(0, 0x7f80, 3000).astype(np.uint32)
        low, high = (bits << 16).view(np.float32), (np.minimum(bits + 1, 0x7f7f) << 16).view(np.float32)
    else:
        size = np.dtype(narrow).itemsize * 8
        bits = generator.integers(0, {16: 0x7c00, 32: 0x7f800000}[size], 3000).astype(f"u{size // 8}")
        low = bits.view(narrow)
        high = (bits + (bits + 1 < {16: 0x7c00, 32: 0x7f800000}[size])).astype(bits.dtype).view(narrow)
    return (low.astype(np.float64) + high.astype(np.float64)) / 2


def floats(dtype, generator):
    """Edges, ties of narrower types, integers' limits, NaN with payloads, random bits of f64 or f32."""
    kind, bits = NUMPY[dtype], BITS[dtype]
    powers = [2.0 ** power for power in range(-150, 130)] + [0.0, np.inf, 1e-310, 65504, 65519.9, 65520, 3.3895e38,
                                                             3.4e38]
    limits = [float(limit) + part for info in LIMITS.values() for limit in (info.min, info.max)
              for part in (-1, -.5, 0, .5, 1)]
    with np.errstate(all="ignore"):
        ties = np.concatenate([ties_of(narrow, generator) for narrow in ("f32", "f16", "bf16")])
        numbers = np.concatenate([around(powers + limits, kind), around(ties, kind),
                                  around([0.5, 1.5, 2.5, 1e300], kind)])
    any_bits = generator.integers(0, 2 ** (8 * kind().itemsize), 20000, dtype=bits).view(kind)
    infinity = np.array([np.inf], kind).view(bits)[0]
    payloads = generator.integers(1, 1 << FRACTION_BITS[dtype], 500, dtype=bits) | infinity
    nan = np.concatenate([payloads, payloads | bits(1 << (8 * kind().itemsize - 1))]).view(kind)
    return np.concatenate([numbers, any_bits, nan])


def integers(dtype, generator):
    info = LIMITS[dtype]
    near = [base + offset for power in range(info.bits) for base in (1 << power, -(1 << power))
            for offset in range(-3, 4)]
    # Ties of 8, 11, 24 and 53 bits, and those with one bit far below.
    for precision in (8, 11, 24, 53):
        for _ in range(300):
            shift = int(generator.integers(1, 62))
            tie = (int(generator.integers(1 << precision - 1, 1 << precision)) * 2 + 1) << shift - 1
            near += [tie, tie - 1, tie + 1, -tie, 1 - tie, -1 - tie]
    near += [info.min, info.max, info.min + 1, info.max - 1, 0]
    some = np.array([number for number in near if info.min <= number <= info.max], NUMPY[dtype])
    return np.concatenate([some, generator.integers(info.min, info.max, 5000, dtype=NUMPY[dtype], endpoint=True)])


def numbers_of(dtype, generator):
    if dtype in ("f16", "bf16"):
        return ALL_16.view(NUMPY[dtype])
    if dtype == "bool":
        return np.array([True, False] * 33)
    return floats(dtype, generator) if dtype in FLOATS else integers(dtype, generator)


def to_integers(values, dtype):
    """Truncated, saturated, NaN is 0; by Python's integers."""
    info = LIMITS[dtype]
    return np.array([0 if value != value else info.max if value > info.max else info.min
                     if value < info.min else int(value)
                     for value in values.tolist()], NUMPY[dtype])


class Pairs(unittest.TestCase):
    """Whole runs, which go by vectors, of an odd length."""

    def setUp(self):
        print(f"seed {SEED} (VARVE_TEST_SEED)")
        self.generator = np.random.default_rng(SEED)
        warnings.simplefilter("ignore", RuntimeWarning)

    def converted(self, values, target, source=None):
        return converted(values, target, source)

    def filled(self, value, target):
        """Five elements that were set to it."""
        elements = np.zeros(5, NUMPY[target])
        call("varve_array_fill", describe(elements, target), scalar(value))
        return elements

    def same(self, got, expected, source, what):
        wrong = np.flatnonzero(got != expected)
        if wrong.size:
            first = wrong[0]
            self.fail(f"{what}: {wrong.size} differ, first {source[first]!r}"
                      f" ({source[first:first + 1].tobytes()[::-1].hex()}) "
                      f"gives {got[first]!r}, not {expected[first]!r}")

    def check_floats(self, got, target, expected, source_bits, what):
        """`expected` as float64, exactly; `source_bits`: sign and payload of what NaN came from, left-aligned in 64
        bits."""
        numbers, bits = as_f64(got, target), got.view(BITS[target])
        is_nan = np.isnan(expected)
        self.same(numbers[~is_nan], expected[~is_nan], expected[~is_nan], what)
        self.same(np.signbit(numbers), np.signbit(expected), expected, what + ", sign")
        self.assertTrue(np.isnan(numbers[is_nan]).all(), what)
        if source_bits is None:
            return
        size, fraction = 8 * got.itemsize, FRACTION_BITS[target]
        sign_and_payload = source_bits[is_nan]
        payload = (sign_and_payload[:, 1] >> np.uint64(63 - fraction)) & np.uint64((1 << fraction) - 1)
        payload |= np.uint64(1 << fraction - 1)
        exponent = np.uint64(((1 << size - 1 - fraction) - 1) << fraction)
        wanted = (sign_and_payload[:, 0] << np.uint64(size - 1)) | exponent | payload
        self.same(bits[is_nan], wanted.astype(bits.dtype), bits[is_nan], what + ", NaN")

    def nan_bits(self, values, dtype):
        """Sign, and the payload moved to bit 62 downwards."""
        if dtype not in FLOATS:
            return None
        bits, size, fraction = values.view(BITS[dtype]).astype(np.uint64), 8 * values.itemsize, FRACTION_BITS[dtype]
        payload = (bits & np.uint64((1 << fraction) - 1)) << np.uint64(63 - fraction)
        return np.stack([bits >> np.uint64(size - 1), payload], axis=1)

    def check_pair(self, source, target):
        values = numbers_of(source, self.generator)
        if len(values) % 2 == 0:
            values = np.concatenate([values, values[:1]])
        what = f"{source} to {target}"
        got = self.converted(values, target, source)
        exact = None if source == "i64" else as_f64(values, source)
        if target == source:
            self.assertEqual(got.tobytes(), values.tobytes(), what)
        elif target == "bool":
            self.same(got, (values != 0) if exact is None else exact != 0, values, what)
        elif target in FLOATS and exact is None:
            expected = np.array([rounded_integer(value, target) for value in values.tolist()])
            self.check_floats(got, target, expected, None, what)
        elif target in FLOATS:
            self.check_floats(got, target, rounded(exact, target), self.nan_bits(values, source), what)
        elif source in FLOATS:
            self.same(got, to_integers(exact, target), values, what)
        else:
            self.same(got, values.astype(NUMPY[target]), values, what)

    def test_every_pair(self):
        for source in DTYPES:
            for target in DTYPES:
                with self.subTest(f"{source} to {target}"):
                    self.check_pair(source, target)

    def test_numpy_agrees(self):
        """Where astype is defined: all but bf16, and floating point to integers that hold the number. NumPy takes i64
        to f16 by way of float, which is once too often nowhere: what float rounds is infinite as f16."""
        for source in DTYPES:
            for target in DTYPES:
                if "bf16" in (source, target):
                    continue
                values = numbers_of(source, self.generator)
                if source in FLOATS and target in LIMITS:
                    info, exact = LIMITS[target], as_f64(values, source)
                    values = values[(np.trunc(exact) >= info.min) & (exact < float(info.max) + (info.bits < 64))]
                elif source in FLOATS:
                    values = values[~np.isnan(values)]
                with self.subTest(f"{source} to {target}"):
                    self.same(self.converted(values, target, source), values.astype(NUMPY[target]), values,
                              f"{source} to {target}")

    def test_ml_dtypes_agrees(self):
        """Where it is installed, and takes one step: f64 and i32 go by way of float there."""
        if ml_dtypes is None:
            return
        for source in ("f32", "f16", "i16"):
            values = numbers_of(source, self.generator)
            if source in FLOATS:
                values = values[~np.isnan(values)]
            with self.subTest(source):
                self.same(self.converted(values, "bf16", source), values.astype(ml_dtypes.bfloat16).view(np.uint16),
                          values, source)

    def test_scalars(self):
        """A fill converts as from bool, i64 and f64."""
        for target in DTYPES:
            for value in (True, 3, -1, 2 ** 40 + 1, 300, 0.5, -1e30, 70000.0, float("nan"), 1e-8):
                source = np.array([value], np.float64 if isinstance(value, float) else np.bool_
                                  if value is True else np.int64)
                got = self.filled(value, target)
                self.assertEqual(got.tobytes(), self.converted(source, target).tobytes() * 5, f"{value} as {target}")


class Places(unittest.TestCase):
    """Where the elements lie: NumPy's own assignment gives the expected result, between types that convert exactly."""

    PAIRS = (("f32", "f64"), ("f64", "f32"), ("i16", "i64"), ("i64", "u8"), ("u8", "f16"), ("i32", "i8"),
             ("f32", "i32"), ("bool", "f32"))

    def setUp(self):
        print(f"seed {SEED} (VARVE_TEST_SEED)")
        self.random = random.Random(SEED)

    def view(self, memory, kind, shape):
        """A random view of that shape somewhere in `memory`, or None."""
        size = np.dtype(kind).itemsize
        axes = list(range(len(shape)))
        self.random.shuffle(axes)
        steps = [self.random.choice((1, 1, 1, 2, -1, -3)) for _ in shape]
        large = [shape[axis] * abs(steps[axis]) for axis in axes]
        count = int(np.prod(large, dtype=int)) if large else 1
        start = self.random.randrange(0, max(1, memory.size - count * size))
        if start + count * size > memory.size:
            return None
        flat = memory[start:start + count * size].view(kind).reshape(large)
        flat = flat.transpose([axes.index(axis) for axis in range(len(shape))])
        return flat[(*(slice(None, None, step) for step in steps), ...)]

    def check(self, rounds, shapes):
        memory = np.zeros(60000, np.uint8)
        done = 0
        for index in range(rounds):
            source_type, target_type = self.random.choice(self.PAIRS)
            shape = shapes()
            source_shape = tuple(1 if self.random.random() < .1 else size for size in shape)
            target = self.view(memory, NUMPY[target_type], shape)
            source = self.view(memory, NUMPY[source_type], source_shape)
            if target is None or source is None:
                continue
            memory[:] = 0
            source[...] = np.arange(source.size).reshape(source.shape) % (2 if source_type == "bool" else 101)
            start = memory.copy()
            target[...] = source.copy()
            expected = memory.copy()
            memory[:] = start
            copy(target, source)
            self.assertTrue(np.array_equal(memory, expected), f"copy {index}: {source_type} {source.shape}"
                                                              f" {source.strides} to "
                            f"{target_type} {target.shape} {target.strides}")
            done += 1
        self.assertGreater(done, rounds // 2)

    def test_small_views(self):
        self.check(5000, lambda: tuple(self.random.randrange(1, 7) for _ in range(self.random.randrange(5))))

    def test_planes(self):
        self.check(2000, lambda: tuple(self.random.choice((3, 17, 40, 71)) for _ in range(2)))

    def test_types_of_one_size_in_their_place(self):
        for source, target in (("f32", "i32"), ("i32", "f32"), ("i64", "f64"), ("f16", "i16"), ("bf16", "f16"),
                               ("i8", "u8")):
            for step in (1, 2, -1):
                memory = (np.arange(4001) % 100).astype(NUMPY["f32" if source == "bf16" else source])
                if source == "bf16":
                    memory = converted(memory, "bf16")
                expected = converted(memory, target, source)[::step]
                view = memory[::step]
                copy(view.view(NUMPY[target]), view, target, source)
                self.assertTrue(np.array_equal(view.view(NUMPY[target]), expected), f"{source} to {target}")

if __name__ == "__main__":
    recording.main()
