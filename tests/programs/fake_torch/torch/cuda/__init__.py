# SPDX-License-Identifier: Apache-2.0
from .. import FAKES, _C

_initialized = "initialised" in FAKES


def is_initialized():
    return _initialized


def _lazy_init():
    global _initialized
    if not _initialized:
        _C._cuda_init()
        _initialized = True


def current_device():
    _lazy_init()
    return 0


def graph_pool_handle():
    return _C._graph_pool_handle()


class Stream:
    def __init__(self, number):
        self.cuda_stream = number


def current_stream():
    return Stream(7)


class CUDAGraph:
    its_pool, has_ended = None, False

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.its_pool = pool

    def capture_end(self):
        self.has_ended = True

    def pool(self):
        if not self.has_ended:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self.its_pool


from . import memory  # noqa: E402
from .memory import *  # noqa: E402,F401,F403
