# SPDX-License-Identifier: Apache-2.0
"""libvarve.so by ctypes: where it is, its structures, its functions, its errors. Loaded when it is first needed."""

import ctypes
import functools
import os
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, \
    c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

INSTALLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "native")  # by a wheel: bin, lib
ABI = 0  # of the libraries
DIMS_MAX = 16
STREAM_NONE = -2**63
SLICE_NONE = -2**63
READ_ONLY, IS_COPIED = 1, 2  # flags of DLPack
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # devices of DLPack


# ---- structures, as in the headers ----

class Message(Structure):
    _fields_ = [("text", c_char * 512)]


class Geometry(Structure):
    _fields_ = [("shape", c_int64 * DIMS_MAX), ("strides", c_int64 * DIMS_MAX), ("offset", c_int64), ("ndim", c_uint)]


class Array(Structure):
    _fields_ = [("data", c_void_p), ("geometry", Geometry), ("dtype", c_int)]


class Scalar(Structure):
    _fields_ = [("kind", c_int), ("integer", c_int64), ("real", c_double)]


class Options(Structure):
    _fields_ = [("memory", c_void_p), ("alignment", c_uint64), ("stream", c_uint64), ("name", c_char_p)]


class Index(Structure):
    _fields_ = [("kind", c_int), ("start", c_int64), ("stop", c_int64), ("step", c_int64), ("array", Array)]


class IndexPlan(Structure):
    _fields_ = [("kind", c_int), ("dtype", c_int), ("source", Geometry), ("result", Geometry),
                ("offset_bytes", c_int64),
                ("element_count", c_int64), ("needs_mask_compaction", c_bool), ("index_storage", c_int),
                ("index_bytes", c_int64),
                ("temporary_bytes", c_int64), ("read_bytes", c_int64), ("written_bytes", c_int64)]


class Pair(Structure):
    _fields_ = [("target", c_void_p), ("source", c_void_p)]


class HostOptions(Structure):
    _fields_ = [("index", c_int), ("limit_bytes", c_uint64)]


class CudaOptions(Structure):
    _fields_ = [("index", c_int), ("ordinal", c_int), ("limit_bytes", c_uint64), ("shares", c_bool)]


class AllocConfig(Structure):
    _fields_ = [("max_split_size", c_uint64), ("max_non_split_rounding_size", c_uint64),
                ("large_segment_size", c_uint64),
                ("roundup_power2_divisions", c_uint64 * 16), ("garbage_collection_threshold", c_double),
                ("memory_fraction", c_double), ("expandable_segments", c_bool), ("release_lock_on_cudamalloc", c_bool),
                ("graph_capture_record_stream_reuse", c_bool), ("research_after_release", c_bool),
                ("text", c_char * 1024)]


class AllocOptions(Structure):
    _fields_ = [("device", c_void_p), ("policy", c_char_p), ("config", AllocConfig), ("memory_limit", c_uint64),
                ("recorder", c_void_p)]


class Foreign(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_uint64), ("release", c_void_p), ("context", c_void_p),
                ("memory", c_void_p), ("is_read_only", c_bool)]


class Device(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class DType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device", Device), ("ndim", c_int32), ("dtype", DType),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class ManagedTensor(Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class VersionedTensor(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", Tensor)]


# ---- errors ----

INVALID, NO_MEMORY, PERMISSION, VERSION, BUSY, UNSUPPORTED = -1, -2, -5, -7, -8, -10
EXCEPTIONS = {INVALID: ValueError, NO_MEMORY: MemoryError, PERMISSION: ValueError, BUSY: BufferError,
              UNSUPPORTED: ValueError}


def check(error, message, exceptions=EXCEPTIONS):
    """Raise what an error code stands for, with the library's reason; RuntimeError for those that `exceptions`
    does not name."""
    if error != 0:
        text = message.text.decode("utf-8", "replace") or library().varve_strerror(error).decode()
        raise exceptions.get(error, RuntimeError)(text)


