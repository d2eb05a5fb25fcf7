# SPDX-License-Identifier: Apache-2.0
"""cuDNN's benchmark mode asks the allocator in C++ for its largest free block (cacheInfo), which the pluggable
allocator answers with an exception. There is no hook for it, but it is a virtual function: our allocator object gets a
copy of its table with that one slot replaced by varve_torch_cache_info_method. The slot is found by its address, which
PyTorch's library exports by name, so no layout of any version is assumed; if anything is not as expected,
nothing is touched."""

import ctypes
import os

from .messages import say

CLASS = "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE"
METHOD = "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm"
HEADER_WORDS = 2  # offset to top, type information: in front of the functions
DLADDR_SYMBOL = 1
WORD = ctypes.sizeof(ctypes.c_void_p)

table = None  # the object points into it for ever
is_guarding = False


class DlInfo(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


class ElfSymbol(ctypes.Structure):
    _fields_ = [("name", ctypes.c_uint32), ("info", ctypes.c_uint8), ("other", ctypes.c_uint8),
                ("section", ctypes.c_uint16), ("value", ctypes.c_uint64), ("size", ctypes.c_uint64)]


def exported(library, name):
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:
        return None


def words_of_symbol(address):
    """How many words the object behind an exported symbol has, by the symbol table; 0 if unknown."""
    info, symbol = DlInfo(), ctypes.POINTER(ElfSymbol)()
    dladdr1 = ctypes.CDLL(None).dladdr1
    dladdr1.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    if not dladdr1(address, ctypes.byref(info), ctypes.byref(symbol), DLADDR_SYMBOL) or not symbol:
        return 0
    return symbol.contents.size // WORD if info.address == address else 0


def replace_slot(object_address, functions, method, replacement):
    """Point the object at `object_address` to a copy of its table of functions; why that can't be, or None."""
    global table
    words = words_of_symbol(functions)
    first = functions + HEADER_WORDS * WORD
    if not words or ctypes.c_void_p.from_address(object_address).value != first:
        return "the allocator object is none of PyTorch's pluggable class"
    copy = (ctypes.c_void_p * words).from_buffer_copy((ctypes.c_void_p * words).from_address(functions))
    slots = [index for index in range(HEADER_WORDS, words) if copy[index] == method]
    if len(slots) != 1:
        return f"cacheInfo has {len(slots)} places in the table of functions"
    copy[slots[0]] = replacement
    table = copy
    ctypes.c_void_p.from_address(object_address).value = ctypes.addressof(copy) + HEADER_WORDS * WORD
    return None


def fill(pointer, library, torch_library="libtorch_cuda.so"):
    """`pointer` holds the address of our allocator's object. Returns what is missing, or None."""
    replacement = library.address("cache_info_method")
    if pointer is None or not pointer.value or replacement is None:
        return "libc10_cuda.so or libvarve-torch.so lacks a symbol"
    try:
        loaded = ctypes.CDLL(torch_library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError as error:
        return str(error)
    functions, method = exported(loaded, CLASS), exported(loaded, METHOD)
    if functions is None or method is None:
        return "libtorch_cuda.so lacks a symbol"
    return replace_slot(pointer.value, functions, method, replacement)


def guard_benchmark(torch, missing):
    """Without the slot torch.backends.cudnn.benchmark = True ends in an exception at the first
    convolution: keep it off."""
    global is_guarding
    original = torch._C._set_cudnn_benchmark
    is_guarding = True

    def set_benchmark(value):
        if value and is_guarding:
            say("torch.backends.cudnn.benchmark stays off: PyTorch refuses it with an allocator that is not its own"
                f" ({missing})")
        original(value and not is_guarding)

    torch._C._set_cudnn_benchmark = set_benchmark
    declared = type(torch.backends.cudnn).__dict__.get("benchmark")
    if hasattr(declared, "setter"):
        declared.setter = set_benchmark
    if torch._C._get_cudnn_benchmark():
        set_benchmark(True)


def end_guard():
    """The program has another allocator now."""
    global is_guarding
    is_guarding = False
