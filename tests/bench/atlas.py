#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gap atlas: recorded histories × policies, in a Markdown table between two marks of a file.

usage: atlas.py FILE TRACE…      VARVE names the command (default build/varve)

Every figure is one of `varve bound --json` and `varve frontier --json`; here are only the division and the layout.
"""

import json
import os
import pathlib
import subprocess
import sys

VARVE = os.environ.get("VARVE", "build/varve")
BEGIN, END = "<!-- atlas: begin, by ./dev atlas -->", "<!-- atlas: end -->"
EXPANDABLE = "expandable_segments:True"


def varve(*arguments):
    result = subprocess.run([VARVE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    answer = json.loads(result.stdout)
    return answer if isinstance(answer, list) else [answer]


def mib(size):
    return f"{-(-size // (1 << 20)):,}"


def cell(row, best):
    if "error" in row:
        return row["error"]
    mark = "" if row["monotone"] else " \\*"
    return f"{mib(row['frontier_bytes'])} {100 * (row['frontier_bytes'] / best - 1):+.1f} % {row['device_calls']:,}{mark}"


def line_of(trace):
    """Name, load, best placement, then the frontier of each policy under its name."""
    bounds = varve("bound", "--json", trace)
    best = sum(bound["placement_bytes"] for bound in bounds)
    proved = all(bound["optimal"] for bound in bounds)
    rows = varve("frontier", "--json", "--served-only", "--policies", "all", trace)
    expandable = varve("frontier", "--json", "--served-only", "--policy", "pytorch", "--conf", EXPANDABLE, trace)[0]
    cells = {"trace": pathlib.Path(trace).name.split(".")[0], "load": mib(rows[0]["load_bytes"]),
             "best placement": mib(best) + ("" if proved else " ?")}
    for row in rows:
        cells[row["policy"]] = cell(row, best)
        if row["policy"] == "pytorch":
            cells["pytorch, expandable"] = cell(expandable, best)
    return cells


def markdown(lines):
    """A column for each trace: there are fewer of them than rows, and names of policies are short."""
    for number, head in enumerate(lines[0]):
        yield f"| {head if number else ''} | " + " | ".join(line[head] for line in lines) + " |"
        if number == 0:
            yield "|---|" + "---:|" * len(lines)


def main():
    target, traces = pathlib.Path(sys.argv[1]), sys.argv[2:]
    text = target.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or not traces:
        sys.exit(__doc__)
    lines = []
    for trace in traces:
        print(pathlib.Path(trace).name, file=sys.stderr)
        lines.append(line_of(trace))
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    target.write_text(head + BEGIN + "\n" + "\n".join(markdown(lines)) + "\n" + END + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
