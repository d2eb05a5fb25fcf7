#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cached allocation and its free: alone, with every decision recorded, and with more and more blocks.

`bench_alloc` runs the pairs on the sim device; this script runs it alone and under `varve record`, in turns, and
prints the figures beside their budgets. Recorded pairs come in bursts of 5,000, one each 100 ms, which the collector
can keep up with (`spilled_share` 0): the line measures the allocator and the ring, not the spill. Beside each: the C
library's malloc and free of equal sizes, and what PyTorch's own allocator takes for such a pair on the host of an H200
(without and with its history).
"""

import statistics

import common as bench

ROUNDS = bench.number("VARVE_BENCH_ALLOC_ROUNDS", 5)
BATCHES = bench.number("VARVE_BENCH_ALLOC_BATCHES", 20_000)
BURSTS = bench.number("VARVE_BENCH_ALLOC_BURSTS", 30)  # of 50 batches, one each 100 ms
MOST = bench.number("VARVE_BENCH_ALLOC_MOST", 1_000_000)
PLAIN_NS, RECORDED_NS, TAIL_RATIO = 60, 100, 4
PYTORCH_NS, PYTORCH_RECORDED_NS = 308, 480
KINDS = {
    "small": "4 KiB, a block of just that size",
    "split": "4 KiB, cut off and merged again",
    "large": "3 MiB, cut off and merged again",
    "mix": "sizes of programs, 1,000 live blocks",
}


def plain(*arguments, batches=BATCHES):
    return bench.run_json([bench.program("bench_alloc", "bench"), *arguments, str(batches)])


def recorded(folder, kind):
    """A pair is three records at least. The program brings its own recorder: without the preload library there is one,
    not two."""
    command = ["env", "-u", "LD_PRELOAD", bench.program("bench_alloc", "bench"), kind, "ring", str(50 * BURSTS)]
    return bench.recorded(folder, command, ("--stacks", "none"), lambda figures: 3 * figures["pairs"])


def median(runs, key):
    return statistics.median_high(bench.column(runs, key))


def figures_of(name, text, runs, target, peers):
    ns = median(runs, "ns")
    tail = median(runs, "ns_p99")
    bench.figure("alloc", f"{name}, {text}", ns, "ns", target, ns_least=min(bench.column(runs, "ns_min")),
                 budget_ratio=round(ns / target, 3), **peers)
    bench.figure("alloc", f"{name}, {text}: 99 % of the batches over the median", tail / ns, "ratio", TAIL_RATIO,
                 ns_p99=tail)


def measure_pairs(folder):
    for kind, text in KINDS.items():
        alone, with_ring, malloc = [], [], []
        for _ in range(ROUNDS):
            alone.append(plain(kind, "none"))
            with_ring.append(recorded(folder, kind))
            if kind in ("small", "mix"):
                malloc.append(plain("malloc" if kind == "small" else "malloc_mix", "none"))
        peers = {"malloc_ns": median(malloc, "ns")} if malloc else {}
        figures_of("pair", text, alone, PLAIN_NS, {"pytorch_ns": PYTORCH_NS, **peers})
        figures_of("pair, recorded", text, with_ring, RECORDED_NS,
                   {"pytorch_ns": PYTORCH_RECORDED_NS, **bench.overflow_figures(with_ring),
                    "lost": sum(run["lost"] for run in with_ring)})


def measure_growth():
    """The cost may grow as the logarithm of the number of blocks, from 10 live and as many free ones on."""
    first = None
    count, digits = 10, 1
    while count <= MOST:
        runs = [plain("growth", str(count), batches=max(BATCHES // 4, 1)) for _ in range(min(ROUNDS, 3))]
        ns = median(runs, "ns")
        first = first or ns
        bench.figure("alloc", f"pair, 128 sizes, {count} live and {count} free blocks", ns, "ns",
                     round(first * digits, 3), ns_least=min(bench.column(runs, "ns_min")), growth=round(ns / first, 3))
        step = 100 if count < 100_000 else 10
        count, digits = count * step, digits + (2 if step == 100 else 1)


def measure(folder):
    measure_pairs(folder)
    measure_growth()


if __name__ == "__main__":
    bench.main(measure)
