# SPDX-License-Identifier: Apache-2.0
"""Storages: typed memory with a shape, counted by references. Views share the memory; so do arrays and tensors of other libraries."""

import ctypes
import operator
import sys
from ctypes import byref, c_int, c_int64, c_void_p

from . import capsule
from .library import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DIMS_MAX, EXCEPTIONS, INVALID, PERMISSION, SLICE_NONE, STREAM_NONE, \
    UNSUPPORTED, VERSION, Array, Device, Foreign, Geometry, Message, Options, Scalar, check, library

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
_order = "<" if sys.byteorder == "little" else ">"
_index_errors = {**EXCEPTIONS, INVALID: IndexError}
_buffer_errors = {**EXCEPTIONS, PERMISSION: BufferError, UNSUPPORTED: BufferError, VERSION: BufferError}


def dtype_name(dtype):
    """The library's name of a type: "f32", "float32", numpy.float32, numpy.dtype("float32"), torch.float32 or float."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    try:
        return _names[text.rpartition(".")[2]]
    except KeyError:
        raise TypeError(f"no type of elements: {dtype!r}; there are {', '.join(DTYPES)}") from None


def _dtype_code(dtype):
    code = c_int()
    library().varve_dtype_find(dtype_name(dtype).encode(), byref(code))
    return code


def _sizes(shape):
    shape = tuple(operator.index(size) for size in shape)
    return len(shape), (c_int64 * max(1, len(shape)))(*shape)


def _shape_of(arguments):
    """The sizes of f(2, 3), f((2, 3)) and f(6)."""
    return arguments[0] if len(arguments) == 1 and not hasattr(arguments[0], "__index__") else arguments


def _scalar(value):
    if hasattr(value, "item"):  # of NumPy
        value = value.item()
    if isinstance(value, bool):
        return Scalar(0, int(value), 0.0)
    if hasattr(value, "__index__"):
        value = operator.index(value)
        if not -2**63 <= value < 2**63:
            raise OverflowError(f"{value} does not fit into 64 bits")
        return Scalar(1, value, 0.0)
    return Scalar(2, 0, float(value))


def _options(name, alignment=0):
    return Options(None, alignment, 0, None if name is None else name.encode())


class Storage:
    """A reference to a storage of the library, given back by close(), at the end of a `with` block or when the object goes.
    Made by empty(), zeros(), full(), from_numpy() and from_dlpack()."""

    def __init__(self, pointer):
        """Takes over the reference behind the address."""
        self._pointer = pointer

    # ---- life ----

    def close(self, _library=library):  # a name of the module may have gone when an object of an ending interpreter goes
        """Give the reference back. What was made of the storage, views and arrays of NumPy among it, keeps the memory."""
        pointer = self.__dict__.pop("_pointer", None)  # one step: two threads don't both get it
        if pointer is not None:
            _library().varve_storage_release(pointer, None)

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def closed(self):
        return "_pointer" not in self.__dict__

    @property
    def _handle(self):
        try:
            return self.__dict__["_pointer"]
        except KeyError:
            raise ValueError("the storage is closed") from None

    def _made(self, function, *arguments):
        """The storage that a function of the library makes of this one."""
        return _make(function, self._handle, *arguments)

    # ---- questions ----

    def _array(self):
        array = Array()
        library().varve_storage_get_array(self._handle, byref(array))
        return array

    def _geometry(self):
        return self._array().geometry

    @property
    def shape(self):
        geometry = self._geometry()
        return tuple(geometry.shape[:geometry.ndim])

    @property
    def strides(self):
        """Of each axis, in elements."""
        geometry = self._geometry()
        return tuple(geometry.strides[:geometry.ndim])

    @property
    def ndim(self):
        return self._geometry().ndim

    @property
    def dtype(self):
        """The library's name, "f32" for example."""
        return library().varve_dtype_name(self._array().dtype).decode()

    @property
    def itemsize(self):
        return library().varve_dtype_bytes(self._array().dtype)

    @property
    def nbytes(self):
        """Bytes of its elements."""
        return library().varve_storage_bytes(self._handle)

    @property
    def size(self):
        """Elements."""
        return self.nbytes // self.itemsize

    @property
    def data_ptr(self):
        """Address of the first element; 0 if there is none."""
        return library().varve_storage_data(self._handle) or 0

    @property
    def use_count(self):
        """References to the storage: those of objects like this one, of views and of other libraries."""
        return library().varve_storage_use_count(self._handle)

    @property
    def id(self):
        """A number that no other storage of the process has."""
        return library().varve_storage_id(self._handle)

    @property
    def name(self):
        return library().varve_storage_name(self._handle).decode("utf-8", "replace")

    @name.setter
    def name(self, name):
        library().varve_storage_set_name(self._handle, name.encode())

    @property
    def is_view(self):
        return library().varve_storage_base(self._handle) is not None

    @property
    def read_only(self):
        return library().varve_storage_is_read_only(self._handle)

    @property
    def is_contiguous(self):
        return library().varve_geometry_is_contiguous(byref(self._geometry()))

    def check(self):
        """Every invariant of the storage, for tests; RuntimeError."""
        message = Message()
        check(library().varve_storage_check(self._handle, byref(message)), message)

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("len() of a storage without axes")
        return self.shape[0]

    def __repr__(self):
        if self.closed:
            return "<varve.Storage, closed>"
        return f"<varve.Storage {self.name!r} {self.dtype} {self.shape}>"

    # ---- views ----

    def _view(self, geometry):
        return self._made("varve_storage_view", byref(geometry))

    def __getitem__(self, key):
        """A view, by integers, slices, None and Ellipsis as in NumPy."""
        geometry, message, axis = self._geometry(), Message(), 0
        for item in _full_key(key, geometry.ndim):
            if item is None:
                _insert_axis(geometry, axis)
                axis += 1
            elif isinstance(item, slice):
                bounds = [SLICE_NONE if bound is None else _clamp(bound) for bound in (item.start, item.stop)]
                step = 1 if item.step is None else _clamp(item.step)
                check(library().varve_geometry_slice(byref(geometry), axis, *bounds, step, byref(message)), message)
                axis += 1
            else:
                index = operator.index(item)
                check(library().varve_geometry_select(byref(geometry), axis, _clamp(index), byref(message)), message, _index_errors)
        return self._view(geometry)

    def __setitem__(self, key, value):
        """Elements of another storage, an array, or one value, broadcast."""
        with self[key] as view:
            if isinstance(value, Storage) or getattr(value, "shape", ()) != ():
                view.copy_(value)
            else:
                view.fill_(value)

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def transpose(self, axis, other):
        return self._made("varve_storage_transpose", axis, other)

    def permute(self, *axes):
        count, axes = len(_shape_of(axes)), _shape_of(axes)
        return self._made("varve_storage_permute", (c_int * max(1, count))(*axes), count)

    @property
    def T(self):
        return self.permute(tuple(reversed(range(self.ndim))))

    def expand(self, *shape):
        return self._made("varve_storage_expand", *_sizes(_shape_of(shape)))

    def reshape(self, *shape):
        """ValueError too where strides allow no such view; clone() first then."""
        return self._made("varve_storage_reshape", *_sizes(_shape_of(shape)))

    # ---- elements ----

    def copy_(self, source):
        """Elements of a storage or an array, converted and broadcast; returns self."""
        message = Message()
        if isinstance(source, Storage):
            check(library().varve_storage_copy(self._handle, source._handle, byref(message)), message)
        else:
            with from_numpy(source) as wrapped:
                check(library().varve_storage_copy(self._handle, wrapped._handle, byref(message)), message)
        return self

    def fill_(self, value):
        message = Message()
        check(library().varve_storage_fill(self._handle, _scalar(value), byref(message)), message)
        return self

    def clone(self):
        """A contiguous copy."""
        return self._made("varve_storage_clone", None)

    def to(self, dtype):
        """The same storage once more if it is of that type, else a converted copy."""
        return self._made("varve_storage_to", library().varve_storage_memory(self._handle), _dtype_code(dtype))

    def resize_(self, *shape):
        """BufferError: somebody has a view of it."""
        message = Message()
        check(library().varve_storage_resize(self._handle, *_sizes(_shape_of(shape)), byref(message)), message)
        return self

    def tolist(self):
        """Nested lists of numbers, or a number."""
        kind = self.dtype if DTYPES[self.dtype][2] else "f64"
        host = library().varve_memory_host()
        with self._made("varve_storage_to", host, _dtype_code(kind)) as same, same.clone() as copy:
            flat = list((DTYPES[kind][2] * copy.size).from_address(copy.data_ptr)) if copy.size else []
            return _nested(flat, copy.shape)

    def item(self):
        if self.size != 1:
            raise ValueError(f"a storage of {self.size} elements is no number")
        with self.reshape(()) as one:
            return one.tolist()

    # ---- other libraries ----

    def numpy(self):
        """An array of NumPy in the same memory, which it keeps alive."""
        import numpy
        return numpy.asarray(_ArrayInterface(self))

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"elements of {self.dtype} as {dtype} take a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self):
        device, message = Device(), Message()
        check(library().varve_storage_dlpack_device(self._handle, byref(device), byref(message)), message, _buffer_errors)
        return device.type, device.id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule with the elements, as the array API standard (2023.12) says."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"a storage on DLPack's device {self.__dlpack_device__()}, not {tuple(dl_device)}")
        is_versioned = max_version is not None and max_version[0] >= 1
        function = "varve_storage_to_dlpack" if is_versioned else "varve_storage_to_dlpack_unversioned"
        tensor, message = c_void_p(), Message()
        error = getattr(library(), function)(self._handle, STREAM_NONE if stream is None else operator.index(stream), bool(copy),
                                             byref(tensor), byref(message))
        check(error, message, _buffer_errors)
        return capsule.make(tensor, is_versioned)


