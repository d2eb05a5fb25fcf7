#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""The package `varve` (notebooks/) against NumPy: views, copies and conversions by random programs, references,
errors, threads, and that it needs neither NumPy nor a place of its own."""

import gc
import os
import subprocess
import sys
import threading
import unittest
import weakref

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "notebooks")
sys.path[:0] = [PACKAGE, os.path.join(ROOT, "tests")]
from numpy_here import numpy  # noqa: E402
import varve  # noqa: E402
import recording  # noqa: E402

DTYPES = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u8": "u1",
          "bool": "?"}
SEED = int(os.environ.get("VARVE_TEST_SEED", "1"))


class Case(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.assertEqual(varve.live(), 0)

    tearDown = setUp


def view_of(array, key):
    """array[key], which NumPy makes a number where nothing is left to be indexed."""
    key = key if isinstance(key, tuple) else (key,)
    return array[key if Ellipsis in key else (*key, Ellipsis)]


class Program:
    """Random views of a storage beside the same of its array."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.dtype = str(self.random.choice(list(DTYPES)))
        shape = tuple(int(size) for size in self.random.integers(0, 6, self.random.integers(0, 5)))
        self.storage = varve.empty(shape, self.dtype)
        self.array = self.storage.numpy()
        self.array[...] = self.random.integers(0, 100, shape)

    def number(self, low, high):
        return int(self.random.integers(low, high))

    def bound(self):
        return None if self.number(0, 3) == 0 else self.number(-8, 9)

    def item(self, size):
        if size and self.number(0, 3) == 0:
            return self.number(-size, size)
        return slice(self.bound(), self.bound(), [None, 1, 2, -1, -3][self.number(0, 5)])

    def key(self):
        """Of some of the first axes, or of the first and the last ones with an Ellipsis between; some new axes."""
        count, shape = self.number(0, self.array.ndim + 1), self.array.shape
        if self.number(0, 4) == 0:
            first = self.number(0, count + 1)
            items = [*map(self.item, shape[:first]), Ellipsis, *map(self.item, shape[len(shape) - count + first:])]
        else:
            items = [*map(self.item, shape[:count])]
        if self.number(0, 4) == 0:
            items.insert(self.number(0, len(items) + 1), None)
        return tuple(items) if len(items) != 1 else items[0]

    def shape_of(self, size):
        """A shape with that many elements; one axis may be left to be found."""
        shape, left = [], size
        while left > 1 and len(shape) < 5:
            shape.append(int(self.random.choice([part for part in range(1, left + 1) if left % part == 0])))
            left //= shape[-1]
        shape += [left] * (left != 1 or self.number(0, 4) == 0)
        if size and shape and self.number(0, 3) == 0:
            shape[self.number(0, len(shape))] = -1
        return tuple(shape)

    def step(self):
        """(what was done, the same of the storage and of the array)."""
        kind, axes = self.number(0, 4), [int(axis) for axis in self.random.permutation(self.array.ndim)]
        axes = [axis - self.array.ndim * self.number(0, 2) for axis in axes]
        if kind == 0 and self.array.ndim:
            return f"permute {axes}", self.storage.permute(axes), self.array.transpose(axes)
        if kind == 1 and self.array.ndim:
            return f"transpose {axes}", self.storage.transpose(axes[0], -1), self.array.swapaxes(axes[0], -1)
        if kind == 2 and self.array.ndim < 6:
            shape = (self.number(1, 3), *(size if size != 1 else self.number(0, 4) for size in self.array.shape))
            return f"expand {shape}", self.storage.expand(*shape), numpy.broadcast_to(self.array, shape)
        key = self.key()
        return f"[{key}]", self.storage[key], view_of(self.array, key)


