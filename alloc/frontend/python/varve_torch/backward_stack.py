# SPDX-License-Identifier: Apache-2.0
"""The Python line of what backward() allocates. PyTorch runs the backward pass on threads of its own that have no
Python frames but those that the pass itself calls, while the thread that called backward() waits: its frames are
published to the recorder for that time, and stand for the missing ones."""

import ctypes
import functools
import os
import threading

SKIPPED_FRAMES = 1  # the function of surround(), innermost
THREAD_CODE = threading.Thread._bootstrap.__code__  # in which threads that Python starts begin


def recorder(path=None):
    """The recorder's two functions, if it is in this process; `path`: its library, where its names are not everybody's.
    They are called with the interpreter's lock held."""
    try:
        loaded = ctypes.PyDLL(path, mode=os.RTLD_NOLOAD if path else ctypes.DEFAULT_MODE)
        publish, withdraw = loaded.varve_python_stack_publish, loaded.varve_python_stack_withdraw
    except (OSError, AttributeError):
        return None
    publish.restype, publish.argtypes = None, [ctypes.c_uint32, ctypes.c_void_p]
    withdraw.restype, withdraw.argtypes = None, []
    return publish, withdraw


def surround(torch, begin, end, replace=setattr):
    """Calls begin() and end() around each backward pass, in the thread that calls it."""
    graph = getattr(getattr(torch, "autograd", None), "graph", None)  # an import that fails comes here, too
    original = getattr(graph, "_engine_run_backward", None)
    if original is None:
        return

    @functools.wraps(original)
    def _engine_run_backward(*arguments, **options):
        begin()
        try:
            return original(*arguments, **options)
        finally:
            end()

    for module in (torch.autograd, torch.autograd.graph):
        if getattr(module, "_engine_run_backward", None) is original:
            replace(module, "_engine_run_backward", _engine_run_backward)


def start(torch, replace=setattr, path=None):
    found = recorder(path)
    if found is not None:
        publish, withdraw = found
        surround(torch, functools.partial(publish, SKIPPED_FRAMES, id(THREAD_CODE)), withdraw, replace)
