#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MiniMalloc's challenging instances (google/minimalloc, benchmarks/challenging, Apache-2.0): CPU time of `varve bound` until all buffers
lie under the capacity in the file's name, beside the time of MiniMalloc itself, measured once on two cores with g++ -O3; and how far above
the load the lowest placement ends that it finds in some seconds. Wants the files: VARVE_DSA_DIR=FOLDER.
"""

import glob
import os
import resource
import statistics

import common as bench

ROUNDS = bench.number("VARVE_BENCH_PLACEMENT_ROUNDS", 3)
SECONDS = bench.number("VARVE_BENCH_PLACEMENT_SECONDS", 30)
FOLDER = os.environ.get("VARVE_DSA_DIR", "")
MINIMALLOC_S = {"A": 9.17, "B": 6.78, "C": 1.39, "D": 6.92, "E": 6.64, "F": 9.70, "G": 1.94, "H": 2.72, "I": 9.76, "J": 3.79,
                "K": 1.90}


def bound(path, *options):
    """The answer, and the CPU seconds of the whole command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = bench.run_json([bench.VARVE, "bound", "--json", "--quiet", "--seconds", str(SECONDS), *options, path])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return answer, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(_folder):
    paths = sorted(glob.glob(os.path.join(FOLDER, "*.*.csv"))) if FOLDER else []
    if not paths:
        bench.skip("placement", "no NAME.CAPACITY.csv in VARVE_DSA_DIR")
    for path in paths:
        name, capacity = os.path.basename(path).split(".")[:2]
        runs = [bound(path, "--capacity", capacity) for _ in range(ROUNDS)]
        fits = all(answer["fits"] for answer, _ in runs)
        if name in MINIMALLOC_S and not fits:
            raise bench.Broken(f"{path} fits into {capacity}, but no placement was found in {SECONDS} s")
        bench.figure("placement", f"{name} under {capacity}", statistics.median(seconds for _, seconds in runs), "s",
                     target=MINIMALLOC_S.get(name), buffers=runs[0][0]["buffers"], fits=fits)
        answer, seconds = bound(path)
        bench.figure("placement", f"{name}, lowest", answer["placement_bytes"] / answer["load_bytes"], "load",
                     bytes=answer["placement_bytes"], optimal=answer["optimal"], cpu_s=round(seconds, 2))


if __name__ == "__main__":
    bench.main(measure)
