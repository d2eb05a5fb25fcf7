# SPDX-License-Identifier: Apache-2.0
"""The command `varve`: where it is, and the one of a wheel, which is the program that lies in the package. What of that
is written in Python runs by the Python that the package was installed for."""

import os
import sys

from .library import INSTALLED


def find_command() -> str:
    """VARVE, build/varve of this source tree, the wheel's, or the one in PATH."""
    built = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "build", "varve")
    own = os.path.join(INSTALLED, "bin", "varve")
    return os.environ.get("VARVE") or next((path for path in (built, own) if os.access(path, os.X_OK)), "varve")


def main() -> None:
    os.environ.setdefault("VARVE_PYTHON3", sys.executable)
    os.execv(os.path.join(INSTALLED, "bin", "varve"), ["varve", *sys.argv[1:]])
