#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gap atlas: recorded histories × policies, as a Markdown page.

usage: atlas.py FILE TRACE…      VARVE names the command (default build/varve)

Every figure is one of `varve bound --json` and `varve frontier --json`; here are only the division and the layout.
"""

import json
import os
import pathlib
import subprocess
import sys

VARVE = os.environ.get("VARVE", "build/varve")
EXPANDABLE = "expandable_segments:True"

HEAD = """# How far from the best

Made by `./dev atlas`; not to be edited. `varve frontier` looks for the smallest limit of reserved memory under which a
history runs, by replays; `varve bound` for the best placement of the same blocks when all of it is known before. What
lies between is lost to not knowing the future.

- Settings are those of the recording, but in the row `pytorch, expandable`. Requests that failed in the recording are
  left out. Load: the most bytes requested and live at a time.
- `?`: not proved to be the best, and found in limited time. `*`: a larger capacity fails again (`varve frontier` says
  which).
- The placement keeps a block until other streams are done with it; with little memory an allocator waits for them
  instead, so it can do with less. So it may where memory need not be contiguous: `cuda-async` is a model of the
  driver's pool, `none` a cudaMalloc for each request.
- `plan` goes by a placement of the recorded iteration, or, where nothing repeats, of the whole history, which no
  program knows beforehand: then it is the best placement over again.

What each policy does is in `man varve` under POLICIES.
"""


def varve(*arguments):
    result = subprocess.run([VARVE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    answer = json.loads(result.stdout)
    return answer if isinstance(answer, list) else [answer]


def mib(size):
    return f"{-(-size // (1 << 20)):,}"


def history_of(trace):
    """What one history needs, and {policy: its row of the frontier}."""
    bounds = varve("bound", "--json", trace)
    rows = {}
    for row in varve("frontier", "--json", "--served-only", "--policies", "all", trace):
        rows[row["policy"]] = row
        if row["policy"] == "pytorch":
            rows["pytorch, expandable"] = varve("frontier", "--json", "--served-only", "--policy", "pytorch",
                                                "--conf", EXPANDABLE, trace)[0]
    return {"name": pathlib.Path(trace).name.split(".")[0], "load": rows["pytorch"]["load_bytes"],
            "best": sum(bound["placement_bytes"] for bound in bounds),
            "mark": "" if all(bound["optimal"] for bound in bounds) else " ?", "rows": rows}


def over_best(history, row):
    return f"{100 * (row['frontier_bytes'] / history['best'] - 1):+.1f}"


def frontier(_, row):
    return mib(row["frontier_bytes"]) + ("" if row["monotone"] else " \\*")


def device_calls(_, row):
    return f"{row['device_calls']:,}"


TABLES = (("Above the best placement, in %", over_best), ("The smallest memory that serves all, in MiB", frontier),
          ("Calls of the device with it", device_calls))


def table(title, cell, histories):
    """A row for each policy, a column for each history, by its number."""
    yield f"\n## {title}\n"
    yield "| | " + " | ".join(str(number) for number in range(1, len(histories) + 1)) + " |"
    yield "|---|" + "---:|" * len(histories)
    for policy in histories[0]["rows"]:
        cells = (history["rows"][policy] for history in histories)
        yield f"| {policy} | " + " | ".join(row["error"] if "error" in row else cell(history, row)
                                            for history, row in zip(histories, cells)) + " |"


def page(histories):
    yield HEAD
    yield "| | history | load, MiB | best placement, MiB |\n|---:|---|---:|---:|"
    for number, history in enumerate(histories, 1):
        yield f"| {number} | {history['name']} | {mib(history['load'])} | {mib(history['best'])}{history['mark']} |"
    for title, cell in TABLES:
        yield from table(title, cell, histories)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    histories = []
    for trace in sys.argv[2:]:
        print(pathlib.Path(trace).name, file=sys.stderr)
        histories.append(history_of(trace))
    pathlib.Path(sys.argv[1]).write_text("\n".join(page(histories)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
