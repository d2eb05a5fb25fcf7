#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""DLPack on a GPU: a tensor of PyTorch taken over, viewed, written through the view and handed to CuPy and JAX has
the same addresses everywhere and is released once, in every order of releases; whose stream waits for whose; which
device it is. --memory host: the same with PyTorch and NumPy in host memory, without what only a GPU has."""

import ctypes
import gc
import itertools
import os
import sys
import time
import unittest
import weakref

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the GPU
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import storage_support  # noqa: E402
import numpy  # noqa: E402
import varve  # noqa: E402
from varve import capsule  # noqa: E402
from varve.library import CUDA, ManagedTensor, VersionedTensor  # noqa: E402
import recording  # noqa: E402


def imported(name):
    try:
        return __import__(name)
    except (ImportError, OSError):
        return None


torch, cupy, jax = None, None, None  # main() looks for them
IS_HOST = "--memory=host" in sys.argv or "--memory host" in " ".join(sys.argv)
SLEEP_CYCLES = 400_000_000  # some 200 ms of a GPU
TORCH = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
         "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool"}


def address_of(handle):
    if isinstance(handle, varve.Storage) or torch.is_tensor(handle):
        return handle.data_ptr if isinstance(handle, varve.Storage) else handle.data_ptr()
    if capsule.is_capsule(handle):
        is_versioned = "versioned" in repr(handle)
        pointer = capsule._get_pointer(handle, b"dltensor_versioned" if is_versioned else b"dltensor")
        return (VersionedTensor if is_versioned else ManagedTensor).from_address(pointer).tensor.data
    if hasattr(handle, "unsafe_buffer_pointer"):
        return handle.unsafe_buffer_pointer()
    return handle.data.ptr if hasattr(handle.data, "ptr") else handle.ctypes.data


def can_write(handle):
    """JAX's arrays are constant, and what is taken over of them."""
    if isinstance(handle, varve.Storage):
        return not handle.read_only
    return not capsule.is_capsule(handle) and not hasattr(handle, "unsafe_buffer_pointer")


def write(handle, number):
    """To element [0, 0]."""
    handle[0, 0] = number
    finish()


def read(handle):
    """Element [0, 0]; None of a capsule."""
    if capsule.is_capsule(handle):
        return None
    if isinstance(handle, varve.Storage):
        with handle[0, 0] as one:
            return one.item()
    return float(handle[0, 0])


def finish():
    if not IS_HOST:
        torch.cuda.synchronize()


def consumed(source, *libraries):
    """Arrays of other libraries, of the same elements."""
    return [library.from_dlpack(source) for library in libraries if library is not None]


class DlpackCase(unittest.TestCase):
    memory = None

    @classmethod
    def setUpClass(cls):
        if DlpackCase.memory is None and not IS_HOST:
            DlpackCase.memory = varve.cuda_memory()

    def setUp(self):
        gc.collect()
        self.assertEqual(varve.live(), 0)

    def tearDown(self):
        gc.collect()
        self.assertEqual(varve.live(), 0)
        if self.memory is not None:
            self.assertEqual(self.memory.allocated, 0)


class Orders(DlpackCase):
    """All permutations of the releases."""

    def tensor(self):
        """(a tensor of PyTorch with 2 × 4 floats, is its memory released?)"""
        if IS_HOST:
            array = numpy.arange(8, dtype="f4").reshape(2, 4)
            gone = weakref.ref(array)
            return torch.from_numpy(array), lambda: gone() is None
        finish()
        before = torch.cuda.memory_allocated()
        tensor = torch.arange(8, dtype=torch.float32, device="cuda").reshape(2, 4).clone()
        return tensor, lambda: torch.cuda.memory_allocated() == before

    def storage(self):
        if IS_HOST:
            storage = varve.zeros((2, 4))
            return storage, lambda: varve.live() == 0
        return varve.zeros((2, 4), memory=self.memory), lambda: self.memory.allocated == 0

    def check_together(self, handles, step):
        """The same address, and the same element, written by one of them."""
        living = [handle for handle in handles if handle is not None]
        address = address_of(living[0])
        self.assertEqual({address_of(handle) for handle in living}, {address})
        writers = [handle for handle in living if can_write(handle)]
        if writers:
            write(writers[step % len(writers)], 100 + step)
            self.assertLessEqual({read(handle) for handle in living}, {100.0 + step, None})

    def every_order(self, make, until=lambda is_released: is_released()):
        """`make` returns the handles and a function that says whether the memory was released; `until` waits for that
        at the end."""
        count = len(make()[0])
        gc.collect()
        for order in itertools.permutations(range(count)):
            handles, is_released = make()
            for step, number in enumerate(order):
                self.check_together(handles, step)
                self.assertFalse(is_released(), order)
                handles[number] = None
            self.assertTrue(until(is_released), order)
            self.assertEqual(varve.live(), 0, order)
        print(f"{count} handles", end=" ", flush=True)

    def test_tensor_of_torch(self):
        """Taken over, viewed, handed on to CuPy, back to PyTorch, and as a capsule that nobody has consumed."""
        def make():
            tensor, is_released = self.tensor()
            storage = varve.from_dlpack(tensor, memory=self.memory)
            view = storage[0:2, ::2]
            return [tensor, storage, view, *consumed(view, cupy or numpy if IS_HOST else cupy), torch.from_dlpack(view),
                    view.__dlpack__(max_version=(1, 0))], is_released

        self.every_order(make)

    def test_storage_of_varve(self):
        """Its own memory, lent to PyTorch and CuPy, whose array is taken over again."""
        def make():
            storage, is_released = self.storage()
            others = consumed(storage, torch, numpy if IS_HOST else cupy)
            return [storage, storage[:1], *others, varve.from_dlpack(others[-1], memory=self.memory)], \
                is_released

        self.every_order(make)

    def test_with_jax(self):
        """JAX may only read, and wants elements without gaps."""
        if jax is None:
            self.skipTest("JAX is not installed")

        def make():
            storage, is_released = self.storage()
            array = jax.dlpack.from_dlpack(storage, copy=None)
            return [storage, array, varve.from_dlpack(array, memory=self.memory),
                    torch.from_dlpack(storage)], is_released

        def until(is_released):
            """An array that JAX has lent is part of a cycle, and JAX releases when its own stream is done."""
            for _ in range(200):
                gc.collect()
                if is_released():
                    break
                time.sleep(0.01)
            return is_released()

        try:
            make()
        except Exception as error:  # a plug-in of JAX's that does not fit the driver, or none for the GPU
            self.skipTest(f"JAX takes no tensor here: {error}")
        self.every_order(make, until)


