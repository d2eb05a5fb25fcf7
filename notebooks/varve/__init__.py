# SPDX-License-Identifier: Apache-2.0
"""varve in Python: storages of libvarve.so, shared with other libraries without a copy. Needs the standard library only; NumPy is
used where it is asked for.

    with varve.zeros((2, 3), "f32", name="weights") as storage:
        array = storage.numpy()             # the same memory
        tensor = torch.from_dlpack(storage) # the same memory
"""

from .library import library
from .memory import Memory, cuda_memory, host_memory
from .plan import Plan
from .storage import Storage, copy_batch, empty, from_dlpack, from_numpy, full, live, zeros

__all__ = ["Memory", "Plan", "Storage", "copy_batch", "cuda_memory", "empty", "from_dlpack", "from_numpy", "full", "host_memory", "library",
           "live", "zeros"]
