#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 7 s
# Only with an unsanitized command: libvarve.so is never built with a sanitizer
"""Storages beside NumPy in a pool of this machine's memory, as test_storage_memories.py has them in a device's."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import storage_cases  # noqa: E402
from storage_cases import Casts, CastsOfStrides, Copies, Expressions, Operations, tearDownModule  # noqa: E402,F401

if __name__ == "__main__":
    storage_cases.main("host", 500)
