#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's allocator and libvarve-torch.so in one process on one GPU: the cached pair, and the requests of real
programs played again, each without a recorder and with one.

    gpu_torch.py [RECORDING.pickle.xz …]

Needs PyTorch with CUDA, a C++ compiler and CUDA's headers (those of PyTorch's own wheels do). The loops are
gpu_torch_pair.cc, compiled here (or VARVE_BENCH_LIBRARY names the finished library). `native` is PyTorch's allocator,
`plugged` ours behind PyTorch's CUDAPluggableAllocator, which keeps a map of its own behind a mutex: that is what a
program under `varve record --torch` calls. With recording, ours runs under `varve record --torch` with the shim left
out, and the peer keeps its history (torch.cuda.memory._record_memory_history); both without stacks, then both with
Python's.

VARVE and VARVE_BUILD_DIR say which build; VARVE_BENCH_TORCH_ROUNDS (20) how long.
"""

import collections
import ctypes
import glob
import json
import lzma
import os
import pickle
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import common as bench

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROUNDS = bench.number("VARVE_BENCH_TORCH_ROUNDS", 20)
PAIRS, SINGLES, DEPTH = 5000, 20000, 20
SIZES = {"64 KiB": 64 << 10, "8 MiB": 8 << 20}
TRACES = ("gpt2_train", "resnet50_train_stacks", "multistream_record", "gpt2_train_roundup")
ENGINES = ("native", "varve", "plugged")
PAIR_RATIO, RECORDED_RATIO = 5, 3  # the budget: times cheaper than PyTorch, and recorded than PyTorch unrecorded
OP = struct.Struct("<QII")


# ---- recordings ----


def read_ops(path):
    """(operations as gpu_torch_pair.cc wants them, their number, slots, streams, most bytes at a time)"""
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as stream:
        events = max(pickle.load(stream)["device_traces"], key=len)
    ops, streams, live, spare = [], {}, {}, []
    slots = held = most = 0
    for event in events:
        if event["action"] == "alloc" and event["size"] > 0:
            if not spare:
                spare.append(slots)
                slots += 1
            slot = spare.pop()
            live[event["addr"]] = slot, event["size"]
            ops.append(OP.pack(event["size"], slot, streams.setdefault(event["stream"], len(streams))))
            held += event["size"]
            most = max(most, held)
        elif event["action"] == "free_requested" and event["addr"] in live:
            slot, size = live.pop(event["addr"])
            spare.append(slot)
            held -= size
            ops.append(OP.pack(0, slot, 0))
    return {"ops": b"".join(ops), "count": len(ops), "slots": slots, "streams": len(streams), "most": most}


def convert(paths, folder):
    """The recordings as flat files; a list for the measuring processes."""
    made = []
    for path in paths:
        trace = read_ops(path)
        name = os.path.basename(path).split(".")[0]
        with open(os.path.join(folder, name + ".ops"), "wb") as stream:
            stream.write(trace.pop("ops"))
        made.append({"name": name, "path": os.path.join(folder, name + ".ops"), **trace})
    return made


# ---- measuring: a process of its own ----


def deep(depth, function):
    """Call it with as many Python frames around it as a model has."""
    return function() if depth == 0 else deep(depth - 1, function)


def open_loops(plan):
    import torch

    torch.cuda.init()
    torch.empty(1 << 20, device="cuda")
    loops = ctypes.PyDLL(plan["loops"])  # with Python's lock, as PyTorch's own calls mostly have it
    loops.bench_open.restype = ctypes.c_char_p
    loops.bench_pairs.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint)
    loops.bench_pairs.restype = ctypes.c_double
    loops.bench_quantiles.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p)
    loops.bench_quantiles.restype = ctypes.c_double
    loops.bench_replay.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p)
    loops.bench_replay.restype = ctypes.c_double
    reason = loops.bench_open(plan["library"].encode())
    if reason:
        raise bench.Broken(reason.decode())
    return torch, loops


def checked(value):
    if value < 0:
        raise bench.Broken("an allocation failed")
    return value


def rest(plan):
    """Let the collector empty the rings: what is measured is the allocator and the ring, not the spill."""
    if plan["recording"] != "off":
        time.sleep(0.1)


def measure_pairs(plan, loops, result):
    singles = SINGLES if plan["recording"] == "off" else PAIRS
    for name, size in SIZES.items():
        times = {engine: [] for engine in ENGINES}
        for _ in range(ROUNDS + 1):
            for number, engine in enumerate(ENGINES):
                rest(plan)
                times[engine].append(checked(deep(DEPTH, lambda n=number: loops.bench_pairs(n, size, PAIRS))))
        row = {engine: values[1:] for engine, values in times.items()}
        quantiles = (ctypes.c_double * 2)()
        for number, engine in enumerate(ENGINES):
            rest(plan)
            checked(deep(DEPTH, lambda n=number: loops.bench_quantiles(n, size, singles, quantiles)))
            row[engine + " single"] = list(quantiles)
        result["pair " + name] = row


def measure_replays(plan, torch, loops, reset, result):
    for trace in plan["traces"]:
        if 3 * trace["most"] > torch.cuda.mem_get_info()[0]:
            bench.note(f"{trace['name']} is left out: it needs {trace['most'] >> 20} MiB three times")
            continue
        with open(trace["path"], "rb") as stream:
            ops = stream.read()
        own = [torch.cuda.Stream() for _ in range(trace["streams"])]
        streams = (ctypes.c_uint64 * trace["streams"])(0, *(stream.cuda_stream for stream in own[1:]))
        times = {engine: [] for engine in ENGINES}
        for _ in range(max(ROUNDS // 4, 2) + 1):
            for number, engine in enumerate(ENGINES):
                rest(plan)
                ns = checked(deep(DEPTH, lambda n=number: loops.bench_replay(n, ops, trace["count"], trace["slots"],
                                                                             streams)))
                times[engine].append(ns / trace["count"])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        reset()
        result["replay " + trace["name"]] = {
            **{engine: values[1:] for engine, values in times.items()},
            **{engine + " cold": values[0] for engine, values in times.items()}, "operations": trace["count"]}


def measure(plan):
    torch, loops = open_loops(plan)
    library = ctypes.CDLL(plan["library"])
    result = {}
    if bool(library.varve_torch_is_recording()) != (plan["recording"] != "off"):
        raise bench.Broken("is it recorded? libvarve-torch.so says " + str(library.varve_torch_is_recording()))
    if plan["recording"] != "off":
        torch.cuda.memory._record_memory_history(
            enabled="all", context="all" if plan["recording"] == "python" else None, stacks="python",
            max_entries=100_000)
    measure_pairs(plan, loops, result)
    measure_replays(plan, torch, loops, library.varve_torch_reset, result)
    with open(plan["result"], "w", encoding="utf-8") as stream:
        json.dump(result, stream)


# ---- the whole: one process after another ----


def headers():
    """Folders with PyTorch's and CUDA's headers, and PyTorch's libraries; asked of the interpreter that has it."""
    script = ("import os, sys, torch; print(os.path.dirname(torch.__file__)); print(torch.cuda.is_available());"
              "print(torch.__version__)")
    folder, available, version = bench.run([sys.executable, "-c", script]).split()
    beside = os.path.join(os.path.dirname(folder), "nvidia")
    cuda = [path for pattern in (beside + "/cu*/include", beside + "/cuda_runtime/include", "/usr/local/cuda/include")
            for path in glob.glob(pattern)
            if os.path.exists(path + "/cuda_runtime_api.h") and os.path.exists(path + "/crt/host_config.h")]
    return folder, cuda, available == "True", version


