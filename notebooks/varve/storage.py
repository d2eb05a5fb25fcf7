# SPDX-License-Identifier: Apache-2.0
"""Storages: typed memory with a shape, counted by references. Views share the memory; so do arrays and tensors of
other libraries."""

import contextlib
import ctypes
import operator
from ctypes import byref, c_int, c_int64, c_void_p

from . import capsule, indexing
from .elements import DTYPES, ORDER, described, dtype_code
from .library import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, EXCEPTIONS, INVALID, PERMISSION, STREAM_NONE, UNSUPPORTED, \
    VERSION, Array, Device, Message, Options, Pair, Scalar, call, check, library, make
from .memory import Memory

_index_errors = {**EXCEPTIONS, INVALID: IndexError}
_buffer_errors = {**EXCEPTIONS, PERMISSION: BufferError, UNSUPPORTED: BufferError, VERSION: BufferError}


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


def _options(name, alignment=0, memory=None, stream=0):
    pointer = None if memory is None or memory == "host" else memory.pointer
    return Options(pointer, alignment, stream, None if name is None else name.encode())


class Storage:
    """A reference to a storage of the library, given back by close(), at the end of a `with` block or when the object
    goes. Made by empty(), zeros(), full(), from_numpy() and from_dlpack()."""

    def __init__(self, pointer):
        """Takes over the reference behind the address."""
        self._pointer = pointer

    # ---- life ----

    # a name of the module may have gone when an object of an ending interpreter goes
    def close(self, _library=library):
        """Give the reference back. What was made of the storage, views and arrays of NumPy among it,
        keeps the memory."""
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

    def _made(self, function, *arguments, errors=EXCEPTIONS):
        """The storage that a function of the library makes of this one."""
        return _make(function, self._handle, *arguments, errors=errors)

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
    def memory(self):
        """The pool that its memory is of; None: the C library's, or a foreign one."""
        return Memory.at(library().varve_storage_memory(self._handle))

    @property
    def is_addressable(self):
        """May the processor look at the elements? Not in a device's own memory."""
        return library().varve_memory_is_addressable(library().varve_storage_memory(self._handle))

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
        call("varve_storage_check", self._handle)

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
        """As in NumPy: a view of integers, slices, None and Ellipsis; with arrays of integers or masks a storage of its
        own. Arrays are those of NumPy, or storages."""
        return self._made("varve_storage_index", *indexing.entries(key), errors=_index_errors)

    def __setitem__(self, key, value):
        """Elements of another storage, an array, or one value, broadcast."""
        indices, count = indexing.entries(key)
        message = Message()
        if isinstance(value, Storage):
            error = library().varve_storage_index_set(self._handle, indices, count, value._handle, byref(message))
        elif getattr(value, "shape", ()) != ():
            with from_numpy(value) as wrapped:
                error = library().varve_storage_index_set(self._handle, indices, count, wrapped._handle, byref(message))
        else:
            error = library().varve_storage_index_fill(self._handle, indices, count, _scalar(value), byref(message))
        is_of_value = b"value array" in message.text  # the rest of what can't be is about indices
        check(error, message, EXCEPTIONS if is_of_value else _index_errors)

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

    def copy_(self, source, *, stream=None):
        """Elements of a storage or an array, converted and broadcast; returns self. On a stream of the device (its
        handle; 0: the default one) the work may go on behind the call, and both storages must stay until it is done."""
        if not isinstance(source, Storage):
            if stream is not None:
                raise ValueError("nobody knows how long an array stays: make a storage of it before a stream copies it")
            with from_numpy(source) as wrapped:
                return self.copy_(wrapped)
        if stream is None:
            call("varve_storage_copy", self._handle, source._handle)
        else:
            call("varve_storage_copy_on", self._handle, source._handle, stream)
        return self

    def fill_(self, value, *, stream=None):
        """As copy_()."""
        if stream is None:
            call("varve_storage_fill", self._handle, _scalar(value))
        else:
            call("varve_storage_fill_on", self._handle, _scalar(value), stream)
        return self

    def clone(self):
        """A contiguous copy."""
        return self._made("varve_storage_clone", None)

    def to(self, *targets):
        """In that memory (a Memory, or "host": the C library's), of that type, or both: the same storage once more if
        it is so already, else a copy."""
        memory, dtype = library().varve_storage_memory(self._handle), self.dtype
        for target in targets:
            if isinstance(target, Memory):
                memory = target.pointer
            elif isinstance(target, str) and target == "host":
                memory = library().varve_memory_host()
            else:
                dtype = target
        return self._made("varve_storage_to", memory, dtype_code(dtype))

    def resize_(self, *shape):
        """BufferError: somebody has a view of it."""
        call("varve_storage_resize", self._handle, *_sizes(_shape_of(shape)))
        return self

    def tolist(self):
        """Nested lists of numbers, or a number."""
        kind = self.dtype if DTYPES[self.dtype][2] else "f64"
        with self.to("host", kind) as same, same.clone() as copy:
            flat = list((DTYPES[kind][2] * copy.size).from_address(copy.data_ptr)) if copy.size else []
            return _nested(flat, copy.shape)

    def item(self):
        if self.size != 1:
            raise ValueError(f"a storage of {self.size} elements is no number")
        with self.reshape(()) as one:
            return one.tolist()

    # ---- other libraries ----

    def numpy(self):
        """An array of NumPy in the same memory, which it keeps alive; of what is in a device's own memory a copy
        in the host's."""
        import numpy
        if self.is_addressable:
            return numpy.asarray(_ArrayInterface(self))
        with self.to("host") as copy:
            return numpy.asarray(_ArrayInterface(copy))

    def __array__(self, dtype=None, copy=None):
        if copy is False and not self.is_addressable:
            raise ValueError("elements in a device's own memory take a copy")
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"elements of {self.dtype} as {dtype} take a copy")
            return array.astype(dtype)
        return array.copy() if copy and self.is_addressable else array

    def __dlpack_device__(self):
        device = Device()
        call("varve_storage_dlpack_device", self._handle, byref(device), exceptions=_buffer_errors)
        return device.type, device.id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule with the elements, as the array API standard (2023.12) says."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"a storage on DLPack's device {self.__dlpack_device__()}, not {tuple(dl_device)}")
        is_versioned = max_version is not None and max_version[0] >= 1
        function = "varve_storage_to_dlpack" if is_versioned else "varve_storage_to_dlpack_unversioned"
        tensor = make(function, self._handle, STREAM_NONE if stream is None else operator.index(stream), bool(copy),
                      exceptions=_buffer_errors)
        return capsule.make(tensor, is_versioned)