class Elements(Case):
    def same(self, storage, array, what):
        self.assertEqual((storage.shape, storage.size, storage.nbytes), (array.shape, array.size, array.nbytes), what)
        if array.size:
            self.assertEqual(storage.data_ptr, array.ctypes.data, what)
            for size, stride, expected in zip(storage.shape, storage.strides, array.strides):
                self.assertTrue(size == 1 or stride * storage.itemsize == expected, what)
        self.assertEqual(storage.tolist(), array.tolist(), what)
        self.assertTrue(numpy.array_equal(storage.numpy(), array), what)
        storage.check()

    def test_views(self):
        steps = refused = 0
        for seed in range(SEED, SEED + 300):
            program, done = Program(seed), f"VARVE_TEST_SEED={seed}:"
            for _ in range(6):
                what, program.storage, array = program.step()
                done += f" {what}"
                program.array = numpy.asarray(array)
                self.same(program.storage, program.array, done)
                steps += 1
                for shape in (program.shape_of(program.array.size) for _ in range(4)):
                    array = program.array.reshape(shape)
                    if array.size and not numpy.may_share_memory(array, program.array):
                        refused += 1  # where NumPy makes a copy there is no view
                        self.assertRaises(ValueError, program.storage.reshape, shape)
                    else:
                        self.same(program.storage.reshape(shape), array, f"{done} reshape {shape}")
            del program, array
        print(f"{steps} views, {refused} shapes refused", end=" ")
        self.assertGreater(refused, 300)

    def test_writing(self):
        """Values, arrays and other storages into views."""
        written = 0
        for seed in range(SEED, SEED + 300):
            program = Program(seed)
            expected = program.array.copy()
            for _ in range(4):
                key = program.key()
                part = view_of(expected, key)
                value = program.number(0, 100)
                if program.number(0, 2) and part.ndim:
                    values = numpy.arange(value, value + part.shape[-1]).astype(DTYPES[program.dtype])
                    value = varve.from_numpy(values) if program.number(0, 2) else values
                    expected[key] = values
                else:
                    expected[key] = value
                program.storage[key] = value
                written += 1
                self.assertTrue(numpy.array_equal(program.array, expected),
                                f"VARVE_TEST_SEED={seed}: [{key}] = {value}")
            del program, value
        print(f"{written} writes", end=" ")

    def test_conversions(self):
        """What test_casts.py has of all pairs of types; the same type is the same storage."""
        with varve.from_numpy(numpy.array([0, 1, 2, 100, 127], "i8")) as storage, storage.to("bfloat16") as bf16, \
                storage.to("i64") as same:
            self.assertEqual((bf16.dtype, bf16.tolist()), ("bf16", [0, 1, 2, 100, 127]))
            self.assertEqual((same.data_ptr, same.dtype), (storage.data_ptr, "i64"))
            self.assertNotEqual(bf16.data_ptr, storage.data_ptr)

    def test_making(self):
        self.assertEqual(varve.zeros(3, "i32").tolist(), [0, 0, 0])
        self.assertEqual(varve.full((1, 2), True, bool).tolist(), [[True, True]])
        self.assertEqual(varve.full((), 2.5, numpy.float64).item(), 2.5)
        self.assertEqual(varve.full(2, -2**63, int).tolist(), [-2**63] * 2)
        self.assertEqual(varve.full(2, numpy.float32(0.5), numpy.dtype("f2")).tolist(), [0.5, 0.5])
        self.assertEqual(varve.empty((2, 3), float, alignment=4096).data_ptr % 4096, 0)
        self.assertEqual(varve.empty((2, 0)).tolist(), [[], []])
        with varve.zeros((2, 3), "f32", name="weights") as storage:
            self.assertEqual((storage.name, storage.ndim, len(storage), storage.is_view), ("weights", 2, 2, False))
            self.assertEqual(repr(storage), "<varve.Storage 'weights' f32 (2, 3)>")
            storage.name = "bias"
            self.assertEqual(storage.name, "bias")
            self.assertEqual([row.tolist() for row in storage], [[0, 0, 0]] * 2)
            self.assertEqual(storage.resize_(3, 3).shape, (3, 3))
            self.assertEqual(numpy.asarray(storage, dtype="f8").dtype, "f8")
            self.assertTrue(numpy.shares_memory(numpy.asarray(storage), storage.numpy()))
        self.assertEqual(repr(storage), "<varve.Storage, closed>")

    def test_arrays_as_they_come(self):
        base = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
        for array in (base, base[::-1, :, ::2], base.T, base[:, 1:1], base[1, 2, 3:4], base[0, 0, 0, ...],
                      numpy.broadcast_to(base[0], (5, 3, 4))):
            storage = varve.from_numpy(array)
            self.assertEqual(storage.read_only, not array.flags.writeable)
            self.same(storage, array, array.strides)
            copy = varve.from_numpy(array, copy=True)
            self.assertEqual(copy.tolist(), array.tolist())
            self.assertTrue(not array.size or copy.data_ptr != array.ctypes.data)
            self.assertFalse(copy.read_only)
        with self.assertRaisesRegex(ValueError, "stride of 5 bytes"):
            varve.from_numpy(numpy.zeros(3, dtype=[("flag", "u1"), ("value", "f4")])["value"])
        for wrong in ("c8", ">f4", "u2", "S4"):
            with self.assertRaises(TypeError):
                varve.from_numpy(numpy.zeros(3, wrong))
        with self.assertRaises(TypeError):
            varve.from_numpy([1, 2])


