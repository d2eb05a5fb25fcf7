#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s, full 9 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python.
"""The operators on the host, beside NumPy: equal to the bit where one rounding leaves no choice (add, sub, mul, div,
integers, f16), within stated units of the last place elsewhere; random numbers beside a model of Philox; what is
refused."""

import ctypes
import itertools
import math
import os
import random
import subprocess
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from elements_library import (DTYPES, FLOATS, INVALID, NUMPY, Refused, as_f64, call, converted, describe, np,
                              rounded,  # noqa: E402
                              scalar)

SEED = int(os.environ.get("VARVE_TEST_SEED") or 30)
ALL_AXES = -2 ** 31
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
HALVES = ("f16", "bf16")
EPSILON = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
SUBNORMAL = {"f64": 2.0 ** -1074, "f32": 2.0 ** -150, "f16": 2.0 ** -25,
             "bf16": 2.0 ** -134} # half of the least number, or that
NUMPY_OF = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "exp": np.exp}


def operate(name, out, out_dtype, *arguments):
    """`arguments`: pairs of an array and its type, or what the function takes."""
    call(f"varve_op_{name}", describe(out, out_dtype),
         *[describe(*argument) if isinstance(argument, tuple) else argument for argument in arguments])
    return out


def ulps(got, expected):
    """Steps between two arrays of one type; NaN beside NaN is 0."""
    integer = {8: np.int64, 4: np.int32, 2: np.int16}[got.itemsize]
    one, other = (np.where(bits < 0, np.iinfo(integer).min - bits, bits)
                  for bits in (got.view(integer), expected.view(integer)))
    return np.where((got != got) & (expected != expected), 0,
                    np.abs(one.astype(np.longdouble) - other.astype(np.longdouble)))


class Operators(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED} (VARVE_TEST_SEED)")
        self.random = random.Random(SEED)
        self.generator = np.random.default_rng(SEED)
        warnings.simplefilter("ignore", RuntimeWarning)

    def numbers(self, shape, dtype, scale=4.0):
        if dtype == "bool":
            return self.generator.integers(0, 2, shape).astype(np.bool_)
        if dtype in INTEGERS:
            info = np.iinfo(NUMPY[dtype])
            return self.generator.integers(info.min, info.max, shape, dtype=NUMPY[dtype], endpoint=True)
        values = self.generator.standard_normal(shape) * scale
        return converted(np.ascontiguousarray(values), dtype)

    def laid(self, shape, room):
        """A view of that shape in the elements that `room` gives, so many: axes turned, reversed, or with gaps."""
        order = list(range(len(shape)))
        self.random.shuffle(order)
        steps = [self.random.choice((1, 1, 2, -1)) for _ in order]
        sizes = [shape[axis] * abs(steps[axis]) for axis in order]
        view = room(math.prod(sizes)).reshape(sizes).transpose([order.index(axis) for axis in range(len(shape))])
        return view[(*(slice(None, None, step) for step in steps), ...)]

    def strided(self, array):
        """The same elements elsewhere."""
        view = self.laid(array.shape, lambda count: np.zeros(count, array.dtype))
        view[...] = array
        return view

    def equal(self, got, expected, what):
        same = (got == expected) | ((got != got) & (expected != expected))
        if not same.all():
            place = tuple(np.argwhere(~same)[0])
            self.fail(f"{what}: {np.sum(~same)} of {same.size} differ; at {place} {got[place]!r}, not"
                      f" {expected[place]!r}")


