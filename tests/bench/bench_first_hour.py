#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/first-hour.md and their questions, answered by varve, memray and heaptrack: seconds to the
answer, commands, and where in the list that the tool shows the right answer stands.

    bench_first_hour.py [--table]

The programs are those that the page makes. Tools run in turns, three times. memray is that of VARVE_BENCH_VENV (as
bench_leaders.py has it). --table prints docs/results/first_hour.md."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_leaders import VENV
from common import ROOT, VARVE, Broken, run

ROUNDS = 3
PYTHON = os.path.join(VENV, "bin", "python")
VARVE_RECORD = [VARVE, "record", "--quiet", "--force", "-o", "run.db", "--"]
MEMRAY_RUN = [PYTHON, "-m", "memray", "run", "--quiet", "--force", "-o", "run.bin"]
HEAPTRACK = ["heaptrack", "-o", "run.heaptrack"]

# Where a line stands among those that memray's report is about, the largest first.
MEMRAY_RANK = """
import collections, sys
import memray
records = getattr(memray.FileReader("run.bin"), sys.argv[1])(merge_threads=True)
sums = collections.Counter()
for record in records:
    frame = next(iter(record.stack_trace(max_stacks=1)), ("", "", 0))
    sums[frame[1].rsplit("/", 1)[-1] + ":" + str(frame[2])] += record.size
order = [place for place, _ in sums.most_common()]
print(order.index(sys.argv[2]) + 1 if sys.argv[2] in order else 0)
"""


def rank_of(pattern, text, entries):
    """Of the entries of a text (a pattern with a group each) the first that has the answer; 0: none."""
    return next((number for number, found in enumerate(re.findall(entries, text, re.MULTILINE), 1)
                 if re.search(pattern, found)), 0)


def heaptrack_text(folder, *options):
    written = max(name for name in os.listdir(folder) if name.startswith("run.heaptrack"))
    return ["heaptrack_print", "-f", written, *options]


# Of each program: the question, the right answer, and of each tool the commands and where its answer has that.
class Service:
    question, program, python, arguments = "Which line leaks?", "service.py", True, ["3000"]
    answer = r"service\.py:7"

    @classmethod
    def varve(cls):
        return [VARVE, "leaks", "run.db"], lambda text: rank_of(cls.answer, text, r"^ +\d+\. (.*)$")

    @classmethod
    def memray(cls):
        return [PYTHON, "-m", "memray", "table", "--leaks", "--force", "-o", "run.html", "run.bin"], \
            lambda _: int(run([PYTHON, "-c", MEMRAY_RANK, "get_leaked_allocation_records", "service.py:7"]))

    @classmethod
    def heaptrack(cls):
        return ["-l", "1", "-p", "0", "-T", "0", "-a", "0"], \
            lambda text: rank_of(cls.answer, text, r"^\S+ leaked over [\s\S]*?(?=^\S+ leaked over|\Z)")


class Batch(Service):
    question, program, arguments = "Which line has most at the peak?", "batch.py", ["100000"]
    answer = r"batch\.py:8"

    @classmethod
    def varve(cls):
        return [VARVE, "report", "run.db"], lambda text: rank_of(
            cls.answer, text.split("Peak (mmap)")[1], r"^  (\S.*:\d+ .*)$")

    @classmethod
    def memray(cls):
        return [PYTHON, "-m", "memray", "flamegraph", "--force", "-o", "run.html", "run.bin"], \
            lambda _: int(run([PYTHON, "-c", MEMRAY_RANK, "get_high_watermark_allocation_records", "batch.py:8"]))

    @classmethod
    def heaptrack(cls):
        return ["-l", "0", "-p", "1", "-T", "0", "-a", "0"], \
            lambda text: rank_of(cls.answer, text, r"^\S+ peak memory consumed over [\s\S]*?(?=^\S+ peak memory|\Z)")