def compile_loops(torch_folder, cuda, folder):
    ready = os.environ.get("VARVE_BENCH_LIBRARY")
    if ready:
        return os.path.abspath(ready)
    target = os.path.join(folder, "libgpu_torch_pair.so")
    include = [os.path.join(torch_folder, "include"), *cuda[:1]]
    bench.run([os.environ.get("CXX") or "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
               *("-I" + path for path in include), os.path.join(FOLDER, "gpu_torch_pair.cc"), "-o", target,
               "-L" + os.path.join(torch_folder, "lib"), "-lc10", "-lc10_cuda", "-ltorch_cuda"])
    return target


def run_measure(plan, folder, recording):
    plan = {**plan, "recording": recording, "result": os.path.join(folder, recording + ".json")}
    path = os.path.join(folder, recording + ".plan")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(plan, stream)
    command = [sys.executable, os.path.abspath(__file__), "--measure", path]
    if recording != "off":
        database = os.path.join(folder, recording + ".db")
        # without the shim: the process keeps PyTorch's allocator, for the comparison
        command = [bench.VARVE, "record", "--torch", "--stacks", "none" if recording == "events" else "python",
                   "-o", database, "--", "env", "-u", "PYTHONPATH", "-u", "VARVE_TORCH", *command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=bench.TIMEOUT_S, check=False)
    if done.returncode != 0 or not os.path.exists(plan["result"]):
        raise bench.Broken(f"the process that measures ({recording}) ended with status {done.returncode}")
    with open(plan["result"], encoding="utf-8") as stream:
        return json.load(stream)


def report(results):
    for recording, result in results.items():
        for metric, row in result.items():
            others = {"recording": recording, "plugged": round(statistics.median(row["plugged"]), 1),
                      "plugged_ratio": round(statistics.median(p / v for v, p in zip(row["plugged"], row["native"])),
                                             2)}
            for key in ("single", "cold"):
                others.update({f"{engine}_{key}": [round(v, 1) for v in values] if isinstance(values, list) else
                               round(values, 1) for engine in ENGINES
                               for values in [row.get(f"{engine} {key}")] if values is not None})
            target = None
            if recording == "off":
                target = PAIR_RATIO if metric.startswith("pair") else None
            else:
                plain = statistics.median(results["off"][metric]["native"])
                others["unrecorded_peer_ratio"] = round(plain / statistics.median(row["varve"]), 2)
                if recording == "events" and metric.startswith("pair"):
                    others["unrecorded_target"] = RECORDED_RATIO
            bench.compare("gpu_torch", metric, row["varve"], row["native"], "ns", "PyTorch native", target, **others)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--measure":
        with open(sys.argv[2], encoding="utf-8") as stream:
            return measure(json.load(stream))
    library = os.path.join(bench.BUILD, "libvarve-torch.so")
    if not os.path.exists(library):
        raise bench.Broken(f"{library} is missing: run ./dev build first")
    torch_folder, cuda, is_available, version = headers()
    if not is_available:
        return bench.skip("gpu_torch", f"PyTorch {version} finds no GPU here")
    paths = sys.argv[1:] or [os.path.join(FOLDER, "..", "conformance", "pytorch", name + ".pickle.xz")
                             for name in TRACES]
    folder = tempfile.mkdtemp(prefix="varve-gpu-torch-")
    try:
        plan = {"library": library, "loops": compile_loops(torch_folder, cuda, folder),
                "traces": convert(paths, folder)}
        results = collections.OrderedDict()
        for recording in ("off", "events", "python"):
            results[recording] = run_measure(plan, folder, recording)
        report(results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except bench.Broken as error:
        bench.note(f"gpu_torch: {error}")
        sys.exit(1)