class Keys(Case):
    """What stands in brackets beyond views: storage_cases.py has the expressions."""

    def test_kinds(self):
        array = numpy.arange(24, dtype="f4").reshape(4, 6)
        with varve.from_numpy(array) as storage, varve.from_numpy(numpy.array([3, 0])) as rows:
            for key in (numpy.int64(-1), numpy.array(2), numpy.array([1, 3], "u1"), array > 5,
                        (numpy.array([0, 1]), None, slice(2)),
                        True, False, numpy.bool_(True), (Ellipsis, numpy.array(False)), numpy.zeros(0, "i8")):
                with storage[key] as picked:
                    self.assertEqual(picked.tolist(), array[key].tolist(), key)
            with storage[rows] as picked:  # a storage as an index
                self.assertEqual(picked.tolist(), array[[3, 0]].tolist())
            storage[array > 20] = -1
            storage[rows, 0] = numpy.array([7.0, 8.0])
            self.assertEqual((array.min(), array[3, 0], array[0, 0]), (-1, 7, 8))

    def test_refusals(self):
        with varve.zeros((4, 6)) as storage:
            for error, text, key in ((IndexError, "out of bounds", numpy.array([4])),
                                     (IndexError, "boolean index", numpy.ones(5, "?")),
                                     (IndexError, "broadcast", (numpy.zeros(2, "i8"), numpy.zeros(3, "i8"))),
                                     (IndexError, "must be of integer", numpy.zeros(2)),
                                     (TypeError, "no type", numpy.zeros(2, "u4")),
                                     (TypeError, "", [1, 2]), (ValueError, "step", slice(None, None, 0))):
                with self.assertRaisesRegex(error, text):
                    storage[key]
                with self.assertRaisesRegex(error, text):
                    storage[key] = 1
            with self.assertRaisesRegex(ValueError, "could not be broadcast"):
                storage[0] = numpy.zeros(5)
            self.assertEqual(storage.tolist(), [[0] * 6] * 4)


