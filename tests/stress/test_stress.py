#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""`stress` in the number of kills that every test run can afford (VARVE_STRESS_ROUNDS, default 20), and of batches of
eight generated programs (VARVE_GENERATED, default 1); its seeds are fixed, so that consecutive runs differ in the
moments of the kills only."""

import os
import subprocess
import sys

STRESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stress")


def play(kind, amount, seed):
    return subprocess.run([sys.executable, STRESS, amount, "--seed", seed, "--only", kind], check=False).returncode


if __name__ == "__main__":
    sys.exit(play("kill", os.environ.get("VARVE_STRESS_ROUNDS", "20"), "7")
             or play("generated", os.environ.get("VARVE_GENERATED", "1"), "1"))
