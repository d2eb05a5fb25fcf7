#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Storages and views that come and go, beside NumPy's arrays: `bench_storage` and NumPy in turns.

NumPy's figures are those of a loop in its own interpreter, less an empty loop: what a user of either pays.
"""

import statistics
import timeit

import common as bench

ROUNDS = bench.number("VARVE_BENCH_STORAGE_ROUNDS", 5)
PAIRS = bench.number("VARVE_BENCH_STORAGE_PAIRS", 500_000)
KINDS = {
    "malloc": ("a storage of 64 bytes of malloc", "empty((4, 4), kind)"),
    "pool": ("a storage of 64 bytes of a pool", "empty((4, 4), kind)"),
    "transpose": ("a transposed view", "array.T"),
    "slice": ("a view of rows", "array[1:3]"),
}


def numpy_ns(numpy, statement):
    names = {"empty": numpy.empty, "kind": numpy.float32, "array": numpy.empty((4, 4))}

    def least(code):
        return min(timeit.repeat(code, globals=names, number=PAIRS, repeat=3)) / PAIRS * 1e9

    return least(statement) - least("pass")


def measure(_folder):
    try:
        import numpy
    except ImportError:
        numpy = None
        bench.skip("storage", "numpy is not installed (apt install python3-numpy): no comparison")
    ours, peers, tracked = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, []
    for _ in range(ROUNDS):
        result = bench.run_json([bench.program("bench_storage", "bench"), str(PAIRS)])
        tracked.append(result["tracked"] - result["pool"])
        for kind, (_text, statement) in KINDS.items():
            ours[kind].append(result[kind])
            if numpy is not None:
                peers[kind].append(numpy_ns(numpy, statement))
    for kind, (text, _statement) in KINDS.items():
        if numpy is None:
            bench.figure("storage", text, min(ours[kind]), "ns")
        else:
            bench.compare("storage", text, ours[kind], peers[kind], "ns", "numpy", target=1)
    bench.figure("storage", "what the tracker adds to a storage", statistics.median(tracked), "ns", target=40)


if __name__ == "__main__":
    bench.main(measure)
