#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
"""`stress` in the number of kills that every test run can afford (VARVE_STRESS_ROUNDS, default 20); its seed is
fixed, so that consecutive runs differ in the moments of the kills only."""

import os
import subprocess
import sys

STRESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stress")

if __name__ == "__main__":
    sys.exit(subprocess.run([sys.executable, STRESS, os.environ.get("VARVE_STRESS_ROUNDS", "20"), "--seed", "7",
                             "--only", "kill"], check=False).returncode)
