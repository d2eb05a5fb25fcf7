# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.MemPool on varve. PyTorch's own class asks the current allocator in C++ for a pool, which the pluggable
one refuses; use_mem_pool itself needs no more than the pool's number. So another class of the same name and methods
stands in its place. A pool with an allocator of its own, whose segments the native allocator would cut, is
not to be had."""

from .messages import say


def make_class(torch, library):
    class MemPool:
        """A private pool of varve's allocator; lives as long as this object or an allocation in it."""

        def __init__(self, allocator=None, use_on_oom=False, no_split=False):
            self._device = None
            if allocator is not None:
                say("torch.cuda.MemPool with an allocator of its own needs PyTorch's native one: run without --torch")
                raise RuntimeError("torch.cuda.MemPool(allocator) is not possible under varve record --torch")
            device = torch.cuda.current_device()
            self._id = torch.cuda.graph_pool_handle()
            library.check(library.take_pool(device, *self._id))
            self._device = device
            if use_on_oom:
                library.check(library.set_use_on_oom(device, *self._id))
            if no_split:
                library.check(library.set_no_split(device, *self._id))

        def __del__(self):
            if self._device is not None:
                library.drop_pool(self._device, *self._id)
                library.empty_cache(self._device, *self._id)

        @property
        def id(self):
            return self._id

        @property
        def allocator(self):
            return None

        def use_count(self):
            return library.check(library.pool_use_count(self._device, *self._id))

        def snapshot(self, include_traces=True):
            return torch._C._cuda_memorySnapshot((*self._id, include_traces))["segments"]

    MemPool.__module__, MemPool.__qualname__ = "torch.cuda.memory", "MemPool"
    return MemPool


class MemPools:
    def __init__(self, torch, library):
        self.modules = [torch.cuda, torch.cuda.memory]
        self.replacement = make_class(torch, library)
        self.original = getattr(torch.cuda.memory, "MemPool", None)

    def install(self):
        for module in self.modules:
            if hasattr(module, "MemPool"):
                module.MemPool = self.replacement

    def remove(self):
        for module in self.modules:
            if hasattr(module, "MemPool"):
                module.MemPool = self.original
