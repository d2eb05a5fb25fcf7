#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Histories of PyTorch's allocator: how fast `varve` replays, imports and exports them, and in how much memory.

The recordings of tests/conformance/pytorch, or of the folder that VARVE_BENCH_TRACES names, and a history of ten
million events that is made here: as large as a day of training leaves, and steady, so that it shows what an event
takes. The recordings are small, so what a command takes before its first event is part of their figures.
"""

import glob
import io
import json
import os
import pickle
import random
import statistics
import struct
import subprocess
import time

import common as bench

ROUNDS = bench.number("VARVE_BENCH_REPLAY_ROUNDS", 5)
EVENTS = bench.number("VARVE_BENCH_REPLAY_EVENTS", 10_000_000)
TRACES = os.environ.get("VARVE_BENCH_TRACES",
                        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance", "pytorch"))
REPLAY_PER_S, IMPORT_PER_S, REPLAY_MIB = 5_000_000, 2_000_000, 1024

SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
SMALL_BASE, LARGE_BASE = 0x7F0000000000, 0x7F0010000000
KEYS = ("action", "addr", "size", "stream", "frames", "time_us", "alloc", "free_requested", "free_completed")
TIME = b"\x8a\x08VARVTIME"  # LONG1 of eight bytes, which each step replaces


def event(action, addr, size):
    """An event as Python's pickler writes it: keys from the memo, the dict and the list of its frames put there."""
    def number(value):
        return b"J" + struct.pack("<i", value) if value < 1 << 31 else b"\x8a\x06" + value.to_bytes(6, "little")

    def word(name):
        return b"h" + bytes([KEYS.index(name)])

    return (b"}\x94(" + word("action") + word(action) + word("addr") + number(addr) + word("size") + number(size) +
            word("stream") + b"K\0" + word("frames") + b"]\x94" + word("time_us") + TIME + b"u")


def one_step():
    """What a step of a program does: 300 small blocks and 12 large ones, each in front of what is left of its segment,
    then their frees, every second one first. Afterwards all is as it was before. Returns the events, and what the last
    block of each pool was asked for, which PyTorch keeps."""
    source = random.Random(3)
    blocks = []
    for base, count, draw in ((SMALL_BASE, 300, lambda: source.randrange(1, 6000)),
                              (LARGE_BASE, 12, lambda: source.randrange(5 << 18, 6 << 18))):
        addr = base
        for _ in range(count):
            size = draw()
            blocks.append((addr, size))
            addr += (size + 511) // 512 * 512
    events = [event("alloc", *block) for block in blocks]
    last = {}
    for addr, size in blocks[::2] + blocks[1::2][::-1]:
        events += [event("free_requested", addr, size), event("free_completed", addr, size)]
        last[LARGE_BASE if addr >= LARGE_BASE else SMALL_BASE] = size
    return events, last


def segment(address, size, kind, requested):
    return {"device": 0, "address": address, "total_size": size, "allocated_size": 0, "active_size": 0,
            "requested_size": 0, "stream": 0, "segment_type": kind, "segment_pool_id": (0, 0), "is_expandable": False,
            "frames": [], "blocks": [{"address": address, "size": size, "requested_size": requested,
                                      "state": "inactive", "frames": []}]}


