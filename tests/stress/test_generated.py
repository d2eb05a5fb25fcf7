#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""As many batches of eight generated programs as every test run can afford (VARVE_GENERATED, default 1), by `stress`;
the seed is fixed."""

import os
import subprocess
import sys

STRESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stress")

if __name__ == "__main__":
    sys.exit(subprocess.run([sys.executable, STRESS, os.environ.get("VARVE_GENERATED", "1"), "--seed", "1",
                             "--only", "generated"], check=False).returncode)
