# SPDX-License-Identifier: Apache-2.0
"""varve in Python: trace databases as pandas, Arrow and figures; and storages of libvarve.so, shared with other
libraries without a copy. Importing it needs the standard library only; pandas, pyarrow, plotly, DuckDB, Dask and NumPy
are imported where they are used.

    with varve.open("run.db") as trace:
        trace.callsites.nlargest(10, "peak_bytes")
        trace.plot.timeline()
    varve.dataset("runs/*.db").stragglers()

    with varve.record("block.db"):          # of this program
        work()

    with varve.zeros((2, 3), "f32", name="weights") as storage:
        array = storage.numpy()             # the same memory
        tensor = torch.from_dlpack(storage) # the same memory
"""

import importlib
from typing import TYPE_CHECKING

from .library import library
from .memory import Memory, cuda_memory, host_memory
from .plan import Plan
from .storage import Storage, copy_batch, empty, from_dlpack, from_numpy, full, live, zeros

if TYPE_CHECKING:
    from . import plot
    from .datasets import Dataset, dataset
    from .export import to_parquet
    from .phases import mark, phase
    from .reading import TraceError
    from .record_block import Recording, RecordingError, peak, record
    from .sweeps import sweep
    from .trace import Trace, open

__all__ = ["Dataset", "Memory", "Plan", "Recording", "RecordingError", "Storage", "Trace", "TraceError", "copy_batch",
           "cuda_memory", "dataset", "empty", "from_dlpack", "from_numpy", "full", "host_memory", "library", "live",
           "mark", "open", "peak", "phase", "plot", "record", "sweep", "to_parquet", "zeros"]

_MODULES = {"datasets": ("Dataset", "dataset"), "export": ("to_parquet",),
            "notebook_magic": ("load_ipython_extension",), "phases": ("mark", "phase"), "reading": ("TraceError",),
            "record_block": ("Recording", "RecordingError", "peak", "record"), "sweeps": ("sweep",),
            "trace": ("Trace", "open")}


def __getattr__(name: str) -> object:
    """What makes and reads traces, imported when it is first used."""
    if name == "plot":
        return importlib.import_module(".plot", __name__)
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'varve' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{module}", __name__), name)