class Pools(Case):
    def test_life(self):
        memory = varve.host_memory(limit=64 << 20)
        self.assertEqual((repr(memory), memory.allocated, memory.reserved), ("<varve.Memory host:0>", 0, 0))
        storage = varve.full((1000, 3), 5, "i32", memory=memory, name="kept")
        self.assertIs(storage.memory, memory)
        self.assertIs(storage[3].memory, memory)
        self.assertEqual((memory.allocated, storage.tolist()), (12288, [[5] * 3] * 1000))
        with self.assertRaisesRegex(BufferError, "storages still have memory of it"):
            memory.close()
        with self.assertRaisesRegex(MemoryError, "out of memory"):
            varve.empty(65 << 20, "u8", memory=memory)
        with storage.to("host") as plain, plain.to(memory) as back:
            self.assertIsNone(plain.memory)
            self.assertEqual((back.tolist(), memory.allocated), (storage.tolist(), 2 * 12288))
        storage.close()
        self.assertEqual(memory.allocated, 0)
        self.assertGreater(memory.reserved, 0)
        memory.empty_cache()
        self.assertEqual(memory.reserved, 0)
        memory.close()
        memory.close()
        self.assertEqual(repr(memory), "<varve.Memory host:0, closed>")
        for use in (lambda: memory.allocated, memory.empty_cache, lambda: varve.empty(3, memory=memory)):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()

    def test_settings(self):
        with varve.host_memory(settings="max_split_size_mb:64") as memory, varve.zeros(3, memory=memory) as storage:
            self.assertEqual(storage.tolist(), [0] * 3)
        with self.assertRaisesRegex(ValueError, "nonsense"):
            varve.host_memory(settings="nonsense:1")
        with self.assertRaises(RuntimeError):
            varve.host_memory(policy="nobody's")


class References(Case):
    def test_counts(self):
        storage = varve.zeros((2, 3))
        view = storage[0]
        self.assertEqual((storage.use_count, view.use_count, varve.live()), (2, 1, 2))
        same = storage.to("f32")
        self.assertEqual((storage.use_count, same.id), (3, storage.id))
        array = storage.numpy()
        self.assertEqual(storage.use_count, 4)
        with self.assertRaisesRegex(BufferError, "views"):
            storage.resize_(9)
        storage.close()
        storage.close()
        same.close()
        array += 1
        self.assertEqual(view.tolist(), [1, 1, 1])

    def test_arrays_go_once(self):
        """Of any thread: an array that was lent goes with the last storage, view and array of it."""
        failed, gone = [], []

        def work(number):
            for step in range(200):
                array = numpy.full((2, 2), step, "i4")
                watch = weakref.ref(array)
                storage = varve.from_numpy(array)
                del array
                view = varve.from_dlpack(storage[1])
                lent = numpy.from_dlpack(view)
                storage.close()
                view.close()
                if watch() is None or lent.tolist() != [step, step]:
                    failed.append((number, step))
                del lent
                gone.append(watch() is None)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((failed, gone), ([], [True] * 800))

    def test_nothing_stays(self):
        """References that the interpreter counts, after many of everything, failures too."""
        array = numpy.zeros((2, 3), "f4")
        before = sys.getrefcount(array)
        for _ in range(100):
            storage = varve.from_numpy(array)
            storage[0, None].T.numpy()
            storage.__dlpack__(max_version=(1, 0))
            numpy.from_dlpack(storage)
            varve.from_dlpack(array).clone()
            for wrong in (lambda: storage[7], lambda: storage.reshape(5), lambda: varve.full(2, "x")):
                self.assertRaises((IndexError, ValueError), wrong)
            with self.assertRaises(UnicodeEncodeError):
                varve.from_numpy(array, name="\ud800")
        del storage
        gc.collect()
        self.assertEqual((sys.getrefcount(array), varve.live()), (before, 0))


