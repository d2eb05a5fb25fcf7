# SPDX-License-Identifier: Apache-2.0
"""DLPack's tensors in Python's capsules. A capsule is consumed once: whoever does so renames it, and owes the deleter
from then on; the destructor of one that nobody has consumed calls the deleter. Destructors are functions of the
library, in C."""

import ctypes
import threading
from ctypes import c_char_p, c_int, c_void_p, py_object

from .library import library

NAME, NAME_USED = b"dltensor", b"used_dltensor"
VERSIONED_NAME, VERSIONED_NAME_USED = b"dltensor_versioned", b"used_dltensor_versioned"
# Capsules keep the address of their name, so it belongs to something that stays.
_names = {name: ctypes.create_string_buffer(name) for name in (NAME, NAME_USED, VERSIONED_NAME, VERSIONED_NAME_USED)}


def _function(name, result, *arguments):
    # A prototype of our own: others may have set argtypes of ctypes.pythonapi's functions.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", py_object, c_void_p, c_void_p, c_void_p)
_is_valid = _function("PyCapsule_IsValid", c_int, py_object, c_char_p)
_get_pointer = _function("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_get_name = _function("PyCapsule_GetName", c_char_p, py_object)
_set_name = _function("PyCapsule_SetName", c_int, py_object, c_void_p)
_consuming = threading.Lock()


def is_capsule(thing):
    return type(thing).__name__ == "PyCapsule"


def make(pointer, is_versioned):
    """A capsule of the tensor, whose deleter it owes."""
    name = _names[VERSIONED_NAME if is_versioned else NAME]
    destroy = ctypes.cast(library().varve_dlpack_capsule_destroy, c_void_p)
    return _new(pointer, ctypes.addressof(name), destroy)


def consume(capsule):
    """(address of the tensor, is it a versioned one?), whose deleter the caller owes. ValueError: nothing can
    be had from it."""
    if not is_capsule(capsule):
        raise TypeError(f"a capsule of DLPack is expected, not {type(capsule).__name__}")
    with _consuming:
        for is_versioned, name, used in ((True, VERSIONED_NAME, VERSIONED_NAME_USED), (False, NAME, NAME_USED)):
            if _is_valid(capsule, name):
                pointer = _get_pointer(capsule, name)
                _set_name(capsule, ctypes.addressof(_names[used]))
                return pointer, is_versioned
    name = _get_name(capsule)
    if name in (NAME_USED, VERSIONED_NAME_USED):
        raise ValueError("the capsule has been consumed already")
    raise ValueError(f"a capsule of DLPack is expected, not one named {name!r}")
