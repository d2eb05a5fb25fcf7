#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
# Only with an unsanitized command: libvarve.so is never built with a sanitizer
"""Index plans of libvarve.so beside NumPy: random index expressions on random arrays, to read and to set, and bad
ones. The results are equal bit for bit, views are views of the same elements, and errors say what NumPy says.

VARVE_TEST_SEED=N repeats a failed run, VARVE_INDEX_CASES=N is the number of expressions."""

import itertools
import mmap
import os
import sys
import time
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from numpy_here import numpy as np  # noqa: E402
from index_plan_cases import (  # noqa: E402
    BITS, BOOL, Maker, as_numpy, assign, bits_of, is_advanced, is_unseen, model_view, shown)
from index_plan_library import (  # noqa: E402
    BITS_KEPT, BYTES, COPY, FILL, GATHER, NONE_KEPT, NUMPY, OFFSETS_32, OFFSETS_64, SCATTER, TYPES, VIEW, Array,
    Library, PlanError, Scalar, describe)

SEED = int(os.environ.get("VARVE_TEST_SEED") or 20261123)
CASES = int(os.environ.get("VARVE_INDEX_CASES") or 20000)
INVALID, NO_MEMORY = -1, -2
F64, I64 = 0, 4
MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # which mmap of Python 3.11 does not have
KINDS = ("out of bounds", "too many indices", "boolean index did not match", "ellipsis", "broadcast together",
         "broadcast to", "slice step")


# --- the tests -----------------------------------------------------------------------------------------------------

def same_words(theirs):
    """NumPy 1's words for what NumPy 2 says in others."""
    return theirs.replace("along dimension ", "along axis ").replace("; dimension is ", "; size of axis is ").replace(
        "but corresponding boolean dimension is", "but size of corresponding boolean axis is")