class Elements(DlpackCase):
    def test_every_type(self):
        """As PyTorch's, there and back; strides and offsets along."""
        for name, theirs in TORCH.items():
            kind = getattr(torch, theirs)
            numbers = torch.arange(24).reshape(2, 3, 4) % (2 if name == "bool" else 24)
            tensor = numbers.to(kind) if IS_HOST else numbers.to(kind).cuda()
            for key in ((Ellipsis,), (slice(None), 1), (slice(None), slice(None), slice(None, None, 2)),
                        (1, slice(1, 3))):
                expected = tensor[key]
                with varve.from_dlpack(expected, memory=self.memory) as storage:
                    self.assertEqual((storage.dtype, storage.shape, storage.data_ptr),
                                     (name, tuple(expected.shape), expected.data_ptr()))
                    self.assertEqual(storage.strides, tuple(expected.stride()))
                    self.assertEqual(storage.tolist(), expected.cpu().tolist())
                    back = torch.from_dlpack(storage.T)
                    self.assertEqual((back.dtype, back.data_ptr()), (kind, expected.data_ptr()))
                    self.assertTrue(torch.equal(back, expected.permute(*reversed(range(expected.ndim)))))
                    del back
            del tensor, expected

    def test_copy(self):
        tensor = torch.ones(5) if IS_HOST else torch.ones(5, device="cuda")
        with varve.from_dlpack(tensor, memory=self.memory, copy=True) as storage:
            self.assertNotEqual(storage.data_ptr, tensor.data_ptr())
            self.assertEqual(storage.tolist(), [1] * 5)
            self.assertIs(storage.memory, self.memory)
            other = torch.from_dlpack(storage)
            self.assertEqual(other.device, tensor.device)
            del other


@unittest.skipIf(IS_HOST, "host memory has neither devices nor streams")
class Devices(DlpackCase):
    def test_numbers(self):
        """Those of CUDA; a tensor of another device is refused."""
        for index in range(torch.cuda.device_count()):
            with varve.cuda_memory(index) as memory:
                with varve.zeros((3, 4), memory=memory) as storage:
                    self.assertEqual(storage.__dlpack_device__(), (CUDA, index))
                    self.assertEqual(torch.from_dlpack(storage).device, torch.device("cuda", index))
                tensor = torch.ones(3, device=f"cuda:{index}")
                with varve.from_dlpack(tensor, memory=memory) as storage:
                    self.assertEqual(storage.__dlpack_device__(), (CUDA, index))
                    self.assertEqual(storage.tolist(), [1, 1, 1])
                if index > 0:
                    with self.assertRaises(BufferError):
                        varve.from_dlpack(tensor, memory=self.memory)
                with self.assertRaisesRegex(BufferError, "no memory here"):
                    varve.from_dlpack(tensor)
                del tensor

    def test_host_gets_none(self):
        with varve.zeros(3, memory=self.memory) as storage:
            with self.assertRaises((BufferError, RuntimeError, TypeError, ValueError)):
                numpy.from_dlpack(storage)
            with self.assertRaises(BufferError):
                storage.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
            self.assertEqual(storage.numpy().tolist(), [0, 0, 0])


