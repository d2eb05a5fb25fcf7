# SPDX-License-Identifier: Apache-2.0
"""`import python_packages` first in a test of the Python package: it goes on in the interpreter that VARVE_PYTHON3
names, or in that of build/venv (./dev notebooks makes it), if this one lacks packages. What is missing there too
skips the cases that need it."""

import importlib.util
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "notebooks")
BUILD = os.path.abspath(os.environ.get("VARVE_BUILD_DIR") or os.path.join(ROOT, "build"))
WANTED = ("pandas", "pyarrow", "plotly", "duckdb", "dask", "distributed")


def missing(*modules):
    return [module for module in modules if importlib.util.find_spec(module) is None]


def needs(*modules):
    """Decorates a case or a class."""
    lacking = missing(*modules)
    return unittest.skipIf(lacking, f"no Python packages {', '.join(lacking)}: ./dev notebooks installs them")


def _go_on():
    chosen = os.environ.get("VARVE_PYTHON3") or os.path.join(BUILD, "venv", "bin", "python")
    if missing(*WANTED) and os.path.exists(chosen) and not os.environ.get("VARVE_TEST_PYTHON"):
        os.environ["VARVE_TEST_PYTHON"] = chosen
        os.execv(chosen, [chosen, *sys.argv])


_go_on()
sys.path[:0] = [PACKAGE, os.path.join(ROOT, "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE] + [path for path in [os.environ.get("PYTHONPATH")] if path])
os.environ.setdefault("VARVE_BUILD_DIR", BUILD)
