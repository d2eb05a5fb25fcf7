# SPDX-License-Identifier: Apache-2.0
"""The command `varve` of a wheel: the program that lies in the package. What of it is written in Python runs by the
Python that the package was installed for."""

import os
import sys

from .library import INSTALLED


def main() -> None:
    os.environ.setdefault("VARVE_PYTHON3", sys.executable)
    os.execv(os.path.join(INSTALLED, "bin", "varve"), ["varve", *sys.argv[1:]])