@unittest.skipIf(IS_HOST, "host memory has neither devices nor streams")
class Streams(DlpackCase):
    COUNT = 1 << 20

    @classmethod
    def setUpClass(cls):
        """Everything once: the first use of a kernel, and the first memory of a stream, may wait for the GPU."""
        super().setUpClass()
        with cls.slow_sevens(torch.cuda.Stream(), 1) as storage, storage.clone() as copy:
            copy.copy_(storage, stream=0)
            (torch.from_dlpack(storage).clone() == 7).all().item()
            if cupy is not None:
                (cupy.from_dlpack(storage).copy() == 7).all().item()
            finish()

    @classmethod
    def slow_sevens(cls, producer, cycles=SLEEP_CYCLES):
        """A storage of a stream's block that the stream will fill with sevens, later than we look."""
        with torch.cuda.stream(producer):
            storage = varve.zeros(cls.COUNT, memory=cls.memory, stream=producer.cuda_stream)
            tensor = torch.from_dlpack(storage)
            torch.cuda._sleep(cycles)
            tensor.fill_(7)
        return storage

    def test_consumer_waits(self):
        """The consumer's stream, for what the block's has by then; also CUDA's default streams."""
        for consumer in (torch.cuda.Stream(), torch.cuda.default_stream()):
            producer = torch.cuda.Stream()
            storage = self.slow_sevens(producer)
            with torch.cuda.stream(consumer):
                tensor = torch.from_dlpack(storage)  # which names its current stream
                copy = tensor.clone()
            self.assertFalse(producer.query(), "the GPU is too fast for this test")
            consumer.synchronize()
            self.assertTrue(bool((copy == 7).all()))
            del tensor, copy
            storage.close()
            finish()

    def test_cupy_waits(self):
        if cupy is None:
            self.skipTest("CuPy is not installed")
        producer, consumer = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
        storage = self.slow_sevens(producer)
        with consumer:
            copy = cupy.from_dlpack(storage).copy()
        self.assertFalse(producer.query(), "the GPU is too fast for this test")
        consumer.synchronize()
        self.assertTrue(bool((copy == 7).all()))
        storage.close()
        finish()

    def test_nobody_waits(self):
        """Stream -1: the consumer orders the work itself, and the call comes back at once."""
        producer = torch.cuda.Stream()
        storage = self.slow_sevens(producer)
        made = storage.__dlpack__(stream=-1, max_version=(1, 0))
        self.assertFalse(producer.query(), "the GPU is too fast for this test")
        producer.synchronize()
        del made
        storage.close()

    def test_block_waits(self):
        """A block that the consumer's stream still uses is handed to nobody."""
        producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(consumer):
            storage = varve.full(self.COUNT, 3, memory=self.memory, stream=producer.cuda_stream)
            address = storage.data_ptr
            tensor = torch.from_dlpack(storage)
            torch.cuda._sleep(SLEEP_CYCLES)
            copy = tensor.clone()
        storage.close()
        del tensor
        self.assertFalse(consumer.query(), "the GPU is too fast for this test")
        with varve.full(self.COUNT, 5, memory=self.memory, stream=producer.cuda_stream) as other:
            self.assertNotEqual(other.data_ptr, address)
            consumer.synchronize()
            self.assertTrue(bool((copy == 3).all()))
            self.assertTrue(bool((torch.from_dlpack(other) == 5).all()))

    def test_what_a_stream_can_be(self):
        with varve.zeros(3, memory=self.memory) as storage:
            for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream):
                made = storage.__dlpack__(stream=stream, max_version=(1, 0))
                self.assertEqual(address_of(made), storage.data_ptr)
                del made
            for stream in (0, -2):
                with self.assertRaisesRegex(ValueError, "stream"):
                    storage.__dlpack__(stream=stream, max_version=(1, 0))
            with self.assertRaises(TypeError):
                storage.__dlpack__(stream="fast")
        finish()

    def test_import_names_a_stream(self):
        """PyTorch makes the stream that we name wait for the tensor's."""
        producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(producer):
            tensor = torch.zeros(self.COUNT, device="cuda")
            torch.cuda._sleep(SLEEP_CYCLES)
            tensor.fill_(7)
            storage = varve.from_dlpack(tensor, memory=self.memory, stream=consumer.cuda_stream)
        with varve.zeros(self.COUNT, memory=self.memory) as copy:
            copy.copy_(storage, stream=consumer.cuda_stream)
            self.assertFalse(producer.query(), "the GPU is too fast for this test")
            consumer.synchronize()
            self.assertTrue(bool((torch.from_dlpack(copy) == 7).all()))
        storage.close()


def main():
    global torch, cupy, jax
    if not IS_HOST:
        storage_support.skip_without_gpu()
    torch, cupy, jax = (imported(name) for name in ("torch", "cupy", "jax"))
    if jax is not None:
        __import__("jax.dlpack")
    if torch is None or (not IS_HOST and not torch.cuda.is_available()):
        print("skipped: there is no PyTorch" if torch is None else "skipped: PyTorch finds no GPU")
        sys.exit(77)
    if cupy is None and not IS_HOST:
        print("skipped part: there is no CuPy: PyTorch stands for it")
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument not in ("--memory", "host", "--memory=host")]
    recording.main()


if __name__ == "__main__":
    main()
