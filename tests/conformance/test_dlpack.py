#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""Storages and NumPy by DLPack: a tensor taken over, viewed, written through the view and handed on has the same
addresses everywhere and is released once, in every order of releases. NumPy speaks capsules of before version 1 where
it is old; those of version 1 are made and consumed here, too, by a producer and a consumer of the test's own."""

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
import unittest
import weakref

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "notebooks"), os.path.join(ROOT, "tests")]
from numpy_here import numpy  # noqa: E402
import varve  # noqa: E402
from varve import capsule  # noqa: E402
from varve.library import CPU, IS_COPIED, READ_ONLY, ManagedTensor, VersionedTensor  # noqa: E402
import recording  # noqa: E402

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Producer:
    """Of a tensor of 2 × 3 floats, 0 to 5, in memory that the test sees go."""

    def __init__(self, is_versioned=True, flags=0, major=1):
        self.is_versioned, self.deleted = is_versioned, 0
        self.elements = numpy.arange(6, dtype="f4")
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        self.deleter = DELETER(self.delete)
        self.managed = VersionedTensor(major=major, flags=flags) if is_versioned else ManagedTensor()
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        tensor = self.managed.tensor
        tensor.data, tensor.ndim, tensor.shape = self.elements.ctypes.data, 2, self.shape
        tensor.device.type, tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = CPU, 2, 32, 1

    def delete(self, managed):
        assert managed == ctypes.addressof(self.managed)
        self.deleted += 1
        self.elements[:] = numpy.nan  # who looks now sees it

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self, **options):
        """max_version is an unknown argument for an old library."""
        if options and not self.is_versioned:
            raise TypeError("unexpected keyword argument")
        return capsule.make(ctypes.addressof(self.managed), self.is_versioned)


class Consumer:
    """Of a storage's capsule: reads and writes elements, and calls the deleter when it is released."""

    def __init__(self, storage, **options):
        pointer, self.is_versioned = capsule.consume(storage.__dlpack__(**options))
        self.managed = (VersionedTensor if self.is_versioned else ManagedTensor).from_address(pointer)
        self.address = self.managed.tensor.data + self.managed.tensor.byte_offset

    def __del__(self):
        DELETER(self.managed.deleter)(ctypes.addressof(self.managed))


def address_of(handle):
    if isinstance(handle, varve.Storage):
        return handle.data_ptr
    if isinstance(handle, Consumer):
        return handle.address
    if capsule.is_capsule(handle):
        name = b"dltensor_versioned" if "versioned" in repr(handle) else b"dltensor"
        kind = VersionedTensor if "versioned" in repr(handle) else ManagedTensor
        return kind.from_address(capsule._get_pointer(handle, name)).tensor.data
    return handle.ctypes.data


