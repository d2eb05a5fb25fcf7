# SPDX-License-Identifier: Apache-2.0
"""CUPTI has one subscriber. If varve's recorder is it (varve record --cupti) and the program starts PyTorch's profiler
on CUDA, the program comes first: varve unsubscribes before the profiler subscribes. With VARVE_CUPTI_PROFILER=keep
varve stays; then PyTorch's profiler fails to subscribe, and says so itself."""

import ctypes
import os

from .messages import say

NAME = "libvarve-cupti.so"


def recorder():
    """varve's CUPTI recorder, if it is in this process: the driver loads it at its start."""
    path = os.environ.get("CUDA_INJECTION64_PATH", "")
    if os.path.basename(path) != NAME:
        return None
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def unsubscribe():
    library = recorder()
    release = getattr(library, "varve_cupti_release", None) if library is not None else None
    if release is None:
        return
    if os.environ.get("VARVE_CUPTI_PROFILER") == "keep":
        say("the program starts PyTorch's profiler, and VARVE_CUPTI_PROFILER=keep: varve keeps CUPTI")
        return
    release.restype, release.argtypes = ctypes.c_int, []
    result = release()
    if result < 0:
        say(f"the program starts PyTorch's profiler, but CUPTI can't be given up to it (error {result})")
    elif result == 0:
        say("the program starts PyTorch's profiler: varve's CUPTI recorder has given up CUPTI to it"
            " (VARVE_CUPTI_PROFILER=keep: not)")


def wants_cuda(profile):
    activities = getattr(profile, "kineto_activities", None)
    return activities is None or any(str(activity).endswith("CUDA") for activity in activities)


def start(torch):
    if os.path.basename(os.environ.get("CUDA_INJECTION64_PATH", "")) != NAME:
        return
    profile = torch.autograd.profiler.profile
    original = profile._prepare_trace

    def _prepare_trace(self, *arguments, **options):
        try:
            if wants_cuda(self):
                unsubscribe()
        except Exception as error:
            say(f"profiler: {type(error).__name__}: {error}")
        return original(self, *arguments, **options)

    profile._prepare_trace = _prepare_trace
