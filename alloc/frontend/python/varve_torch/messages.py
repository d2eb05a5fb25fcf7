# SPDX-License-Identifier: Apache-2.0
"""Lines for the user of varve, on the program's stderr: rare, one line each, each once per process."""

import os
import sys

said = set()


def say(text):
    line = " ".join(str(text).split())
    if (os.getpid(), line) in said:
        return
    said.add((os.getpid(), line))
    try:
        sys.stderr.write(f"varve: {line}\n")
        sys.stderr.flush()
    except Exception:  # a program may have closed it
        pass
