#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loop of malloc and free: by itself, recorded by varve, recorded by heaptrack, and with varve loaded but off.

The program times its own loop, so neither start-up nor what a recorder does at the end counts; what a recorder does
beside the loop, in other processes, counts as far as it slows the loop down. Runs alternate. The line that the targets
are about is `window`: random sizes and lifetimes among 4,096 live blocks, without a pause and in `bursts`; `same` is
malloc(64) and free of it, where a pair costs least. Each loop but `bursts` is much faster than any consumer, so most of
its records spill: `spilled_share`.
"""

import glob
import json
import os
import shutil
import statistics

import common as bench

ROUNDS = bench.number("VARVE_BENCH_HEAP_ROUNDS", 5)
PAIRS = bench.number("VARVE_BENCH_HEAP_PAIRS", 1_000_000)
OFF_ROUNDS = bench.number("VARVE_BENCH_OFF_ROUNDS", 11)
OFF_PAIRS = bench.number("VARVE_BENCH_OFF_PAIRS", 3_000_000)
TARGET_OWN = 2.5
TARGET_HEAPTRACK = 5
TARGET_STACKS = 2
TARGET_OFF_NS = 1
TARGET_BARE = 2

STACKS = ("--stacks", "native", "--stack-depth", "32")
CASES = ( # name, arguments of heap_loop, options of varve record, target beside heaptrack, rounds
    ("window", ("window", PAIRS), ("--stacks", "none"), TARGET_HEAPTRACK, ROUNDS),
    ("bursts", ("bursts", PAIRS // 4), ("--stacks", "none"), TARGET_HEAPTRACK, ROUNDS),
    ("window of 1024", ("window", PAIRS, 1, 1024), ("--stacks", "none"), None, 3),
    ("same", ("same", PAIRS), ("--stacks", "none"), None, 3),
    ("window, stacks, depth 18", ("window", PAIRS, 18), STACKS, TARGET_STACKS, ROUNDS),
    ("window, stacks, depth 2", ("window", PAIRS, 2), STACKS, None, 3),
    ("same, stacks, depth 18", ("same", PAIRS, 18), STACKS, None, 3),
    ("varied, stacks, depth 18", ("varied", PAIRS // 2, 18), STACKS, None, 3),
)


def loop(arguments):
    return [bench.program("heap_loop"), *(str(argument) for argument in arguments)]


def alone(arguments, **options):
    return bench.run_json(loop(arguments), **options)


def heaptrack(folder, arguments):
    """heaptrack prints remarks of its own, so the program's line is looked for. Its interpreter of version 1.4 ends
    with std::bad_alloc on the `varied` loop, so there its raw mode is used, which leaves the interpreter out."""
    raw = ["--raw"] if arguments[0] == "varied" else []
    out = bench.run(["heaptrack", *raw, "--output", os.path.join(folder, "heaptrack"), *loop(arguments)])
    for name in glob.glob(os.path.join(folder, "heaptrack*")):
        os.remove(name)
    for line in out.splitlines():
        if line.startswith('{"kind"'):
            return json.loads(line)
    raise bench.Broken(f"no figures of the program under heaptrack: {out[-500:]!r}")


def median_ratio(over, under):
    return round(statistics.median(a / b for a, b in zip(over, under)), 3)


def measure_case(folder, name, arguments, options, target, rounds, has_heaptrack):
    plain, ours, peers = [], [], []
    for _ in range(min(rounds, ROUNDS)):
        plain.append(alone(arguments))
        ours.append(bench.recorded(folder, loop(arguments), options, lambda figures: 2 * figures["pairs"]))
        if has_heaptrack:
            peers.append(heaptrack(folder, arguments))
    own_ns, our_ns, peer_ns = (bench.column(runs, "ns_per_pair") for runs in (plain, ours, peers))
    # CPU time of the program's thread, which does not hold what it waited for a CPU
    own_cpu, our_cpu, peer_cpu = (bench.column(runs, "cpu_ns") for runs in (plain, ours, peers))
    own = round(statistics.median(own_ns), 3)
    bench.figure("heap", f"pair, {name}, beside its own time", median_ratio(our_ns, own_ns), "times",
                 TARGET_OWN if name in ("window", "bursts") else None, own_ns=own,
                 recorded_ns=round(statistics.median(our_ns), 3), cpu_times=median_ratio(our_cpu, own_cpu),
                 **bench.overflow_figures(ours))
    if peers:
        bench.compare("heap", f"pair, {name}", our_ns, peer_ns, "ns",
                      "heaptrack --raw" if arguments[0] == "varied" else "heaptrack", target, own_ns=own,
                      cpu_ratio=median_ratio(peer_cpu, our_cpu), added_ratio=median_ratio(
                          *([one - less for one, less in zip(ns, own_ns)] for ns in (peer_ns, our_ns))))


def measure_off(kind):
    """Loaded but off: the difference of neighbouring runs, two calls a pair."""
    environment = dict(os.environ, LD_PRELOAD=bench.PRELOAD)
    environment.pop("VARVE_SESSION", None)
    added, plain = [], []
    for _ in range(OFF_ROUNDS):
        before = alone((kind, OFF_PAIRS))["ns_per_pair"]
        off = alone((kind, OFF_PAIRS), env=environment)["ns_per_pair"]
        after = alone((kind, OFF_PAIRS))["ns_per_pair"]
        added.append((off - (before + after) / 2) / 2)
        plain += [before, after]
    bench.figure("heap", f"loaded but off, {kind}: added to a call", statistics.median(added), "ns", TARGET_OFF_NS,
                 own_pair_ns=round(statistics.median(plain), 3))


def measure_bare(folder, kind):
    """Below 18 frames of code without unwind tables, beside the same code with them: processor time of the program."""
    with_tables, without = [], []
    for _ in range(ROUNDS):
        for path, runs in ((bench.program("heap_loop"), with_tables),
                           (bench.program("bare_heap_loop"), without)):
            runs.append(bench.recorded(folder, [path, kind, str(PAIRS // 2), "18"], STACKS,
                                       lambda figures: 2 * figures["pairs"])["cpu_ns"])
    bench.figure("heap", f"pair, {kind}, stacks, depth 18, without unwind tables", median_ratio(without, with_tables),
                 "times", TARGET_BARE, with_tables_ns=round(statistics.median(with_tables), 3),
                 without_ns=round(statistics.median(without), 3))


def measure(folder):
    has_heaptrack = shutil.which("heaptrack") is not None
    if not has_heaptrack:
        bench.skip("heap", "no comparison with heaptrack: it is not installed")
    for kind in ("same", "window"):
        measure_off(kind)
    for case in CASES:
        measure_case(folder, *case, has_heaptrack)
    for kind in ("same", "varied"):
        measure_bare(folder, kind)


if __name__ == "__main__":
    bench.main(measure)
