#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Threads that allocate at the same time: what a pair of malloc and free costs each of them, by its own clock.

    bench_threads.py [--table]

Each thread takes its pairs below 15 frames: by itself, recorded without stacks and with all stacks, and where they are
installed under heaptrack and LTTng's wrapper of the C library; in turn, with 1, 2, 4, 8 and 16 threads, at most as many
as there are processors. A line is a number of threads; the last one compares the most threads with one. --table prints
a table in Markdown."""

import argparse
import glob
import json
import os
import shutil
import statistics

import common as bench
from bench_ring import start_lttng, has_wrapper

ROUNDS = bench.number("VARVE_BENCH_THREADS_ROUNDS", 3)
PAIRS = bench.number("VARVE_BENCH_THREADS_PAIRS", 100_000)
DEPTH = 15
THREADS = (1, 2, 4, 8, 16)
TARGET = 1.3

COLUMNS = (("own", "by itself"), ("none", "without stacks"), ("all", "all stacks"), ("heaptrack", "heaptrack"),
           ("lttng", "LTTng's wrapper"))


def program(threads):
    return [bench.program("heap_threads"), str(threads), str(PAIRS), str(DEPTH)]


def recorded(folder, threads, stacks):
    return bench.recorded(folder, program(threads), ("--stacks", stacks),
                          lambda figures: 2 * figures["threads"] * figures["pairs"])["cpu_ns"]


def under_heaptrack(folder, threads):
    """In raw mode: its interpreter takes minutes for what 16 threads write. Its own remarks are around the line."""
    out = bench.run(["heaptrack", "--raw", "--output", os.path.join(folder, "heaptrack"), *program(threads)])
    for name in glob.glob(os.path.join(folder, "heaptrack*")):
        os.remove(name)
    for line in out.splitlines():
        if line.startswith('{"threads"'):
            return json.loads(line)["cpu_ns"]
    raise bench.Broken(f"no figures of the program under heaptrack: {out[-500:]!r}")


def ways(folder, lttng):
    """What is measured, by the name of its column."""
    yield "own", lambda threads: bench.run_json(program(threads))["cpu_ns"]
    yield "none", lambda threads: recorded(folder, threads, "none")
    yield "all", lambda threads: recorded(folder, threads, "all")
    if shutil.which("heaptrack") is not None:
        yield "heaptrack", lambda threads: under_heaptrack(folder, threads)
    if lttng is not None:
        yield "lttng", lambda threads: lttng.wrapped(program(threads))["cpu_ns"]


def rows_of(folder, lttng):
    """For each number of threads the figures of all rounds, by column."""
    measured = dict(ways(folder, lttng))
    for threads in (number for number in THREADS if number <= len(os.sched_getaffinity(0))):
        runs = {name: [] for name in measured}
        for _ in range(ROUNDS):
            for name, once in measured.items():
                runs[name].append(once(threads))
        yield threads, {name: statistics.median(values) for name, values in runs.items()}


def print_lines(rows):
    one = most = None
    for threads, figures in rows:
        others = {f"{name}_ns": round(value, 3) for name, value in figures.items() if name != "all"}
        bench.figure("threads", f"pair, all stacks, threads: {threads}", figures["all"], "ns", **others)
        one, most = one or figures, (threads, figures)
    if most[0] > 1:
        bench.figure("threads", f"pair, all stacks, {most[0]} threads beside 1", most[1]["all"] / one["all"], "times",
                     TARGET, without_stacks=round(most[1]["none"] / one["none"], 3),
                     own=round(most[1]["own"] / one["own"], 3))


def print_table(rows):
    print(f"ns of a pair of malloc and free below {DEPTH} frames, by the clock of its thread, median of {ROUNDS}"
          " runs\n")
    print("| threads | " + " | ".join(title for _, title in COLUMNS) + " |\n|" + "---:|" * (1 + len(COLUMNS)))
    for threads, figures in rows:
        cells = (f"{figures[name]:.0f}" if name in figures else "" for name, _ in COLUMNS)
        print(f"| {threads} | " + " | ".join(cells) + " |", flush=True)


def measure(folder):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="a table in Markdown instead of JSON lines")
    arguments = parser.parse_args()
    if shutil.which("heaptrack") is None:
        bench.skip("threads", "no comparison with heaptrack: it is not installed")
    lttng = start_lttng(folder, "threads", has_wrapper)
    try:
        (print_table if arguments.table else print_lines)(rows_of(folder, lttng))
    finally:
        if lttng is not None:
            lttng.close()


if __name__ == "__main__":
    bench.main(measure)
