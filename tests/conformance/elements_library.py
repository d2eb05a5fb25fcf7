# SPDX-License-Identifier: Apache-2.0
"""libvarve.so for tests and benchmarks of elements: NumPy arrays as struct varve_array. bf16, which NumPy lacks, lies
in arrays of uint16."""

import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from numpy_here import numpy as np  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("VARVE_BUILD_DIR") or os.path.join(ROOT, "build"))
DIMS_MAX = 16
INVALID = -1

# As VARVE_DTYPE_LIST: the code is the place in this list.
DTYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool")
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i64": np.int64, "i32": np.int32,
         "i16": np.int16, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
FLOATS = ("f64", "f32", "f16", "bf16")
NAMES = {np.dtype(kind): name for name, kind in NUMPY.items() if name != "bf16"}


class Geometry(ctypes.Structure):
    _fields_ = [("shape", ctypes.c_int64 * DIMS_MAX), ("strides", ctypes.c_int64 * DIMS_MAX),
                ("offset", ctypes.c_int64), ("ndim", ctypes.c_uint)]


class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("geometry", Geometry), ("dtype", ctypes.c_int)]


class Scalar(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("integer", ctypes.c_int64), ("real", ctypes.c_double)]


class Message(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 512)]


class Refused(Exception):
    """A function of the library returned an error."""

    def __init__(self, error, text):
        super().__init__(text)
        self.error = error


library = ctypes.CDLL(os.path.join(BUILD, "libvarve.so"))


def describe(array, dtype=None):
    """The struct varve_array of a NumPy array, which must be kept as long."""
    if any(stride % array.itemsize for stride in array.strides):
        raise ValueError("strides are no multiple of the element's size")
    result = Array(data=array.ctypes.data, dtype=DTYPES.index(dtype or NAMES[array.dtype]))
    result.geometry.ndim = array.ndim
    for axis in range(array.ndim):
        result.geometry.shape[axis] = array.shape[axis]
        result.geometry.strides[axis] = array.strides[axis] // array.itemsize
    return result


def scalar(value):
    if isinstance(value, (bool, np.bool_)):
        return Scalar(0, int(value), 0)
    if isinstance(value, (int, np.integer)):
        return Scalar(1, int(value), 0)
    return Scalar(2, 0, float(value))


def call(name, *arguments):
    """Call a function whose last argument is the message; arrays go by reference."""
    message = Message()
    passed = [ctypes.byref(argument) if isinstance(argument, Array) else argument for argument in arguments]
    error = getattr(library, name)(*passed, ctypes.byref(message))
    if error != 0:
        raise Refused(error, message.text.decode())


def copy(target, source, target_dtype=None, source_dtype=None):
    call("varve_array_copy", describe(target, target_dtype), describe(source, source_dtype))


def converted(source, target_dtype, source_dtype=None):
    """A new array, as astype gives."""
    target = np.empty(source.shape, NUMPY[target_dtype])
    copy(target, source, target_dtype, source_dtype)
    return target


# ---- exact models
# -----------------------------------------------------------------------------------------------------

# Bits of the significand, least and greatest exponent of a normal number.
FORMATS = {"f32": (24, -126, 127), "f16": (11, -14, 15), "bf16": (8, -126, 127)}


def rounded(values, dtype):
    """float64 rounded once to the numbers of a narrower type, to nearest even; still as float64. Scaling by powers of
    two is exact, so the only rounding is that of rint."""
    if dtype == "f64":
        return values
    precision, least, greatest = FORMATS[dtype]
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(values)
        unit = np.maximum(exponent - 1, least) - (precision - 1)
        result = np.ldexp(np.rint(np.ldexp(values, -unit)), unit)
        is_over = np.abs(result) >= 2.0 ** greatest * (2 - 2.0 ** -precision)
        return np.where(is_over & np.isfinite(values), np.copysign(np.inf, values),
                        np.where(np.isfinite(values), result, values))


def rounded_integer(value, dtype):
    """The same of one Python integer, as float, by integer arithmetic."""
    precision, greatest = (53, 1023) if dtype == "f64" else (FORMATS[dtype][0], FORMATS[dtype][2])
    magnitude = abs(value)
    shift = max(magnitude.bit_length() - precision, 0)
    kept, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
    half = 1 << shift >> 1
    if shift and (rest > half or (rest == half and kept & 1)):
        kept += 1
    result = kept << shift
    if result >= 2 ** (greatest + 1):
        return float("inf") * (1 if value > 0 else -1)
    return float(result) * (1 if value >= 0 else -1)


def as_f64(array, dtype):
    """Numbers of any type but i64 as float64, which is exact."""
    if dtype == "bf16":
        return (np.atleast_1d(array).astype(np.uint32) << 16).view(np.float32).astype(np.float64).reshape(array.shape)
    return array.astype(np.float64)
