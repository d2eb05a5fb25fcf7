#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory: what the recorder adds to a program, and what the collector needs over a long recording.

The program reports its own memory (smaps_rollup) while its threads live and after they ended; the same program without
the recorder is subtracted. The collector is looked at from outside while it records and completes the database: its
peak resident set (VmHWM), and of what that consists: its own memory (RssAnon) and the rings that it shares with the
program (RssShmem), which the program's figures hold already.
"""

import json
import os
import statistics
import subprocess
import time

import common as bench

ROUNDS = bench.number("VARVE_BENCH_MEMORY_ROUNDS", 3)
PAIRS = bench.number("VARVE_BENCH_MEMORY_PAIRS", 200_000)
LONG_PAIRS = bench.number("VARVE_BENCH_MEMORY_LONG_PAIRS", 15_000_000)
LIVE = bench.number("VARVE_BENCH_MEMORY_LIVE", 100_000)
MIB = 1 << 20
RING_MIB = 4
PROCESS_MIB = 5
COLLECTOR_MIB = 256
COLLECTOR_LIVE_BYTES = 64


def phases(out):
    """Phase to its figures, from what memory_phases printed."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"phase"')]
    return {line["phase"]: line for line in lines}


def measure_workload(folder, threads):
    arguments = [bench.program("memory_phases"), str(threads), str(PAIRS)]
    database = os.path.join(folder, "memory.db")
    added = {}
    for _ in range(ROUNDS):
        plain = phases(bench.run(arguments))
        ours = phases(bench.run([*bench.record_command(database, "--stacks", "native"), *arguments]))
        os.remove(database)
        for phase, figures in ours.items():
            for field in ("Rss", "Pss", "Pss_Anon", "Pss_Shmem"):
                added.setdefault((phase, field), []).append(figures[field] - plain[phase][field])
    rings = threads if threads == 1 else threads + 1  # the main thread allocates too, if little
    name = "1 thread" if threads == 1 else f"{threads} threads"
    for phase, live in (("working", rings), ("ended", 1)):
        values = {field: round(statistics.median(added[phase, field]) / MIB, 3)
                  for field in ("Rss", "Pss", "Pss_Anon", "Pss_Shmem")}
        bench.figure("memory", f"added to a program of {name}, {phase}",
                     values["Rss"], "MiB", PROCESS_MIB + RING_MIB * live, pss=values["Pss"], pss_anon=values["Pss_Anon"],
                     pss_shmem=values["Pss_Shmem"])


FIELDS = ("VmHWM", "RssAnon", "RssFile", "RssShmem")


def status_fields(pid):
    """Bytes of some fields of /proc/PID/status; None when the process is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as stream:
            words = [line.split() for line in stream]
    except OSError:
        return None
    found = {line[0][:-1]: int(line[1]) * 1024 for line in words if line and line[0][:-1] in FIELDS}
    return found if len(found) == len(FIELDS) else None


def watch(process):
    """Highest value of each field until the process ends."""
    peak = dict.fromkeys(FIELDS, 0)
    begin = time.monotonic()
    while process.poll() is None:
        fields = status_fields(process.pid)
        if fields:
            peak = {name: max(peak[name], fields[name]) for name in FIELDS}
        if time.monotonic() - begin > bench.TIMEOUT_S:
            process.kill()
            process.wait()
            raise bench.Broken(f"varve record still ran after {bench.TIMEOUT_S} s")
        time.sleep(0.02)
    return peak


def measure_collector(folder):
    database = os.path.join(folder, "long.db")
    loop = [bench.program("heap_loop"), "window", str(LONG_PAIRS), "1", str(LIVE)]
    begin = time.monotonic()
    with subprocess.Popen([*bench.record_command(database, "--stacks", "native"), *loop], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        peak = watch(process)
        error = process.stderr.read()
    seconds = time.monotonic() - begin
    if process.returncode != 0:
        raise bench.Broken(f"varve record: status {process.returncode}: {error[-1000:]}")
    stored = bench.conservation(database, 2 * LONG_PAIRS)["stored"]
    os.remove(database)
    own = peak["VmHWM"] - peak["RssShmem"]
    bench.figure("memory", f"collector, {stored} events, {LIVE} live", own / MIB, "MiB",
                 round(COLLECTOR_MIB + COLLECTOR_LIVE_BYTES * LIVE / MIB, 1), hwm=round(peak["VmHWM"] / MIB, 3),
                 **{name: round(peak[name] / MIB, 3) for name in FIELDS[1:]}, seconds=round(seconds, 1))


def measure(folder):
    for threads in (1, 8):
        measure_workload(folder, threads)
    measure_collector(folder)


if __name__ == "__main__":
    bench.main(measure)
