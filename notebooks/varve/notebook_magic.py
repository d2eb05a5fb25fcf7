# SPDX-License-Identifier: Apache-2.0
"""%%varve in Jupyter and IPython: runs a cell, recorded, and shows the report of what it allocated.

    %load_ext varve

    %%varve
    frame = load()
"""

from __future__ import annotations

import argparse
import html
import os
import shlex
import subprocess
import tempfile
from typing import Any

from .command import find_command
from .record_block import Recording, RecordingError, record

_HEIGHT = 720  # of the page in the notebook, pixels


class CellReport:
    """What a notebook shows: the page of `varve report --html`, or, where there is no HTML, its text."""

    def __init__(self, path: str) -> None:
        self.text = _run("report", path)
        with tempfile.TemporaryDirectory(prefix="varve-cell-") as folder:
            page = os.path.join(folder, "report.html")
            _run("report", "--html", page, path)
            with open(page, encoding="utf-8") as stream:
                self.page = stream.read()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        frame = (f'<iframe srcdoc="{html.escape(self.page)}" title="varve report" width="100%" height="{_HEIGHT}" '
                 'frameborder="0"></iframe>')
        return {"text/plain": self.text, "text/html": frame}


def _run(*words: str) -> str:
    done = subprocess.run([find_command(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", env={**os.environ, "VARVE_CONFIG": ""})
    if done.returncode != 0:
        raise RecordingError(done.stderr.strip() or f"varve {words[0]} ended with exit status {done.returncode}")
    return done.stdout


def _cell_recording(line: str, folder: str) -> Recording:
    """The words after %%varve: -o DB, and options of `varve attach`. ValueError: they can't be read."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-o", "--output")
    try:
        known, options = parser.parse_known_args(shlex.split(line))
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    return record(known.output or os.path.join(folder, "cell.db"), force=known.output is None, options=options)


def run_cell(shell: Any, line: str, cell: str) -> CellReport | None:
    """Record the cell of an InteractiveShell; None: it can't be recorded, which was said, and it did not run."""
    with tempfile.TemporaryDirectory(prefix="varve-cell-") as folder:
        try:
            recording = _cell_recording(line, folder)
            with recording:
                shell.run_cell(cell)
            return CellReport(recording.path)
        except (RecordingError, ValueError) as error:
            print(f"varve: {error}")
            return None


def load_ipython_extension(shell: Any) -> None:
    """What %load_ext varve calls."""
    def varve(line: str, cell: str) -> CellReport | None:
        """%%varve [-o DB] [options of `varve attach`]: record the cell, and show the report of what it allocated.
        With -o the database is kept."""
        return run_cell(shell, line, cell)

    shell.register_magic_function(varve, "cell", "varve")