class Elementwise(Operators):
    def expected(self, name, dtype, *inputs):
        """By NumPy: of halves in f32, rounded once."""
        if dtype == "bool":
            return {"add": np.logical_or, "mul": np.logical_and}[name](*inputs)
        numbers = [converted(np.ascontiguousarray(array), "f32", dtype) if dtype in HALVES else array
                   for array in inputs]
        if name == "relu":
            result = np.where(numbers[0] < 0, numbers[0].dtype.type(0), numbers[0])
        else:
            result = NUMPY_OF[name](*numbers)
        return converted(np.ascontiguousarray(result), dtype) if dtype in HALVES else result

    def check(self, name, dtype, *inputs, limit=0):
        expected = self.expected(name, dtype, *inputs)
        out = self.strided(np.zeros(expected.shape, NUMPY[dtype]))
        operate(name, out, dtype, *[(array, dtype) for array in inputs])
        what = f"{name} of {dtype} {[array.shape for array in inputs]}"
        if dtype in HALVES and limit: # what differs in f32 may round to the neighbour
            is_number = ~np.isnan(as_f64(expected, dtype))
            self.equal(np.isnan(as_f64(out, dtype)), ~is_number, what)
            self.assertLessEqual(ulps(out[is_number], expected[is_number]).max(initial=0), 1, what)
        elif dtype in HALVES:
            self.equal(as_f64(out, dtype), as_f64(expected, dtype), what)
        elif limit:
            worst = ulps(np.ascontiguousarray(out), np.ascontiguousarray(expected)).max(initial=0)
            self.assertLessEqual(worst, limit, what)
        else:
            self.equal(out, expected, what)

    def test_binary(self):
        shapes = [((7, 1031), (7, 1031)), ((3, 40, 5), (40, 1)), ((600,), (1,)), ((), (3, 4)), ((1, 5), (1200, 1)),
                  ((0, 4), (4,)), ((2, 700), ())]
        for name, dtype in itertools.product(("add", "sub", "mul", "div", "pow"), DTYPES):
            if (name in ("div", "pow") and dtype not in FLOATS) or (name == "sub" and dtype == "bool"):
                continue
            for one, other in shapes:
                a, b = self.strided(self.numbers(one, dtype)), self.strided(self.numbers(other, dtype))
                if name == "pow" and dtype not in HALVES:
                    self.check(name, dtype, a, b, limit=4) # both are within 2 of the truth
                elif name == "pow":
                    self.check(name, dtype, *(converted(np.abs(as_f64(array, dtype)), dtype) for array in (a, b)),
                               limit=1)
                else:
                    self.check(name, dtype, a, b)

    def test_unary(self):
        for dtype in DTYPES:
            for shape in ((1025,), (30, 41), (), (4, 0)):
                a = self.strided(self.numbers(shape, dtype))
                if dtype in FLOATS:
                    self.check("exp", dtype, a, limit=4)
                if dtype != "bool":
                    self.check("relu", dtype, a)

    def test_pow_exactly(self):
        """Against 80-bit arithmetic: at most one unit of the last place."""
        for dtype in ("f32", "f64"):
            a = np.abs(converted(self.generator.uniform(-80, 80, 20000), dtype))
            b = converted(self.generator.uniform(-8, 8, 20000), dtype)
            exact = np.power(a.astype(np.longdouble), b.astype(np.longdouble)).astype(a.dtype)
            self.assertLessEqual(ulps(operate("pow", np.empty_like(a), dtype, (a, dtype), (b, dtype)), exact).max(), 1)

    def check_exp(self, numbers, dtype):
        """At most 1.1 units off what C's function gives in 80 bits, where results are subnormal too. Infinity counts as
        the number behind the largest one, which is where it is rounded to."""
        got = operate("exp", np.empty_like(numbers), dtype, (numbers, dtype))
        info = np.finfo(numbers.dtype)
        limit = np.ldexp(np.longdouble(1), info.maxexp)
        exact = np.minimum(np.exp(numbers.astype(np.longdouble)), limit)
        unit = np.spacing(np.minimum(exact, info.max).astype(numbers.dtype)).astype(np.longdouble)
        wrong = np.abs(np.minimum(got.astype(np.longdouble), limit) - exact) > 1.1 * unit
        wrong |= (exact == limit) & ~np.isinf(got) | (exact == 0) & (got != 0) | (np.isnan(got) != np.isnan(numbers))
        if wrong.any():
            first = np.flatnonzero(wrong)[0]
            self.fail(f"exp of {dtype} {numbers[first]!r} is {got[first]!r}, not {exact[first]!r}")

    def test_exp_everywhere(self):
        """Every so many of all numbers, those of narrow ranges, and neighbours where a result changes its kind."""
        self.check_exp(np.arange(0, 2 ** 32, 1001 if recording.IS_FULL else 21001, np.uint32).view(np.float32), "f32")
        self.check_exp(self.generator.integers(0, 2 ** 64, 80000, np.uint64).view(np.float64), "f64")
        for least, most in ((-1, 1), (-40, 40), (-750, 720), (-746, -707), (709, 710), (-1e-8, 1e-8), (-745.2, -744.3)):
            self.check_exp(self.generator.uniform(least, most, 80000), "f64")
        borders = (0, float.fromhex("0x1.62e42fefa39efp9"), float.fromhex("-0x1.74910d52d3051p9"),
                   float.fromhex("-0x1.6232bdd7abcd2p9"), 88.72, -103.97, -87.34, 1)
        for (dtype, bits), border in itertools.product((("f32", np.int32), ("f64", np.int64)), borders):
            near = np.full(1, border, NUMPY[dtype]).view(bits) + np.arange(-2048 * (border != 0), 2048, dtype=bits)
            self.check_exp(near.view(NUMPY[dtype]), dtype)
        self.check_exp(-np.arange(2048, dtype=np.int64).view(np.float64), "f64")  # and below 0
        special = np.array([0, -0.0, np.inf, -np.inf, 1e300, -1e300] * 700)
        got = operate("exp", np.empty_like(special), "f64", (special, "f64"))
        self.assertEqual(got.tobytes(), np.array([1, 1, np.inf, 0, np.inf, 0] * 700).tobytes())

    def test_special_numbers(self):
        values = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, 1e38, 0.5])
        for dtype in FLOATS:
            a = converted(np.repeat(values, len(values)), dtype)
            b = converted(np.tile(values, len(values)), dtype)
            for name in ("add", "sub", "mul", "div"):
                self.check(name, dtype, a, b)
            self.check("pow", dtype, a, b, limit=1)
            self.check("relu", dtype, a)
            self.check("exp", dtype, a, limit=1)

    def refuse(self, text, name, out, *arguments):
        before = out[0].copy()
        with self.assertRaisesRegex(Refused, text) as caught:
            operate(name, *out, *arguments)
        self.assertEqual(caught.exception.error, INVALID)
        self.assertEqual(out[0].tobytes(), before.tobytes())

    def test_refusals(self):
        f32, f64, i32 = ((np.ones((2, 3), NUMPY[dtype]), dtype) for dtype in ("f32", "f64", "i32"))
        flags = (np.ones((2, 3), np.bool_), "bool")
        self.refuse("add: operands have types f32 and f64", "add", f32, f32, f64)
        self.refuse("add: the result has type f32, not f64", "add", f64, f32, f32)
        for name in ("div", "pow"):
            self.refuse(f"{name}: not supported for i32, only for floating point", name, i32, i32, i32)
        self.refuse("exp: not supported for i32", "exp", i32, i32)
        self.refuse("mean: not supported for i32", "mean", i32, i32, 0)
        self.refuse("sub: not supported for bool", "sub", flags, flags, flags)
        self.refuse("relu: not supported for bool", "relu", flags, flags)
        self.refuse(r"\(2, 3\).*\(4,\)", "add", f32, f32, (np.ones(4, np.float32), "f32"))
        self.refuse(r"add: the result has shape \(2, 3\), not \(3,\)", "add", (np.ones(3, np.float32), "f32"), f32, f32)
        self.refuse(r"relu: the result has shape \(2, 3\), not \(1, 3\)", "relu", (np.ones((1, 3), np.float32), "f32"),
                    f32)
        self.refuse("sum: axis 2 is out of bounds for 2 dimensions", "sum", (np.ones(3, np.float32), "f32"), f32, 2)
        self.refuse(r"sum: the result has shape \(3,\), not \(2,\)", "sum", (np.ones(2, np.float32), "f32"), f32, 0)
        self.refuse("sum: the result has type i64, not i32", "sum", (np.ones(3, np.int32), "i32"), i32, 0)
        self.refuse(r"max: shape \(0, 3\) has no elements", "max", (np.ones(3, np.float32), "f32"),
                    (np.ones((0, 3), np.float32), "f32"), 0)
        self.refuse(r"matmul: shapes \(2, 3\) and \(2, 3\)", "matmul", f32, f32, f32)
        self.refuse("share addresses", "add", (np.lib.stride_tricks.as_strided(f32[0], (2, 3), (0, 4)), "f32"), f32,
                    f32)
        number = ctypes.c_uint64
        self.refuse("uniform: not supported for i32", "uniform", i32, number(1), number(0), ctypes.c_double(0),
                    ctypes.c_double(1))
        self.refuse("no interval", "uniform", f32, number(1), number(0), ctypes.c_double(1), ctypes.c_double(0))
        self.refuse("standard deviation", "normal", f32, number(1), number(0), ctypes.c_double(1), ctypes.c_double(-1))


