#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
# Only with an unsanitized command: libvarve.so is never built with a sanitizer
"""Storages beside NumPy in memory that the processor leaves to its device, as it has to with a GPU's: index
expressions, conversions of all pairs of types, copies of all strides, operators."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import storage_cases  # noqa: E402
from storage_cases import Casts, CastsOfStrides, Copies, Expressions, Operations, tearDownModule  # noqa: E402,F401

if __name__ == "__main__":
    storage_cases.main("apart", 500)