def call(function, *arguments, exceptions=EXCEPTIONS):
    """A function of the library by its name, whose last argument is the place for a reason; raises as check() does."""
    message = Message()
    check(getattr(library(), function)(*arguments, byref(message)), message, exceptions)


def make(function, *arguments, exceptions=EXCEPTIONS):
    """The address of what such a function makes: the argument before the reason."""
    pointer = c_void_p()
    call(function, *arguments, byref(pointer), exceptions=exceptions)
    return pointer.value


# ---- functions ----

STORAGE_OUT, SHAPE, REASON = POINTER(c_void_p), POINTER(c_int64), POINTER(Message)

FUNCTIONS = {
    "varve_strerror": (c_char_p, [c_int]),
    "varve_dtype_name": (c_char_p, [c_int]),
    "varve_dtype_bytes": (c_size_t, [c_int]),
    "varve_dtype_find": (c_int, [c_char_p, POINTER(c_int)]),
    "varve_geometry_is_contiguous": (c_bool, [POINTER(Geometry)]),
    "varve_storage_empty": (c_int, [POINTER(Options), c_int, c_uint, SHAPE, STORAGE_OUT, REASON]),
    "varve_storage_full": (c_int, [POINTER(Options), c_int, c_uint, SHAPE, Scalar, STORAGE_OUT, REASON]),
    "varve_storage_wrap": (c_int, [POINTER(Foreign), c_int, POINTER(Geometry), c_char_p, STORAGE_OUT, REASON]),
    "varve_storage_retain": (c_void_p, [c_void_p]),
    "varve_storage_release": (c_int, [c_void_p, REASON]),
    "varve_storage_use_count": (c_uint32, [c_void_p]),
    "varve_storage_get_array": (None, [c_void_p, POINTER(Array)]),
    "varve_storage_data": (c_void_p, [c_void_p]),
    "varve_storage_bytes": (c_uint64, [c_void_p]),
    "varve_storage_id": (c_uint64, [c_void_p]),
    "varve_storage_memory": (c_void_p, [c_void_p]),
    "varve_storage_is_read_only": (c_bool, [c_void_p]),
    "varve_storage_base": (c_void_p, [c_void_p]),
    "varve_storage_name": (c_char_p, [c_void_p]),
    "varve_storage_set_name": (None, [c_void_p, c_char_p]),
    "varve_storage_view": (c_int, [c_void_p, POINTER(Geometry), STORAGE_OUT, REASON]),
    "varve_storage_transpose": (c_int, [c_void_p, c_int, c_int, STORAGE_OUT, REASON]),
    "varve_storage_permute": (c_int, [c_void_p, POINTER(c_int), c_uint, STORAGE_OUT, REASON]),
    "varve_storage_expand": (c_int, [c_void_p, c_uint, SHAPE, STORAGE_OUT, REASON]),
    "varve_storage_reshape": (c_int, [c_void_p, c_uint, SHAPE, STORAGE_OUT, REASON]),
    "varve_storage_copy": (c_int, [c_void_p, c_void_p, REASON]),
    "varve_storage_fill": (c_int, [c_void_p, Scalar, REASON]),
    "varve_storage_copy_on": (c_int, [c_void_p, c_void_p, c_uint64, REASON]),
    "varve_storage_fill_on": (c_int, [c_void_p, Scalar, c_uint64, REASON]),
    "varve_storage_index": (c_int, [c_void_p, POINTER(Index), c_uint, STORAGE_OUT, REASON]),
    "varve_storage_index_set": (c_int, [c_void_p, POINTER(Index), c_uint, c_void_p, REASON]),
    "varve_storage_index_fill": (c_int, [c_void_p, POINTER(Index), c_uint, Scalar, REASON]),
    "varve_index_plan_get": (c_int, [POINTER(Array), POINTER(Index), c_uint, POINTER(c_void_p), REASON]),
    "varve_index_plan_set": (c_int, [POINTER(Array), POINTER(Index), c_uint, POINTER(Array), POINTER(c_void_p),
                                     REASON]),
    "varve_index_plan_free": (None, [c_void_p]),
    "varve_storage_plan_open": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), REASON]),
    "varve_storage_plan_close": (None, [c_void_p]),
    "varve_storage_plan_run": (c_int, [c_void_p, c_void_p, c_void_p, c_uint64, REASON]),
    "varve_storage_copy_batch": (c_int, [POINTER(Pair), c_size_t, c_uint, REASON]),
    "varve_storage_clone": (c_int, [c_void_p, POINTER(Options), STORAGE_OUT, REASON]),
    "varve_storage_to": (c_int, [c_void_p, c_void_p, c_int, STORAGE_OUT, REASON]),
    "varve_storage_resize": (c_int, [c_void_p, c_uint, SHAPE, REASON]),
    "varve_storage_live": (c_uint64, []),
    "varve_storage_check": (c_int, [c_void_p, REASON]),
    "varve_memory_host": (c_void_p, []),
    "varve_memory_open": (c_int, [c_void_p, POINTER(c_void_p), REASON]),
    "varve_memory_close": (c_int, [c_void_p, REASON]),
    "varve_memory_is_addressable": (c_bool, [c_void_p]),
    "varve_host_open": (c_int, [POINTER(HostOptions), POINTER(c_void_p), REASON]),
    "varve_cuda_open": (c_int, [POINTER(CudaOptions), POINTER(c_void_p), REASON]),
    "varve_alloc_config_parse": (c_int, [c_char_p, POINTER(AllocConfig), REASON]),
    "varve_alloc_options_init": (None, [POINTER(AllocOptions)]),
    "varve_alloc_open": (c_int, [POINTER(AllocOptions), POINTER(c_void_p), REASON]),
    "varve_alloc_close": (None, [c_void_p]),
    "varve_alloc_memory_allocated": (c_int64, [c_void_p]),
    "varve_alloc_memory_reserved": (c_int64, [c_void_p]),
    "varve_alloc_empty_cache": (c_int, [c_void_p]),
    "varve_storage_dlpack_device": (c_int, [c_void_p, POINTER(Device), REASON]),
    "varve_storage_to_dlpack": (c_int, [c_void_p, c_int64, c_bool, POINTER(c_void_p), REASON]),
    "varve_storage_to_dlpack_unversioned": (c_int, [c_void_p, c_int64, c_bool, POINTER(c_void_p), REASON]),
    "varve_storage_from_dlpack": (c_int, [c_void_p, c_void_p, c_char_p, STORAGE_OUT, REASON]),
    "varve_storage_from_dlpack_unversioned": (c_int, [c_void_p, c_void_p, c_char_p, STORAGE_OUT, REASON]),
    "varve_dlpack_capsule_destroy": (None, [c_void_p]),
    "varve_python_release": (None, [c_void_p, c_void_p]),
}


def candidates(name):
    """Where a library of this name may be, the first choice first: what the environment says, the build of this source
    tree, the package as it was installed, the system."""
    if os.environ.get("VARVE_BUILD_DIR"):
        return [os.path.join(os.environ["VARVE_BUILD_DIR"], name)]
    package = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(os.path.dirname(os.path.dirname(package)), "build", name)
    mine = os.path.join(INSTALLED, "lib", name)
    return [path for path in (built, f"{mine}.{ABI}", mine) if os.path.exists(path)] + [f"{name}.{ABI}", name]


@functools.lru_cache(maxsize=None)
def library():
    """libvarve.so. OSError: it is nowhere; the message says where it was looked for."""
    tried = []
    named = os.environ.get("VARVE_LIBRARY")
    for path in [named] if named else candidates("libvarve.so"):
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        return loaded
    raise OSError("libvarve.so can't be loaded; name it in VARVE_LIBRARY, or its folder in VARVE_BUILD_DIR: "
                  + "; ".join(tried))