class _ArrayInterface:
    """What an array of NumPy holds on to: a view of its own, so that the memory stays when the storage is closed."""

    def __init__(self, storage):
        kind = DTYPES[storage.dtype][1]
        if kind is None:
            raise TypeError(f"NumPy has no {storage.dtype}; to(\"f32\") makes a copy that it can read")
        self.view = view = storage._view(storage._geometry())
        self.__array_interface__ = {
            "version": 3,
            "shape": view.shape,
            "typestr": ("|" if kind[1:] == "1" else ORDER) + kind,
            "data": (view.data_ptr or id(self), view.read_only),  # NumPy wants an address, also of no elements
            "strides": tuple(stride * view.itemsize for stride in view.strides),
        }


# ---- lists ----

def _nested(flat, shape):
    if not shape:
        return flat[0]
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[index * step:(index + 1) * step], shape[1:]) for index in range(shape[0])]


# ---- making storages ----

def _make(function, *arguments, errors=EXCEPTIONS):
    return Storage(make(function, *arguments, exceptions=errors))


def empty(shape, dtype="f32", *, name=None, alignment=0, memory=None, stream=0):
    """A storage whose elements are undefined. `alignment`: of the first element, in bytes; 0: the library's choice.
    `memory`: a pool; None: the C library's. `stream`: whose block it is in a pool."""
    return _make("varve_storage_empty", byref(_options(name, alignment, memory, stream)), dtype_code(dtype),
                 *_sizes(_tuple(shape)))


