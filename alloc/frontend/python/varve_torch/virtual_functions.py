# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's pluggable allocator answers with an exception, or not as PyTorch's own: our allocator object gets a
copy of its class's table of virtual functions in which these are libvarve-torch's (alloc/frontend/torch_methods.cc).

No layout of any version is assumed. PyTorch's library exports the functions of the pluggable class by names that hold
the types of their arguments; those that only the base class has are asked for their names, which their exceptions say.
What a version has otherwise is in versions.py, and what is not as expected stays as it is."""

import ctypes
import os
import re

from .messages import say
from .versions import LIBRARIES, VIRTUAL_FUNCTIONS, version_of

CLASS = "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
TABLE = f"_ZTVN{CLASS}E"
EXPORTED = re.compile(f"_ZNK?{CLASS}(?P<digits>[0-9]+)(?P<rest>.*)")
HEADER_WORDS = 2  # offset to top, type information: in front of the functions
DLADDR_SYMBOL = 1
WORD = ctypes.sizeof(ctypes.c_void_p)

# Between these the base class has functions that refuse.
REFUSING = ("releasePool", "recordHistory")
WITH_TEXT = ("name", "shareIpcHandle")  # return a std::string, which names do not tell: of the kind that name() has

table = None  # the object points into it for ever
is_guarding = False


class DlInfo(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


class ElfSymbol(ctypes.Structure):
    _fields_ = [("name", ctypes.c_uint32), ("info", ctypes.c_uint8), ("other", ctypes.c_uint8),
                ("section", ctypes.c_uint16), ("value", ctypes.c_uint64), ("size", ctypes.c_uint64)]


def symbol_at(address):
    """(name, size in bytes) of the exported symbol that begins there; ("", 0) if there is none."""
    info, symbol = DlInfo(), ctypes.POINTER(ElfSymbol)()
    dladdr1 = ctypes.CDLL(None).dladdr1
    dladdr1.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    found = dladdr1(address, ctypes.byref(info), ctypes.byref(symbol), DLADDR_SYMBOL)
    if not found or not symbol or info.address != address:
        return "", 0
    return info.symbol.decode(), symbol.contents.size


def method_of(symbol):
    """(name, the rest) of a symbol of the pluggable class, or None."""
    parts = EXPORTED.fullmatch(symbol)
    if not parts:
        return None
    length = int(parts["digits"])
    return parts["rest"][:length], parts["rest"][length:]


class VirtualFunctions:
    """A copy of the pluggable class's table. `names` has what is known of each place: (name, end of the exported
    name or None)."""

    def __init__(self, first, words, library):
        self.words = (ctypes.c_void_p * words).from_buffer_copy(
            (ctypes.c_void_p * words).from_address(first - HEADER_WORDS * WORD))
        self.names = [None] * words
        for index in range(HEADER_WORDS, words):
            self.names[index] = method_of(symbol_at(self.words[index])[0])
        begin, end = (self.index_of(name) for name in REFUSING)
        for index in range(begin + 1, end) if begin and end else ():
            if self.names[index] is None and not symbol_at(self.words[index])[0]:
                name = library.refusal_of(self.words[index], first)
                self.names[index] = (name, None) if name else None

    def index_of(self, name, end=...):
        """The one place of that name, with that end if it is given; None if there is none, or several."""
        found = [index for index, known in enumerate(self.names)
                 if known is not None and known[0] == name and end in (..., known[1])]
        return found[0] if len(found) == 1 else None

    def replace(self, version, library):
        """Returns the names that stay as they are, though the version should have them, or refuses them."""
        missing = set()
        has_new_text = self.index_of("name", "B5cxx11Ev") is not None
        refused = {known[0] for known in self.names if known is not None and known[1] is None}
        for name, end, function, since, until in VIRTUAL_FUNCTIONS:
            if not since <= version < until:
                continue
            index, ours = self.index_of(name, end), library.address(function)
            if index is None or ours is None or (name in WITH_TEXT and not has_new_text):
                missing.add(name)
            else:
                self.words[index] = ours
                if end is None:
                    refused.discard(name)
        return missing | refused


def table_of(pointer):
    """(address of the first function, words of the table) of the object that `pointer` points to."""
    if pointer is None or not pointer.value:
        raise ValueError("libc10_cuda.so lacks a symbol")
    for library in LIBRARIES:
        try:
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            start = ctypes.addressof(ctypes.c_char.in_dll(loaded, TABLE))
        except (OSError, ValueError):
            continue
        first, words = start + HEADER_WORDS * WORD, symbol_at(start)[1] // WORD
        if words > HEADER_WORDS and ctypes.c_void_p.from_address(pointer.value).value == first:
            return first, words
    raise ValueError("the allocator object is none of PyTorch's pluggable class")


def replace(torch, pointer, library):
    """`pointer` holds the address of our allocator's object. Says what is missing, and returns it."""
    global table
    version = version_of(torch)
    try:
        first, words = table_of(pointer)
        functions = VirtualFunctions(first, words, library)
        missing = functions.replace(version, library)
    except ValueError as error:
        missing = {name for name, _, _, since, until in VIRTUAL_FUNCTIONS if since <= version < until}
        say(f"PyTorch {torch.__version__}: only the plain allocator: {error}")
    else:
        table = functions.words
        ctypes.c_void_p.from_address(pointer.value).value = ctypes.addressof(table) + HEADER_WORDS * WORD
        if missing:
            say(f"PyTorch {torch.__version__} is not as varve knows it, and refuses under --torch: "
                + ", ".join(sorted(missing)))
    return missing


def guard_benchmark(torch):
    """Without cacheInfo torch.backends.cudnn.benchmark = True ends in an exception at the first convolution: keep it
    off."""
    global is_guarding
    original = torch._C._set_cudnn_benchmark
    is_guarding = True

    def set_benchmark(value):
        if value and is_guarding:
            say("torch.backends.cudnn.benchmark stays off: PyTorch refuses it with an allocator that is not its own")
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
