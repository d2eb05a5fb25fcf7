# SPDX-License-Identifier: Apache-2.0
"""Pools of memory for storages: blocks of an allocator of the library, on this machine's memory or a GPU's."""

import ctypes
import functools
from ctypes import byref, c_void_p

from .library import AllocOptions, CudaOptions, HostOptions, Message, call, check, library, make


@functools.lru_cache(maxsize=None)
def _device(kind, index):
    """Devices stay open as long as the process: other libraries may have tensors in their memory at its very end."""
    if kind == "cuda":
        return make("varve_cuda_open", byref(CudaOptions(index, index, 0, False)))
    return make("varve_host_open", byref(HostOptions(index, 0)))


class Memory:
    """A pool, which keeps what is released in it for later storages. It is there until close(), or the end
    of the process."""

    _open: dict[object, "Memory"] = {}

    def __init__(self, device, name, *, limit=0, settings="", policy=None):
        """On a device of the library, by its address."""
        options = AllocOptions()
        library().varve_alloc_options_init(byref(options))
        options.device, options.policy = device, None if policy is None else policy.encode()
        options.memory_limit = limit
        options.recorder = ctypes.addressof(c_void_p.in_dll(library(), "varve_alloc_recorder_ring"))
        call("varve_alloc_config_parse", settings.encode(), byref(options.config))
        self.name, self._pointer, self._alloc = name, None, make("varve_alloc_open", byref(options))
        try:
            self._pointer = make("varve_memory_open", self._alloc)
        except Exception:
            library().varve_alloc_close(self._alloc)
            raise
        Memory._open[self._pointer] = self

    @classmethod
    def at(cls, pointer):
        """The open pool behind the address of the library's `struct varve_memory`, or None."""
        return cls._open.get(pointer)

    def close(self):
        """Give everything back to the device. BufferError: storages still have memory of it, and
        nothing has changed."""
        if self._pointer is None:
            return
        call("varve_memory_close", self._pointer)
        del Memory._open[self._pointer]
        self._pointer = None
        library().varve_alloc_close(self._alloc)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    @property
    def pointer(self):
        """Address of the library's `struct varve_memory`."""
        if self._pointer is None:
            raise ValueError("the memory is closed")
        return self._pointer

    def _get_alloc(self):
        """ValueError if it is closed."""
        return self.pointer and self._alloc

    @property
    def allocated(self):
        """Bytes of blocks in use."""
        return library().varve_alloc_memory_allocated(self._get_alloc())

    @property
    def reserved(self):
        """Bytes obtained from the device, in use or kept."""
        return library().varve_alloc_memory_reserved(self._get_alloc())

    def empty_cache(self):
        """Give unused memory back to the device."""
        check(library().varve_alloc_empty_cache(self._get_alloc()), Message())

    def __repr__(self):
        return f"<varve.Memory {self.name}{', closed' if self._pointer is None else ''}>"


def cuda_memory(index=0, *, limit=0, settings="", policy=None):
    """A pool in the memory of CUDA's device `index`. `limit`: bytes, 0: what the device has; `settings`: as of
    PYTORCH_CUDA_ALLOC_CONF; `policy`: the allocator's, None: PyTorch's. ValueError or RuntimeError where there is
    no such device."""
    return Memory(_device("cuda", index), f"cuda:{index}", limit=limit, settings=settings, policy=policy)


def host_memory(*, limit=0, settings="", policy=None):
    """A pool in this machine's memory; `limit` 0: a quarter of it."""
    return Memory(_device("host", 0), "host:0", limit=limit, settings=settings, policy=policy)
