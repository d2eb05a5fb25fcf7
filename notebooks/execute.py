#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executes the notebooks, two at a time, and leaves the executed copies and a page of each in build/notebooks.

usage: execute.py [NOTEBOOK…]        default: all in this folder

Ends with status 1 where a cell fails, which is printed with its traceback, or where a notebook has no output.
"""

import concurrent.futures
import os
import pathlib
import re
import sys
import time

import nbclient
import nbconvert
import nbformat

import data

HERE = pathlib.Path(__file__).resolve().parent
CELL_SECONDS = 240


def execute(path):
    """(seconds, what is wrong with it or None). Outputs up to a failed cell are written, too."""
    begin = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(path.parent)}},
                                     extra_arguments=["--log-level=ERROR"])
    problem = None
    try:
        client.execute()
    except (nbclient.exceptions.CellExecutionError, nbclient.exceptions.CellTimeoutError,
            nbclient.exceptions.DeadKernelError) as error:
        cells = [number for number, cell in enumerate(notebook.cells, 1) if cell.cell_type == "code"
                 and cell.execution_count]
        without_colours = re.sub("\x1b\\[[0-9;]*m", "", str(error))
        problem = f"cell {cells[-1] if cells else 1}: {without_colours}"
    else:
        if not any(cell.outputs for cell in notebook.cells if cell.cell_type == "code"):
            problem = "no cell has an output"
    nbformat.write(notebook, data.FOLDER / path.name)
    exporter = nbconvert.HTMLExporter(mathjax_url="", require_js_url="", jquery_url="")  # nothing from the network
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    (data.FOLDER / f"{path.stem}.html").write_text(page, encoding="utf-8")
    return time.monotonic() - begin, problem


def main():
    paths = [pathlib.Path(argument).resolve() for argument in sys.argv[1:]] or sorted(HERE.glob("*.ipynb"))
    data.FOLDER.mkdir(parents=True, exist_ok=True)
    # Figures are kept as data and drawn by the page's own script, so that pages open without a network.
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype+notebook")
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        running = {pool.submit(execute, path): path for path in paths}
        for future in concurrent.futures.as_completed(running):
            seconds, problem = future.result()
            failed += problem is not None
            print(f"{running[future].name:32} {seconds:6.1f} s  {'failed' if problem else 'ok'}", flush=True)
            if problem:
                print(problem, file=sys.stderr, flush=True)
    print(f"dev: notebooks: {len(paths) - failed} of {len(paths)} executed; pages: {data.FOLDER}/*.html")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
