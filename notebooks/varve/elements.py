# SPDX-License-Identifier: Apache-2.0
"""Types of elements, and arrays of others by their __array_interface__."""

import ctypes
import sys
from ctypes import byref, c_int

from .library import DIMS_MAX, Array, Foreign, Geometry, library

# name: (the name elsewhere, kind and bytes in array interfaces, the type that one element is read as)
DTYPES = {
    "f64": ("float64", "f8", ctypes.c_double),
    "f32": ("float32", "f4", ctypes.c_float),
    "f16": ("float16", "f2", None),
    "bf16": ("bfloat16", None, None),
    "i64": ("int64", "i8", ctypes.c_int64),
    "i32": ("int32", "i4", ctypes.c_int32),
    "i16": ("int16", "i2", ctypes.c_int16),
    "i8": ("int8", "i1", ctypes.c_int8),
    "u8": ("uint8", "u1", ctypes.c_uint8),
    "bool": ("bool", "b1", ctypes.c_bool),
}
_names = {alias: name for name, row in DTYPES.items() for alias in (name, row[0])}
_names.update({"bool_": "bool", "int": "i64", "float": "f64"})
_kinds = {row[1]: name for name, row in DTYPES.items() if row[1]}
ORDER = "<" if sys.byteorder == "little" else ">"


def dtype_name(dtype):
    """The library's name of a type: "f32", "float32", numpy.float32, numpy.dtype("float32"), torch.float32 or float."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__",
                                                                                        None) or str(dtype)
    try:
        return _names[text.rpartition(".")[2]]
    except KeyError:
        raise TypeError(f"no type of elements: {dtype!r}; there are {', '.join(DTYPES)}") from None


def dtype_code(dtype):
    code = c_int()
    library().varve_dtype_find(dtype_name(dtype).encode(), byref(code))
    return code


def has_interface(thing):
    return getattr(thing, "__array_interface__", None) is not None


def described(array):
    """(its memory, its geometry there, its type's code). TypeError: its type; ValueError: strides that are no multiples
    of an element's size."""
    interface = getattr(array, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"{type(array).__name__} has no __array_interface__")
    kind, item = interface["typestr"][1:], int(interface["typestr"][2:])
    if kind not in _kinds or interface["typestr"][0] not in (ORDER, "|") or interface.get("mask") is not None:
        raise TypeError(f"no type of elements: {interface['typestr']}; there are {', '.join(DTYPES)}")
    if len(interface["shape"]) > DIMS_MAX:
        raise ValueError(f"{len(interface['shape'])} dimensions; at most {DIMS_MAX} are possible")
    return (*_lay_out(interface, item), dtype_code(_kinds[kind]))


def array_of(array):
    """The library's description of it; the array must stay as long."""
    foreign, geometry, dtype = described(array)
    return Array(foreign.data, geometry, dtype)


def _lay_out(interface, item):
    """The memory that the array's elements span, and their geometry in it."""
    (data, is_read_only), shape = interface["data"], interface["shape"]
    geometry = Geometry(ndim=len(shape))
    strides, last = interface.get("strides"), item
    if strides is None:
        strides = [0] * len(shape)
        for axis in reversed(range(len(shape))):
            strides[axis], last = last, last * max(1, shape[axis])
    has_elements = all(shape)
    first, end = 0, 1 if has_elements else 0
    for axis, (size, stride) in enumerate(zip(shape, strides)):
        if stride % item != 0 and size > 1 and has_elements:
            raise ValueError(f"axis {axis} has a stride of {stride} bytes, no multiple of an element's {item}; copy "
                             "the array first")
        stride = stride // item if size > 1 and has_elements else last // item
        geometry.shape[axis], geometry.strides[axis] = size, stride
        if has_elements:
            first, end = first + min(0, (size - 1) * stride), end + max(0, (size - 1) * stride)
    geometry.offset = -first
    return Foreign(data=data + first * item, bytes=(end - first) * item, is_read_only=is_read_only), geometry
