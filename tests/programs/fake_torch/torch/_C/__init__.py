# SPDX-License-Identifier: Apache-2.0
"""Stands for PyTorch's C++: the native allocator is a dictionary, a pluggable one is called by its addresses."""

import ctypes
import itertools
import os
import pickle
import threading
import time

from .. import FAKES

calls = []  # (name, arguments) of what reached C++
frames = [{"filename": "train.py", "line": 3, "name": "step"}]  # of allocations
numbers = itertools.count(1)
thread = threading.local()
c10 = ctypes.CDLL(os.environ["FAKE_TORCH_LIBRARY"], mode=ctypes.RTLD_GLOBAL) \
    if os.environ.get("FAKE_TORCH_LIBRARY") else None
pointer = ctypes.c_void_p.in_dll(c10, "_ZN3c104cuda20CUDACachingAllocator9allocatorE") if c10 else None
objects = {}
Observer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)
kept = []
if c10:
    c10.fake_error.restype = c10.fake_name.restype = ctypes.c_char_p
    Pickler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t))


def ask(name, *arguments):
    """A virtual function of the allocator in use."""
    result = getattr(c10, "fake_" + name)(*arguments)
    if result < 0:
        raise RuntimeError(c10.fake_error().decode())
    return result


def address_of(allocator):
    """Of the object that stands for this allocator in C++: the native one, and up to two pluggable ones."""
    if allocator not in objects.values():
        name = ("fake_native", "fake_pluggable", "fake_second")[len(objects)]
        objects[ctypes.addressof(ctypes.c_char.in_dll(c10, name))] = allocator
    return next(address for address, known in objects.items() if known is allocator)


class _cuda_CUDAAllocator:
    name = "native"

    def __init__(self):
        self.is_initialised = False


class _CUDAPluggableAllocator(_cuda_CUDAAllocator):
    name = "pluggable"

    def __init__(self, alloc, free):
        self.is_initialised = True  # as PyTorch's: it counts as initialised from the beginning
        self.alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(alloc)
        self.free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(free)
        self.hooks = {}
        if c10:
            c10.fake_plug(ctypes.c_void_p(alloc), ctypes.c_void_p(free))

    def call(self, hook, *types_and_values):
        if hook in self.hooks:
            types, values = types_and_values[::2], types_and_values[1::2]
            ctypes.CFUNCTYPE(None, *types)(self.hooks[hook])(*values)


for setter in ("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn", "set_record_stream_fn",
               "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool"):
    def take(self, address, setter=setter):
        assert isinstance(address, int) and address
        self.hooks[setter] = address
    setattr(_CUDAPluggableAllocator, setter, take)

native = _cuda_CUDAAllocator()
native.name = "cudaMallocAsync" if "async" in FAKES else "native"
native.is_initialised = "initialised" in FAKES
current = native
if c10:
    pointer.value = address_of(native)
history, blocks, benchmark, is_recording = [], {}, False, False
BASE, SPACE, SEGMENT = 0x7F0000000000, 0x2000, 1 << 21  # of blocks, which never come back to an address
reached = BASE


def _cuda_customAllocator(alloc, free):
    return _CUDAPluggableAllocator(alloc, free)


def _cuda_changeCurrentAllocator(allocator):
    global current
    calls.append(("_cuda_changeCurrentAllocator", allocator.name))
    if (objects[pointer.value] if c10 else current).is_initialised:
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator
    if c10:
        pointer.value = address_of(allocator)


def _cuda_getAllocatorBackend():
    return c10.fake_name().decode() if c10 and current is not native else current.name


def _cuda_init():
    calls.append(("_cuda_init",))
    current.is_initialised = True
    if current is not native:
        current.call("set_init_fn", ctypes.c_int, 2)


def fraction(device):
    value = ctypes.c_double()
    ask("get_fraction", device, ctypes.byref(value))
    return value.value


def observe(observer):
    def called(*figures):
        try:
            observer(*figures)
        except Exception:
            return 1
        return 0
    kept.append(Observer(called))
    ask("observe", kept[-1])


VIRTUAL = {
    "_cuda_resetAccumulatedMemoryStats": lambda device: ask("reset", device, 0) and None,
    "_cuda_resetPeakMemoryStats": lambda device: ask("reset", device, 1) and None,
    "_cuda_attach_out_of_memory_observer": observe,
    "_cuda_isHistoryEnabled": lambda: bool(ask("is_history_enabled")),
    "_cuda_getMemoryFraction": fraction,
}


def only_native(name):
    def function(*arguments):
        if current is not native and c10 and name in VIRTUAL:
            return VIRTUAL[name](*arguments)
        calls.append((name, arguments))
        if current is not native:
            raise RuntimeError(f"CUDAPluggableAllocator does not yet support {name}")
        return answer(name, arguments)
    function.__name__ = name
    return function


