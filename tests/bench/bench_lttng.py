#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the second sink costs: a record into the ring alone, into the ring with LTTng at hand but no trace that wants
the event, and into both; a pair of malloc and free recorded to both, beside LTTng's own wrapper of the C library; and
how fast the trace is read back. The runs of each comparison alternate. A session daemon that runs already is used and
left alone, otherwise one is started and ended. """

import os
import shutil
import statistics

import common as bench
from bench_ring import start_lttng

ROUNDS = bench.number("VARVE_BENCH_LTTNG_ROUNDS", 5)
BURSTS = bench.number("VARVE_BENCH_LTTNG_BURSTS", 100)
PAIRS = bench.number("VARVE_BENCH_LTTNG_PAIRS", 1_000_000)
IMPORT_PAIRS = bench.number("VARVE_BENCH_LTTNG_IMPORT_PAIRS", 1_500_000)
TARGET_OFF_NS = 1
TARGET_IMPORT = 450_000


def record(lttng, folder, arguments, options=(), prefix=()):
    """The figures that a program prints, recorded to `ring.db`."""
    database = os.path.join(folder, "ring.db")
    shutil.rmtree(os.path.join(folder, "ring.ctf"), ignore_errors=True)
    return bench.run_json([*bench.record_command(database, "--stacks", "none", *options), *prefix, *arguments],
                          env=lttng.environment)


def emit(lttng, folder, options=(), script="exec"):
    """The emitter brings its own recorder, so the preloaded one is left out. `script`: what a shell does before."""
    arguments = [bench.program("bench_ring_emit", "bench"), "bursts", str(BURSTS), "2500"]
    return record(lttng, folder, arguments, options,
                  ["sh", "-c", f'unset LD_PRELOAD; {script} "$@"', "sh"])["ns"]


def measure_records(lttng, folder):
    """`off`: the session of the recording is stopped before the program begins."""
    stop = "lttng --no-sessiond stop $(lttng --no-sessiond list | grep -o 'varve-[0-9]*-[0-9a-f]*' | head -1)" \
           " >/dev/null && exec"
    ring, off, both = [], [], []
    for _ in range(ROUNDS):
        ring.append(emit(lttng, folder))
        off.append(emit(lttng, folder, ["--lttng"], stop))
        both.append(emit(lttng, folder, ["--lttng"]))
    bench.figure("lttng", "record into the ring", statistics.median(ring), "ns", least=min(ring))
    bench.figure("lttng", "record into the ring, LTTng loaded but off: added", statistics.median(
        with_it - without for with_it, without in zip(off, ring)), "ns", TARGET_OFF_NS,
        value_with=round(statistics.median(off), 3), least_added=round(min(off) - min(ring), 3))
    bench.figure("lttng", "record into the ring and LTTng", statistics.median(both), "ns", least=min(both),
                 times_ring=round(statistics.median(b / r for b, r in zip(both, ring)), 2))


def measure_pairs(lttng, folder):
    arguments = [bench.program("heap_loop"), "window", str(PAIRS)]
    own, ring, both, peer = [], [], [], []
    for _ in range(ROUNDS):
        own.append(bench.run_json(arguments)["ns_per_pair"])
        ring.append(record(lttng, folder, arguments)["ns_per_pair"])
        both.append(record(lttng, folder, arguments, ["--lttng"])["ns_per_pair"])
        peer.append(lttng.wrapped(arguments)["ns_per_pair"])
    bench.compare("lttng", "pair of malloc and free, recorded to ring and LTTng", both, peer, "ns",
                  "LTTng's wrapper of the C library", own_ns=round(statistics.median(own), 3),
                  ring_only_ns=round(statistics.median(ring), 3))
    bench.compare("lttng", "pair of malloc and free, recorded to the ring", ring, peer, "ns",
                  "LTTng's wrapper of the C library", own_ns=round(statistics.median(own), 3))


def measure_import(lttng, folder):
    """The trace of a malloc loop back into tables, as a user runs it."""
    arguments = [bench.program("heap_loop"), "window", str(IMPORT_PAIRS)]
    record(lttng, folder, arguments, ["--lttng", "--overflow", "block"])
    trace, rebuilt = os.path.join(folder, "ring.ctf"), os.path.join(folder, "rebuilt.db")
    rates = []
    for _ in range(3):
        begin = os.times().elapsed
        bench.run([bench.VARVE, "import", "--quiet", "--force", trace, "-o", rebuilt])
        seconds = os.times().elapsed - begin
        events = bench.query(rebuilt, "SELECT count(*) AS n FROM event")[0]["n"]
        rates.append(events / seconds)
    bench.figure("lttng", "varve import of CTF, whole command", statistics.median(rates), "events/s", TARGET_IMPORT,
                 more_is_better=True, events=events, most=round(max(rates)))


def measure(folder):
    lttng = start_lttng(folder)
    if lttng is None:
        return
    try:
        measure_records(lttng, folder)
        measure_pairs(lttng, folder)
        measure_import(lttng, folder)
    finally:
        lttng.close()


if __name__ == "__main__":
    bench.main(measure)
