#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one call site of a Python stack costs code that emits records, such as an allocator under PyTorch.

The program calls varve_callsite_here while it is recorded with `--stacks python`, from stacks of 10 to 60 functions
that all differ, without the GIL: the same stack each time; with 1 MiB read in between, which costs it its place in
the first caches; and from a loop whose stacks differ in their innermost two frames each time (a leaf called from four
lines of four functions), beside a foreign function that does nothing. VARVE_BENCH_PYTHONS names the interpreters
(paths, colon between them; default: python3), VARVE_BENCH_PYTHON_ROUNDS how often each is asked in turns. """

import ctypes
import json
import os
import shutil
import statistics
import sys
import time

sys.dont_write_bytecode = True

DEPTHS = (10, 20, 40, 60)
CALLS = 5000
SWEPT_CALLS = 300
SWEPT_BYTES = 1 << 20
LOOPS = 3000
TARGETS_NS = {("the same stack", 40): 250}


def tower(depth):
    """Functions that call each other, each of them once: `tower(depth)(action)` calls it `depth` frames deep."""
    scope = {}
    lines = ["def f0(action):\n    return action()\n"]
    lines += [f"def f{i}(action):\n    return f{i - 1}(action)\n" for i in range(1, depth)]
    exec("".join(lines), scope)  # pylint: disable=exec-used
    return scope[f"f{depth - 1}"]


def loop(function):
    """Nanoseconds a call, from stacks that differ."""
    scope = {"call": function}
    exec("def leaf():\n    call(); call(); call(); call()\n" +  # pylint: disable=exec-used
         "".join(f"def by{i}():\n    leaf()\n    leaf()\n" for i in range(4)) +
         "def all(loops):\n    for _ in range(loops):\n" + "".join(f"        by{i}()\n" for i in range(4)), scope)
    best = float("inf")
    for _ in range(5):
        start = time.thread_time_ns()
        scope["all"](LOOPS // 32)
        best = min(best, (time.thread_time_ns() - start) / (LOOPS // 32 * 32))
    return best


def worker(path):
    probe = ctypes.CDLL(path)
    probe.probe_callsite_cost.restype = ctypes.c_double
    site = ctypes.c_uint32()
    figures = []
    # Some stacks before the first figure: the interpreter's layout has to be trusted first.
    tower(40)(lambda: probe.probe_callsite_cost(100, 0, ctypes.byref(site)))
    for depth in DEPTHS:
        # With the lambda and what lies below the tower, in all `depth` frames.
        call = tower(depth - 3)
        same = call(lambda: probe.probe_callsite_cost(CALLS, 0, ctypes.byref(site)))
        cold = call(lambda: probe.probe_callsite_cost(SWEPT_CALLS, SWEPT_BYTES, ctypes.byref(site)))
        other = call(lambda: loop(probe.probe_callsite)) - call(lambda: loop(probe.probe_nothing))
        assert site.value != 0, "no call site: is this program being recorded?"
        figures += [["the same stack", depth, same], ["the same stack, caches swept", depth, cold],
                    ["other leaves each time", depth, other]]
    print(json.dumps({"version": sys.version.split()[0], "figures": figures}))


def measure(folder):
    probe = bench.program("lib_python_stack_probe.so")
    pythons = (os.environ.get("VARVE_BENCH_PYTHONS") or shutil.which("python3") or sys.executable).split(":")
    command = bench.record_command(os.path.join(folder, "trace.db"), "--stacks", "python")
    results = {}
    for _ in range(bench.number("VARVE_BENCH_PYTHON_ROUNDS", 3)):
        for python in pythons:
            reported = bench.run_json([*command, python, __file__, "worker", probe])
            for kind, depth, value in reported["figures"]:
                results.setdefault((reported["version"], kind, depth), []).append(value)
    for (version, kind, depth), values in results.items():
        bench.figure("python_stack", f"a call site, {kind}", statistics.median(values), "ns",
                     TARGETS_NS.get((kind, depth)), depth=depth, python=version)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2])
    else:
        import common as bench

        bench.main(measure)
