# SPDX-License-Identifier: Apache-2.0
"""Logs as RMM, PyTorch's profiler and Nsight Systems write them, made of one random program, and what its memory was
then."""

import json
import random
import sqlite3

MIB = 1 << 20
BASE = 0x7F0000000000


class Program:
    """Calls in order: (time in us, thread, action, address, size, stream), and the sums that a reader must come to."""

    def __init__(self, seed, calls=2000, threads=3, streams=(0, 0x55D0C0FFEE00), failures=True, slots=400):
        chance = random.Random(seed)
        free = list(range(slots))
        self.calls = []
        self.live = {}
        self.allocations = self.frees = self.failures = 0
        self.peak = current = 0
        time_us = 50_000_000_000 + seed
        for _ in range(calls):
            time_us += chance.randrange(1, 5000)
            thread = 1000 + chance.randrange(threads)
            stream = chance.choice(streams)
            draw = chance.random()
            if failures and draw < 0.01:
                self.calls.append((time_us, thread, "failure", 0, chance.randrange(1, 1 << 40), stream))
                self.failures += 1
            elif free and (draw < 0.55 or not self.live):
                slot = free.pop(chance.randrange(len(free)))
                addr, size = BASE + slot * 64 * MIB, chance.choice((1, 512, 4096, 3 * MIB,
                                                                    chance.randrange(1, 60 * MIB)))
                self.calls.append((time_us, thread, "allocate", addr, size, stream))
                self.live[addr] = size
                self.allocations += 1
                current += size
                self.peak = max(self.peak, current)
            else:
                addr = chance.choice(list(self.live))
                size = self.live.pop(addr)
                free.append((addr - BASE) // (64 * MIB))
                self.calls.append((time_us, thread, "free", addr, size, stream))
                self.frees += 1
                current -= size

    @property
    def live_bytes(self):
        return sum(self.live.values())


# ---- RMM ----

RMM_HEADER = "Thread,Time,Action,Pointer,Size,Stream"


def rmm_time(time_us, point="."):
    seconds, us = divmod(time_us, 1_000_000)
    return f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{us:06}"


def rmm_line(call, point=".", null="(nil)"):
    time_us, thread, action, addr, size, stream = call
    name = {"failure": "allocate failure"}.get(action, action)
    pointer = hex(addr) if addr else null
    return f"{thread},{rmm_time(time_us, point)},{name},{pointer},{size},{hex(stream) if stream else '0'}"


def rmm_log(calls, **options):
    return "\n".join([RMM_HEADER, *(rmm_line(call, **options) for call in calls)]) + "\n"


# ---- PyTorch's profiler ----

def memory_event(call, pid, device=0, device_type=1, total=0, reserved=0):
    time_us, thread, action, addr, size, _ = call
    args = {"Total Reserved": reserved, "Total Allocated": total, "Bytes": -size if action == "free" else size,
            "Addr": addr, "Device Id": device, "Device Type": device_type, "Ev Idx": 0}
    name = "[memory]"
    if action == "failure":
        del args["Addr"]
        name = "[OutOfMemory]"
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": name, "pid": pid, "tid": thread,
            "ts": time_us + 0.25, "args": args}


def span(name, thread, begin_us, end_us, category="cpu_op", pid=77):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread, "ts": begin_us,
            "dur": end_us - begin_us, "args": {"External id": 1, "Input type": ["float", "\"quoted\\"]}}


def profiler_trace(events, indent=2):
    """As Kineto writes it: other keys around the list, objects in several lines."""
    return json.dumps({
        "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU }]"}], "profile_memory": 1,
        "trace_id": "[memory]", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": [
            {"name": "process_name", "ph": "M", "ts": 1, "pid": 77, "tid": 0, "args": {"name": "python"}},
            *events,
            {"ph": "X", "cat": "kernel", "name": "void k<float>", "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {}}],
        "traceName": "trace.json"}, indent=indent)


# ---- Nsight Systems ----

NSIGHT_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2024.6.2.225'), ('EXPORT_SCHEMA_VERSION', '3.16.1');
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
    totalMemory INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT,
    numMultiprocessors INTEGER);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
    (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'),
    (3, 'CUDA_MEMOPR_MEMORY_KIND_ARRAY', 'Array'), (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed'),
    (5, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC', 'Device Static'),
    (6, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC', 'Managed Static'), (7, 'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN', 'Unknown');
CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0, 'CUDA_DEV_MEM_EVENT_OPR_ALLOCATION', 'Allocation'),
    (1, 'CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION', 'Deallocation');
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,
    bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,
    correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER,
    localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER,
    importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER);
CREATE TABLE CUDA_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved INTEGER,
    originalIP INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth));
"""

# Of nsys 2021: no pools, no calls, no names of kinds.
NSIGHT_SCHEMA_OLD = """
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT NOT NULL, globalPid INT NOT NULL, deviceId INT NOT NULL,
    contextId INT NOT NULL, address INT NOT NULL, pc INT NOT NULL, bytes INT NOT NULL, memKind INT NOT NULL,
    memoryOperationType INT NOT NULL, name TEXT);
"""


def global_pid(pid):
    return 0x0101 << 48 | pid << 24


class Nsight:
    def __init__(self, path, schema=NSIGHT_SCHEMA):
        self.database = sqlite3.connect(path)
        self.database.executescript(schema)
        self.strings = {}
        self.correlation = 0

    def close(self):
        self.database.commit()
        self.database.close()

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.database.execute("INSERT INTO StringIds VALUES (?, ?)", (self.strings[text], text))
        return self.strings[text]

    def chain(self, number, frames):
        self.database.executemany(
            "INSERT INTO CUDA_CALLCHAINS VALUES (?, ?, ?, 0, 0, ?)",
            [(number, self.string(function), self.string(module), depth)
             for depth, (function, module) in enumerate(frames)])

    def row(self, time_ns, pid, operation, addr, size, kind=2, device=0, stream=0, pool=None, pool_size=None, call=None,
            tid=None, chain=None, took=100):
        self.correlation += 1
        self.database.execute(
            "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?, ?, ?, 1, ?, 0, ?, ?, ?, NULL, ?, ?, ?, 0, ?, 0,"
            " NULL, NULL)",
            (time_ns, global_pid(pid), device, addr, size, kind, operation, self.correlation, stream, pool, pool_size))
        if call is not None:
            self.database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, ?, 0, ?)",
                (time_ns - took // 2, time_ns - took // 2 + took, global_pid(pid) | tid, self.correlation,
                 self.string(call), chain))
