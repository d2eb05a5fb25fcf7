#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill9 in the number of rounds that every test run can afford (VARVE_KILL9_ROUNDS, default 15)."""

import os
import subprocess
import sys

KILL9 = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kill9")

if __name__ == "__main__":
    sys.exit(subprocess.run([sys.executable, KILL9, "--rounds", os.environ.get("VARVE_KILL9_ROUNDS", "15")],
                            check=False).returncode)