class Words(Service):
    question, program, python, arguments = "Which line allocates most often?", "words", False, []
    answer = r"words\.cc:19"

    @classmethod
    def varve(cls):
        return [VARVE, "report", "run.db"], lambda text: rank_of(
            cls.answer, text.split("Allocated (heap)")[1], r"^  (\S.*:\d+ .*)$")

    memray = None  # programs of Python alone

    @classmethod
    def heaptrack(cls):
        return ["-l", "0", "-p", "0", "-T", "0", "-a", "1"], \
            lambda text: rank_of(cls.answer, text, r"^\d+ calls to allocation functions [\s\S]*?(?=^\d+ calls to|\Z)")


class Training:
    """Nothing is recorded: PyTorch has written its history."""
    question, program = "Which setting serves the request?", None

    @classmethod
    def varve(cls):
        return [VARVE, "oom", "oom.pickle.xz"], lambda text: rank_of("max_split_size_mb:29", text, r"^  to set +(.*)$")

    memray = heaptrack = None


def make_programs(folder):
    with open(os.path.join(ROOT, "docs", "first-hour.md"), encoding="utf-8") as stream:
        for block in re.findall(r"^```sh\n(.*?)^```$", stream.read(), re.DOTALL | re.MULTILINE):
            subprocess.run(["bash", "-ec", block], cwd=folder, env={**os.environ, "TREE": ROOT}, check=True)


def timed(command, folder):
    begin = time.monotonic()
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Broken(f"{' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return time.monotonic() - begin, done.stdout


def ask(tool, case, folder):
    """Seconds to the answer, commands, and the answer's place."""
    command = [PYTHON, case.program, *case.arguments] if case.program and case.python else [f"./{case.program}"]
    seconds = 0
    if tool == "heaptrack":
        for name in os.listdir(folder):
            if name.startswith("run.heaptrack"):
                os.remove(os.path.join(folder, name))
    if case.program:
        begun = {"varve": [*VARVE_RECORD, *command], "memray": [*MEMRAY_RUN, *command[1:]],
                 "heaptrack": [*HEAPTRACK, *command]}[tool]
        seconds += timed(begun, folder)[0]
    answer, place = getattr(case, tool)()
    more, text = timed(heaptrack_text(folder, *answer) if tool == "heaptrack" else answer, folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        return seconds + more, 1 + bool(case.program), place(text)
    finally:
        os.chdir(before)


def measure(folder):
    here = {"varve": True, "memray": os.path.exists(PYTHON) and subprocess.run(
        [PYTHON, "-c", "import memray"], capture_output=True, check=False).returncode == 0,
        "heaptrack": bool(shutil.which("heaptrack"))}
    for tool in (tool for tool, is_here in here.items() if not is_here):
        print(json.dumps({"bench": "first hour", "skipped": f"no {tool} here"}), flush=True)
    for case in (Service, Batch, Words, Training):
        tools = [tool for tool, is_here in here.items() if is_here and getattr(case, tool) is not None]
        rounds = [{tool: ask(tool, case, folder) for tool in tools} for _ in range(ROUNDS)]
        for tool in tools:
            seconds, commands, place = zip(*(found[tool] for found in rounds))
            yield {"bench": "first hour", "metric": case.question, "tool": tool, "value": round(
                statistics.median(seconds), 2), "unit": "s", "commands": commands[0], "place": place[-1]}


def print_as_page(rows):
    print("""# The first hour, by other tools

Made by `tests/bench/bench_first_hour.py --table`: the programs of [first-hour.md](../first-hour.md), each recorded and
asked its question, median of three runs in turns. Seconds are those of all commands together, the program's own
included. Place: where the right line or setting stands in the list that the tool shows; – : it is not in it, or the
tool has no such list. memray records programs of Python; of PyTorch's history neither of the two knows.

| question | | seconds | commands | place |
|---|---|---:|---:|---:|""")
    for row in rows:
        print(f"| {row['metric']} | {row['tool']} | {row['value']:.2f} | {row['commands']} | {row['place'] or '–'} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="varve-bench-")
    try:
        make_programs(folder)
        rows = [row for row in measure(folder) if chosen.table or print(json.dumps(row), flush=True) is None]
        if chosen.table:
            print_as_page(rows)
    except Broken as error:
        print(f"bench_first_hour: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