def full(shape, value, dtype="f32", *, name=None, alignment=0, memory=None, stream=0):
    return _make("varve_storage_full", byref(_options(name, alignment, memory, stream)), dtype_code(dtype),
                 *_sizes(_tuple(shape)), _scalar(value))


def zeros(shape, dtype="f32", *, name=None, alignment=0, memory=None, stream=0):
    return full(shape, 0, dtype, name=name, alignment=alignment, memory=memory, stream=stream)


def _tuple(shape):
    return (shape,) if hasattr(shape, "__index__") else tuple(shape)


def from_numpy(array, *, copy=False, name=None, memory=None):
    """A storage in the array's memory, which stays as long as the storage or a view of it does; a copy in a pool's
    `memory`, if one is given. Of whatever has an __array_interface__. TypeError: its type; ValueError: strides that are
    no multiples of an element's size."""
    foreign, geometry, dtype = described(array)
    foreign.release, foreign.context = ctypes.cast(library().varve_python_release, c_void_p), id(array)
    _increment(array)
    try:
        storage = _make("varve_storage_wrap", byref(foreign), dtype, byref(geometry),
                        None if name is None else name.encode())
    except BaseException:
        _decrement(array)
        raise
    if not copy and memory is None:
        return storage
    with storage:
        return storage._made("varve_storage_clone", byref(_options(name, memory=memory)))


_increment = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_decrement = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


@contextlib.contextmanager
def _current_device(ordinal):
    """Makes a CUDA device's primary context the thread's, for a while: PyTorch gives out no tensor of another device
    than the thread's. Where the driver does not do it, the source says so itself."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield
        return
    device, context = ctypes.c_int(), c_void_p()
    is_pushed = driver.cuDeviceGet(byref(device), int(ordinal)) == 0 and \
        driver.cuDevicePrimaryCtxRetain(byref(context), device) == 0
    is_pushed = is_pushed and driver.cuCtxPushCurrent_v2(context) == 0
    try:
        yield
    finally:
        if is_pushed:
            driver.cuCtxPopCurrent_v2(byref(c_void_p()))
        if context.value is not None:
            driver.cuDevicePrimaryCtxRelease_v2(device)


def from_dlpack(source, *, memory=None, stream=None, copy=None, name=None):
    """A storage in the memory of a tensor or array of another library (or of a capsule, which is consumed). `memory`:
    the Memory of the CUDA device whose tensors may come; `stream`: on which the storage will be used there.
    BufferError, or what the source raises, if it can't be shared."""
    memory = memory.pointer if isinstance(memory, Memory) else memory
    if capsule.is_capsule(source):
        got = source
    else:
        device = source.__dlpack_device__()
        if device[0] not in (CPU, CUDA_HOST, CUDA_MANAGED) and not (device[0] == CUDA and memory is not None):
            raise BufferError(f"elements on DLPack's device ({int(device[0])}, {device[1]}), of which there is no "
                              "memory here")
        given = {} if stream is None else {"stream": stream}
        with _current_device(device[1]) if device[0] == CUDA else contextlib.nullcontext():
            try:
                got = source.__dlpack__(max_version=(1, 1), **given)
            except TypeError:  # it is older than these arguments
                got = source.__dlpack__(**given)
    pointer, is_versioned = capsule.consume(got)
    function = "varve_storage_from_dlpack" if is_versioned else "varve_storage_from_dlpack_unversioned"
    storage = _make(function, pointer, memory, None if name is None else name.encode(), errors=_buffer_errors)
    if not copy:
        return storage
    with storage:
        return storage.clone()


def live():
    """Storages of the process that somebody refers to, views among them."""
    return library().varve_storage_live()


def copy_batch(pairs, *, streams=4):
    """Copies of (target, source) storages that do not wait for each other; all are done when it returns."""
    pairs = list(pairs)
    listed = (Pair * max(1, len(pairs)))(*((target._handle, source._handle) for target, source in pairs))
    call("varve_storage_copy_batch", listed, len(pairs), streams)