class _ArrayInterface:
    """What an array of NumPy holds on to: a view of its own, so that the memory stays when the storage is closed."""

    def __init__(self, storage):
        kind = DTYPES[storage.dtype][1]
        if kind is None:
            raise TypeError(f"NumPy has no {storage.dtype}; to(\"f32\") makes a copy that it can read")
        if not library().varve_memory_is_addressable(library().varve_storage_memory(storage._handle)):
            raise TypeError("the storage is in a device's own memory")
        self.view = view = storage._view(storage._geometry())
        self.__array_interface__ = {
            "version": 3,
            "shape": view.shape,
            "typestr": ("|" if kind[1:] == "1" else _order) + kind,
            "data": (view.data_ptr or id(self), view.read_only),  # NumPy wants an address, also of no elements
            "strides": tuple(stride * view.itemsize for stride in view.strides),
        }


# ---- keys of __getitem__ ----

def _full_key(key, ndim):
    """The key with its Ellipsis, or the end, spelled out."""
    key = key if isinstance(key, tuple) else (key,)
    given = sum(item is not None and item is not Ellipsis for item in key)
    if given > ndim:
        raise IndexError(f"{given} indices for {ndim} dimensions")
    at = [index for index, item in enumerate(key) if item is Ellipsis]
    if len(at) > 1:
        raise IndexError("more than one Ellipsis")
    where = at[0] if at else len(key)
    return key[:where] + (slice(None),) * (ndim - given) + key[where + 1:]


