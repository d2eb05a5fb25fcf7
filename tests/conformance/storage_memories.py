# SPDX-License-Identifier: Apache-2.0
"""Storages in the memory that a test is to run on: of the C library, of a pool, of a device that the processor may
not look into; and NumPy's arrays, bf16 as uint16 among them, as storages there and back."""

import ctypes
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "notebooks"), os.path.join(ROOT, "tests"),
                os.path.dirname(os.path.abspath(__file__))]
from numpy_here import numpy as np  # noqa: E402
import varve  # noqa: E402
from varve.library import Foreign, Geometry, HostOptions, Message, check, library  # noqa: E402
from varve.storage import _make, _options  # noqa: E402

LIMIT = 256 << 20
NAMES = ("host", "apart", "cuda")
_kept = []


def _apart():
    """A pool of the host device under another name: storages leave all work to the device, as with a GPU's."""
    with open(os.path.join(ROOT, "alloc", "device.h"), encoding="utf-8") as stream:
        table = re.search(r"struct varve_device_ops \{(.*?)\n\};", stream.read(), re.S).group(1)
    entries = len(re.findall(r"\(\*\w+\)\(", table)) + 2  # and the name, and vmm_granularity
    device, message = ctypes.c_void_p(), Message()
    check(library().varve_host_open(ctypes.byref(HostOptions(0, LIMIT)), ctypes.byref(device), ctypes.byref(message)),
          message)
    name, head = ctypes.create_string_buffer(b"apart"), ctypes.c_void_p.from_address(device.value)
    ops = (ctypes.c_void_p * entries).from_buffer_copy(ctypes.string_at(head.value,
                                                                        entries * ctypes.sizeof(ctypes.c_void_p)))
    ops[0], head.value = ctypes.addressof(name), ctypes.addressof(ops)
    _kept.append((name, ops))
    return varve.Memory(device.value, "apart")


def open_memory(name):
    return {"host": lambda: varve.host_memory(limit=LIMIT), "apart": _apart, "cuda": varve.cuda_memory}[name]()


# ---- arrays ----

def geometry_of(array, whole=None):
    """Where the elements of a view are in `whole`; of none of them anywhere."""
    begin = array if whole is None or array.size == 0 else whole
    geometry = Geometry(ndim=array.ndim)
    geometry.offset = (array.__array_interface__["data"][0] - begin.__array_interface__["data"][0]) // array.itemsize
    for axis in range(array.ndim):
        geometry.shape[axis], geometry.strides[axis] = array.shape[axis], array.strides[axis] // array.itemsize
    return geometry


def wrapped(array, dtype):
    """The elements of a contiguous array, which must stay, as a storage of that type: any type of that size."""
    foreign = Foreign(data=array.__array_interface__["data"][0], bytes=array.nbytes)
    code = ctypes.c_int()
    library().varve_dtype_find(dtype.encode(), ctypes.byref(code))
    return _make("varve_storage_wrap", ctypes.byref(foreign), code, ctypes.byref(geometry_of(array)), None)


def placed(array, dtype, memory):
    """A copy there. `memory` None: the C library's."""
    flat = np.ascontiguousarray(array).reshape(array.shape)  # it makes one axis of none
    with wrapped(flat, dtype) as storage:
        return storage._made("varve_storage_clone", ctypes.byref(_options(None, memory=memory)))


def view_of(storage, array, whole):
    """The part of the storage that the array is of `whole`, which the storage is a copy of."""
    return storage._view(geometry_of(array, whole))


def elements_of(storage, kind):
    """A copy of the elements, as an array of that type of NumPy's."""
    with storage.to("host") as host, host.clone() as copy:
        text = ctypes.string_at(copy.data_ptr, copy.nbytes) if copy.size else b""
        return np.frombuffer(text, kind).reshape(copy.shape).copy()
