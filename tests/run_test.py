#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one test and notes what it cost: processor seconds of it and of the processes that it waited for, beside those
that its head allows ("Costs: 3 s, full 40 s"). Costs decide no test: the table says which have outgrown their head.

usage: run_test.py NAME FILE COMMAND…     what ctest calls; the exit status is the test's
       run_test.py --costs [--slowest]    the table of the last run: tests above their costs, or the dearest ones"""

import os
import re
import subprocess
import sys

BUILD = os.environ.get("VARVE_BUILD_DIR", "build")
NOTES = os.path.join(BUILD, "Testing", "costs.tsv")
COSTS = re.compile(r"Costs: (\d+) s(?:, full (\d+) s)?")
SHOWN = 25


def allowed(path):
    with open(path, encoding="utf-8") as lines:
        found = COSTS.search(lines.read(4000))
    if found is None:
        return 0
    return int(found[2] or found[1]) if os.environ.get("VARVE_FULL") else int(found[1])


def run(name, path, command):
    # settings of the user's are not the test's
    child = subprocess.Popen(command, env={**os.environ, "VARVE_CONFIG": ""})
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    os.makedirs(os.path.dirname(NOTES), exist_ok=True)
    with open(NOTES, "a", encoding="utf-8") as notes:
        notes.write(f"{name}\t{seconds:.2f}\t{allowed(path)}\n")
    if child.returncode < 0:
        os.kill(os.getpid(), -child.returncode)
    return child.returncode


def table(slowest):
    rows = {}
    if os.path.exists(NOTES):
        with open(NOTES, encoding="utf-8") as notes:
            for line in notes:
                name, seconds, limit = line.rstrip("\n").split("\t")
                rows[name] = float(seconds), int(limit)
    dearest = sorted(rows.items(), key=lambda row: -row[1][0])
    above = [row for row in dearest if row[1][0] > row[1][1]]
    print(f"costs: {len(rows)} tests, {sum(seconds for seconds, _ in rows.values()):.0f} s of processors; "
          f"{len(above)} above what their heads allow")
    for name, (seconds, limit) in dearest[:SHOWN] if slowest else above:
        print(f"  {seconds:7.1f} s  of {limit:3} s  {name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--costs"]:
        table("--slowest" in sys.argv)
    else:
        sys.exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))