def plain(value):
    """The opcodes of a value alone, with nothing for the memo."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 2)
    pickler.fast = True
    pickler.dump(value)
    return out.getvalue()[2:-1]


def make_history(path, wanted):
    """A snapshot of at least so many events, in protocol 4, without more than one step of it in memory."""
    events, last = one_step()
    step = b"(" + b"".join(events) + b"e"  # MARK, items, APPENDS
    # A first block of each pool makes its segment.
    begin = [{"action": action, "addr": base, "size": size, "stream": 0, "frames": [], "time_us": 1}
             for base, whole, block in ((SMALL_BASE, SMALL_SEGMENT, 512), (LARGE_BASE, LARGE_SEGMENT, 5 << 18))
             for action, size in (("segment_alloc", whole), ("alloc", block), ("free_requested", block),
                                  ("free_completed", block))]
    # The memo begins with the keys: a tuple of them, which goes away again.
    head = b"\x80\x04(" + b"".join(b"\x8c" + bytes([len(key)]) + key.encode() + b"\x94" for key in KEYS) + b"1"
    parts = [segment(SMALL_BASE, SMALL_SEGMENT, "small", last[SMALL_BASE]),
             segment(LARGE_BASE, LARGE_SEGMENT, "large", last[LARGE_BASE])]

    steps = max(1, -(-wanted // len(events)))
    with open(path, "wb") as out:
        out.write(head + b"}\x94(" + plain("segments") + plain(parts) + plain("device_traces") + b"]\x94(]\x94(")
        out.write(b"".join(plain(item) for item in begin) + b"e")
        for number in range(steps):
            out.write(step.replace(TIME, b"\x8a\x08" + struct.pack("<q", 1_700_000_000_000_000 + 1000 * number)))
        out.write(b"eu.")
    return steps * len(events) + len(begin)


# ---- measuring -----------------------------------------------------------------------------------------------------

def timed(folder, *arguments):
    """Wall time, the most memory in MiB, and standard output of a command that must succeed."""
    with open(os.path.join(folder, "out"), "w+b") as out, open(os.path.join(folder, "errors"), "w+b") as errors:
        begin = time.monotonic()
        with subprocess.Popen([bench.VARVE, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=errors) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        out.seek(0)
        errors.seek(0)
        if child.returncode != 0:
            raise bench.Broken(f"varve {' '.join(arguments)}: status {child.returncode}\n{errors.read()[-2000:]!r}")
        return seconds, usage.ru_maxrss / 1024, out.read().decode()


def options_of(path):
    """What the recording program had set, as far as the file beside it says."""
    name = path.split(".pickle")[0] + ".expected.json"
    if not os.path.exists(name):
        return []
    with open(name, encoding="utf-8") as file:
        expected = json.load(file)
    options = ["--capacity", str(expected["total_memory"])]
    if expected["alloc_conf"]:
        options += ["--conf", expected["alloc_conf"]]
    if expected["memory_limit"]:
        options += ["--memory-limit", str(expected["memory_limit"])]
    return options


def replay(folder, path, options):
    wall, memory, out = timed(folder, "replay", "--verify", "--json", path, *options)
    answer = json.loads(out)
    if answer["mismatches"] != 0 or not answer["segments_equal"]:
        raise bench.Broken(f"{path}: the replay differs: {answer['first_mismatch']} {answer['segments_difference']}")
    return {"wall": wall, "memory": memory, "seconds": answer["seconds"], "events": answer["events"]}


def write(folder, verb, path, *options):
    """Import or export into a new file: to replace one would measure how long that takes to go away."""
    target = os.path.join(folder, verb + ".out")
    wall, memory, _ = timed(folder, verb, "--quiet", path, *options, "-o", target)
    os.remove(target)
    return {"wall": wall, "memory": memory}


def rate_figure(text, name, events, seconds, target=None, **others):
    """The median of some runs, and the best one, which says most about a machine that others use too."""
    bench.figure("replay", f"{text}, {name}", events / statistics.median(seconds), "events/s", target,
                 more_is_better=True, most=round(events / min(seconds)), events=events, **others)


def measure_file(folder, name, path, rounds):
    options = options_of(path)
    replays = [replay(folder, path, options) for _ in range(rounds)]
    events = replays[0]["events"]
    memory = max(run["memory"] for run in replays)
    rate_figure("replayed and compared", name, events, [run["seconds"] for run in replays], REPLAY_PER_S)
    rate_figure("read, replayed and compared", name, events, [run["wall"] for run in replays], memory_mib=round(memory))
    imports = [write(folder, "import", path) for _ in range(rounds)]
    rate_figure("imported", name, events, [run["wall"] for run in imports], IMPORT_PER_S,
                memory_mib=round(max(run["memory"] for run in imports)))
    exports = [write(folder, "export", path, "--to", "pytorch") for _ in range(rounds)]
    rate_figure("exported", name, events, [run["wall"] for run in exports],
                memory_mib=round(max(run["memory"] for run in exports)))
    return memory


def measure(folder):
    paths = sorted(glob.glob(os.path.join(TRACES, "*.pickle*"))) if TRACES else []
    if not paths:
        bench.skip("replay", "no recordings: VARVE_BENCH_TRACES names no folder of snapshots")
    for path in paths:
        measure_file(folder, os.path.basename(path).split(".")[0], path, ROUNDS)
    path = os.path.join(folder, "history.pickle")
    events = make_history(path, EVENTS)
    memory = measure_file(folder, "a long history", path, min(ROUNDS, 3))
    bench.figure("replay", "memory of a replay of a long history", memory, "MiB", REPLAY_MIB, events=events)


if __name__ == "__main__":
    bench.main(measure)
