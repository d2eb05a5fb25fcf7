# SPDX-License-Identifier: Apache-2.0
"""What virtual functions of PyTorch's allocator answer in types whose layout each version has otherwise: statistics,
snapshots, history; and what torch.accelerator asks another allocator than the one in use. torch.cuda.memory asks for
all of it through functions of torch._C, which are looked up at each call, so these are replaced, and everything in
Python above them (memory_summary, _dump_snapshot, torch.accelerator) works unchanged."""

import sys
import threading

from .messages import say
from .snapshot_tables import DEFAULT_POOL, snapshot_dictionary

HISTORY_MAX = 2**63 - 1
LEVELS = (None, "state", "all")
CONTEXTS = (None, "state", "alloc", "all")


def nested(figures):
    """{"a.b": 1} as {"a": {"b": 1}}"""
    result = {}
    for key, value in figures.items():
        *groups, last = key.split(".")
        inner = result
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return result


class TorchFunctions:
    """Replacements by name of the torch._C function; those that this PyTorch does not have are left out."""

    def __init__(self, torch, library):
        self.torch = torch
        self.varve = library
        self.replaced = {}
        self.thread = threading.local()

    def functions(self):
        return {
            "_cuda_memoryStats": self.memory_stats,
            "_cuda_memorySnapshot": self.memory_snapshot,
            "_cuda_record_memory_history": self.record_history,
            "_cuda_record_memory_history_legacy": self.record_history_legacy,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_setMemoryMetadata": self.set_metadata,
            "_cuda_getMemoryMetadata": self.get_metadata,
            "_cuda_cudaCachingAllocator_set_allocator_settings": self.set_settings,
            "_accelerator_isAllocatorInitialized": self.is_initialized,
            "_accelerator_emptyCache": self.empty_cache,
            "_accelerator_getDeviceStats": self.memory_stats,
            "_accelerator_resetAccumulatedStats": self.reset_accumulated,
            "_accelerator_resetPeakStats": self.reset_peak,
            "_accelerator_setAllocatorSettings": self.set_settings,
        }

    def install(self):
        for name, function in self.functions().items():
            if hasattr(self.torch._C, name):
                self.replaced[name] = getattr(self.torch._C, name)
                setattr(self.torch._C, name, function)

    def remove(self):
        for name, function in self.replaced.items():
            setattr(self.torch._C, name, function)
        self.replaced = {}

    def is_initialized(self):
        """torch.accelerator asks the allocator that PyTorch has registered for the device, which is never
        a plugged one."""
        return self.torch.cuda.is_initialized()

    def empty_cache(self, *_more):
        if self.is_initialized():
            self.varve.check(self.varve.empty_cache(-1, *DEFAULT_POOL))

    def memory_stats(self, device):
        return nested(self.varve.figures(device))

    def reset_accumulated(self, device):
        self.varve.check(self.varve.reset_accumulated_stats(device))

    def reset_peak(self, device):
        self.varve.check(self.varve.reset_peak_stats(device))

    def memory_snapshot(self, pool=None):
        """`pool`: None, (a, b) or (a, b, include_traces), as the versions of PyTorch have it."""
        pool = tuple(pool or DEFAULT_POOL)
        return snapshot_dictionary(self.varve, pool[:2], bool(pool[2]) if len(pool) > 2 else True)

    def record_history(self, enabled="all", context="all", stacks="all", max_entries=sys.maxsize, clear_history=False,
                       *_more):
        if enabled not in LEVELS or context not in CONTEXTS:
            raise RuntimeError(f"expected one of {LEVELS} and one of {CONTEXTS}, found {enabled!r} and {context!r}")
        if enabled is not None and context is not None:
            say("PyTorch's memory history under --torch has every event, but no stacks: those are in the trace")
        entries = {None: 0, "state": 1}.get(enabled, min(max(max_entries, 1), HISTORY_MAX))
        self.varve.check(self.varve.history(entries, int(bool(clear_history) or enabled is None)))

    def record_history_legacy(self, enabled, record_context=True, max_entries=1, *_more):
        self.record_history("all" if enabled else None, "alloc" if record_context else None, "python", max_entries)

    def set_fraction(self, fraction, device):
        self.varve.check(self.varve.set_memory_fraction(device, fraction))

    def set_metadata(self, text):
        self.thread.metadata = str(text)

    def get_metadata(self):
        return getattr(self.thread, "metadata", "")

    def set_settings(self, text):
        """PyTorch looks at it first: what concerns its pinned memory is its own."""
        for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
            if name in self.replaced:
                self.replaced[name](text)
                break
        if self.varve.set_settings(text.encode()) < 0:
            say(f"the allocator settings '{text}' are not taken: "
                f"{(self.varve.message() or b'').decode(errors='replace')}")