def _clamp(bound):
    """Bounds beyond 64 bits are beyond every axis."""
    return max(-2**63 + 1, min(2**63 - 1, operator.index(bound)))


def _insert_axis(geometry, axis):
    if geometry.ndim == DIMS_MAX:
        raise ValueError(f"at most {DIMS_MAX} dimensions are possible")
    for field, value in ((geometry.shape, 1), (geometry.strides, 0)):
        field[axis + 1:geometry.ndim + 1] = field[axis:geometry.ndim]
        field[axis] = value
    geometry.ndim += 1


def _nested(flat, shape):
    if not shape:
        return flat[0]
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[index * step:(index + 1) * step], shape[1:]) for index in range(shape[0])]


# ---- making storages ----

def _make(function, *arguments):
    pointer, message = c_void_p(), Message()
    check(getattr(library(), function)(*arguments, byref(pointer), byref(message)), message)
    return Storage(pointer.value)


def empty(shape, dtype="f32", *, name=None, alignment=0):
    """A storage whose elements are undefined. `alignment`: of the first element, in bytes; 0: the library's choice."""
    return _make("varve_storage_empty", byref(_options(name, alignment)), _dtype_code(dtype), *_sizes(_tuple(shape)))


def full(shape, value, dtype="f32", *, name=None, alignment=0):
    return _make("varve_storage_full", byref(_options(name, alignment)), _dtype_code(dtype), *_sizes(_tuple(shape)),
                 _scalar(value))


