# SPDX-License-Identifier: Apache-2.0
"""PyTorch under `varve record --torch`. Called once per process, right after the program's `import torch`; what it does
is chosen by the environment variable VARVE_TORCH:

  allocate   PyTorch allocates through libvarve-torch.so; what the pluggable interface cannot answer is replaced here
  observe    PyTorch keeps its allocator and its own history of it, which is written down at the end of the process
  profiler   only what the others do as well: CUPTI is given up when the program starts a profiler, and allocations of
             backward() get the Python line that called it

VARVE_TORCH_ON_OOM: when a request for GPU memory fails, its state is written there (on_oom.py).

The program goes on whatever happens here, at worst as if varve were not there; one line on stderr says so.
Standard library only; torch is reached through what the caller hands over, and never imported.
"""

import os

from .messages import say


def start(torch):
    mode = os.environ.get("VARVE_TORCH")
    steps = []
    if mode == "allocate":
        from . import allocate

        steps.append(allocate.start)
    elif mode == "observe":
        from . import observe

        steps.append(observe.start)
    from . import backward_stack, cupti_subscription, on_oom

    steps += [backward_stack.start, cupti_subscription.start, on_oom.start]
    for step in steps:
        try:
            step(torch)
        except Exception as error:
            say(f"{step.__module__.split('.')[-1]}: {type(error).__name__}: {error}")
