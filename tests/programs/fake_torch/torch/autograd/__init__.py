# SPDX-License-Identifier: Apache-2.0
from . import graph, profiler  # noqa: F401
from .graph import _engine_run_backward


def backward(function, *arguments):
    return _engine_run_backward(function, *arguments)