def zeros(shape, dtype="f32", *, name=None, alignment=0):
    return full(shape, 0, dtype, name=name, alignment=alignment)


def _tuple(shape):
    return (shape,) if hasattr(shape, "__index__") else tuple(shape)


def from_numpy(array, *, copy=False, name=None):
    """A storage in the array's memory, which stays as long as the storage or a view of it does. Of whatever has an
    __array_interface__. TypeError: its type; ValueError: strides that are no multiples of an element's size."""
    interface = getattr(array, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"{type(array).__name__} has no __array_interface__")
    kind, item = interface["typestr"][1:], int(interface["typestr"][2:])
    if kind not in _kinds or interface["typestr"][0] not in (_order, "|") or interface.get("mask") is not None:
        raise TypeError(f"no type of elements: {interface['typestr']}; there are {', '.join(DTYPES)}")
    if len(interface["shape"]) > DIMS_MAX:
        raise ValueError(f"{len(interface['shape'])} dimensions; at most {DIMS_MAX} are possible")
    foreign, geometry = _lay_out(interface, item)
    foreign.release, foreign.context = ctypes.cast(library().varve_python_release, c_void_p), id(array)
    _increment(array)
    try:
        storage = _make("varve_storage_wrap", byref(foreign), _dtype_code(_kinds[kind]), byref(geometry),
                        None if name is None else name.encode())
    except BaseException:
        _decrement(array)
        raise
    if not copy:
        return storage
    with storage:
        return storage.clone()


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
            raise ValueError(f"axis {axis} has a stride of {stride} bytes, no multiple of an element's {item}; copy the array first")
        stride = stride // item if size > 1 and has_elements else last // item
        geometry.shape[axis], geometry.strides[axis] = size, stride
        if has_elements:
            first, end = first + min(0, (size - 1) * stride), end + max(0, (size - 1) * stride)
    geometry.offset = -first
    return Foreign(data=data + first * item, bytes=(end - first) * item, is_read_only=is_read_only), geometry


_increment = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_decrement = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def from_dlpack(source, *, memory=None, stream=None, copy=None, name=None):
    """A storage in the memory of a tensor or array of another library (or of a capsule, which is consumed). `memory`: address of
    the library's `struct varve_memory` of a CUDA device whose tensors may come; `stream`: on which the storage will be used there.
    BufferError, or what the source raises, if it can't be shared."""
    if capsule.is_capsule(source):
        got = source
    else:
        device = source.__dlpack_device__()
        if device[0] not in (CPU, CUDA_HOST, CUDA_MANAGED) and not (device[0] == CUDA and memory is not None):
            raise BufferError(f"elements on DLPack's device ({int(device[0])}, {device[1]}), of which there is no memory here")
        given = {} if stream is None else {"stream": stream}
        try:
            got = source.__dlpack__(max_version=(1, 1), **given)
        except TypeError:  # it is older than these arguments
            got = source.__dlpack__(**given)
    pointer, is_versioned = capsule.consume(got)
    function = "varve_storage_from_dlpack" if is_versioned else "varve_storage_from_dlpack_unversioned"
    tensor, message = c_void_p(), Message()
    error = getattr(library(), function)(pointer, memory, None if name is None else name.encode(), byref(tensor), byref(message))
    check(error, message, _buffer_errors)
    storage = Storage(tensor.value)
    if not copy:
        return storage
    with storage:
        return storage.clone()


def live():
    """Storages of the process that somebody refers to, views among them."""
    return library().varve_storage_live()
