# SPDX-License-Identifier: Apache-2.0
"""Index expressions, conversions, copies and operators of storages beside NumPy, in one memory, which main() is told:
what test_storage_memories.py and test_storage_pool.py run on the host, and gpu/test_storage_gpu.py on a GPU."""

import argparse
import ctypes
import gc
import os
import sys
import time
import unittest
import warnings

from storage_memories import NAMES, elements_of, np, open_memory, placed, varve, view_of
import recording
import test_casts
from elements_library import FLOATS, NUMPY as KINDS, Refused, Scalar as ElementScalar, call, converted, describe, scalar
from index_plan_cases import BITS, BOOL, Maker, as_numpy, assign, bits_of, is_advanced, is_unseen, model_view, shown
from index_plan_library import TYPES
from varve.library import Message, Scalar, library

SEED = int(os.environ.get("VARVE_TEST_SEED") or 20261124)
A_SOURCE = 8  # expressions on the same elements
EPSILON = {"f64": 2.0 ** -53, "f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
TINY = {"f64": 5e-324, "f32": 2.0 ** -149, "f16": 2.0 ** -24, "bf16": 2.0 ** -133}

settings = argparse.Namespace()


def tearDownModule():
    """Nothing is left in the memory."""
    gc.collect()  # what exceptions refer to
    if MemoryCase.memory is not None:
        assert varve.live() == 0, f"{varve.live()} storages are left"
        assert MemoryCase.memory.allocated == 0, f"{MemoryCase.memory.allocated} bytes are left"
        MemoryCase.memory.close()


class MemoryCase(unittest.TestCase):
    memory = None

    @classmethod
    def setUpClass(cls):
        if MemoryCase.memory is None:
            MemoryCase.memory = open_memory(settings.memory)

    def setUp(self):
        print(f"{settings.memory}, seed {SEED} (VARVE_TEST_SEED)", end=" ", flush=True)
        self.make = Maker(SEED)
        warnings.simplefilter("error", DeprecationWarning)  # an index outside of its axis, in an empty result

    def placed(self, array, dtype):
        return placed(array, TYPES[dtype], self.memory)

    def same(self, storage, expected, what):
        got = elements_of(storage, expected.dtype)
        self.assertEqual(got.shape, expected.shape, what)
        wrong = np.argwhere(got != expected)
        if len(wrong):
            first = tuple(wrong[0])
            self.fail(f"{what}: {len(wrong)} elements differ, first {first}: {got[first]}, NumPy gives"
                      f" {expected[first]}")


class Expressions(MemoryCase):
    def source(self, may_expand):
        """(type, array, the array it is a part of, the latter as a storage, the former as a view of it)."""
        dtype = self.make.random.randrange(len(TYPES))
        view, whole = self.make.laid_out(self.make.shape(), lambda n: self.make.bits(n, dtype), may_expand)
        whole = whole.reshape(-1)
        storage = self.placed(whole, dtype)
        return dtype, view, whole, storage, view_of(storage, view, whole)

    def numpy_picks(self, view, entries):
        try:
            return view[as_numpy(entries)], None
        except (IndexError, ValueError, DeprecationWarning) as error:
            return None, error

    def get_case(self, dtype, view, storage, case):
        """What it was: "view", "gather" or "error"."""
        entries = self.make.expression(view.shape)
        if self.make.chance(0.1):
            entries = self.make.spoiled(entries, view.shape)
        what = f"case {case}: {TYPES[dtype]} {view.shape} {view.strides} {shown(entries)}"
        expected, error = self.numpy_picks(view, entries)
        try:
            picked = storage[entries]
        except (IndexError, ValueError) as ours:
            self.assertIsNotNone(error, f"{what}: {ours}")
            return "error"
        with picked:
            self.assertIsNone(error, what)
            self.assertEqual(picked.is_view, not is_advanced(entries), what)
            if picked.is_view and picked.size:
                offset = expected.__array_interface__["data"][0] - view.__array_interface__["data"][0]
                self.assertEqual(picked.data_ptr - storage.data_ptr, offset, what)
            self.assertIs(picked.memory, self.memory)
            self.same(picked, expected, what)
        return "gather" if is_advanced(entries) else "view"

    def test_get(self):
        begin, counts = time.monotonic(), {"view": 0, "gather": 0, "error": 0}
        for case in range(settings.expressions):
            if case % A_SOURCE == 0:
                dtype, view, _, storage, part = self.source(True)
            counts[self.get_case(dtype, view, part, case)] += 1
        storage.close()
        part.close()
        print(f"get: {counts} in {time.monotonic() - begin:.1f} s", flush=True)
        for kind, count in counts.items():
            self.assertGreater(count, settings.expressions // 100, kind)

    def drawn_value(self, dtype, shape):
        """What is set: (as the target's bits, as a storage or a number, text). Whole numbers where it is converted."""
        if self.make.chance(0.15):
            number = self.make.random.choice((True, False, self.make.random.randint(0, 100), 7.0))
            return bits_of(np.array(int(number)), dtype), number, str(number)
        value_dtype = dtype if self.make.chance(0.7) else self.make.random.randrange(len(TYPES))
        if value_dtype == dtype:
            numbers = value = self.make.value(shape, dtype)
        else:
            numbers = self.make.value(shape, None,
                                      lambda n: self.make.bytes.integers(0, 2 if value_dtype == BOOL else 101, n))
            value = bits_of(numbers, value_dtype)
        memory = None if self.make.chance(0.3) else self.memory  # values of host memory, too
        return (value if value_dtype == dtype else bits_of(numbers, dtype)),  \
            placed(value, TYPES[value_dtype], memory), \
            f"{TYPES[value_dtype]} {value.shape} {str(numbers.tolist())[:300]}"

    def set_case(self, dtype, view, whole, storage, part, case):
        """What it was: "scatter", "copy" or "error". The array keeps up with the storage."""
        entries = self.make.expression(view.shape)
        what = f"case {case}: {TYPES[dtype]} {view.shape} {view.strides} {shown(entries)}"
        picked, error = self.numpy_picks(view, entries)
        bits, value, text = self.drawn_value(dtype, picked.shape if picked is not None else ())
        what += " = " + text
        model = whole.copy()
        try:
            if error is None:
                assign(model_view(view, whole, model), as_numpy(entries),
                       np.ascontiguousarray(bits).reshape(bits.shape))
        except (IndexError, ValueError) as refused:
            error = refused
        try:
            part[entries] = value
        except (IndexError, ValueError) as ours:
            self.assertTrue(error is not None or is_unseen(ours, picked), f"{what}: {ours}")
            self.same(storage, whole, what)
            return "error"
        self.assertIsNone(error, what)
        self.same(storage, model, what)
        whole[:] = model
        return "scatter" if is_advanced(entries) else "copy"

    def test_set(self):
        begin, counts = time.monotonic(), {"scatter": 0, "copy": 0, "error": 0}
        for case in range(settings.expressions):
            if case % A_SOURCE == 0:
                dtype, view, whole, storage, part = self.source(False)
            counts[self.set_case(dtype, view, whole, storage, part, case)] += 1
        storage.close()
        part.close()
        print(f"set: {counts} in {time.monotonic() - begin:.1f} s", flush=True)
        for kind, count in counts.items():
            self.assertGreater(count, settings.expressions // 200, kind)

    def plan_case(self, dtype, view, whole, storage, part, entries, what):
        """One plan each to get and to set, run twice, into storages that lie in any way, on elements that change."""
        shape = view[as_numpy(entries)].shape
        value = self.make.bits(int(np.prod(shape)), dtype).reshape(shape)
        with self.placed(value, dtype) as values, varve.Plan(part, entries) as get, \
                varve.Plan(part, entries, values) as put:
            self.assertEqual(get.shape, shape, what)
            for _ in range(2):
                target, target_whole = self.make.laid_out(shape, lambda n: self.make.bits(n, dtype))
                model = target_whole.reshape(-1).copy()
                with self.placed(model, dtype) as result, view_of(result, target, target_whole) as into:
                    model_view(target, target_whole, model)[...] = view[as_numpy(entries)]
                    get.run(into, part)
                    self.same(result, model, what)
                    model_view(view, whole, whole)[as_numpy(entries)] = value
                    put.run(part, values)
                    self.same(storage, whole, what)

    def test_plans_of_views(self):
        """Ready plans of random expressions, also on arrays that are expanded, turned or have gaps."""
        done = 0
        for case in range(max(50, settings.expressions // 20)):
            dtype, view, whole, storage, part = self.source(False)
            entries = self.make.expression(view.shape)
            what = f"case {case}: {TYPES[dtype]} {view.shape} {view.strides} {shown(entries)}"
            if self.numpy_picks(view, entries)[1] is None:
                done += 1
                if settings.memory == "apart":
                    with self.assertRaisesRegex(ValueError, "nothing runs plans in the memory of device 'apart'"):
                        varve.Plan(part, entries)
                else:
                    self.plan_case(dtype, view, whole, storage, part, entries, what)
        storage.close()
        part.close()
        self.assertGreater(done, 30)

    def get_and_set(self, storage, bits, dtype, entries, what):
        """What is picked, and other values put there."""
        with storage[entries] as picked:
            self.assertTrue(np.array_equal(elements_of(picked, bits.dtype), bits[entries]), what)
        value = self.make.bits(bits[entries].size, dtype).reshape(bits[entries].shape)
        bits[entries] = value
        with self.placed(value, dtype) as values:
            storage[entries] = values
        self.assertTrue(np.array_equal(elements_of(storage, bits.dtype), bits), what)

    def test_masks(self):
        """Every density, on more elements than a block of a GPU's threads has."""
        for dtype in (0, 1, 2, 8):
            for count, block in ((100_003, ()), (1_000_000, ()), (5000, (7,)), (3000, (64,))):
                bits = self.make.bits(count * int(np.prod(block)), dtype).reshape((count,) + block)
                with self.placed(bits, dtype) as storage:
                    for density in (0, 0.001, 0.1, 0.5, 0.9, 1):
                        self.get_and_set(storage, bits, dtype, self.make.mask((count,), round(count * density)),
                                         f"{TYPES[dtype]} {bits.shape} {density}")

    def test_large_gathers(self):
        """Rows, columns and single elements of an array that takes many threads; of equal indices the last one wins."""
        for dtype in (0, 1, 3, 7):
            bits = self.make.bits(3001 * 257, dtype).reshape(3001, 257)
            with self.placed(bits, dtype) as storage:
                rows = self.make.bytes.integers(-3001, 3001, 5000)
                columns = self.make.bytes.integers(0, 257, 5000)
                for entries in ((rows,), (slice(None), columns[:300]), (rows, columns),
                                (rows[:500, None], columns[:99]),
                                (slice(1, 3000, 7), columns[:40]), (np.int64(3), columns)):
                    self.get_and_set(storage, bits, dtype, entries, f"{TYPES[dtype]} {shown(entries)[:100]}")

    def test_closed_plan(self):
        """And one that is given another memory's storage."""
        bits = self.make.bits(66, 1).reshape(2, 33)
        with self.placed(bits, 1) as storage, self.placed(bits[:1], 1) as out:
            if settings.memory != "apart":
                with varve.Plan(storage, (np.array([1]),)) as get:
                    get.run(out, storage)
                    self.same(out, bits[1:], "picked")
                    if not storage.is_addressable:
                        with varve.from_numpy(bits[:1].view("f4")) as host, self.assertRaises(ValueError):
                            get.run(host, storage)
                with self.assertRaisesRegex(ValueError, "the plan is closed"):
                    get.run(out, storage)

    def test_batch(self):
        """Many copies at a time, of other types and strides, to and from host memory."""
        arrays = [self.make.bits(100 * 90, 1).reshape(100, 90).view(np.int32) for _ in range(30)]
        hosts = [varve.from_numpy(array.T) for array in arrays]
        here = [varve.empty((90, 100), "i32", memory=self.memory) for _ in arrays]
        wider = [varve.empty((90, 100), "i64", memory=self.memory) for _ in arrays]
        back = [varve.zeros((90, 100), "i64") for _ in arrays]
        varve.copy_batch(zip(here, hosts), streams=5)
        varve.copy_batch(zip(wider, here))
        varve.copy_batch(zip(back, wider), streams=1)
        for array, storage in zip(arrays, back):
            self.same(storage, array.T.astype(np.int64), "batch")
        with self.assertRaisesRegex(ValueError, "17 streams; 1 to 16 can be used"):
            varve.copy_batch([], streams=17)
        for storage in hosts + here + wider + back:
            storage.close()


class Operations(MemoryCase):
    """The operators on storages beside those on arrays in host memory, which test_operators.py has beside NumPy: bit
    for bit where storage.h says so, else within what it says."""

    LOOSE = ("exp", "pow", "normal", "sum", "mean", "matmul")  # of floating point

    def numbers(self, shape, dtype, name):
        """Such that nothing overflows in floating point; integers wrap."""
        generator = self.make.bytes
        if dtype == "bool":
            return generator.integers(0, 2, shape).astype(np.bool_)
        if dtype not in FLOATS:
            info = np.iinfo(KINDS[dtype])
            return generator.integers(info.min, info.max, shape, dtype=KINDS[dtype], endpoint=True)
        reals = np.array(generator.uniform(0.2, 3, shape) if name == "pow" else generator.uniform(-8, 8, shape))
        if name not in self.LOOSE:
            for value in (np.nan, np.inf, -np.inf, -0.0, TINY[dtype]):
                reals[generator.random(shape) < 0.02] = value
        return converted(np.ascontiguousarray(reals).reshape(shape), dtype)

    def laid(self, values, dtype):
        """(the array, in any layout; the same as a view in the memory, which keeps its base alive)"""
        view, whole = self.make.laid_out(values.shape, lambda n: np.zeros(n, values.dtype))
        view[...] = values
        with placed(whole.reshape(-1), dtype, self.memory) as storage:
            return view, view_of(storage, view, whole)

    def tolerance(self, name, dtype, expected, inputs):
        """Two units in the last place of each side, and of a sum what its terms can make."""
        unit = 2 * EPSILON[dtype]
        allowed = 4 * unit * np.abs(expected) + 4 * TINY[dtype]
        if name in ("sum", "mean"):
            allowed = allowed + 2.0 ** -46 * np.abs(inputs[0]).sum()
        elif name == "matmul":
            epsilon = EPSILON["f32" if dtype in ("f16", "bf16") else dtype]
            allowed = allowed + 2 * inputs[0].shape[-1] * epsilon * np.matmul(
                np.abs(inputs[0]), np.abs(inputs[1]))
        elif name == "normal":
            allowed = allowed + 2.0 ** -44
        return allowed

    def close(self, name, dtype, got, expected, inputs, what):
        if dtype not in FLOATS:
            self.assertTrue(np.array_equal(got, expected), what)
            return
        mine, theirs = test_casts.as_f64(got, dtype), test_casts.as_f64(expected, dtype)
        same = (mine == theirs) | ((mine != mine) & (theirs != theirs))
        if name in self.LOOSE:
            reals = [test_casts.as_f64(np.ascontiguousarray(array).reshape(array.shape), dtype) for array in inputs]
            same |= np.abs(mine - theirs) <= self.tolerance(name, dtype, theirs, reals)
        if not same.all():
            place = tuple(np.argwhere(~same)[0])
            self.fail(f"{what}: {np.sum(~same)} of {same.size} differ, first at {place}: {mine[place]!r}, not"
                      f" {theirs[place]!r}")

    def operate(self, name, dtype, out_dtype, shape, inputs, *others):
        """Whether the host's function took it; both must have come to the same."""
        arrays = [self.laid(array, dtype) for array in inputs]
        is_in_place = inputs and out_dtype == dtype and inputs[0].shape == shape and self.make.chance(0.3)
        out, into = arrays[0] if is_in_place else self.laid(np.zeros(shape, KINDS[out_dtype]), out_dtype)
        what = f"{name} {dtype} {[array.shape for array in inputs]} {others} to {shape}" \
               f"{', in place' * bool(is_in_place)}"
        message, error = Message(), None
        try:
            call(f"varve_op_{name}", describe(out, out_dtype), *(describe(array, dtype) for array, _ in arrays),
                 *others)
        except Refused as refused:
            error = refused.error
        ours = [argument if not isinstance(argument, ElementScalar) else Scalar.from_buffer_copy(argument)
                for argument in others]
        got = getattr(library(), f"varve_storage_op_{name}")(
            ctypes.c_void_p(into._handle), *(ctypes.c_void_p(view._handle) for _, view in arrays), *ours,
            ctypes.c_uint64(0), ctypes.byref(message))
        self.assertEqual(got, error or 0, f"{what}: {message.text.decode()}")
        if error is None:
            self.close(name, out_dtype, elements_of(into, KINDS[out_dtype]),
                       np.ascontiguousarray(out).reshape(out.shape), inputs, what)
        for _, view in arrays:
            view.close()
        into.close()
        return error is None

    def shape_of(self, limit):
        return tuple(int(size) for size in self.make.bytes.integers(1, limit, self.make.random.randint(0, 3)))

    def test_elementwise(self):
        done = 0
        for name in ("add", "sub", "mul", "div", "pow", "exp", "relu"):
            for dtype in test_casts.DTYPES:
                for limit in (6, 6, 90):
                    shape = self.shape_of(limit)
                    inputs = [self.numbers(shape, dtype, name)]
                    if name not in ("exp", "relu"):
                        inputs.append(self.numbers(self.make.narrowed(list(shape)), dtype, name))
                    done += self.operate(name, dtype, dtype, shape, inputs)
        self.assertGreater(done, 100)

    def test_reductions(self):
        done = 0
        for name in ("sum", "mean", "max"):
            for dtype in test_casts.DTYPES:
                for shape in ((5,), (3, 4, 5), (70, 90), (30000,), (3, 12000), (12000, 3), (17, 1, 530)):
                    axis = self.make.random.randrange(-len(shape), len(shape))
                    for axis, left in ((axis, tuple(np.delete(shape, axis))), (-2 ** 31, ())):
                        out_dtype = "i64" if name == "sum" and dtype not in FLOATS else dtype
                        done += self.operate(name, dtype, out_dtype, left, [self.numbers(shape, dtype, name)],
                                             ctypes.c_int(axis))
        self.assertGreater(done, 200)

    def test_products(self):
        done = 0
        for dtype in test_casts.DTYPES:
            for one, other, out in (((3, 4), (4, 5), (3, 5)), ((65, 130), (130, 33), (65, 33)),
                                    ((2, 1, 7, 300), (3, 300, 20), (2, 3, 7, 20)),
                                    ((1, 50), (50, 1), (1, 1)), ((3, 4), (5, 3), (3, 3))):
                done += self.operate("matmul", dtype, dtype, out,
                                     [self.numbers(one, dtype, ""), self.numbers(other, dtype, "")])
        self.assertGreater(done, 30)

    def test_makers(self):
        done = 0
        for dtype in test_casts.DTYPES:
            for shape in ((7,), (3, 5), (40001,)):
                done += self.operate("fill", dtype, dtype, shape, [], scalar(self.make.random.choice((True, 3, 0.5))))
                done += self.operate("arange", dtype, dtype, shape, [], scalar(2),
                                     scalar(self.make.random.choice((1, -3, 0.25))))
                for name in ("uniform", "normal"):
                    done += self.operate(name, dtype, dtype, shape, [], ctypes.c_uint64(11), ctypes.c_uint64(5),
                                         ctypes.c_double(-1), ctypes.c_double(3))
        self.assertGreater(done, 80)


class Casts(test_casts.Pairs, MemoryCase):
    """Conversions as test_casts expects them, of contiguous storages."""

    def setUp(self):
        test_casts.Pairs.setUp(self)

    def converted(self, values, target, source=None):
        source = source or test_casts.DTYPES[[KINDS[name] for name in test_casts.DTYPES].index(values.dtype.type)]
        with placed(values, source, self.memory) as storage, storage.to(target) as result:
            return elements_of(result, KINDS[target])

    def filled(self, value, target):
        with varve.empty(5, target, memory=self.memory) as storage:
            return elements_of(storage.fill_(value), KINDS[target])


class CastsOfStrides(Casts):
    """Every third element of a column, backwards, into every other row."""

    def converted(self, values, target, source=None):
        source = source or test_casts.DTYPES[[KINDS[name] for name in test_casts.DTYPES].index(values.dtype.type)]
        spread = np.zeros((values.size, 3), values.dtype)
        spread[::-1, 1] = values
        with placed(spread, source, self.memory) as storage, storage[::-1, 1] as column, \
                varve.zeros((2 * values.size, 2), target, memory=self.memory) as result, result[1::2, 0] as rows:
            rows.copy_(column)
            everything = elements_of(result, KINDS[target])
        assert not everything[::2].any() and not everything[:, 1].any()
        return np.ascontiguousarray(everything[1::2, 0])


class Copies(MemoryCase):
    def numbers(self, shape, dtype):
        return np.asarray(self.make.bytes.integers(0, 2 if dtype == BOOL else 101, shape))

    def pair(self, target_dtype, source_dtype, target, source, what):
        """One view copied to another. Each is (view, the array it is a part of); types that differ have whole
        numbers."""
        (to, to_whole), (view, view_whole) = target, source
        into_memory, from_memory = self.make.random.choice(((1, 1), (1, 1), (0, 1), (1, 0)))
        with placed(to_whole, TYPES[target_dtype], self.memory if into_memory else None) as storage, \
                placed(view_whole, TYPES[source_dtype], self.memory if from_memory else None) as other, \
                view_of(storage, to, to_whole) as into, view_of(other, view, view_whole) as part:
            into.copy_(part)
            model = to_whole.copy()
            if target_dtype == source_dtype:
                model_view(to, to_whole, model)[...] = view
            else:
                numbers = elements_of(part, KINDS[TYPES[source_dtype]]) if TYPES[source_dtype] != "bf16" else \
                    test_casts.as_f64(np.ascontiguousarray(view), "bf16").reshape(view.shape)
                model_view(to, to_whole, model)[...] = bits_of(numbers.astype(np.int64), target_dtype)
            self.same(storage, model, what)

    def test_views(self):
        """Random strides: in order, transposed, with gaps, backwards, expanded; to and from host memory and within."""
        for case in range(max(200, settings.expressions // 10)):
            target_dtype = self.make.random.randrange(len(TYPES))
            source_dtype = target_dtype if self.make.chance(0.6) else self.make.random.randrange(len(TYPES))
            shape = self.make.shape()
            target = self.make.laid_out(shape, lambda n: self.make.bits(n, target_dtype))
            source = self.make.laid_out(self.make.narrowed(list(shape)),
                                        lambda n: bits_of(self.numbers(n, source_dtype), source_dtype),
                                        True)
            flat = [(view, whole.reshape(-1)) for view, whole in (target, source)]
            self.pair(target_dtype, source_dtype, *flat, f"case {case}: {TYPES[source_dtype]} {source[0].shape}"
                                                         f" {source[0].strides} "
                      f"to {TYPES[target_dtype]} {target[0].shape} {target[0].strides}")

    def test_large(self):
        """Transposed, permuted, mirrored and thinned out arrays of some million bytes."""
        for dtype in (0, 1, 2, 7):
            bits = self.make.bits(1021 * 509, dtype)
            flat = bits.reshape(1021, 509)
            deep = bits[:16 * 31 * 7 * 97].reshape(16, 31, 7, 97)
            for view in (flat.T, flat[:, ::2], flat[::-3, ::-1], deep.transpose(3, 1, 0, 2),
                         deep.transpose(0, 2, 1, 3)[:, ::2],
                         np.broadcast_to(flat[:, :1], (1021, 300)), deep[:, 3, :, ::-1]):
                with self.placed(bits, dtype) as storage, view_of(storage, view, bits) as part, part.clone() as copy:
                    self.assertTrue(np.array_equal(elements_of(copy, bits.dtype), view),
                                    f"{TYPES[dtype]} {view.shape} {view.strides}")

    def test_in_its_own_place(self):
        """Reversed, transposed and interleaved onto itself, as if the source had been set aside."""
        for dtype in (0, 1, 2, 8):
            for to, source in ((lambda a: a[::-1], lambda a: a), (lambda a: a.T, lambda a: a),
                               (lambda a: a[:, ::2], lambda a: a[:, 1::2]),
                               (lambda a: a, lambda a: a[:1]), (lambda a: a, lambda a: a),
                               (lambda a: a[1:, 1:], lambda a: a[:-1, :-1])):
                bits = self.make.bits(200 * 200, dtype).reshape(200, 200)
                with self.placed(bits.reshape(-1), dtype) as storage, view_of(storage, to(bits), bits) as into, \
                        view_of(storage, source(bits), bits) as part:
                    into.copy_(part)
                    expected = bits.copy()
                    to(expected)[...] = source(bits)
                    self.same(storage, expected.reshape(-1), TYPES[dtype])

    def test_overlapping_views(self):
        """Random slices of one storage, copied to others of it, transposed or broadcast at times."""
        for case in range(max(400, settings.expressions // 5)):
            dtype = self.make.random.randrange(len(TYPES))
            bits = self.make.bits(40 * 40, dtype).reshape(40, 40)
            to, source = self.square_of(bits), self.square_of(bits)
            source = source.T if self.make.chance(0.3) else source[:1] if self.make.chance(0.2) else source
            with self.placed(bits.reshape(-1), dtype) as storage, view_of(storage, to, bits) as into, \
                    view_of(storage, source, bits) as part:
                into.copy_(part)
                expected = bits.copy()
                model_view(to, bits, expected)[...] = source.copy()
                self.same(storage, expected.reshape(-1),
                          f"case {case}: {TYPES[dtype]} {source.strides} to {to.strides}")

    def square_of(self, bits):
        """11 by 11 elements: anywhere, with gaps, backwards."""
        return bits[tuple(self.slice_of_11() for _ in range(2))]

    def slice_of_11(self):
        step, first = self.make.random.choice((1, 1, -1, 2, -2, 3, -3)), self.make.random.randrange(8)
        return slice(first, first + 10 * step + 1, step) if step > 0 else \
            slice(39 - first, 39 - first + 10 * step - 1 if 39 - first + 10 * step > 0 else None, step)

    def test_what_is_lent(self):
        """numpy() copies from a device, and lends where it can; to() goes there and back."""
        array = np.arange(12, dtype="f4").reshape(3, 4)
        with varve.from_numpy(array, memory=self.memory) as storage:
            self.assertIs(storage.memory, self.memory)
            lent = storage.numpy()
            self.assertTrue(np.array_equal(lent, array))
            storage.fill_(5)
            self.assertTrue((lent == 5).all() if storage.is_addressable else np.array_equal(lent, array))
            self.assertEqual(storage.tolist(), [[5] * 4] * 3)
            with storage.to("host") as host, host.to(self.memory, "f16") as back:
                self.assertIsNone(host.memory)
                self.assertEqual((back.dtype, back.memory, back.tolist()), ("f16", self.memory, [[5] * 4] * 3))
            with self.assertRaises(BufferError):
                self.memory.close()
            self.assertGreaterEqual(self.memory.allocated, 48)
            del lent


def main(memory, expressions):
    """The cases of this module on that memory, unless the command line names another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", choices=NAMES)
    parser.add_argument("--expressions", type=int, help="to get and to set, each")
    settings.memory, settings.expressions = memory, expressions
    _, sys.argv[1:] = parser.parse_known_args(namespace=settings)
    recording.main()
