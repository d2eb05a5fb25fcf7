# SPDX-License-Identifier: Apache-2.0
"""What torch.cuda.memory does with torch._C: each function is looked up when it is called."""

import ctypes
import pickle
import sys

from ... import _C

if hasattr(_C, "_cuda_CUDAAllocator"):
    class MemPool(_C._MemPool):
        def snapshot(self, include_traces=True):
            return _C._cuda_memorySnapshot((*self.id, include_traces))["segments"]


def state():
    return sys.modules[__name__.rpartition(".")[0]]


class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        self._allocator = _C._cuda_customAllocator(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value
                                                     for name in (alloc, free)))

    def allocator(self):
        return self._allocator


def change_current_allocator(allocator):
    _C._cuda_changeCurrentAllocator(allocator.allocator())


def get_allocator_backend():
    return _C._cuda_getAllocatorBackend()


def caching_allocator_alloc(size, device=None, stream=0):
    state()._lazy_init()
    return _C._cuda_cudaCachingAllocator_raw_alloc(size, stream)


def caching_allocator_delete(address):
    _C._cuda_cudaCachingAllocator_raw_delete(address)


def empty_cache():
    if state().is_initialized():
        _C._cuda_emptyCache()


def memory_stats(device=0):
    flat = {}

    def add(prefix, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    add("", _C._cuda_memoryStats(device) if state().is_initialized() else {})
    return flat


def memory_allocated(device=0):
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def reset_peak_memory_stats(device=0):
    return _C._cuda_resetPeakMemoryStats(device)


def reset_accumulated_memory_stats(device=0):
    return _C._cuda_resetAccumulatedMemoryStats(device)


def set_per_process_memory_fraction(fraction, device=0):
    state()._lazy_init()
    _C._cuda_setMemoryFraction(fraction, device)


def get_per_process_memory_fraction(device=0):
    state()._lazy_init()
    return _C._cuda_getMemoryFraction(device)


def memory_snapshot(mempool_id=None, include_traces=True):
    return _C._cuda_memorySnapshot((*(mempool_id or (0, 0)), include_traces))["segments"]


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, device=None,
                           clear_history=False, compile_context=False, global_record_annotations=False,
                           skip_actions=None):
    if isinstance(enabled, bool):
        return _C._cuda_record_memory_history_legacy(enabled, True, 1, False, False, False, False, False, [])
    return _C._cuda_record_memory_history(enabled, context, stacks, max_entries, clear_history, compile_context,
                                          global_record_annotations, skip_actions or [])


def _snapshot(device=None):
    return _C._cuda_memorySnapshot(None)


def _dump_snapshot(filename):
    with open(filename, "wb") as stream:
        pickle.dump(_snapshot(), stream)


def _set_allocator_settings(text):
    return _C._accelerator_setAllocatorSettings(text)
