# SPDX-License-Identifier: Apache-2.0
from .. import FAKES

cuda = None if FAKES & {"no_cuda", "hip"} else "13.0"
hip = "6.4" if "hip" in FAKES else None
