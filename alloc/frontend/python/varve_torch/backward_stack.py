# SPDX-License-Identifier: Apache-2.0
"""The Python line of what backward() allocates. PyTorch runs the backward pass on threads of its own that have no
Python frames, while the thread that called backward() waits: its frames are published to the recorder for that time,
and stand for the missing ones."""

import ctypes
import functools

SKIPPED_FRAMES = 1  # the function below, innermost


def recorder():
    """The recorder's two functions, if it is in this process. They are called with the interpreter's lock held."""
    loaded = ctypes.PyDLL(None)
    try:
        publish, withdraw = loaded.varve_python_stack_publish, loaded.varve_python_stack_withdraw
    except AttributeError:
        return None
    publish.restype, publish.argtypes = None, [ctypes.c_uint32]
    withdraw.restype, withdraw.argtypes = None, []
    return publish, withdraw


def start(torch):
    found = recorder()
    original = getattr(torch.autograd.graph, "_engine_run_backward", None) if found else None
    if original is None:
        return
    publish, withdraw = found

    @functools.wraps(original)
    def _engine_run_backward(*arguments, **options):
        publish(SKIPPED_FRAMES)
        try:
            return original(*arguments, **options)
        finally:
            withdraw()

    for module in (torch.autograd, torch.autograd.graph):
        if getattr(module, "_engine_run_backward", None) is original:
            module._engine_run_backward = _engine_run_backward
