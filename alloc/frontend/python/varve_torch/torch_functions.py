# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's pluggable interface has only an exception for: statistics, snapshots, history, out-of-memory
observers. torch.cuda.memory asks for all of it through functions of torch._C, which are looked up at each call, so
these are replaced, and everything in Python above them (memory_summary, _dump_snapshot, torch.accelerator)
works unchanged."""

import sys

from .messages import say
from .native_library import OomObserver
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
        self.observers = []
        self.replaced = {}
        self.callback = OomObserver(self.out_of_memory)  # must outlive every allocation

    def functions(self):
        return {
            "_cuda_memoryStats": self.memory_stats,
            "_cuda_resetAccumulatedMemoryStats": self.reset_accumulated,
            "_cuda_resetPeakMemoryStats": self.reset_peak,
            "_cuda_memorySnapshot": self.memory_snapshot,
            "_cuda_attach_out_of_memory_observer": self.attach_observer,
            "_cuda_record_memory_history": self.record_history,
            "_cuda_record_memory_history_legacy": self.record_history_legacy,
            "_cuda_isHistoryEnabled": self.is_history_enabled,
            "_cuda_getMemoryFraction": self.get_fraction,
            "_cuda_setMemoryFraction": self.set_fraction,
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

    def attach_observer(self, observer):
        if not self.observers:
            self.varve.check(self.varve.add_oom_observer(self.callback, None))
        self.observers.append(observer)

    def out_of_memory(self, _, device, requested, total, free):
        for observer in list(self.observers):
            try:
                observer(device, requested, total, free)
            except Exception as error:  # in front of the allocator's own error there is no way for it
                say(f"an out-of-memory observer failed: {type(error).__name__}: {error}")

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

    def is_history_enabled(self):
        return bool(self.varve.history_is_on())

    def get_fraction(self, device):
        return self.varve.get_memory_fraction(device)

    def set_fraction(self, fraction, device):
        self.varve.check(self.varve.set_memory_fraction(device, fraction))

    def set_settings(self, text):
        """PyTorch looks at it first: what concerns its pinned memory is its own."""
        for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
            if name in self.replaced:
                self.replaced[name](text)
                break
        if self.varve.set_settings(text.encode()) < 0:
            say(f"the allocator settings '{text}' are not taken: "
                f"{(self.varve.message() or b'').decode(errors='replace')}")
