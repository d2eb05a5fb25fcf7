#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Index plans beside NumPy in turns: a[index], a[mask] and setting them, of a million elements and of as many as a
cache holds. `planned` makes the plan and runs it each time, into a new array, as NumPy's a[index] does; `again` runs
a plan that is there. The ratio is NumPy's time by ours.

VARVE_BENCH_INDEX_SIZE=N and VARVE_BENCH_INDEX_ROUNDS=N make it shorter or longer.
"""

import os
import sys
import time

import common as bench

ROUNDS = bench.number("VARVE_BENCH_INDEX_ROUNDS", 15)
SIZE = bench.number("VARVE_BENCH_INDEX_SIZE", 1_000_000)
TARGET = 1  # no slower than NumPy

sys.path[:0] = [os.path.join(bench.ROOT, "tests"), os.path.join(bench.ROOT, "tests", "conformance")]
try:
    from numpy_here import numpy as np
except SystemExit:
    bench.skip("index", "NumPy is not installed")
    sys.exit(0)
from index_plan_library import LIBRARY, NUMPY, Library, Scalar, describe, to_indices  # noqa: E402

if not os.path.exists(LIBRARY):
    bench.note(f"{LIBRARY} is missing: run ./dev build first")
    sys.exit(1)
VARVE = Library()
RANDOM = np.random.default_rng(1)


def array_of(array):
    return describe(array, NUMPY.index(array.dtype.type))


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begin) / times * 1e9


def in_turns(metric, count, ours, theirs, **others):
    """Nanoseconds an element, `count` elements a call."""
    times = max(1, 200_000 // max(count, 1))
    ours(), theirs()
    pairs = [(timed(ours, times) / count, timed(theirs, times) / count) for _ in range(ROUNDS)]
    bench.compare("index", metric, [pair[0] for pair in pairs], [pair[1] for pair in pairs], "ns", "numpy", TARGET,
                  elements=count, **others)


def read(metric, array, *entries):
    source, expected, indices = array_of(array), array[entries], to_indices(entries)

    def planned():
        plan = VARVE.make_of("get", source, indices, len(entries))
        result = np.empty(expected.shape, array.dtype)
        VARVE.run(plan, array_of(result), source)
        VARVE.free(plan)
        return result

    if not np.array_equal(planned(), expected):
        raise bench.Broken(f"{metric}: not what NumPy gives")
    in_turns(metric + ", planned", expected.size, planned, lambda: array[entries])
    plan = VARVE.make("get", source, entries)
    target = array_of(expected)
    in_turns(metric + ", again", expected.size, lambda: VARVE.run(plan, target, source), lambda: array[entries],
             index_bytes=plan.contents.index_bytes)
    VARVE.free(plan)


def write(metric, array, value, *entries):
    """`value` is an array, or a number."""
    ours, theirs = array.copy(), array.copy()
    target, indices, count = array_of(ours), to_indices(entries), len(entries)
    is_number = not isinstance(value, np.ndarray)
    source = None if is_number else array_of(value)

    def make():
        return VARVE.make_of("fill", target, indices, count, Scalar(1, value, 0)) if is_number else \
            VARVE.make_of("set", target, indices, count, source)

    def planned():
        plan = make()
        VARVE.run(plan, target, source)
        VARVE.free(plan)

    def numpy():
        theirs[entries] = value

    planned(), numpy()
    if not np.array_equal(ours, theirs):
        raise bench.Broken(f"{metric}: not what NumPy sets")
    size = max(array[entries].size, 1)
    in_turns(metric + ", planned", size, planned, numpy)
    plan = make()
    in_turns(metric + ", again", size, lambda: VARVE.run(plan, target, source), numpy)
    VARVE.free(plan)


def elements(size, dtype, name):
    array = RANDOM.integers(0, 100, size).astype(dtype)
    index = RANDOM.integers(0, size, size)
    what = f"{name} of {size}"
    read(f"a[index], {what}", array, index)
    read(f"a[sorted index], {what}", array, np.sort(index))
    write(f"a[index] = values, {what}", array, array[::-1].copy(), index)
    write(f"a[index] = 1, {what}", array, 1, index)
    for share in (0.01, 0.1, 0.5, 0.9, 1):
        mask = RANDOM.random(size) < share
        read(f"a[mask of {share}], {what}", array, mask)
        write(f"a[mask of {share}] = values, {what}", array, array[mask], mask)
        write(f"a[mask of {share}] = 1, {what}", array, 1, mask)


def rows():
    table = RANDOM.random((SIZE // 10, 64))
    index = RANDOM.integers(0, table.shape[0], table.shape[0] // 2)
    read("rows of 64 f64", table, index)
    write("rows of 64 f64 = values", table, table[:index.size].copy(), index)
    points = RANDOM.random((SIZE // 4, 3)).astype(np.float32)
    index = RANDOM.integers(0, points.shape[0], points.shape[0])
    read("rows of 3 f32", points, index)
    read("rows of 3 f32, mask", points, RANDOM.random(points.shape[0]) < 0.5)
    square = RANDOM.random((1000, 1000))
    index = RANDOM.integers(0, 1000, 1000)
    read("a[:, index]", square, slice(None), index)
    read("a[index, index]", square, RANDOM.integers(0, 1000, SIZE), RANDOM.integers(0, 1000, SIZE))
    read("a[ix_(index, index)]", square, *np.ix_(index, index))
    read("a[mask of both axes]", square, square > 0.5)
    read("transposed a[mask of both axes]", square.T, square > 0.5)


def main():
    for size in (SIZE, SIZE // 5):
        elements(size, np.float64, "f64")
        elements(size, np.float32, "f32")
        elements(size, np.uint8, "u8")
    rows()


if __name__ == "__main__":
    try:
        main()
    except bench.Broken as broken:
        bench.note(broken)
        sys.exit(1)