def segment():
    """The one that all blocks are in, as if it had been there from the beginning."""
    parts, at, end = [], BASE, BASE + (reached - BASE) // SEGMENT * SEGMENT + SEGMENT
    for address, (size, _, its_frames) in [*sorted(blocks.items()), (end, (0, 0, ()))]:
        if address > at:
            parts.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive", "frames": []})
        if size > 0:
            at = address + -(-size // 512) * 512
            parts.append({"address": address, "size": at - address, "requested_size": size,
                          "state": "active_allocated", "frames": list(its_frames)})
    live = [part for part in parts if part["requested_size"]]
    in_use = sum(part["size"] for part in live)
    return {"device": 0, "address": BASE, "total_size": end - BASE, "allocated_size": in_use, "active_size": in_use,
            "requested_size": sum(part["requested_size"] for part in live), "stream": 0, "segment_type": "small",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": parts}


def snapshot(with_history=True):
    if not with_history and "unseen" in FAKES:
        raise RuntimeError("no snapshot")
    return {"segments": [segment()] if blocks and "segments" not in FAKES else [],
            "device_traces": [list(history) if with_history else []], "external_annotations": [],
            "allocator_settings": {}}


def pickled(size):
    kept[:] = [one for one in kept if not isinstance(one, bytes)] + [pickle.dumps(snapshot(), 2)]
    size[0] = len(kept[-1])
    return ctypes.cast(kept[-1], ctypes.c_void_p).value


def answer(name, arguments):
    global is_recording
    if name in ("_cuda_memoryStats", "_accelerator_getDeviceStats"):
        return {"allocation": {"all": {"current": len(blocks)}}, "num_ooms": 0}
    if name == "_cuda_memorySnapshot":
        return snapshot(with_history=arguments[0] is None or all(arguments[0][2:]))
    if name == "_cuda_isHistoryEnabled":
        return is_recording
    if name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy") and not native.is_initialised:
        raise RuntimeError("asking for the history starts CUDA")
    if name == "_cuda_record_memory_history":
        is_recording = arguments[0] is not None
        if not is_recording:
            history.clear()
    return 1.0 if name == "_cuda_getMemoryFraction" else None


for name in ("_cuda_memoryStats", "_cuda_resetAccumulatedMemoryStats", "_cuda_resetPeakMemoryStats",
             "_cuda_memorySnapshot", "_cuda_attach_out_of_memory_observer", "_cuda_record_memory_history",
             "_cuda_record_memory_history_legacy", "_cuda_isHistoryEnabled", "_cuda_getMemoryFraction",
             "_accelerator_getDeviceStats", "_accelerator_resetAccumulatedStats", "_accelerator_resetPeakStats"):
    globals()[name] = only_native(name)


def _cuda_setMemoryMetadata(text):
    if current is native:  # others do nothing with it
        thread.metadata = text


def _cuda_getMemoryMetadata():
    return getattr(thread, "metadata", "")


def _cuda_beginAllocateCurrentThreadToPool(device, pool):
    calls.append(("begin", device, pool))


def _cuda_endAllocateToPool(device, pool):
    calls.append(("end", device, pool))


def note(action, address, size, stream, its_frames=()):
    history.append({"action": action, "addr": address, "size": size, "stream": stream,
                    "time_us": time.time_ns() // 1000, "frames": list(its_frames),
                    "user_metadata": getattr(thread, "metadata", "")})


def _cuda_setMemoryFraction(fraction, device):
    if current is not native:
        current.call("set_memory_fraction_fn", ctypes.c_double, fraction, ctypes.c_int, device)


def _accelerator_isAllocatorInitialized():
    return native.is_initialised and current is native  # the registered one, which a plugged one does not replace


def _accelerator_emptyCache():
    calls.append(("_accelerator_emptyCache",))


def _accelerator_setAllocatorSettings(text):
    calls.append(("_accelerator_setAllocatorSettings", text))


def _cuda_emptyCache():
    if current is not native:
        current.call("set_reset_fn")


def _cuda_cudaCachingAllocator_raw_alloc(size, stream):
    global reached
    if current is not native:
        address = current.alloc(size, 0, stream)
    elif size > 1 << 40:  # more than any device has
        note("oom", 0, size, stream)
        history[-1]["device_free"] = history[-1].pop("addr")
        raise RuntimeError("CUDA out of memory")
    else:
        address = reached = BASE + SPACE * next(numbers)
        if "segments" in FAKES:
            note("segment_alloc", address, SPACE, stream)
        note("alloc", address, size, stream, frames)
    blocks[address] = (size, stream, frames)
    return address


def _cuda_cudaCachingAllocator_raw_delete(address):
    size, stream, _ = blocks.pop(address)
    if current is not native:
        current.free(address, size, 0, stream)
    else:
        for action in ("free_requested", "free_completed"):
            note(action, address, size, stream)
        if "segments" in FAKES:
            note("segment_free", address, SPACE, stream)


def _graph_pool_handle():
    return (0, next(numbers))


class _MemPool:
    id = None

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        number = next(numbers)
        ask("pool", 0 if allocator is None else 1, ctypes.c_uint64(number))
        self.id = (0, number)
        if use_on_oom:
            ask("pool", 2, ctypes.c_uint64(number))
        if no_split:
            ask("pool", 3, ctypes.c_uint64(number))

    def __del__(self):
        if self.id is not None:
            ask("pool", 4, ctypes.c_uint64(self.id[1]))

    def use_count(self):
        return ask("use_count", ctypes.c_uint64(self.id[1]))


def _set_cudnn_benchmark(value):
    global benchmark
    benchmark = value


def _get_cudnn_benchmark():
    return benchmark


if c10 and "unpickled" not in FAKES:
    kept.append(Pickler(pickled))
    c10.fake_pickle_by(kept[-1])

if FAKES & {"no_cuda", "hip"}:
    for name in [name for name in globals() if name.startswith("_cuda")]:
        del globals()[name]