class IndexPlans(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.varve = Library()
        self.make = Maker(SEED)
        self.errors = {}
        warnings.simplefilter("error", DeprecationWarning)  # an index outside of its axis, in an empty result

    def source(self, may_expand):
        dtype = self.make.random.randrange(len(TYPES))
        view, whole = self.make.laid_out(self.make.shape(), lambda n: self.make.bits(n, dtype), may_expand)
        return dtype, view, whole, describe(view, dtype, self.make.random.choice((0, 0, 5)))

    def assert_error(self, ours, theirs, what):
        """If two things are wrong, each may name its own."""
        self.assertEqual(ours.error, INVALID, f"{ours} / {theirs} {what}")
        text = same_words(str(theirs)).rstrip()
        kind = next((kind for kind in KINDS if kind in text), "others")
        self.errors.setdefault(kind, [0, 0])[kind in str(ours)] += 1
        if kind not in str(ours) or kind in ("others", "broadcast to"):
            return
        if kind == "broadcast together" and ("array(True, bool)" in what or "array(False, bool)" in what):
            text = text[:text.index("(")]  # masks without axes are one for the library, and stand first
        self.assertTrue(str(ours).startswith(text), f"{ours} / {text} {what}")

    def check_errors(self):
        """Mostly it is the same."""
        print(f"errors, of which others were named: {self.errors}", flush=True)
        for kind, (other, same) in self.errors.items():
            if kind != "others":
                self.assertLess(other, 1 + (same + other) // 20, kind)

    def expected(self, view, entries):
        try:
            return view[as_numpy(entries)], None
        except (IndexError, ValueError, DeprecationWarning) as error:
            return None, error

    def test_get(self):
        begin, counts = time.monotonic(), {"view": 0, "gather": 0, "bits": 0, "error": 0}
        for case in range(CASES):
            dtype, view, _, described = self.source(True)
            entries = self.make.expression(view.shape)
            if self.make.chance(0.1):
                entries = self.make.spoiled(entries, view.shape)
            what = f"case {case}: {TYPES[dtype]} {view.shape} {view.strides} {shown(entries)}"
            expected, error = self.expected(view, entries)
            try:
                plan = self.varve.make("get", described, entries)
            except PlanError as ours:
                if error is None:
                    self.fail(f"{what}: {ours}, NumPy gives shape {expected.shape}")
                self.assert_error(ours, error, what)
                counts["error"] += 1
                continue
            if error is not None:
                self.fail(f"{what}: NumPy refuses: {error!r}")
            kind = self.check_get(plan.contents, plan, view, dtype, described, expected, entries, what)
            counts[kind] += 1
            self.varve.free(plan)
        print(f"get: {counts} in {time.monotonic() - begin:.1f} s", flush=True)
        for kind, count in counts.items():
            self.assertGreater(count, CASES // 100, kind)
        self.check_errors()

    def check_get(self, plan, pointer, view, dtype, described, expected, entries, what):
        ndim = plan.result.ndim
        self.assertEqual(tuple(plan.result.shape[:ndim]), expected.shape, what)
        self.assertEqual(plan.element_count, expected.size, what)
        self.assertEqual(plan.temporary_bytes, 0)
        if not is_advanced(entries):
            self.assertEqual(plan.kind, VIEW, what)
            self.assertEqual(plan.index_storage, NONE_KEPT)
            self.assertEqual((plan.read_bytes, plan.written_bytes, plan.index_bytes), (0, 0, 0))
            if expected.size:
                self.assertTrue(np.may_share_memory(expected, view), what)
                at = described.data + plan.offset_bytes
                self.assertEqual(at, expected.__array_interface__["data"][0], what)
                for axis in range(ndim):
                    if expected.shape[axis] > 1:
                        self.assertEqual(plan.result.strides[axis] * view.itemsize, expected.strides[axis], what)
        else:
            self.assertEqual(plan.kind, GATHER, what)
            self.assertEqual(plan.index_storage, BITS_KEPT if plan.needs_mask_compaction else OFFSETS_32)
            self.assertEqual(plan.written_bytes, expected.nbytes)
            self.assertEqual(plan.read_bytes, expected.nbytes + plan.index_bytes)
        target, whole = self.make.laid_out(expected.shape, lambda n: np.full(n, 0xa5, expected.dtype))
        model = whole.copy()
        model_view(target, whole, model)[...] = expected
        self.varve.run(pointer, describe(target, dtype), described)
        if not np.array_equal(whole, model):
            self.fail(f"{what}: {target.tolist()}, NumPy gives {expected.tolist()}")
        return "view" if plan.kind == VIEW else "bits" if plan.needs_mask_compaction else "gather"

    def drawn_value(self, dtype, shape):
        """What is set: (as the target's bits, what makes the plan, the bytes set aside if it is a scatter, text). Of
        another type whole numbers that every type has, or one number."""
        if self.make.chance(0.1):
            number = self.make.random.choice((True, False, self.make.random.randint(0, 100)))
            kind = 0 if isinstance(number, bool) else self.make.random.choice((1, 2))
            return bits_of(np.array(int(number)), dtype), \
                Scalar(kind, 0 if kind == 2 else int(number), float(number) if kind == 2 else 0.0), 0, str(number)
        value_dtype = dtype if self.make.chance(0.8) else self.make.random.randrange(len(TYPES))
        if value_dtype == dtype:
            self.kept = value = self.make.value(shape, dtype)
            return value, describe(value, dtype), 0, f"{value.tolist()} of {value.shape}"
        limit = 2 if value_dtype == BOOL else 101
        numbers = self.make.value(shape, None, lambda n: self.make.bytes.integers(0, limit, n))
        self.kept = np.asarray(bits_of(numbers, value_dtype))  # as long as the plan
        return bits_of(numbers, dtype), describe(self.kept, value_dtype), numbers.size * BYTES[dtype], \
            f"{TYPES[value_dtype]} {numbers.tolist()}"

    def check_set(self, view, whole, described, entries, bits, value, what):
        """The plan's contents, once it ran, or None: refused by both."""
        picked, error = self.expected(view, entries)
        model = whole.copy()
        expected = model_view(view, whole, model)
        try:
            result = expected.copy()
            if error is None:
                assign(result, as_numpy(entries), np.ascontiguousarray(bits).reshape(bits.shape))
                expected[...] = result
        except (IndexError, ValueError) as refused:
            error = refused
        is_fill = isinstance(value, Scalar)
        try:
            plan = self.varve.make("fill" if is_fill else "set", described, entries, value)
        except PlanError as ours:
            self.assertTrue(error is not None or is_unseen(ours, picked), f"{what}: {ours}")
            if error is not None:
                self.assert_error(ours, error, what)
            return None
        if error is not None:
            self.fail(f"{what}: NumPy refuses: {error!r}")
        contents = plan.contents
        kinds = (contents.kind, contents.needs_mask_compaction, contents.temporary_bytes, contents.index_bytes)
        self.assertEqual(contents.written_bytes, picked.nbytes, what)
        if is_fill:
            self.assertEqual(contents.read_bytes, contents.index_bytes)
        self.varve.run(plan, described, None if is_fill else value)
        self.varve.free(plan)
        if not np.array_equal(whole.reshape(-1), model.reshape(-1)):
            self.fail(f"{what}: {view.tolist()}, NumPy gives {expected.tolist()}")
        return kinds
    def test_set(self):
        begin, counts = time.monotonic(), {"scatter": 0, "bits": 0, "copy": 0, "error": 0, "fill": 0}
        for case in range(CASES):
            dtype, view, whole, described = self.source(False)
            entries = self.make.expression(view.shape)
            if self.make.chance(0.02):
                entries = self.make.spoiled(entries, view.shape)
            picked = self.expected(view, entries)[0]
            bits, value, aside, text = self.drawn_value(dtype, picked.shape if picked is not None else ())
            what = f"case {case}: {TYPES[dtype]} {view.shape} {view.strides} {shown(entries)} = {text}"
            kinds = self.check_set(view, whole, described, entries, bits, value, what)
            if kinds is None:
                counts["error"] += 1
                continue
            kind, is_compacted, temporary, _ = kinds
            usual = FILL if isinstance(value, Scalar) else COPY
            self.assertEqual(kind, SCATTER if is_advanced(entries) else usual, what)
            self.assertEqual(temporary, aside if kind == SCATTER and picked.size else 0, what)
            counts["fill" if kind == FILL else "copy" if kind == COPY else "bits" if is_compacted else "scatter"] += 1
        print(f"set: {counts} in {time.monotonic() - begin:.1f} s", flush=True)
        for kind, count in counts.items():
            self.assertGreater(count, CASES // (100 if kind != "fill" else 500), kind)
        self.check_errors()

    def test_masks(self):
        """Every density, size of an element and of a block, also where words of the mask are full."""
        compacted = 0
        for dtype, density, block in itertools.product((0, 1, 2, 7, 8), (0, 0.01, 0.1, 0.5, 0.7, 0.97, 1),
                                                       ((), (2,), (3,), (4,), (5, 2), (63,), (130,))):
            size = self.make.random.choice((1, 63, 64, 65, 128, 1000, 1024))
            view, whole = self.make.laid_out((size,) + block, lambda n: self.make.bits(n, dtype))
            if self.make.chance(0.5):
                view = whole = self.make.bits(size * int(np.prod(block)), dtype).reshape((size,) + block)
            mask = self.make.mask((size,), round(size * density))
            what, described = f"{TYPES[dtype]} {view.shape} {density}", describe(view, dtype)
            picked = view[mask]
            target, all_target = self.make.laid_out(picked.shape, lambda n: np.full(n, 7, view.dtype))
            plan = self.varve.make("get", described, (mask,))
            is_compacted = plan.contents.needs_mask_compaction
            self.assertEqual(plan.contents.index_bytes,
                             (mask.size + 63) // 64 * 8 if is_compacted else 4 * np.count_nonzero(mask), what)
            model = all_target.copy()
            model_view(target, all_target, model)[...] = picked
            self.varve.run(plan, describe(target, dtype), described)
            self.varve.free(plan)
            self.assertTrue(np.array_equal(all_target, model), what)
            value = picked[::-1].copy()
            self.check_set(view, whole, described, (mask,), value, describe(value, dtype), what)
            self.check_set(view, whole, described, (mask,), bits_of(np.array(0), dtype), Scalar(1, 0, 0), what)
            compacted += is_compacted
        self.assertGreater(compacted, 50)

    def test_view(self):
        array = np.arange(60).reshape(3, 4, 5)
        entries = (slice(None, None, -2), None, 1, Ellipsis, slice(1, 4))
        for plan in (self.varve.make("get", describe(array, I64, 7), entries),
                     self.varve.make("fill", describe(array, I64, 7), entries, Scalar(1, 3, 0))):
            view, expected = self.varve.view(plan, describe(array, I64, 2)), array[entries]  # at another offset
            self.assertEqual(view.data + 8 * view.geometry.offset, expected.__array_interface__["data"][0])
            self.assertEqual(tuple(view.geometry.shape[:view.geometry.ndim]), expected.shape)
            self.assertEqual([8 * s for s in view.geometry.strides[:3]][::2], list(expected.strides)[::2])
            self.varve.free(plan)
        plan = self.varve.make("get", describe(array, I64), (np.array([1]),))
        with self.assertRaisesRegex(PlanError, "no view"):
            self.varve.view(plan, describe(array, I64))
        self.varve.free(plan)

    def test_again(self):
        """One plan, other arrays of the same geometry at other offsets; its indices are its own."""
        whole = np.arange(200.0).reshape(20, 10)
        index, mask = np.array([3, 0, -1]), np.array([True, False, True, True, False])
        for entries in ((index, slice(1, None)), (slice(None), index), (mask,), (slice(1, 3),)):
            plan = self.varve.make("get", describe(whole[:5, ::2], F64, 3), entries)
            expected = [whole[first:first + 5, ::2][entries].copy() for first in (0, 7, 15)]
            index[0], mask[0] = 100, not mask[0]
            for first, one in zip((0, 7, 15), expected):
                result = np.zeros(one.shape)
                self.varve.run(plan, describe(result, F64), describe(whole[first:first + 5, ::2], F64, first))
                self.assertEqual(result.tolist(), one.tolist())
            index[0], mask[0] = 3, True
            self.varve.free(plan)

    def test_overlap(self):
        """Source and target in the same memory, as if the source had been set aside."""
        for entries, back in (((np.array([4, 3, 2, 1, 0]),), slice(None)), ((slice(None, None, -1),), slice(None)),
                              ((np.ones(5, np.bool_),), slice(None, None, -1)),
                              ((np.array([0, 0, 1, 2, 3]),), slice(None))):
            array = np.arange(20).reshape(5, 4)
            expected = array[entries].copy()
            plan = self.varve.make("get", describe(array, I64), entries)
            self.varve.run(plan, describe(array, I64), describe(array, I64))
            self.assertEqual(array.tolist(), expected.tolist())
            self.varve.free(plan)
            array = np.arange(20).reshape(5, 4)
            expected = array.copy()
            expected[entries] = array[back].copy()
            value = describe(array[back], I64)
            plan = self.varve.make("set", describe(array, I64), entries, value)
            self.varve.run(plan, describe(array, I64), value)
            self.assertEqual(array.tolist(), expected.tolist())
            self.varve.free(plan)

    def test_run_refuses(self):
        """Arrays that a plan was not made for; nothing is written."""
        array, target, index = np.arange(12.0).reshape(3, 4), np.zeros((2, 4)), (np.array([2, 0]),)
        plan = self.varve.make("get", describe(array, 0), index)
        for bad_target, bad_source, reason in (
                (describe(target, 1), describe(array, 0), "values of f64, not f32"),
                (describe(target[:1], 0), describe(array, 0), r"shape \(2, 4\), not \(1, 4\)"),
                (describe(target, 0), describe(array, I64), "for f64, not for i64"),
                (describe(target, 0), describe(array[:2], 0), "another shape"),
                (describe(target, 0), describe(array[::-1], 0), "other strides"),
                (describe(np.broadcast_to(target[:1], (2, 4)), 0), describe(array, 0), "share an address"),
                (describe(target, 0), None, "needs an array")):
            with self.assertRaisesRegex(PlanError, reason) as caught:
                self.varve.run(plan, bad_target, bad_source)
            self.assertEqual(caught.exception.error, INVALID)
        self.assertFalse(target.any())
        self.varve.run(plan, describe(target, 0), describe(array, 0))
        self.assertEqual(target.tolist(), array[index].tolist())
        self.varve.free(plan)
        plan = self.varve.make("set", describe(array, 0), index, describe(target, 0))
        for bad in (None, describe(target[:1], 0), describe(target, 4)):
            with self.assertRaises(PlanError):
                self.varve.run(plan, describe(array, 0), bad)
        self.varve.free(plan)

    def test_plan_refuses(self):
        """What NumPy has no words for, or other limits."""
        array = describe(np.zeros((2, 3)), F64)
        large = np.broadcast_to(np.int8(0), (2**31, 1))
        for entries, reason in (
                ((None,) * 15, "more than 16 dimensions"), ((np.zeros((1,) * 15, int), None), "17 dimensions"),
                ((np.zeros((2, 2)),), "must be of integer"), ((large, large.T), "too many elements")):
            with self.assertRaisesRegex(PlanError, reason):
                self.varve.make("get", array, entries)
        wide = np.broadcast_to(np.int8(0), (2**28, 1))  # 2^58 bytes of positions
        with self.assertRaisesRegex(PlanError, "no memory for 72057594037927936 positions") as caught:
            self.varve.make("get", array, (wide, wide.T))
        self.assertEqual(caught.exception.error, NO_MEMORY)
        shared = describe(np.broadcast_to(np.zeros(3), (2, 3)), F64)
        for function, value in (("fill", Scalar(1, 1, 0)), ("set", describe(np.zeros(3), F64))):
            with self.assertRaisesRegex(PlanError, "share an address"):
                self.varve.make(function, shared, (0,), value)
        bad = Array(dtype=10)
        with self.assertRaisesRegex(PlanError, "no type"):
            self.varve.make("get", bad, ())
        bad = Array()
        bad.geometry.ndim = 17
        with self.assertRaisesRegex(PlanError, "17 dimensions"):
            self.varve.make("get", bad, ())

    def test_bad_places(self):
        """Index arrays of all types and lengths with one index in every place, of values that differ from good ones in
        few bits only: three below each end of a type to three above, of both signs."""
        five = np.zeros(5)
        ends = (5, 2**7 - 1, 2**8 - 1, 2**15 - 1, 2**31 - 1, 2**32, 2**63 - 1)
        values = sorted({sign * (end + offset) for end in ends for offset in range(-3, 4) for sign in (1, -1)})
        for kind in (np.int64, np.int32, np.int16, np.int8, np.uint8):
            good = np.arange(10) % 5
            good[1::2] -= 0 if kind is np.uint8 else 5
            for value in (value for value in values if np.iinfo(kind).min <= value <= np.iinfo(kind).max):
                for count, place in ((count, place) for count in range(1, 11) for place in range(count)):
                    index = good[:count].astype(kind)
                    index[place] = value
                    index = index[::-1] if (count + place) % 2 else index
                    try:
                        self.varve.free(self.varve.make("get", describe(five, F64), (index,)))
                        self.assertTrue(-5 <= value < 5, index)
                    except PlanError as error:
                        self.assertEqual(str(error), f"index {value} is out of bounds for axis 0 with size 5", index)
                        self.assertFalse(-5 <= value < 5, index)

    def test_wide_positions(self):
        """Beyond 2 GiB a position takes eight bytes. Of this memory only some pages are ever touched."""
        large = describe(np.zeros((1, 1)), F64)
        large.geometry.shape[0], large.geometry.shape[1] = 2**20, 2**10
        large.geometry.strides[0], large.geometry.strides[1] = 2**10, 1
        index = np.arange(10)
        for entries, width in (((index,), 8), ((slice(None), index), 4), ((slice(0, 5), index), 4),
                               ((index, index), 8)):
            plan = self.varve.make("get", large, entries)
            self.assertEqual(plan.contents.index_bytes, width * 10, entries)
            self.assertEqual(plan.contents.index_storage, OFFSETS_32 if width == 4 else OFFSETS_64)
            self.varve.free(plan)
        for dtype in (0, 1, 2, 7):
            memory = mmap.mmap(-1, 3 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
            array = np.frombuffer(memory, BITS[BYTES[dtype]]).reshape(-1, 1 << 20)
            rows, columns = (self.make.bytes.integers(0, n, (5, 40)) for n in array.shape)
            columns[:, 0], rows[:, 0] = array.shape[1] - 1, -1
            value = self.make.bits(200, dtype).reshape(5, 40)
            narrow = columns.astype(np.int32)
            self.wide_case(array, dtype, (rows, narrow), value)
            mask = np.zeros(array.shape[0], np.bool_)
            mask[rows[0]] = True
            self.wide_case(array, dtype, (mask, 3), self.make.bits(np.count_nonzero(mask), dtype))
            self.wide_case(array, dtype, (rows[0], slice(7, 10)), self.make.bits(3, dtype))
            self.wide_case(array, dtype, (rows[0], slice(100, 0, -50)), self.make.bits(2, dtype))
            del array

    def wide_case(self, array, dtype, entries, value):
        described = describe(array, dtype)
        plan = self.varve.make("set", described, entries, describe(value, dtype))
        self.varve.run(plan, described, describe(value, dtype))
        self.varve.free(plan)
        after = array[entries]  # NumPy sets the same again: what is there must not change
        array[entries] = value
        self.assertTrue(np.array_equal(after, array[entries]))
        result = np.zeros(after.shape, array.dtype)
        plan = self.varve.make("get", described, entries)
        first = entries[0]
        self.assertEqual(plan.contents.index_bytes, 8 * first.size if first.dtype != np.bool_ else
                         min(8 * np.count_nonzero(first), (first.size + 63) // 64 * 8))
        self.varve.run(plan, describe(result, dtype), described)
        self.varve.free(plan)
        self.assertTrue(np.array_equal(result, after))


if __name__ == "__main__":
    print(f"seed {SEED}, {CASES} expressions", flush=True)
    recording.main()
