# SPDX-License-Identifier: Apache-2.0
"""`from numpy_here import numpy`: a program whose interpreter has no NumPy goes on in Debian's, for which
python3-numpy is installed, or ends with status 77 and a line that says so."""

import os
import sys

SYSTEM_PYTHON = "/usr/bin/python3"
try:
    import numpy
except ImportError:
    if os.path.exists(SYSTEM_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: NumPy is not installed", file=sys.stderr)
    sys.exit(77)
