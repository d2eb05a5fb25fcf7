#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators on storages in a GPU's memory beside PyTorch's on the same tensors, in turns. `ratio` is PyTorch's time
by ours, `g_s` the GB that ours reads and writes a second, of the product the 10^9 operations. --mib N: of a large
array; --memory host: in host memory with PyTorch's CPU functions, to see that the program works."""

import argparse
import ctypes
import statistics
import sys

import common as bench
from gpu_storage import Bench

BENCH = "gpu_operators"
ALL_AXES = -2 ** 31


class Operators(Bench):
    library = None

    def operate(self, name, out, *arguments):
        kinds = {self.varve.Storage: lambda a: ctypes.c_void_p(a._handle), int: ctypes.c_uint64, float: ctypes.c_double}
        given = [ctypes.c_int(a) if name == "sum" and isinstance(a, int) else kinds[type(a)](a) for a in arguments]
        function = getattr(self.library, f"varve_storage_op_{name}")
        return lambda: function(ctypes.c_void_p(out._handle), *given, ctypes.c_uint64(0), None)

    def line(self, metric, moved, ours, peer):
        """`moved`: bytes read and written, or operations of a product."""
        if ours() != 0:
            raise bench.Broken(f"{metric}: the operator failed")
        times = self.times(ours, peer)
        rate = moved / statistics.median(mine for mine, _ in times)
        bench.compare(BENCH, metric, [mine * 1e3 for mine, _ in times], [theirs * 1e3 for _, theirs in times], "ms", "PyTorch",
                      g_s=round(rate / 1e9, 1))

    def elementwise(self):
        torch = self.torch
        for dtype in (torch.float32, torch.float16):
            count = self.bytes // torch.empty(0, dtype=dtype).element_size()
            a, b, out = (torch.empty(count, dtype=dtype, device=self.device).uniform_() for _ in range(3))
            x, y, to = self.storage(a), self.storage(b), self.storage(out)
            self.line(f"add {dtype}", 3 * self.bytes, self.operate("add", to, x, y), lambda: torch.add(a, b, out=out))
            self.line(f"exp {dtype}", 2 * self.bytes, self.operate("exp", to, x), lambda: torch.exp(a, out=out))
            self.line(f"uniform {dtype}", self.bytes, self.operate("uniform", to, 1, 2, 0.0, 1.0), lambda: out.uniform_())
            self.line(f"normal {dtype}", self.bytes, self.operate("normal", to, 1, 2, 0.0, 1.0), lambda: out.normal_())

    def reductions(self):
        torch = self.torch
        for dtype in (torch.float32, torch.float16):
            columns = 4096
            rows = self.bytes // torch.empty(0, dtype=dtype).element_size() // columns
            a = torch.empty((rows, columns), dtype=dtype, device=self.device).uniform_()
            x = self.storage(a)
            for axis, shape in ((ALL_AXES, ()), (0, (columns,)), (1, (rows,))):
                out = torch.empty(shape, dtype=dtype, device=self.device)
                dims = (0, 1) if axis == ALL_AXES else axis
                self.line(f"sum {dtype} {'all' if axis == ALL_AXES else f'axis {axis}'}", self.bytes,
                          self.operate("sum", self.storage(out), x, axis), lambda: torch.sum(a, dims, out=out))

    def product(self):
        torch, size = self.torch, 8192 if self.is_gpu else 256
        a, b, out = (torch.empty((size, size), dtype=torch.bfloat16, device=self.device).uniform_() for _ in range(3))
        self.line(f"matmul bf16 {size}", 2 * size ** 3, self.operate("matmul", self.storage(out), self.storage(a), self.storage(b)),
                  lambda: torch.matmul(a, b, out=out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda")
    options = parser.parse_args()
    try:
        import torch
        import varve
        from varve.library import library
    except (ImportError, OSError) as error:
        bench.skip(BENCH, f"PyTorch or varve is not here: {error}")
        return
    if options.memory == "cuda" and not torch.cuda.is_available():
        bench.skip(BENCH, "PyTorch finds no GPU")
        return
    operators = Operators(torch, None, varve, options)
    operators.library = library()
    for part in (operators.elementwise, operators.reductions, operators.product):
        part()


if __name__ == "__main__":
    try:
        main()
    except bench.Broken as error:
        bench.note(f"{BENCH}: {error}")
        sys.exit(1)
