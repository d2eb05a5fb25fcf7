#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elements copied, converted, set and computed with, beside NumPy's copyto, fill and functions on the same arrays, in
turns and into memory that was written before. Large ones are bound by memory, the small ones (8,192 elements) by
instructions.

Settings: VARVE_BENCH_ELEMENTS_ROUNDS (9), VARVE_BENCH_ELEMENTS_MIB (64, of a large array).
"""

import ctypes
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance"))
import common  # noqa: E402

BENCH = "elements"
try:
    from elements_library import FLOATS, NUMPY, describe, library, np, scalar
except SystemExit:
    common.skip(BENCH, "numpy is not installed")
    sys.exit(0)

ROUNDS = common.number("VARVE_BENCH_ELEMENTS_ROUNDS", 9)
LARGE_BYTES = common.number("VARVE_BENCH_ELEMENTS_MIB", 64) << 20
SMALL = 8192
ALL_AXES = -2 ** 31
NUMPY_TYPES = tuple(name for name in NUMPY if name != "bf16")


def seconds(function, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls


def measure(metric, ours, peer, elements, target=1, **others):
    """ns an element. Both run once before, so that pages are there."""
    ours()
    peer()
    calls = max(1, 2_000_000 // max(elements, 1))
    times = [(seconds(ours, calls), seconds(peer, calls)) for _ in range(ROUNDS)]
    common.compare(BENCH, metric, [one / elements * 1e9 for one, _ in times], [other / elements * 1e9 for _, other in times],
                   "ns/element", "numpy", target, **others)


def function_of(name, *arrays_and_values):
    """A call whose arrays are described once: what is measured is the library."""
    kept = [ctypes.byref(describe(value)) if isinstance(value, np.ndarray) else value for value in arrays_and_values]
    called = getattr(library, name)

    def run():
        if called(*kept, None) != 0:
            raise common.Broken(f"{name} failed")
    return run


def copies(metric, target, source, goal=1):
    measure(metric, function_of("varve_array_copy", target, source), lambda: np.copyto(target, source, casting="unsafe"),
            target.size, goal)


def numbers(shape, dtype):
    return (np.random.default_rng(1).random(shape, np.float32) * 100).astype(NUMPY[dtype])


def measure_copies():
    side = int((LARGE_BYTES / 4) ** 0.5)
    for dtype in ("u8", "f16", "f32", "f64"):
        source = numbers((side, side), dtype)
        target = np.ones_like(source)
        copies(f"copy contiguous, {dtype} {side} x {side}", target, source, 0.9)
        copies(f"copy transposed, {dtype} {side} x {side}", target, source.T)
    source, target = numbers((side, side), "f32"), np.ones((side, side // 2), np.float32)
    copies("copy every second, f32", target, source[:, :side // 2 * 2:2], 0.9)
    copies("copy reversed, f32", target, source[:, side // 2 - 1::-1], 0.9)
    copies("copy to every second, f32", source[:, :side // 2 * 2:2], target, 0.9)
    copies("copy a column to all, f32", source, source[:, :1].copy(), 0.9)
    for size in (64, 512):
        source = numbers((size, size), "f32")
        copies(f"copy transposed, f32 {size} x {size}", np.ones_like(source), source.T)
    image, planes = numbers((1024, 1024, 3), "u8"), np.ones((3, 1024, 1024), np.uint8)
    copies("copy pixels to planes, u8", planes, image.transpose(2, 0, 1))
    copies("copy planes to pixels, u8", image, planes.transpose(1, 2, 0))
    target = np.ones((side, side), np.float32)
    measure("fill, f32", function_of("varve_array_fill", target, scalar(1.5)), lambda: target.fill(1.5), target.size, 0.9)


def measure_casts():
    """All pairs that NumPy has, small; some of them large, and with strides."""
    for source_type in NUMPY_TYPES:
        source = numbers(SMALL, source_type)
        for target_type in NUMPY_TYPES:
            if target_type != source_type:
                copies(f"convert {source_type} to {target_type}", np.ones(SMALL, NUMPY[target_type]), source)
    for source_type, target_type in (("f32", "f16"), ("f16", "f32"), ("f64", "f32"), ("f32", "i32"), ("i64", "f64"), ("u8", "f32")):
        count = LARGE_BYTES // 8
        copies(f"convert {source_type} to {target_type}, large", np.ones(count, NUMPY[target_type]), numbers(count, source_type), 0.9)
    source = numbers((2048, 2048), "f32")
    copies("convert f32 to f64, transposed", np.ones((2048, 2048)), source.T)
    copies("convert f32 to i16, every second", np.ones((2048, 1024), np.int16), source[:, ::2])


def operator(metric, name, numpys, out, *inputs, **others):
    measure(metric, function_of(f"varve_op_{name}", out, *inputs), numpys, max(out.size, inputs[0].size), **others)


def measure_reductions(dtype):
    """What is summed goes into f64 here, and what additions lose is kept; NumPy adds in the elements' own type."""
    large = numbers((1 << 10, 1 << 10), dtype)
    for name, numpys in (("sum", np.sum), ("max", np.max)):
        for metric, axis, shape in (("all", ALL_AXES, ()), ("axis 0", 0, 1 << 10), ("axis 1", 1, 1 << 10)):
            out = np.ones(shape, NUMPY[dtype])
            peer_axis = None if axis == ALL_AXES else axis
            operator(f"{name}, {metric}, {dtype}", name, lambda f=numpys, x=peer_axis, out=out: f(large, axis=x, out=out), out, large, axis,
                     target=0.9)


def measure_operators():
    """Targets are met by what memory or instructions bound; the rest says its ratio."""
    for dtype in FLOATS[:2]:
        a, b, out = numbers(4 * SMALL, dtype), numbers(4 * SMALL, dtype) + 1, np.ones(4 * SMALL, NUMPY[dtype])
        for name, numpys in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
            operator(f"{name}, {dtype}", name, lambda f=numpys, a=a, b=b, out=out: f(a, b, out=out), out, a, b, target=0.9)
        a -= 50
        operator(f"exp, {dtype}", "exp", lambda a=a, out=out: np.exp(a, out=out), out, a, target=0.9)
        measure_reductions(dtype)
        a, b, out = numbers((512, 512), dtype), numbers((512, 512), dtype), np.ones((512, 512), NUMPY[dtype])
        operator(f"matmul 512, {dtype}", "matmul", lambda a=a, b=b, out=out: np.matmul(a, b, out=out), out, a, b, target=0.9,
                 blas=os.environ.get("VARVE_BLAS", "libopenblas.so.0, else own"))


def measure_all(_folder):
    measure_copies()
    measure_casts()
    measure_operators()


if __name__ == "__main__":
    common.main(measure_all)
