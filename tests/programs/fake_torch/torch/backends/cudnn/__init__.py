# SPDX-License-Identifier: Apache-2.0
import sys
import types

from ... import _C
from .. import ContextProp


class CudnnModule(types.ModuleType):
    """PyTorch's trick: the module is an object, so that assignments to it are seen."""

    benchmark = ContextProp(_C._get_cudnn_benchmark, _C._set_cudnn_benchmark)


sys.modules[__name__] = CudnnModule(__name__)
