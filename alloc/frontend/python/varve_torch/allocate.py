# SPDX-License-Identifier: Apache-2.0
"""VARVE_TORCH=allocate: PyTorch's CUDA memory comes from varve. The allocator is changed as soon as torch is imported,
since PyTorch takes another one only before CUDA starts. PyTorch takes no second change either, so when the program
brings an allocator of its own, the native one is put back first."""

import ctypes
import os

from . import virtual_functions
from .messages import say
from .native_library import Library
from .torch_functions import TorchFunctions

OURS, NATIVE = "varve's allocator", "PyTorch keeps its own allocator"
# what PyTorch's object takes: setter, function; without the first two groups streams or captures would go wrong
HOOKS = (
    ("set_record_stream_fn", "record_stream"),
    ("set_reset_fn", "reset"),
    ("set_begin_allocate_to_pool", "begin_allocate_to_pool"),
    ("set_end_allocate_to_pool_fn", "end_allocate_to_pool"),
    ("set_release_pool", "release_pool"),
    ("set_init_fn", "init"),
    ("set_memory_fraction_fn", "memory_fraction"),
    ("set_base_alloc_fn", "base_alloc"),
)
CURRENT_ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"  # std::atomic<CUDAAllocator *> of libc10_cuda.so


def why_not(torch):
    """The reason why this PyTorch can't be served, or None."""
    if getattr(torch.version, "hip", None):
        return "this PyTorch is built for ROCm"
    if not getattr(torch.version, "cuda", None) or not hasattr(torch._C, "_cuda_customAllocator"):
        return "this PyTorch is built without CUDA, or is older than 2.0"
    if torch.cuda.is_initialized():
        return f"CUDA is initialised already: {NATIVE}"
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        return f"the program has chosen the allocator '{backend}', which stays"
    return None


def current_allocator():
    """PyTorch's pointer to the allocator in use, as a ctypes object to be read and written; None if it is not found."""
    for name in ("libc10_cuda.so", None):
        try:
            return ctypes.c_void_p.in_dll(ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW if name else 0),
                                          CURRENT_ALLOCATOR)
        except (OSError, ValueError):
            continue
    return None


def make_allocator(torch, library):
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library.path, "varve_torch_alloc", "varve_torch_free")
    inner = allocator.allocator()
    for setter, function in HOOKS:
        address = library.address(function)
        if address is None or not hasattr(inner, setter):
            raise RuntimeError(f"PyTorch {torch.__version__} and {library.path} have no {setter} in common")
        getattr(inner, setter)(address)
    return allocator


class Takeover:
    """What was replaced, until the program wants it back. Lives as long as the process."""

    def __init__(self, torch, library):
        self.torch = torch
        self.varve = library
        self.pointer = current_allocator()
        self.native = self.pointer.value if self.pointer is not None else None
        self.allocator = make_allocator(torch, library)
        self.change = torch._C._cuda_changeCurrentAllocator
        self.functions = TorchFunctions(torch, library)

    def begin(self):
        self.torch.cuda.memory.change_current_allocator(self.allocator)
        self.functions.install()
        self.torch._C._cuda_changeCurrentAllocator = self.change_by_program
        if "cacheInfo" in virtual_functions.replace(self.torch, self.pointer, self.varve):
            virtual_functions.guard_benchmark(self.torch)

    def change_by_program(self, allocator):
        """Stands for torch._C._cuda_changeCurrentAllocator: as without varve, that is an error once
        CUDA has started."""
        if self.torch.cuda.is_initialized():
            return self.change(allocator)
        if not self.native:
            say(f"the program brings an allocator of its own, which can't take the place of {OURS}: {OURS} stays")
            return None
        self.pointer.value = self.native
        self.change(allocator)
        self.functions.remove()
        virtual_functions.end_guard()
        self.torch._C._cuda_changeCurrentAllocator = self.change
        say(f"the program brings an allocator of its own: it is used, and {OURS} is not")
        return None


takeover = None


def start(torch):
    global takeover
    reason = why_not(torch)
    if reason:
        say(f"{reason}; --torch has nothing to do")
        return
    library = Library(os.environ["VARVE_TORCH_LIBRARY"])
    library.settings()  # a configuration that varve can't read is an error here, and not in the program's first tensor
    takeover = Takeover(torch, library)
    takeover.begin()
