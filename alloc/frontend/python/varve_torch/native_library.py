# SPDX-License-Identifier: Apache-2.0
"""libvarve-torch.so for Python: the declarations of alloc/frontend/torch.h, which is where they are explained,
and methods that give Python values or raise RuntimeError. Calls are made without the interpreter's lock: the
allocator's own locks are held by threads that may want it."""

import contextlib
import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

INTERFACE_VERSION = 1
DIVISIONS = 16
UNLIMITED = 2**64 - 1


class Block(Structure):
    _fields_ = [("addr", c_uint64), ("bytes", c_uint64), ("requested", c_uint64), ("allocation_id", c_uint64),
                ("state", c_uint32), ("reserved", c_uint32)]


class Segment(Structure):
    _fields_ = [("addr", c_uint64), ("bytes", c_uint64),
                ("allocated", c_uint64), ("active", c_uint64), ("requested", c_uint64),
                ("stream", c_uint64), ("pool_capture", c_uint64), ("pool_user", c_uint64),
                ("first_block", c_uint64), ("block_count", c_uint64),
                ("device", c_int32), ("segment_id", c_uint32), ("is_small", c_uint32), ("is_expandable", c_uint32)]


class Event(Structure):
    _fields_ = [("addr", c_uint64), ("bytes", c_uint64), ("stream", c_uint64),
                ("pool_capture", c_uint64), ("pool_user", c_uint64),
                ("time_us", c_int64), ("device", c_int32), ("action", c_uint32)]


class Snapshot(Structure):
    _fields_ = [("segments", POINTER(Segment)), ("blocks", POINTER(Block)), ("events", POINTER(Event)),
                ("segment_count", c_uint64), ("block_count", c_uint64), ("event_count", c_uint64)]


class Settings(Structure):
    _fields_ = [("text", c_char * 1024), ("policy", c_char * 32), ("device", c_char * 32),
                ("max_split_size", c_uint64), ("max_non_split_rounding_size", c_uint64),
                ("large_segment_size", c_uint64), ("roundup_power2_divisions", c_uint64 * DIVISIONS),
                ("garbage_collection_threshold", c_double), ("memory_fraction", c_double),
                ("expandable_segments", c_uint32), ("release_lock_on_cudamalloc", c_uint32),
                ("graph_capture_record_stream_reuse", c_uint32), ("reserved", c_uint32)]


StatTaker = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int64)

# name: (result, arguments); a result of int that is negative is an error
PROTOTYPES = {
    "interface_version": (c_uint32, ()),
    "message": (c_char_p, ()),
    "refusal": (c_int, (c_void_p, c_void_p, c_char_p, c_uint64)),
    "device_count": (c_int, ()),
    "stats": (c_int, (c_int, StatTaker, c_void_p)),
    "reset_peak_stats": (c_int, (c_int,)),
    "reset_accumulated_stats": (c_int, (c_int,)),
    "set_memory_fraction": (c_int, (c_int, c_double)),
    "empty_cache": (c_int, (c_int, c_uint64, c_uint64)),
    "take_snapshot": (c_int, (c_int, POINTER(Snapshot))),
    "snapshot_free": (None, (POINTER(Snapshot),)),
    "history": (c_int, (c_uint64, c_int)),
    "write_history": (c_int, (c_char_p,)),
    "get_settings": (c_int, (POINTER(Settings),)),
    "set_settings": (c_int, (c_char_p,)),
}


class Library:
    """`path` loaded and checked; the functions above without their prefix are its attributes."""

    def __init__(self, path):
        self.path = path
        self.dll = ctypes.CDLL(path)
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(self.dll, "varve_torch_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        version = self.interface_version()
        if version != INTERFACE_VERSION:
            raise RuntimeError(f"{path} has interface {version}, and this shim {INTERFACE_VERSION}: install them "
                               "together")

    def address(self, name):
        """Of a function, as PyTorch's setters take it; None if the library has no such function."""
        function = getattr(self.dll, "varve_torch_" + name, None)
        return ctypes.cast(function, c_void_p).value if function is not None else None

    def check(self, code):
        if code < 0:
            raise RuntimeError("varve: " + (self.message() or b"unknown error").decode(errors="replace"))
        return code

    def refusal_of(self, function, functions):
        """The name in the exception of a virtual function that refuses, None if it is none. `functions`: of its
        class."""
        name = ctypes.create_string_buffer(64)
        return name.value.decode() if self.refusal(function, functions, name, len(name)) else None

    def figures(self, device):
        """{flat key: value}"""
        found = {}

        def take(_, key, value):
            found[key.decode()] = value

        self.check(self.stats(device, StatTaker(take), None))
        return found

    @contextlib.contextmanager
    def snapshot(self, device=-1):
        snapshot = Snapshot()
        self.check(self.take_snapshot(device, ctypes.byref(snapshot)))
        try:
            yield snapshot
        finally:
            self.snapshot_free(ctypes.byref(snapshot))

    def settings(self):
        settings = Settings()
        self.check(self.get_settings(ctypes.byref(settings)))
        return settings