class Reductions(Operators):
    SHAPES = ((5000,), (70, 90), (6, 1, 300), (3, 4, 5, 6), (1, 1), (), (1200, 3), (3, 1200), (21, 1100), (2, 17, 530),
              (0, 3), (3, 0))

    def cases(self, dtypes):
        for dtype, shape in itertools.product(dtypes, self.SHAPES):
            for axis in (None, *range(-len(shape), len(shape))):
                yield dtype, self.strided(self.numbers(shape, dtype)), axis

    def reduce(self, name, array, dtype, axis, out_dtype, keepdims):
        shape = np.zeros(array.shape).sum(axis=axis, keepdims=keepdims).shape
        out = self.strided(np.zeros(shape, NUMPY[out_dtype]))
        return operate(name, out, out_dtype, (array, dtype), ALL_AXES if axis is None else axis)

    def test_integer_sums(self):
        for dtype, array, axis in self.cases((*INTEGERS, "bool")):
            expected = array.sum(axis=axis, dtype=np.int64, keepdims=True)
            self.equal(self.reduce("sum", array, dtype, axis, "i64", True), expected, f"sum of {dtype} {array.shape}")

    def test_max(self):
        for dtype, array, axis in self.cases(DTYPES):
            if array.size == 0:
                continue
            if dtype in FLOATS and array.size > 9 and self.random.random() < .3:
                array.flat[self.random.randrange(array.size)] = np.nan if dtype != "bf16" else 0x7fc1
            got = as_f64(self.reduce("max", array, dtype, axis, dtype, False), dtype) if dtype in HALVES else \
                self.reduce("max", array, dtype, axis, dtype, False)
            exact = as_f64(array, dtype) if dtype in HALVES else array
            self.equal(got, exact.max(axis=axis), f"max of {dtype} {array.shape} {axis}")

    def test_float_sums_and_means(self):
        """Beside exact sums: a few units of 2^-53 of the sum of magnitudes, and one rounding to the type."""
        for dtype, array, axis in self.cases(FLOATS):
            numbers = as_f64(array, dtype)
            rows = np.moveaxis(numbers, axis, -1) if axis is not None else numbers.reshape(1, -1)
            rows = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
            exact = np.array([math.fsum(row) for row in rows])
            magnitude = np.array([math.fsum(np.abs(row)) for row in rows])
            got = as_f64(self.reduce("sum", array, dtype, axis, dtype, False), dtype).reshape(-1)
            bound = 12 * 2.0 ** -53 * magnitude + np.abs(exact) * EPSILON[dtype] + SUBNORMAL[dtype]
            self.assertTrue((np.abs(got - exact) <= bound).all(), f"sum of {dtype} {array.shape} {axis}")
            if rows.shape[-1] > 0:
                got = as_f64(self.reduce("mean", array, dtype, axis, dtype, True), dtype).reshape(-1)
                margin = bound * 1.01 / rows.shape[-1] + SUBNORMAL[dtype]
                self.assertTrue((np.abs(got - exact / rows.shape[-1]) <= margin).all(),
                                f"mean of {dtype} {array.shape} {axis}")

    def test_long_sums(self):
        """Where one accumulator of the elements' own type fails: 2^24 + 1 ones as f32, small numbers on a large one."""
        ones = np.ones(2 ** 24 + 64, np.float32)
        self.assertEqual(self.reduce("sum", ones, "f32", None, "f32", False), 2.0 ** 24 + 64)
        halves = np.full(70000, 1, np.float16)
        self.assertEqual(self.reduce("mean", halves, "f16", None, "f16", False), 1)
        tall = np.full((200001, 2), 2.0 ** -60)
        tall[0] = 1
        self.assertEqual(self.reduce("sum", tall, "f64", 0, "f64", False)[0], 1 + 200000 * 2.0 ** -60)

    def test_special_sums(self):
        inf, nan = np.inf, np.nan
        for values, expected in (([inf, 1], inf), ([inf, -inf], nan), ([nan, 1], nan), ([1e308, 1e308], inf), ([], 0)):
            array = np.array(values, np.float64)
            for shaped, axis in ((array, None), (np.stack([array, array], axis=1), 0)):
                got = self.reduce("sum", shaped, "f64", axis, "f64", False)
                self.equal(np.atleast_1d(got), np.full(np.atleast_1d(got).shape, float(expected)), f"sum of {values}")
        self.assertTrue(np.isnan(self.reduce("mean", np.zeros((0,), np.float32), "f32", None, "f32", False)))


