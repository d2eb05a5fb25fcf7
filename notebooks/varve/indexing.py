# SPDX-License-Identifier: Apache-2.0
"""What stands in the brackets of storage[…], as the library's indices."""

import ctypes
import operator

from .elements import array_of, dtype_code, has_interface
from .library import SLICE_NONE, Array, Index

_INTEGER, _SLICE, _NEW_AXIS, _ELLIPSIS, _ARRAY, _MASK = range(6)


def _clamp(bound):
    """Bounds beyond 64 bits are beyond every axis."""
    return max(-2**63 + 1, min(2**63 - 1, operator.index(bound)))


def _set_slice(index, item):
    index.kind, index.step = _SLICE, 1 if item.step is None else _clamp(item.step)
    if index.step == 0:
        raise ValueError("slice step cannot be zero")
    index.start, index.stop = (SLICE_NONE if bound is None else _clamp(bound) for bound in (item.start, item.stop))


def _set_truth(index, truth):
    """A mask without axes; returns what must stay."""
    byte = ctypes.c_bool(bool(truth))
    index.kind, index.array = _MASK, Array(data=ctypes.addressof(byte), dtype=dtype_code("bool"))
    return byte


def _set_array(index, array):
    interface = array.__array_interface__
    is_mask = interface["typestr"][1] == "b"
    if interface["shape"]:
        index.kind, index.array = _MASK if is_mask else _ARRAY, array_of(array)
    elif is_mask:
        return _set_truth(index, array)
    else:  # numbers of NumPy are gone when the interface is
        index.kind, index.start = _INTEGER, _clamp(array)
    return array


def _set(index, item):
    if item is None:
        index.kind = _NEW_AXIS
    elif item is Ellipsis:
        index.kind = _ELLIPSIS
    elif isinstance(item, bool):
        return _set_truth(index, item)
    elif isinstance(item, slice):
        _set_slice(index, item)
    elif has_interface(item):
        return _set_array(index, item)
    elif hasattr(item, "numpy"):
        return _set_array(index, item.numpy())
    else:
        index.kind, index.start = _INTEGER, _clamp(item)
    return None


def entries(key):
    """(the library's indices, their count). They keep alive what they refer to."""
    key = key if isinstance(key, tuple) else (key,)
    indices = (Index * max(1, len(key)))()
    indices.kept = [_set(index, item) for index, item in zip(indices, key)]
    return indices, len(key)
