# SPDX-License-Identifier: Apache-2.0
"""Index plans of libvarve.so by ctypes, for arrays of NumPy: what the test and the benchmark of them share."""

import ctypes

from elements_library import Array, DTYPES as TYPES, Geometry, Message, Scalar  # noqa: F401
from elements_library import library as shared_library, np

NONE = -2**63
BYTES = (8, 4, 2, 2, 8, 4, 2, 1, 1, 1)
NUMPY = (np.float64, np.float32, np.float16, None, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_)
INTEGER, SLICE, NEW_AXIS, ELLIPSIS, ARRAY, MASK = range(6)
VIEW, GATHER, SCATTER, COPY, FILL = range(5)
NONE_KEPT, OFFSETS_32, OFFSETS_64, BITS_KEPT = range(4)


class Index(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("start", ctypes.c_int64), ("stop", ctypes.c_int64), ("step", ctypes.c_int64),
                ("array", Array)]


class Plan(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("dtype", ctypes.c_int), ("source", Geometry), ("result", Geometry),
                ("offset_bytes", ctypes.c_int64), ("element_count", ctypes.c_int64),
                ("needs_mask_compaction", ctypes.c_bool), ("index_storage", ctypes.c_int),
                ("index_bytes", ctypes.c_int64),
                ("temporary_bytes", ctypes.c_int64), ("read_bytes", ctypes.c_int64), ("written_bytes", ctypes.c_int64)]


def load():
    library = ctypes.CDLL(shared_library._name)  # with argument types of its own
    array, plan, message = ctypes.POINTER(Array), ctypes.POINTER(Plan), ctypes.POINTER(Message)
    indices = [ctypes.POINTER(Index), ctypes.c_uint]
    library.varve_index_plan_get.argtypes = [array] + indices + [ctypes.POINTER(plan), message]
    library.varve_index_plan_set.argtypes = [array] + indices + [array, ctypes.POINTER(plan), message]
    library.varve_index_plan_fill.argtypes = [array] + indices + [Scalar, ctypes.POINTER(plan), message]
    library.varve_index_plan_view.argtypes = [plan, array, array, message]
    library.varve_index_plan_run.argtypes = [plan, array, array, message]
    library.varve_index_plan_free.argtypes = [plan]
    library.varve_index_plan_free.restype = None
    return library


class PlanError(Exception):
    def __init__(self, error, text):
        super().__init__(text)
        self.error = error


# --- from NumPy to the library -------------------------------------------------------------------------------------

def describe(array, dtype, shift=0):
    """`shift` elements of the offset are taken from the address."""
    result = Array(data=array.__array_interface__["data"][0] - shift * array.itemsize, dtype=dtype)
    result.geometry.ndim, result.geometry.offset = array.ndim, shift
    for axis in range(array.ndim):
        result.geometry.shape[axis] = array.shape[axis]
        result.geometry.strides[axis] = array.strides[axis] // array.itemsize
    return result


def to_indices(entries):
    """The library's form; `entries` keep the arrays alive."""
    indices = (Index * max(len(entries), 1))()
    for index, entry in zip(indices, entries):
        if entry is None:
            index.kind = NEW_AXIS
        elif entry is Ellipsis:
            index.kind = ELLIPSIS
        elif isinstance(entry, slice):
            index.kind = SLICE
            index.start, index.stop, index.step = (NONE if bound is None else bound
                                                   for bound in (entry.start, entry.stop, entry.step))
        elif isinstance(entry, np.ndarray):
            index.kind = MASK if entry.dtype == np.bool_ else ARRAY
            index.array = describe(entry, NUMPY.index(entry.dtype.type))
        else:
            index.kind, index.start = INTEGER, entry
    return indices


class Library:
    def __init__(self):
        self.library = load()
        self.message = Message()

    def check(self, error):
        if error:
            raise PlanError(error, self.message.text.decode())

    def make(self, function, target, entries, *value):
        return self.make_of(function, target, to_indices(entries), len(entries), *value)

    def make_of(self, function, target, indices, count, *value):
        plan = ctypes.POINTER(Plan)()
        self.message.text = b""
        error = getattr(self.library, "varve_index_plan_" + function)(
            target, indices, count, *value, ctypes.byref(plan), self.message)
        assert bool(plan) == (error == 0)
        self.check(error)
        return plan

    def run(self, plan, target, source):
        self.check(self.library.varve_index_plan_run(plan, target, source, self.message))

    def view(self, plan, source):
        result = Array()
        self.check(self.library.varve_index_plan_view(plan, source, result, self.message))
        return result

    def free(self, plan):
        self.library.varve_index_plan_free(plan)
