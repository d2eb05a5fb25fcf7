#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`generated` with as many programs as every test run can afford (VARVE_GENERATED, default 6); its seed is fixed."""

import os
import subprocess
import sys

GENERATED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "generated")

if __name__ == "__main__":
    sys.exit(subprocess.run([sys.executable, GENERATED, os.environ.get("VARVE_GENERATED", "6"), "--seed", "1"],
                            check=False).returncode)