class Dlpack(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.assertEqual(varve.live(), 0)

    def tearDown(self):
        gc.collect()
        self.assertEqual(varve.live(), 0)


class Orders(Dlpack):
    """Each way of sharing, and all permutations of the releases."""

    def every_order(self, make):
        """`make` returns the handles and a function that says how often the memory was released."""
        count = len(make()[0])
        gc.collect()
        for order in itertools.permutations(range(count)):
            handles, released = make()
            address = address_of(handles[0])
            for step, number in enumerate(order):
                for handle in handles:
                    if handle is not None:
                        self.assertEqual(address_of(handle), address)
                element = ctypes.c_float.from_address(address + 4)  # written through one, seen by all
                self.assertEqual(element.value, 1 + step)
                element.value += 1
                self.assertEqual(released(), 0)
                handle = handles[number] = None
            self.assertEqual(released(), 1)
            self.assertEqual(varve.live(), 0)
        return count

    def shared(self, first):
        """A view of the storage, an array of NumPy by DLPack and one by its interface, and what other libraries
        have."""
        view = first[0:2, ::2]
        return [first, view, numpy.from_dlpack(view), varve.from_dlpack(first.numpy()),
                Consumer(view, max_version=(1, 0)), view.__dlpack__()]

    def test_memory_of_numpy(self):
        """An array of NumPy's, which sees its array go, taken over by DLPack."""
        def make():
            array = numpy.arange(6, dtype="f4").reshape(2, 3)
            gone = weakref.ref(array)
            return [array, *self.shared(varve.from_dlpack(array))][1:], lambda: int(gone() is None)

        self.assertEqual(self.every_order(make), 6)

    def test_array_of_numpy(self):
        """The same without DLPack, by the array's address."""
        def make():
            array = numpy.arange(6, dtype="f4").reshape(2, 3)
            gone = weakref.ref(array)
            return self.shared(varve.from_numpy(array)), lambda: int(gone() is None)

        self.every_order(make)

    def test_memory_of_others(self):
        for is_versioned in (True, False):
            def make():
                producer = Producer(is_versioned)
                return self.shared(varve.from_dlpack(producer)), lambda: producer.deleted

            self.every_order(make)

    def test_closed_by_hand(self):
        """close() in place of the object's end: arrays stay good."""
        storage = varve.zeros((2, 3))
        array, view = storage.numpy(), storage[1]
        storage.close()
        view.fill_(3)
        view.close()
        view.close()
        self.assertEqual(array.tolist(), [[0, 0, 0], [3, 3, 3]])
        self.assertEqual(varve.live(), 2)  # the array's view, and its base
        with self.assertRaisesRegex(ValueError, "closed"):
            storage.shape
        del array, view


class Views(Dlpack):
    def test_there_and_back(self):
        """Shape, strides and elements of an array's random views, at their address, as storages and as arrays again."""
        random = numpy.random.default_rng(6)
        for dtype in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1"):
            array = random.integers(0, 100, (4, 5, 6)).astype(dtype)
            for key in (..., 2, (slice(None, None, -1), slice(1, 4)), (slice(None), 3, slice(5, None, -2)),
                        slice(4, 9)):
                expected = array[key]
                storage = varve.from_dlpack(expected, name="mine")
                back = numpy.from_dlpack(storage)
                self.assertEqual((storage.shape, storage.nbytes, storage.name, storage.__dlpack_device__()),
                                 (expected.shape, expected.nbytes, "mine", (CPU, 0)))
                self.assertEqual((back.shape, back.dtype, back.tolist(), storage.tolist()),
                                 (expected.shape, expected.dtype, expected.tolist(), expected.tolist()))
                if expected.size:
                    self.assertEqual((storage.data_ptr, back.ctypes.data), (expected.ctypes.data,) * 2)
                    self.assertEqual(tuple(stride * storage.itemsize for stride in storage.strides), expected.strides)
                    self.assertEqual(back.strides, expected.strides)
                    storage.fill_(1)
                    self.assertTrue((expected == 1).all())
                storage.check()
        del storage, back


class Export(Dlpack):
    def test_versions(self):
        """By max_version, as the standard says; a copy is marked as one."""
        with varve.full((2, 3), 7, "i64") as storage:
            for version, expected in ((None, False), ((0, 8), False), ((1, 0), True), ((1, 3), True), ((2, 0), True)):
                consumer = Consumer(storage, max_version=version)
                self.assertEqual(consumer.is_versioned, expected)
                self.assertEqual(consumer.address, storage.data_ptr)
                if expected:
                    self.assertEqual((consumer.managed.major, consumer.managed.flags), (1, 0))
            for version in ((1, 0), None):
                consumer = Consumer(storage.T, max_version=version, copy=True)
                self.assertTrue(version is None or consumer.managed.flags == IS_COPIED)
                self.assertEqual(tuple(consumer.managed.tensor.strides[:2]), (2, 1))
                self.assertNotEqual(consumer.address, storage.data_ptr)
                self.assertEqual(ctypes.c_int64.from_address(consumer.address).value, 7)
                self.assertEqual(storage.use_count, 1)
            self.assertEqual(Consumer(storage, copy=False, dl_device=(CPU, 0)).address, storage.data_ptr)
            del consumer

    def test_refusals(self):
        with varve.from_dlpack(Producer(flags=READ_ONLY)) as storage, varve.zeros(3, "bf16") as bf16:
            with self.assertRaisesRegex(BufferError, "may only be read"):
                storage.__dlpack__()
            consumer = Consumer(storage, max_version=(1, 0))
            self.assertEqual(consumer.managed.flags, READ_ONLY)
            del consumer
            with self.assertRaises(BufferError):
                storage.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
            with self.assertRaisesRegex(ValueError, "host memory"):
                storage.__dlpack__(max_version=(1, 0), stream=1)
            with self.assertRaises(TypeError):
                storage.__dlpack__(max_version=(1, 0), stream="fast")
            with self.assertRaisesRegex(TypeError, "bf16"):
                bf16.numpy()

    def test_nobody_consumes(self):
        """The capsule's destructor calls the deleter, and leaves the exception alone that a consumer has set."""
        with varve.zeros(3, "bf16") as storage:
            for version in (None, (1, 0)):
                made = storage.__dlpack__(max_version=version)
                self.assertEqual(varve.live(), 2)
                del made
                self.assertEqual(varve.live(), 1)
            with self.assertRaisesRegex((RuntimeError, BufferError), "(?i)dtype|support"):
                numpy.from_dlpack(storage)
            self.assertEqual(varve.live(), 1)


class Import(Dlpack):
    def test_copy(self):
        producer = Producer()
        with varve.from_dlpack(producer, copy=True) as storage:
            self.assertEqual(producer.deleted, 1)
            self.assertEqual(storage.tolist(), [[0, 1, 2], [3, 4, 5]])

    def test_read_only(self):
        producer = Producer(flags=READ_ONLY)
        with varve.from_dlpack(producer) as storage:
            self.assertTrue(storage.read_only)
            for write in (lambda: storage.fill_(1), lambda: storage[0].copy_(storage[1])):
                with self.assertRaisesRegex(ValueError, "only be read"):
                    write()
            array = storage.numpy()
            with self.assertRaisesRegex(ValueError, "read-only"):
                array[0, 0] = 1
            self.assertEqual(storage.clone().fill_(2).tolist(), [[2, 2, 2], [2, 2, 2]])
        self.assertEqual(producer.deleted, 0)
        del array
        self.assertEqual(producer.deleted, 1)

    def test_once(self):
        """A capsule that was consumed, by us or by NumPy, is not consumed again."""
        producer = Producer(False)
        made = producer.__dlpack__()
        storage = varve.from_dlpack(made)
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "consumed already"):
                varve.from_dlpack(made)
        del made
        self.assertEqual((producer.deleted, storage.tolist()), (0, [[0, 1, 2], [3, 4, 5]]))
        storage.close()
        self.assertEqual(producer.deleted, 1)
        with varve.zeros(3) as other:
            made = other.__dlpack__()

            class Once:
                def __dlpack__(self, **options):
                    return made

                def __dlpack_device__(self):
                    return CPU, 0

            array = numpy.from_dlpack(Once())
            with self.assertRaisesRegex(ValueError, "consumed already"):
                varve.from_dlpack(Once())
            del array, made

    def test_once_by_threads(self):
        for _ in range(50):
            producer, taken, refused = Producer(), [], []
            made, start = producer.__dlpack__(), threading.Barrier(8)

            def take():
                start.wait()
                try:
                    taken.append(varve.from_dlpack(made))
                except ValueError:
                    refused.append(1)

            threads = [threading.Thread(target=take) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(taken), len(refused), producer.deleted), (1, 7, 0))
            del made
            taken.clear()
            self.assertEqual(producer.deleted, 1)

    def test_refusals(self):
        """Each tensor that is refused has its deleter called, once; test_storage_dlpack.c has what else is."""
        nowhere = Producer()
        nowhere.managed.tensor.data = None
        for error, text, producer in ((BufferError, "DLPack 2.0", Producer(major=2)),
                                      (ValueError, "address 0", nowhere)):
            with self.assertRaisesRegex(error, text):
                varve.from_dlpack(producer)
            self.assertEqual(producer.deleted, 1)
        other = Producer()
        other.__class__ = type("OnGpu", (Producer,), {"__dlpack_device__": lambda self: (2, 0)})
        with self.assertRaisesRegex(BufferError, "no memory here"):
            varve.from_dlpack(other)
        self.assertEqual(other.deleted, 0)  # it was never asked for a tensor
        with self.assertRaises(AttributeError):
            varve.from_dlpack([1, 2])
        with self.assertRaises(TypeError):
            capsule.consume(3)
        with self.assertRaisesRegex(ValueError, "datetime"):
            varve.from_dlpack(__import__("datetime").datetime_CAPI)

    def test_example(self):
        """docs/examples/dlpack_numpy.py, as a user runs it: what it prints, and nothing is left at its ends."""
        example = os.path.join(ROOT, "docs", "examples", "dlpack_numpy.py")
        result = subprocess.run([sys.executable, example], env={**os.environ,
                                                                "PYTHONPATH": os.path.join(ROOT, "notebooks")},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.splitlines(), [
            "NumPy sees a sum of 32.0 at the same address: True",
            "without the storage: [0.5, 7.0, 0.5]",
            "strides (4, 2) and turned (2, 4) elements [[0.0, 0.0], [4.0, 0.0], [8.0, 0.0]]",
            "as halves: float16 [[0.0, 0.0], [4.0, 0.0], [8.0, 0.0]]",
            "storages left: 0 0"])


if __name__ == "__main__":
    recording.main()
