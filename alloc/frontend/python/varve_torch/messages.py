# SPDX-License-Identifier: Apache-2.0
"""Lines for the user of varve, on the program's stderr: rare, one line each, each once per process; and processes that
are varve's and not the program's."""

import os
import sys

OURS = ("LD_PRELOAD", "VARVE_", "CUDA_INJECTION64_PATH", "PYTHONPATH")  # of the environment
UNRECORDED = "VARVE_UNRECORDED"  # trace/format/session_format.h
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


def unrecorded_environment():
    """Of a program that is nobody's business: it is not recorded, and not missed in the recording."""
    return {UNRECORDED: "1", **{name: value for name, value in os.environ.items() if not name.startswith(OURS)}}
