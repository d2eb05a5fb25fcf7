#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Storages in a GPU's memory beside PyTorch on the same tensors, in turns: strided copies, conversions, gathers,
masks, scatters and fills. `ratio` is PyTorch's time by ours, `copy_share` the bytes that ours reads and writes a
second by those of a copy from device to device, `gb_s` the former.

Times are those of the clock around several calls and a wait for the GPU behind the last. All is given to the default
stream. What picks or sets by indices runs a plan that was made before, into memory that is there as PyTorch's `out`
is: plans are made of indices in host memory, while PyTorch's are on the GPU. `plan_ms` is how long making it took,
indices brought to the GPU included.

--mib N: of a large array; --memory host: in host memory with PyTorch's CPU functions, to see that the program works.
"""

import argparse
import statistics
import sys
import time

import common as bench

sys.path[:0] = [bench.ROOT + "/notebooks", bench.ROOT + "/tests", bench.ROOT + "/tests/conformance"]

BENCH = "gpu_storage"
TARGET = 0.9  # of PyTorch's speed
ROUNDS = bench.number("VARVE_BENCH_GPU_STORAGE_ROUNDS", 5)
ROUND_S = 0.05  # of calls, at least one
SLOW_S = 0.5    # a call that takes so long is not repeated


class Bench:
    def __init__(self, torch, np, varve, options):
        self.torch, self.np, self.varve = torch, np, varve
        self.is_gpu = options.memory == "cuda"
        self.device = "cuda" if self.is_gpu else "cpu"
        self.memory = varve.cuda_memory() if self.is_gpu else None
        self.bytes = options.mib << 20
        self.copy_rate = None

    def wait(self):
        if self.is_gpu:
            self.torch.cuda.synchronize()

    def storage(self, tensor):
        """The tensor's elements as a storage, in the same memory."""
        return self.varve.from_dlpack(tensor, memory=self.memory)

    def random(self, *shape, dtype=None):
        tensor = self.torch.randint(-100, 100, shape, dtype=self.torch.int32, device=self.device)
        return tensor.to(dtype or self.torch.float32)

    # ---- timing ----

    def seconds(self, function, calls):
        self.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        self.wait()
        return (time.perf_counter() - begin) / calls

    def times(self, ours, peer):
        """Medians are the caller's: (ours, PyTorch's) of each round, in seconds."""
        once = [self.seconds(function, 1) for function in (ours, peer)]  # also kernels to load, and memory of pools
        if max(once) > SLOW_S:
            return [once]
        once = [self.seconds(function, 1) for function in (ours, peer)]
        calls = [max(1, int(ROUND_S / max(second, 1e-6))) for second in once]
        return [(self.seconds(ours, calls[0]), self.seconds(peer, calls[1])) for _ in range(ROUNDS)]

    def compare(self, metric, moved, ours, peer, **others):
        """`moved`: bytes read and written, what is kept of indices left out."""
        times = self.times(ours, peer)
        rate = moved / statistics.median(mine for mine, _ in times)
        if self.copy_rate is None:
            self.copy_rate = moved / statistics.median(theirs for _, theirs in times)
        bench.compare(BENCH, metric, [mine * 1e3 for mine, _ in times], [theirs * 1e3 for _, theirs in times], "ms", "PyTorch",
                      TARGET, gb_s=round(rate / 1e9, 1), copy_share=round(rate / self.copy_rate, 3), mib=round(moved / 2**20), **others)

    def check(self, metric, got, expected):
        self.wait()
        if not self.torch.equal(got, expected):
            raise bench.Broken(f"{metric}: other elements than PyTorch's")

    # ---- copies ----

    def copies(self, metric, target, source):
        with self.storage(target) as into, self.storage(source) as part:
            target.zero_()
            self.wait()  # the storages are used on the default stream, too, but not by PyTorch's order
            into.copy_(part, stream=0)
            self.check(metric, target, source.to(target.dtype).expand_as(target))
            moved = target.numel() * target.element_size() + source.numel() * source.element_size()
            self.compare(metric, moved, lambda: into.copy_(part, stream=0), lambda: target.copy_(source))

    def mirrored(self, target, source):
        """PyTorch has no such views, but a function."""
        metric = "copy, rows mirrored"
        with self.storage(target) as into, self.storage(source) as whole, whole[:, ::-1] as part:
            self.wait()
            into.copy_(part, stream=0)
            self.check(metric, target, self.torch.flip(source, (1,)))
            self.compare(metric, 2 * source.numel() * source.element_size(), lambda: into.copy_(part, stream=0),
                         lambda: self.torch.flip(source, (1,)))

    def all_copies(self):
        torch = self.torch
        rows, columns = self.bytes // 16384, 4096
        source = self.random(rows, columns)
        self.copies("copy, contiguous", torch.empty_like(source), source)
        self.copies("copy, transposed f32", torch.empty(columns, rows, device=self.device), source.T)
        self.copies("copy, every second column", torch.empty(rows, columns // 2, device=self.device), source[:, ::2])
        self.copies("copy, into every second column", torch.empty(rows, columns, device=self.device)[:, ::2], source[:, :columns // 2])
        self.mirrored(torch.empty_like(source), source)
        half = source.to(torch.float16)
        self.copies("copy, transposed f16", torch.empty(columns, rows, dtype=torch.float16, device=self.device), half.T)
        images = source.view(-1, 64, 128, 128) if rows * columns >= 2**20 else source.view(-1, 4, 16, 16)
        count, channels, height, width = images.shape
        self.copies("copy, 4-D to channels last", torch.empty(count, height, width, channels, device=self.device),
                    images.permute(0, 2, 3, 1))
        self.copies("copy, 4-D all axes reversed", torch.empty(width, height, channels, count, device=self.device),
                    images.permute(3, 2, 1, 0))

    def all_casts(self):
        torch = self.torch
        for name, source_type, target_type in (("f32 to f16", torch.float32, torch.float16), ("f32 to bf16", torch.float32, torch.bfloat16),
                                               ("f16 to f32", torch.float16, torch.float32), ("i64 to f32", torch.int64, torch.float32)):
            source = self.random(self.bytes // torch.empty(0, dtype=source_type).element_size(), dtype=source_type)
            target = torch.empty(source.shape, dtype=target_type, device=self.device)
            with self.storage(target) as into, self.storage(source) as part:
                self.wait()
                into.copy_(part, stream=0)
                self.check(name, target, source.to(target_type))
                moved = source.numel() * (source.element_size() + target.element_size())
                self.compare(f"to(dtype), {name}", moved, lambda: into.copy_(part, stream=0), lambda: source.to(target_type))
            del source, target

    # ---- indices ----

    def planned(self, *arguments):
        """(a plan, ms that it took)"""
        begin = time.perf_counter()
        plan = self.varve.Plan(*arguments)
        return plan, round((time.perf_counter() - begin) * 1e3, 3)

    def picks(self, metric, tensor, entries, peer):
        """`entries` of host memory for us; `peer` writes what PyTorch picks by its own on the device to a tensor, or
        to a new one."""
        expected = peer(None)
        target = self.torch.empty_like(expected)
        with self.storage(tensor) as storage, self.storage(target) as picked:
            plan, plan_ms = self.planned(storage, entries)
            self.wait()
            plan.run(picked, storage)
            self.check(metric, target, expected)
            moved = 2 * expected.numel() * expected.element_size()
            self.compare(metric, moved, lambda: plan.run(picked, storage), lambda: peer(target), plan_ms=plan_ms)
            self.wait()
            plan.close()

    def sets(self, metric, tensor, entries, index, value):
        with self.storage(tensor) as storage, self.storage(value) as values:
            plan, plan_ms = self.planned(storage, entries, values)
            expected = tensor.clone().index_put_(index, value)
            self.wait()
            plan.run(storage, values)
            self.check(metric, tensor, expected)
            del expected
            moved = 2 * value.numel() * value.element_size()
            self.compare(metric, moved, lambda: plan.run(storage, values), lambda: tensor.index_put_(index, value), plan_ms=plan_ms)
            self.wait()
            plan.close()

    def all_gathers(self):
        torch, np = self.torch, self.np
        rows, columns = self.bytes // 16384, 4096
        random = np.random.default_rng(1)
        source = self.random(rows, columns)
        flat = source.view(-1)
        by_rows, elements = random.permutation(rows), random.integers(0, flat.numel(), flat.numel() // 16)
        on_device = [torch.from_numpy(index).to(self.device) for index in (by_rows, elements)]
        self.picks("gather of rows of 16 KiB", source, (by_rows,), lambda out: torch.index_select(source, 0, on_device[0], out=out))
        narrow = source.view(-1, 16)
        by_narrow = random.permutation(narrow.shape[0])[:narrow.shape[0] // 4]
        narrow_index = torch.from_numpy(by_narrow).to(self.device)
        self.picks("gather of rows of 64 B", narrow, (by_narrow,), lambda out: torch.index_select(narrow, 0, narrow_index, out=out))
        self.picks("gather of single elements", flat, (elements,), lambda out: torch.index_select(flat, 0, on_device[1], out=out))
        self.sets("scatter of rows of 16 KiB", source, (by_rows,), (on_device[0],), self.random(rows, columns))
        unique = np.unique(elements)
        random.shuffle(unique)
        self.sets("scatter of single elements", flat, (unique,), (torch.from_numpy(unique).to(self.device),), self.random(unique.size))

    def all_masks(self):
        torch, np = self.torch, self.np
        flat = self.random(self.bytes // 16)  # a quarter of the bytes
        draw = np.random.default_rng(2).random(flat.numel(), dtype=np.float32)
        for percent in (1, 10, 50, 90):
            mask = draw * 100 < percent
            on_device = torch.from_numpy(mask).to(self.device)
            self.picks(f"masked_select, {percent} %", flat, (mask,), lambda out: torch.masked_select(flat, on_device, out=out))

    def all_fills(self):
        target = self.torch.empty(self.bytes // 16384, 4096, device=self.device)
        for metric, part in (("fill, contiguous", target), ("fill, every second column", target[:, ::2])):
            with self.storage(part) as storage:
                self.wait()
                storage.fill_(3, stream=0)
                self.check(metric, part, self.torch.full_like(part, 3))
                self.compare(metric, part.numel() * 4, lambda: storage.fill_(3, stream=0), lambda: part.fill_(3))

    def all_transfers(self):
        """Host memory that is not pinned; and many copies within the GPU, one after the other and as a batch."""
        host = self.torch.empty(self.bytes // 4, dtype=self.torch.float32).fill_(1)
        tensor = self.torch.empty(self.bytes // 4, device=self.device)
        with self.storage(tensor) as there, self.varve.from_numpy(host.numpy()) as here:
            moved = host.numel() * 4
            self.compare("to the GPU", moved, lambda: there.copy_(here), lambda: tensor.copy_(host))
            self.compare("from the GPU", moved, lambda: here.copy_(there), lambda: host.copy_(tensor))
        parts = self.torch.empty(2, 400, 256, 256, device=self.device)
        sources, targets = [self.storage(one) for one in parts[0]], [self.storage(one.T) for one in parts[1]]
        pairs = list(zip(targets, sources))
        self.compare("400 transpositions of 256 KiB as a batch", 2 * 400 * 2**18, lambda: self.varve.copy_batch(pairs),
                     lambda: [parts[1, i].copy_(parts[0, i].T) for i in range(400)])

    def waiting(self):
        """What a call costs that waits, and one that does not."""
        with self.varve.zeros(1, memory=self.memory) as one:
            for metric, stream in (("a call that waits", None), ("a call that does not", 0)):
                seconds = [self.seconds(lambda: one.fill_(1, stream=stream), 1000) for _ in range(ROUNDS)]
                bench.figure(BENCH, metric, statistics.median(seconds) * 1e6, "us")

    def run(self):
        self.waiting()
        self.all_copies()
        self.all_casts()
        self.all_gathers()
        self.all_masks()
        self.all_fills()
        self.all_transfers()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    try:
        from numpy_here import numpy
        import torch
        import varve
    except (ImportError, OSError, SystemExit) as error:
        bench.skip(BENCH, f"PyTorch or NumPy is not here: {error}")
        return
    if options.memory == "cuda" and not torch.cuda.is_available():
        bench.skip(BENCH, "PyTorch finds no GPU")
        return
    begin = time.monotonic()
    Bench(torch, numpy, varve, options).run()
    bench.note(f"{BENCH}: {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    try:
        main()
    except bench.Broken as error:
        bench.note(f"{BENCH}: {error}")
        sys.exit(1)
