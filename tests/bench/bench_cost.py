#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a recording costs as a whole: processor time of the program and of who records it, and bytes.

`containers`: a C++ program (tests/programs/cxx_containers.cc), by default and with totals alone, beside heaptrack.
`objects`: a Python program that makes and drops small objects, with --python-allocators, beside memray
--trace-python-allocators, in the environment of bench_python_program.py. The tools take turns, VARVE_BENCH_COST_ROUNDS
times. `the end`: from the moment that the C++ program's main is over to the summary, per million events. `import
torch`: the whole time of a recording, and to the first answer, beside memray run --native and memray flamegraph; with
the python3 of PATH, or VARVE_BENCH_TORCH_PYTHON, if it has torch and memray."""

import os
import resource
import sys
import time

import bench_python_program
import common as bench

BENCH = "cost"
ROUNDS = bench.number("VARVE_BENCH_COST_ROUNDS", 3)
CONTAINERS = bench.number("VARVE_BENCH_COST_CONTAINERS", 4200)  # 3.65 M events
OBJECTS = bench.number("VARVE_BENCH_COST_OBJECTS", 1500000)  # 15.6 M events
CONTAINERS_RATIO = 1 / 1.5  # heaptrack's processor time over ours
TOTALS_RATIO = 1
CONTAINERS_BYTES = 100_000_000
OBJECTS_RATIO = 1 / 2  # memray's over ours
OBJECTS_BYTES = 200_000_000
END_SECONDS = 1 if (os.cpu_count() or 1) >= 4 else 3  # for 4 M events

OBJECTS_PROGRAM = """
import sys
kept = []
for i in range(int(sys.argv[1])):
    pair, text, table = [i, i + 1000], (i, str(i)), {"x": i}
    if i % 50 == 0:
        kept.append((pair, text, table))
print(len(kept))
"""


TORCH_PROGRAM = """
import torch
product = torch.eye(64)
for _ in range(20):
    product = product @ torch.randn(64, 64)
"""
TORCH_RATIO = 1  # memray run's whole time over ours
ANSWER_RATIO = 1 / 0.6  # to the first answer
TORCH_BYTES = 150_000_000


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(folder, command, prefix="out"):
    """Processor time and output of a command, and the size of the files that it left."""
    before = processor_seconds()
    out = bench.run(command)
    return {"cpu": processor_seconds() - before, "out": out, "end": time.time(),
            "bytes": bench_python_program.bytes_of(folder, prefix)}


def record(folder, command, *options):
    return run(folder, [*bench.record_command(os.path.join(folder, "out.db"), *options), *command])


def compare(metric, ours, theirs, peer, ratio, limit=None):
    bench.compare(BENCH, f"processor time, {metric}", bench.column(ours, "cpu"), bench.column(theirs, "cpu"), "s", peer,
                  ratio, peer_bytes=int(bench.statistics.median(bench.column(theirs, "bytes"))))
    bench.figure(BENCH, f"size, {metric}", bench.statistics.median(bench.column(ours, "bytes")), "bytes", limit)


def containers(folder):
    command = [bench.program("cxx_containers"), str(CONTAINERS)]
    has_peer = bench.shutil.which("heaptrack") is not None
    whole, totals, theirs, ends = [], [], [], []
    database = os.path.join(folder, "count.db")
    bench.run([*bench.record_command(database), *command])
    events = bench.conservation(database, 1)["stored"]
    os.remove(database)
    for _ in range(ROUNDS):
        whole.append(record(folder, command))
        ends.append(whole[-1]["end"] - bench.json.loads(whole[-1]["out"])["end_s"])
        totals.append(record(folder, command, "--keep", "totals"))
        if has_peer:
            theirs.append(run(folder, ["heaptrack", "--output", os.path.join(folder, "peer"), *command], "peer"))
    bench.note(f"{BENCH}: containers has {events:,} events")
    if has_peer:
        compare("containers", whole, theirs, "heaptrack", CONTAINERS_RATIO, CONTAINERS_BYTES)
        compare("containers with totals", totals, theirs, "heaptrack", TOTALS_RATIO)
    else:
        bench.skip(BENCH, "no comparison with heaptrack: it is not installed")
    bench.compare(BENCH, "processor time, totals", bench.column(totals, "cpu"), bench.column(whole, "cpu"), "s",
                  "everything kept", 1)
    bench.figure(BENCH, "the end, 4 M events", bench.statistics.median(ends) * 4e6 / events, "s", END_SECONDS)


def objects(folder):
    python = bench_python_program.environment()
    if python is None:
        return
    script = os.path.join(folder, "objects.py")
    with open(script, "w", encoding="ascii") as stream:
        stream.write(OBJECTS_PROGRAM)
    has_peer = bench.subprocess.run([python, "-c", "import memray"], capture_output=True, check=False).returncode == 0
    memray = [python, "-m", "memray", "run", "--quiet", "--force", "--trace-python-allocators", "--output",
              os.path.join(folder, "peer"), script, str(OBJECTS)]
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(record(folder, [python, script, str(OBJECTS)], "--python-allocators"))
        if has_peer:
            theirs.append(run(folder, memray, "peer"))
    if has_peer:
        compare("objects", ours, theirs, "memray --trace-python-allocators", OBJECTS_RATIO, OBJECTS_BYTES)
    else:
        bench.skip(BENCH, "no comparison with memray: it is not installed")


def imports(folder):
    python = os.environ.get("VARVE_BENCH_TORCH_PYTHON", "python3")
    if bench.subprocess.run([python, "-c", "import torch, memray"], capture_output=True, check=False).returncode != 0:
        bench.skip(BENCH, f"no import of torch: {python} lacks torch or memray")
        return
    script, database, peer = (os.path.join(folder, name) for name in ("import.py", "torch.db", "torch.bin"))
    with open(script, "w", encoding="ascii") as stream:
        stream.write(TORCH_PROGRAM)
    steps = {"record": [*bench.record_command(database), python, script],
             "report": [bench.VARVE, "report", database],
             "run": [python, "-m", "memray", "run", "--native", "--quiet", "--force", "--output", peer, script],
             "flamegraph": [python, "-m", "memray", "flamegraph", "--force", "--output", peer + ".html", peer]}
    rounds, size = [], 0
    bench.run([python, script])  # the files are read, the bytecode is written
    for _ in range(ROUNDS):
        rounds.append({name: bench_python_program.seconds_of(command) for name, command in steps.items()})
        size = bench_python_program.bytes_of(folder, "torch.db")
    bench.compare(BENCH, "import torch", bench.column(rounds, "record"), bench.column(rounds, "run"), "s",
                  "memray run --native", TORCH_RATIO)
    bench.compare(BENCH, "import torch, to the first answer", [one["record"] + one["report"] for one in rounds],
                  [one["run"] + one["flamegraph"] for one in rounds], "s", "memray run and flamegraph", ANSWER_RATIO)
    bench.figure(BENCH, "size, import torch", size, "bytes", TORCH_BYTES)


def measure(folder):
    containers(folder)
    objects(folder)
    imports(folder)


if __name__ == "__main__":
    bench_python_program.bench = bench
    bench.main(measure)
