# SPDX-License-Identifier: Apache-2.0
"""Where the tests of storages on a GPU find what they share with those on the host, and whether there is a GPU."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "conformance"), os.path.join(ROOT, "tests"),
                os.path.join(ROOT, "notebooks")]
import numpy_here  # noqa: E402,F401
import varve  # noqa: E402


def skip_without_gpu():
    """Ends the program as a skipped test where varve finds no GPU; with VARVE_TESTS_STRICT=1 as a failed one."""
    try:
        varve.cuda_memory().close()
    except (RuntimeError, ValueError, MemoryError) as error:
        is_strict = os.environ.get("VARVE_TESTS_STRICT") == "1"
        print(f"{'FAILED' if is_strict else 'skipped'}: {error}", flush=True)
        sys.exit(1 if is_strict else 77)
