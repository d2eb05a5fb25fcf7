#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Storages in the GPU's memory beside NumPy: 20,000 index expressions to get and 20,000 to set, conversions of all
pairs of types, contiguous and strided, copies of all strides, operators; the cases are
conformance/storage_cases.py's. --expressions N: fewer, or more."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import storage_support  # noqa: E402
import storage_cases  # noqa: E402
from storage_cases import Casts, CastsOfStrides, Copies, Expressions, Operations, tearDownModule  # noqa: E402,F401

if __name__ == "__main__":
    if "--memory" not in " ".join(sys.argv):
        storage_support.skip_without_gpu()
    storage_cases.main("cuda", 20_000)