class Places(Operators):
    """Results and inputs anywhere in one memory, over each other: it ends as if the result had been made elsewhere and
    copied, the bytes around it included. Numbers are whole and small, so that every result is exact."""

    ROOM, ELEMENTS = 30000, 2500  # bytes; in a view
    ROUNDS = 1500 if recording.IS_FULL else 200

    def shape(self, most):
        """Small axes and at times a large one; now and then one without any."""
        shape = []
        for _ in range(self.random.randrange(6)):
            limit = min(most, 150 if self.random.random() < .33 else 6)
            shape.append(0 if self.random.random() < .025 else self.random.randint(1, max(limit, 1)))
            most //= max(shape[-1], 1)
        return tuple(shape)

    def narrowed(self, shape):
        """What is expanded to it."""
        shape = shape[self.random.randrange(len(shape) + 1):] if self.random.random() < .25 else shape
        return tuple(1 if self.random.random() < .16 else size for size in shape)

    def shapes(self, name):
        """(of the result, of the inputs, what else the operator takes)."""
        if name in ("arange", "uniform"):
            numbers = (1, 2), (-1, 1)
            return self.shape(self.ELEMENTS), [], (scalar(3), scalar(0.5)) if name == "arange" else (
                *map(ctypes.c_uint64, numbers[0]), *map(ctypes.c_double, numbers[1]))
        shape = self.shape(20 if name == "matmul" else 1500)
        if name == "relu":
            return shape, [shape], ()
        if name in ("sum", "max"):
            axis = self.random.choice((None, *range(-len(shape), len(shape))))
            out = np.empty(shape, np.bool_).any(axis=axis, keepdims=self.random.random() < .5).shape
            return out, [shape], (ALL_AXES if axis is None else axis,)
        sides = [self.random.randrange(low) for low in (12, 9, 12)]
        inputs = [self.narrowed(shape) + (tuple(sides[i:i + 2]) if name == "matmul" else ()) for i in range(2)]
        joined = np.broadcast_shapes(*(one[:len(one) - 2 * (name == "matmul")] for one in inputs))
        return joined + ((sides[0], sides[2]) if name == "matmul" else ()), inputs, ()

    def somewhere(self, grid, shape):
        def room(count):
            start = self.random.randrange(min(grid.size - count, 200) + 1)  # ValueError: it does not go in
            return grid[start:start + count]

        return self.laid(shape, room)

    def play(self, name, dtype):
        out_shape, shapes, others = self.shapes(name)
        out_dtype = "i64" if name == "sum" and dtype not in FLOATS else dtype
        memory = self.generator.integers(0, 256, self.ROOM, np.uint8)
        # inputs are elements of one grid, the result lies at any address, often of the grid, or is one of them
        first, other = self.random.randrange(9), self.random.randrange(9)
        grids = [memory[start:start + (self.ROOM - 8) // 8 * 8].view(NUMPY[kind])
                 for start, kind in ((first, dtype), (self.random.choice((first, other)), out_dtype))]
        numbers = 2 ** self.generator.integers(0, 3, grids[0].size) if name == "div" else \
            self.generator.integers(0, 2 if dtype == "bool" else 5, grids[0].size)
        if shapes:
            grids[0][...] = converted(numbers, dtype)
        inputs = [self.somewhere(grids[0], shape) for shape in shapes]
        is_in_place = shapes and out_dtype == dtype and shapes[0] == out_shape and self.random.random() < .25
        out = inputs[0] if is_in_place else self.somewhere(grids[1], out_shape)
        apart = operate(name, np.zeros(out_shape, NUMPY[out_dtype]), out_dtype,
                        *((array.copy(), dtype) for array in inputs), *others)
        before = memory.copy()
        out[...] = apart
        expected = memory.copy()
        memory[...] = before
        operate(name, out, out_dtype, *((array, dtype) for array in inputs), *others)
        self.assertTrue(np.array_equal(memory, expected), f"{name} of {dtype} {shapes} to {out_shape} {out.strides}")

    def test_anywhere(self):
        for name in ("add", "sub", "mul", "div", "relu", "sum", "max", "matmul", "arange", "uniform"):
            done = 0
            for _ in range(self.ROUNDS):
                try:
                    self.play(name, self.random.choice(DTYPES))
                    done += 1
                except (Refused, ValueError):  # no such types, or a view found no room
                    pass
            self.assertGreater(done, self.ROUNDS // 5, name)


class Matmul(Operators):
    def check(self, dtype, a_shape, b_shape, over=None):
        """`over`: the input that the result replaces."""
        a, b = self.strided(self.numbers(a_shape, dtype)), self.strided(self.numbers(b_shape, dtype))
        if self.random.random() < .4: # as a BLAS takes them
            a, b = (np.ascontiguousarray(one.swapaxes(-1, -2)).swapaxes(-1, -2) if self.random.random() < .5
                    else np.ascontiguousarray(one) for one in (a, b))
        what = f"matmul of {dtype} {a.shape} {a.strides} and {b.shape} {b.strides}"
        if dtype in FLOATS:
            exact = np.matmul(as_f64(a, dtype), as_f64(b, dtype))
            magnitude = np.matmul(np.abs(as_f64(a, dtype)), np.abs(as_f64(b, dtype)))
        else:
            exact = np.matmul(a, b)
        out = np.zeros(exact.shape, NUMPY[dtype])
        out = self.strided(out) if self.random.random() < .5 else out
        if over is not None:
            a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
            out = (a, b)[over]
        operate("matmul", out, dtype, (a, dtype), (b, dtype))
        if dtype not in FLOATS:
            self.equal(out, exact, what)
            return
        inner = a_shape[-1] * EPSILON["f32" if dtype in HALVES else dtype] * magnitude
        bound = 2 * inner + np.abs(exact) * EPSILON[dtype] * (dtype in HALVES) + 1e-300
        self.assertTrue((np.abs(as_f64(out, dtype) - exact) <= bound).all(), what)

    def test_shapes(self):
        shapes = (((3, 4), (4, 5)), ((1, 700), (700, 1)), ((65, 130), (130, 600)), ((2, 5, 7), (7, 3)),
                  ((4, 1, 6, 5), (3, 5, 2)), ((7, 3), (2, 3, 1)),
                  ((0, 3), (3, 2)), ((3, 0), (0, 2)), ((2, 0, 3), (3, 4)), ((1, 1), (1, 1)), ((0, 2, 3), (0, 3, 4)))
        for dtype in DTYPES:
            for one, other in shapes:
                for _ in range(4):
                    self.check(dtype, one, other)

    def test_in_place(self):
        for dtype, over in itertools.product(("f32", "f16", "i32"), (0, 1)):
            self.check(dtype, (20, 20), (20, 20), over)

    def again_with(self, name):
        """All of this in a process that has this BLAS, or none."""
        if os.environ.get("VARVE_BLAS"):
            self.skipTest("this is the process with another BLAS")
        try:
            if name != "none":
                ctypes.CDLL(name).cblas_sgemm
        except (OSError, AttributeError):
            self.skipTest(f"{name} has no cblas_sgemm here, or is not installed (apt install libopenblas0-pthread)")
        result = subprocess.run([sys.executable, os.path.abspath(__file__), "Matmul"],
                                env={**os.environ, "VARVE_BLAS": name},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(result.returncode, 0, f"{name}: {result.stdout}")

    def test_own_loops(self):
        self.again_with("none")

    def test_blas(self):
        self.again_with("libblas.so.3")

    def test_openblas(self):
        self.again_with("libopenblas.so.0")


class OpenBlas(Operators):
    """Matrices as a BLAS takes them, in every way that they may lie, come to OpenBLAS as they are: the bits are those
    that it gives when it is called here."""

    ROW_MAJOR, AS_IS, TURNED = 101, 111, 112

    def setUp(self):
        super().setUp()
        name = os.environ.get("VARVE_BLAS") or "libopenblas.so.0"
        try:
            self.blas = ctypes.CDLL("libopenblas.so.0")
        except OSError:
            self.skipTest("libopenblas.so.0 is not installed (apt install libopenblas0-pthread)")
        if name != "libopenblas.so.0":
            self.skipTest(f"VARVE_BLAS is {name}")
        self.blas.openblas_set_num_threads(1) # threads share out the work by their number

    def matrix(self, rows, columns, dtype, is_turned, gap):
        """With `gap` elements behind each row, or column."""
        shape = (columns, rows + gap) if is_turned else (rows, columns + gap)
        memory = self.numbers(shape, dtype)
        return memory[:, :rows].T if is_turned else memory[:, :columns]

    def gemm(self, dtype, a, b, out):
        real = {"f32": ctypes.c_float, "f64": ctypes.c_double}[dtype]
        turned = [matrix.strides[1] != matrix.itemsize for matrix in (a, b)]
        leads = [matrix.strides[0 if not is_turned else 1] // matrix.itemsize
                 for matrix, is_turned in zip((a, b), turned)]
        function = self.blas.cblas_sgemm if dtype == "f32" else self.blas.cblas_dgemm
        function(self.ROW_MAJOR, *(self.TURNED if is_turned else self.AS_IS for is_turned in turned), *out.shape,
                 a.shape[1], real(1),
                 ctypes.c_void_p(a.ctypes.data), leads[0], ctypes.c_void_p(b.ctypes.data), leads[1], real(0),
                 ctypes.c_void_p(out.ctypes.data), out.strides[0] // out.itemsize)
        return out

    def test_all_ways(self):
        count = 0
        for dtype, (rows, depth, columns) in itertools.product(("f32", "f64"),
                                                               ((2, 3, 5), (33, 129, 70), (1, 40, 9), (65, 2, 64))):
            for a_turned, b_turned, a_gap, b_gap, out_gap in itertools.product((False, True), (False, True), (0, 3),
                                                                               (0, 2), (0, 5)):
                a = self.matrix(rows, depth, dtype, a_turned, a_gap)
                b = self.matrix(depth, columns, dtype, b_turned, b_gap)
                if 1 in (rows, depth, columns) and (a_turned or b_turned):
                    continue # a row is a column, too: there are two right ways to say it
                memory = self.matrix(rows, columns, dtype, False, out_gap)
                expected = self.gemm(dtype, a, b, self.matrix(rows, columns, dtype, False, out_gap))
                around = memory.base[:, columns:].copy()
                operate("matmul", memory, dtype, (a, dtype), (b, dtype))
                self.equal(memory, expected, f"{dtype} {rows, depth, columns} turned {a_turned, b_turned} gaps"
                                             f" {a_gap, b_gap, out_gap}")
                self.equal(memory.base[:, columns:], around, "what lies between the rows")
                exact = np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
                bound = depth * EPSILON[dtype] * np.matmul(np.abs(a).astype(np.longdouble),
                                                           np.abs(b).astype(np.longdouble))
                self.assertTrue((np.abs(memory - exact) <= bound).all())
                count += 1
        self.assertEqual(count, 2 * (3 * 32 + 8))

    def test_batches(self):
        for dtype in ("f32", "f64"):
            a, b = self.numbers((4, 1, 40, 50), dtype), self.numbers((3, 60, 50), dtype).swapaxes(1, 2)
            out = operate("matmul", np.zeros((4, 3, 40, 60), NUMPY[dtype]), dtype, (a, dtype), (b, dtype))
            for i, k in itertools.product(range(4), range(3)):
                self.equal(out[i, k], self.gemm(dtype, a[i, 0], b[k], np.zeros((40, 60), NUMPY[dtype])),
                           f"{dtype} {i, k}")


class Generators(Operators):
    def test_arange(self):
        for dtype in DTYPES:
            for start, step in ((0, 1), (-3, 7), (0.5, 0.25), (10, -0.125), (2 ** 40, 2 ** 33)):
                number = np.arange(2000)
                is_whole = isinstance(start, int) and isinstance(step, int)
                exact = start + number * step if is_whole else float(start) + number * float(step)
                expected = converted(np.ascontiguousarray(exact), dtype)
                for out in (np.zeros(2000, NUMPY[dtype]), self.strided(np.zeros((40, 50), NUMPY[dtype]))):
                    operate("arange", out, dtype, scalar(start), scalar(step))
                    self.equal(out, expected.reshape(out.shape), f"arange of {dtype} {start} {step}")

    def test_fill(self):
        out = operate("fill", self.strided(np.zeros((3, 5), np.float16)), "f16", scalar(0.1))
        self.assertTrue((out == np.float16(0.1)).all())


def philox(numbers, seed, stream):
    """Philox 4x32-10 of an array of block numbers: four arrays of words."""
    mask, low = np.uint64(0xffffffff), lambda value: value & np.uint64(0xffffffff)
    numbers = np.asarray(numbers, np.uint64)
    words = [low(numbers), numbers >> np.uint64(32), np.full(numbers.shape, stream & 0xffffffff, np.uint64),
             np.full(numbers.shape, stream >> 32, np.uint64)]
    key = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        even, odd = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [(odd >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]), odd & mask,
                 (even >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]), even & mask]
        key = [(key[0] + 0x9E3779B9) & 0xffffffff, (key[1] + 0xBB67AE85) & 0xffffffff]
    return words


class Random(Operators):
    def draw(self, name, out, dtype, seed, stream, a, b):
        return operate(name, out, dtype, ctypes.c_uint64(seed), ctypes.c_uint64(stream), ctypes.c_double(a),
                       ctypes.c_double(b))

    def test_model(self):
        """The test's own Philox gives the known answers of the paper's library."""
        for numbers, seed, stream, known in ((0, 0, 0, (0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8)),
                                             (2 ** 64 - 1, 2 ** 64 - 1, 2 ** 64 - 1,
                                              (0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd)),
                                             (0x85a308d3243f6a88, 0x299f31d0a4093822, 0x0370734413198a2e,
                                              (0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1))):
            self.assertEqual(tuple(int(word[0]) for word in philox([numbers], seed, stream)), known)

    def words(self, count, seed, stream, a_block):
        return np.stack(philox(np.arange((count + a_block - 1) // a_block), seed, stream), axis=1)

    def test_uniform(self):
        seed, stream, low, high = 0x123456789abcdef0, 0xfedcba9876543210, -1.7, 3.1
        words = self.words(5003, seed, stream, 4).reshape(-1)[:5003]
        low_32 = np.float32(low)
        f32 = low_32 + (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0 ** -24) * (np.float32(high) - low_32)
        pairs = self.words(5003, seed, stream, 2).reshape(-1, 2)[:5003]
        bits = (pairs[:, 1] << np.uint64(32) | pairs[:, 0]) >> np.uint64(11)
        f64 = low + bits.astype(np.float64) * 2.0 ** -53 * (high - low)
        for dtype in FLOATS:
            expected = f64 if dtype == "f64" else converted(f32, dtype)
            self.equal(self.draw("uniform", np.zeros(5003, NUMPY[dtype]), dtype, seed, stream, low, high), expected,
                       f"uniform {dtype}")
        self.assertTrue((f64 >= low).all() and (f64 < high).all())

    def test_normal(self):
        """cos, sin and log of two libraries differ by units of the last place of f64."""
        seed, stream = 42, 7
        words = self.words(50000, seed, stream, 4).reshape(-1, 2).astype(np.float64)
        radius, angle = np.sqrt(-2 * np.log((words[:, 0] + 1) * 2.0 ** -32)), 2 * np.pi * (words[:, 1] * 2.0 ** -32)
        expected = (3 + 2 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)).reshape(-1)
        for dtype in FLOATS:
            got = as_f64(self.draw("normal", np.zeros(50000, NUMPY[dtype]), dtype, seed, stream, 3, 2), dtype)
            self.assertLess(np.abs(got - rounded(expected, dtype)).max(),
                            1e-13 if dtype == "f64" else 20 * EPSILON[dtype])
        self.assertLess(abs(expected.mean() - 3), 0.05)
        self.assertLess(abs(expected.std() - 2), 0.05)

    def test_place_and_seed_decide(self):
        for name, dtype in itertools.product(("uniform", "normal"), FLOATS):
            long = self.draw(name, np.zeros(3000, NUMPY[dtype]), dtype, 5, 6, 0, 1)
            for count in (1, 2, 3, 5, 511, 513, 1500):
                self.equal(self.draw(name, np.zeros(count, NUMPY[dtype]), dtype, 5, 6, 0, 1), long[:count],
                           f"{name} {count}")
            view = self.strided(np.zeros((50, 60), NUMPY[dtype]))
            self.equal(self.draw(name, view, dtype, 5, 6, 0, 1), long.reshape(50, 60), f"{name} strided")
            for seed, stream in ((6, 6), (5, 7), (5 + 2 ** 32, 6), (5, 6 + 2 ** 32)):
                other = self.draw(name, np.zeros(3000, NUMPY[dtype]), dtype, seed, stream, 0, 1)
                self.assertLess(np.mean(other == long), 0.1)


if __name__ == "__main__":
    recording.main()
