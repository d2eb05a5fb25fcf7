# SPDX-License-Identifier: Apache-2.0
"""A torch for tests on machines without a GPU: the modules and functions that alloc/frontend/python touches, with the
names, the argument order and the rules of PyTorch 2.11's (which of them looks up what, at which moment, and what it
refuses). FAKE_TORCH is a comma list: no_cuda, hip, initialised, async, no_slot, fails (the import itself raises
once), unseen (a snapshot without its history fails)."""

import os

FAKES = set(filter(None, os.environ.get("FAKE_TORCH", "").split(",")))
__version__ = os.environ.get("FAKE_TORCH_VERSION", "2.11.0+fake")

from . import _C, version  # noqa: E402
from . import cuda  # noqa: E402
from .autograd import profiler as _profiler  # noqa: E402
from .backends import cudnn as _cudnn  # noqa: E402

if "fails" in FAKES and os.environ.pop("FAKE_TORCH_FAILS", None):
    raise ImportError("libfake.so: cannot open shared object file")