class Errors(Case):
    def test_classes(self):
        with varve.zeros((2, 3)) as storage:
            for error, text, call in (
                    (IndexError, "index 2 is out of bounds for axis 0 with size 2", lambda: storage[2]),
                    (IndexError, "index -3 is out of bounds", lambda: storage[-3]),
                    (IndexError, "too many indices", lambda: storage[0, 0, 0]),
                    (IndexError, "ellipsis", lambda: storage[..., ...]),
                    (ValueError, "", lambda: storage[::0]),
                    (TypeError, "", lambda: storage["a"]),
                    (TypeError, "", lambda: storage[1.5]),
                    *((ValueError, "can't be", lambda shape=shape: storage.reshape(*shape))
                      for shape in ((4, 2), (2, 2), (-2, 3), (-1, -1), (-1, 4), (-1, 0))),
                    (ValueError, "", lambda: storage.T.reshape(6)),
                    (ValueError, "", lambda: storage.permute(0, 0)),
                    (ValueError, "", lambda: storage[0].copy_(storage)),
                    (ValueError, "6 elements", storage.item),
                    (TypeError, "no type of elements: 'f33'", lambda: storage.to("f33")),
                    (MemoryError, "bytes", lambda: varve.empty(2**55)),
                    (ValueError, "", lambda: varve.empty((2**40, 2**40))),
                    (ValueError, "", lambda: varve.empty(-1)),
                    (ValueError, "alignment of 3 bytes", lambda: varve.empty(1, alignment=3)),
                    (OverflowError, "64 bits", lambda: varve.full(1, 2**63)),
                    (TypeError, "axes", lambda: len(storage[0, 0]))):
                with self.assertRaisesRegex(error, text):
                    call()
            self.assertEqual(storage.use_count, 1)
        for use in (lambda: storage.shape, lambda: storage[0], storage.clone, storage.numpy, storage.__dlpack__):
            with self.assertRaisesRegex(ValueError, "the storage is closed"):
                use()


class Places(Case):
    """Interpreters of their own."""

    def python(self, program, **environment):
        """(exit status, what it printed, standard error)."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("VARVE_")}
        variables.update(PYTHONPATH=PACKAGE, **environment)
        done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    @property
    def build(self):
        return os.environ.get("VARVE_BUILD_DIR") or os.path.join(ROOT, "build")

    def test_without_numpy(self):
        program = ("import sys; sys.modules['numpy'] = None\n"
                   "import varve\n"
                   "with varve.zeros((2, 3), 'i32') as storage:\n"
                   "    storage[0] = 7\n"
                   "    with varve.from_dlpack(storage) as same:\n"
                   "        print(same.tolist(), storage.use_count)\n"
                   "print(varve.live(), sorted(name for name in sys.modules if 'torch' in name))")
        self.assertEqual(self.python(program, VARVE_BUILD_DIR=self.build), (0, "[[7, 7, 7], [0, 0, 0]] 2\n0 []\n", ""))

    def test_where_the_library_is(self):
        library = os.path.join(self.build, "libvarve.so")
        program = "import varve; print(varve.library()._name)"
        self.assertEqual(self.python(program, VARVE_LIBRARY=library)[1], library + "\n")
        self.assertEqual(self.python(program, VARVE_BUILD_DIR=self.build)[1], library + "\n")
        for environment in ({"VARVE_LIBRARY": "/nowhere/libvarve.so"}, {"VARVE_BUILD_DIR": "/nowhere"}):
            status, _, error = self.python(program, **environment)
            self.assertEqual(status, 1)
            self.assertIn("OSError: libvarve.so can't be loaded; name it in VARVE_LIBRARY", error)
        self.assertEqual(self.python("import varve; print(varve.Storage.__name__)", VARVE_LIBRARY="/nowhere")[:2],
                         (0, "Storage\n"))  # loaded when it is needed

    def test_end_of_the_interpreter(self):
        """Storages, arrays and capsules that are still there."""
        program = ("import numpy, varve\n"
                   "storage = varve.from_numpy(numpy.zeros(3))\n"
                   "everything = [storage, storage[1:], storage.numpy(), numpy.from_dlpack(storage),"
                   " storage.__dlpack__(),\n              varve.from_dlpack(numpy.ones(3))]\n"
                   "everything.append(everything)\n"
                   "varve.storage.kept = everything\n")
        self.assertEqual(self.python(program, VARVE_BUILD_DIR=self.build), (0, "", ""))


if __name__ == "__main__":
    recording.main()
