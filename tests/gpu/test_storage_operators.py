#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Operators on storages in the GPU's memory beside the same on the host: random shapes, strides and types, results in
place, large reductions in parts and by columns, products by cuBLAS and by our kernel. What storage.h says is equal is
compared by its bits, the rest within the bounds that it states. --memory host: on a pool of the host, to see that the
program works."""

import ctypes
import os
import subprocess
import sys
import unittest
import warnings
from ctypes import byref, c_double, c_int, c_uint64, c_void_p

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import storage_support  # noqa: E402
import numpy as np  # noqa: E402
import varve  # noqa: E402
from varve.library import Message, Scalar, check, library  # noqa: E402

IS_HOST = "--memory" in sys.argv
SEED = int(os.environ.get("VARVE_TEST_SEED") or 50)
FLOATS, INTEGERS = ("f64", "f32", "f16", "bf16"), ("i64", "i32", "i16", "i8", "u8")
NUMPY = {"i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
EPSILON = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
LEAST = {"f64": 2.0 ** -1074, "f32": 2.0 ** -149, "f16": 2.0 ** -24, "bf16": 2.0 ** -133}
ALL_AXES = -2 ** 31


def operate(name, out, *arguments):
    """Python's ints are the operator's ints of 32 bits for reductions, of 64 bits elsewhere."""
    number = c_int if name in ("sum", "mean", "max") else c_uint64
    kinds = {int: number, float: c_double}
    given = [c_void_p(a._handle) if isinstance(a, varve.Storage) else kinds[type(a)](a) if type(a) in kinds else a
             for a in arguments]
    message = Message()
    check(getattr(library(), f"varve_storage_op_{name}")(c_void_p(out._handle), *given, c_uint64(0), byref(message)),
          message)


def numbers(storage):
    """Its elements, as f64 where NumPy has no such type."""
    with storage.to("host") as near:
        if near.dtype in ("bf16",):
            with near.to("f64") as wide:
                return wide.numpy().copy()
        return near.numpy().copy()


class Pair:
    """The same elements in both memories."""

    def __init__(self, near, far):
        self.near, self.far = near, far

    def view(self, change):
        return Pair(change(self.near), change(self.far))


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED} (VARVE_TEST_SEED)", flush=True)
        cls.memory = varve.host_memory() if IS_HOST else varve.cuda_memory()
        cls.random = np.random.default_rng(SEED)
        warnings.simplefilter("ignore", RuntimeWarning)

    def make(self, shape, dtype, scale=3.0):
        if dtype in FLOATS:
            values = self.random.standard_normal(shape) * scale
            near = varve.from_numpy(np.asarray(values), copy=True).to(dtype)
        elif dtype == "bool":
            near = varve.from_numpy(np.asarray(self.random.integers(0, 2, shape).astype(np.bool_)), copy=True)
        else:
            info = np.iinfo(NUMPY[dtype])
            near = varve.from_numpy(np.asarray(self.random.integers(info.min, info.max, shape, dtype=NUMPY[dtype],
                                                                    endpoint=True)), copy=True)
        return Pair(near, near.to(self.memory))

    def shape(self, most=4000):
        sizes = []
        for _ in range(self.random.integers(1, 5)):
            sizes.append(int(self.random.integers(1, max(2, min(60, most)) + 1)))
            most //= sizes[-1]
        return tuple(sizes)

    def strided(self, shape, dtype):
        """Of that shape: contiguous, turned, reversed, with gaps, or one element behind the beginning of the memory."""
        kind = self.random.integers(0, 5)
        if kind == 1:
            return self.make(shape[::-1], dtype).view(lambda x: x.T)
        if kind == 2:
            return self.make(shape, dtype).view(lambda x: x[..., ::-1])
        if kind == 3:
            return self.make((*shape[:-1], 2 * shape[-1]), dtype).view(lambda x: x[..., 1::2])
        if kind == 4 and len(shape) == 1:
            return self.make((shape[0] + 1,), dtype).view(lambda x: x[1:])
        return self.make(shape, dtype)

    def run_both(self, name, out, *arguments):
        operate(name, out.near, *[a.near if isinstance(a, Pair) else a for a in arguments])
        operate(name, out.far, *[a.far if isinstance(a, Pair) else a for a in arguments])
        return numbers(out.far), numbers(out.near)

    def same(self, got, expected, what):
        equal = (got == expected) | ((got != got) & (expected != expected))
        if not np.all(equal):
            at = np.argwhere(~equal)[0]
            self.fail(f"{what}: {np.count_nonzero(~equal)} of {got.size} differ, at {at}: {got[tuple(at)]!r}, not "
                      f"{expected[tuple(at)]!r}")

    def near(self, got, expected, bound, what):
        wide, wanted = np.asarray(got, np.float64), np.asarray(expected, np.float64)
        good = (wide == wanted) | ((wide != wide) & (wanted != wanted)) | (np.abs(wide - wanted) <= bound)
        if not np.all(good):
            at = tuple(np.argwhere(~good)[0])
            self.fail(f"{what}: {np.count_nonzero(~good)} of {wide.size} differ, at {at}: {wide[at]!r}, not "
                      f"{wanted[at]!r}")

    # ---- element by element ----

    def test_arithmetic(self):
        for count in range(160):
            name = ("add", "sub", "mul", "div")[self.random.integers(0, 4)]
            types = FLOATS if name == "div" else FLOATS + INTEGERS + (() if name == "sub" else ("bool",))
            dtype = types[self.random.integers(0, len(types))]
            shape = self.shape()
            narrow = tuple(1 if self.random.integers(0, 4) == 0 else size for size in shape)
            narrow = narrow[self.random.integers(0, 2) * (len(shape) - 1):]
            a, b, out = self.strided(shape, dtype), self.strided(narrow, dtype), self.strided(shape, dtype)
            out = a if self.random.integers(0, 4) == 0 else out
            self.same(*self.run_both(name, out, a, b), f"{name} of {dtype} {shape} {narrow}, {count}")

    def test_relu(self):
        for dtype in FLOATS + INTEGERS:
            for shape in ((1,), (100_003,), (37, 41)):
                a, out = self.strided(shape, dtype), self.strided(shape, dtype)
                self.same(*self.run_both("relu", out, a), f"relu of {dtype} {shape}")

    def test_large_vectors(self):
        for dtype in FLOATS + INTEGERS:
            for begin in (0, 1, 3):
                a, b, out = (self.make((1_000_003,), dtype).view(lambda x: x[begin:]) for _ in range(3))
                self.same(*self.run_both("add", out, a, b), f"add of {dtype} from element {begin}")

    def test_functions(self):
        for dtype in FLOATS:
            for shape in ((50_001,), (67, 71)):
                a, b, out = self.strided(shape, dtype), self.strided(shape, dtype), self.strided(shape, dtype)
                for name, inputs, units in (("exp", (a,), 4), ("relu", (a,), 0), ("pow", (a, b), 3)):
                    got, expected = self.run_both(name, out, *inputs)
                    # what either side may be off from the truth, together
                    bound = 2 * units * EPSILON[dtype] * np.abs(np.asarray(expected, np.float64)) + 2 * LEAST[dtype]
                    self.near(got, expected, bound, f"{name} of {dtype} {shape}")

    def test_overlap(self):
        for dtype in ("f32", "i8", "f16"):
            whole = self.make((10_001,), dtype)
            a, out = whole.view(lambda x: x[:-1]), whole.view(lambda x: x[1:])
            self.run_both("add", out, a, a)
            self.same(numbers(whole.far), numbers(whole.near), f"overlapping add of {dtype}")

    # ---- reductions ----

    def test_reductions(self):
        shapes = [self.shape(60_000) for _ in range(60)]
        shapes += [(1,), (70_001,), (1_000_003,), (3, 400_001), (400_001, 3), (5000, 700), (300, 7, 300),
                   (2, 100_000, 2),
                   (100_000, 5), (64, 33, 65), (2, 0, 3)]
        for shape in shapes:
            name = ("sum", "mean", "max")[self.random.integers(0, 3)]
            types = FLOATS if name == "mean" else FLOATS + INTEGERS + ("bool",)
            dtype = types[self.random.integers(0, len(types))]
            a = self.strided(shape, dtype)
            for axis in [ALL_AXES, *range(len(shape))]:
                reduced = tuple(size for i, size in enumerate(shape) if axis != ALL_AXES and i != axis)
                if 0 in shape and name == "max":
                    continue
                out = self.make(reduced, "i64" if name == "sum" and dtype not in FLOATS else dtype)
                what = f"{name} of {dtype} {shape}, axis {axis}"
                got, expected = self.run_both(name, out, a, axis)
                if name == "max" or dtype not in FLOATS:
                    self.same(got, expected, what)
                else:
                    elements = np.abs(np.asarray(numbers(a.near), np.float64))
                    sums = np.sum(elements, None if axis == ALL_AXES else axis)
                    divisor = 1 if name == "sum" else max(1, elements.size // max(1, int(np.prod(reduced))))
                    bound = (16 * EPSILON["f64"] * sums / divisor + (0 if dtype == "f64" else 2 * EPSILON[dtype])
                             * np.abs(np.asarray(expected, np.float64)) + LEAST[dtype])
                    self.near(got, expected, bound, what)

    def test_nan_wins(self):
        values = np.zeros((3, 100_000), np.float32)
        values[1, 77_777] = np.nan
        near = varve.from_numpy(values, copy=True)
        a, out = Pair(near, near.to(self.memory)), self.make((3,), "f32")
        got, expected = self.run_both("max", out, a, 1)
        self.same(got, expected, "max with a NaN")
        self.assertTrue(np.isnan(got[1]) and not np.isnan(got[0]))
        self.same(*self.run_both("sum", out, a, 1), "sum with a NaN")

    # ---- generators ----

    def test_generators(self):
        for shape in ((1,), (5,), (100_003,), (67, 71)):
            for dtype in FLOATS + INTEGERS + ("bool",):
                out = self.strided(shape, dtype)
                for start, step in ((Scalar(1, -7, 0.0), Scalar(1, 3, 0.0)), (Scalar(2, 0, 0.5), Scalar(2, 0, -0.37))):
                    self.same(*self.run_both("arange", out, start, step), f"arange of {dtype} {shape}")
                self.same(*self.run_both("fill", out, Scalar(1, 1, 0.0)), f"fill of {dtype} {shape}")
            for dtype in FLOATS:
                out = self.strided(shape, dtype)
                self.same(*self.run_both("uniform", out, 2 ** 63 + 5, 9, -1.5, 2.25), f"uniform of {dtype} {shape}")
                got, expected = self.run_both("normal", out, 7, 2 ** 40, 0.25, 2.0)
                bound = 16 * EPSILON["f64"] * (0.25 + np.abs(np.asarray(expected, np.float64)))
                bound = bound + (0 if dtype == "f64" else 2 * EPSILON[dtype] * np.abs(np.asarray(expected, np.float64))
                                 + LEAST[dtype])
                self.near(got, expected, bound, f"normal of {dtype} {shape}")

    # ---- products ----

    def test_matmul(self):
        cases = [((3, 4), (4, 5)), ((1, 1), (1, 1)), ((130, 67), (67, 65)), ((5, 33, 70), (70, 64)),
                 ((4, 1, 20, 30), (3, 30, 10)),
                 ((2, 0), (0, 3)), ((300, 1000), (1000, 200))]
        for left, right in cases:
            for dtype in FLOATS + INTEGERS + ("bool",):
                a, b = self.strided(left, dtype), self.strided(right, dtype)
                batch = np.broadcast_shapes(left[:-2], right[:-2])
                out = self.strided((*batch, left[-2], right[-1]), dtype)
                got, expected = self.run_both("matmul", out, a, b)
                what = f"matmul of {dtype} {left} {right}"
                if dtype not in FLOATS:
                    self.same(got, expected, what)
                    continue
                left_abs, right_abs = (np.abs(np.asarray(numbers(x.near), np.float64)) for x in (a, b))
                magnitudes = left_abs @ right_abs
                summed = EPSILON["f64" if dtype == "f64" else "f32"]
                bound = 2 * (left[-1] + 1) * summed * magnitudes + LEAST[dtype]
                bound = bound + 2 * EPSILON[dtype] * np.abs(np.asarray(expected, np.float64))
                self.near(got, expected, bound, what)

    def test_memory_is_given_back(self):
        used = self.memory.allocated
        whole = self.make((1_000_003,), "f32")
        out = self.make((), "f32")
        held = self.memory.allocated
        operate("sum", out.far, whole.far, ALL_AXES)
        self.assertEqual(self.memory.allocated, held)
        for storage in (whole.far, out.far):
            storage.close()
        self.assertEqual(self.memory.allocated, used)


class WithoutCublas(unittest.TestCase):
    def test_matmul(self):
        command = [sys.executable, __file__, *(["--memory", "host"] if IS_HOST else []), "Operators.test_matmul"]
        result = subprocess.run(command, env={**os.environ, "VARVE_CUBLAS": "none"}, capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    if IS_HOST:
        at = sys.argv.index("--memory")
        del sys.argv[at:at + 2]
    else:
        storage_support.skip_without_gpu()
    unittest.main()
