#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a recorded program loses while `varve top` watches it, by its own count of what it does.

One recording; `varve top` begins and ends beside it again and again, on a terminal of its own, so that windows with
it and windows without it alternate in the same process. Each window leaves its first second out, when top starts, or
has just ended. The program says what it did and what CPU time that took, four times a second. `bursts`: threads that
the collector keeps up with. `flat out`: threads that never rest and wait for the collector where their rings are full
(--overflow block), so that what the collector does for top is taken from them. """

import json
import os
import pty
import signal
import statistics
import subprocess
import threading
import time

import common as bench

WINDOWS = bench.number("VARVE_BENCH_TOP_WINDOWS", 24)
WINDOW_S = bench.number("VARVE_BENCH_TOP_WINDOW_S", 4)
SETTLE_S = 1
THREADS = bench.number("VARVE_BENCH_TOP_THREADS", 4)
TARGET = 0.02
CASES = ( # name, bits: 2^bits call sites, pairs before a rest, options of varve record
    ("bursts", 10, 200, ("--keep", "totals")),
    ("flat out", 10, 0, ("--keep", "totals", "--overflow", "block")),
)


class Top:
    """varve top on a pseudoterminal, whose output somebody must read."""

    def __init__(self, database):
        self.terminal, end = pty.openpty()
        environment = dict(os.environ, TERM="xterm", LINES="40", COLUMNS="120")
        self.process = subprocess.Popen([bench.VARVE, "top", database], stdin=end, stdout=end, stderr=end,
                                        env=environment)
        os.close(end)
        self.bytes = 0
        self.begin = time.monotonic()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            while data := os.read(self.terminal, 65536):
                self.bytes += len(data)
        except OSError:
            pass

    def end(self):
        """What it has used of a CPU."""
        os.write(self.terminal, b"q")
        lasted = time.monotonic() - self.begin
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        os.close(self.terminal)
        self.reader.join(5)
        if status != 0 or self.bytes < 500:
            raise bench.Broken(f"varve top ended with {status} after {self.bytes} bytes")
        return (usage.ru_utime + usage.ru_stime) / lasted


def rates(points, begin, end):
    """Pairs per second, and CPU ns per pair, between two moments."""
    inside = [point for point in points if begin <= point["now_ns"] <= end]
    if len(inside) < 4:
        return None
    first, last = inside[0], inside[-1]
    pairs = last["pairs"] - first["pairs"]
    return (pairs * 1e9 / (last["now_ns"] - first["now_ns"]), (last["cpu_ns"] - first["cpu_ns"]) / pairs)


def collector_cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_case(folder, name, bits, burst, options):
    database = os.path.join(folder, "top.db")
    seconds = WINDOWS * WINDOW_S + 6
    command = [*bench.record_command(database, *options), bench.program("threads_pairs"), str(THREADS), str(seconds),
               str(bits), str(burst)]
    recorder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    points = []

    def read():
        for line in recorder.stdout:
            points.append(json.loads(line))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    time.sleep(3)
    windows, tops = [], []
    try:
        for number in range(WINDOWS):
            watched = number % 2 == 1
            top = Top(database) if watched else None
            time.sleep(SETTLE_S)
            begin, cpu = time.monotonic_ns(), collector_cpu_s(recorder.pid)
            time.sleep(WINDOW_S - SETTLE_S)
            end = time.monotonic_ns()
            windows.append((begin, end, (collector_cpu_s(recorder.pid) - cpu) / ((end - begin) / 1e9)))
            if top:
                tops.append(top.end())
        recorder.wait(bench.TIMEOUT_S)
    finally:
        if recorder.poll() is None:
            recorder.send_signal(signal.SIGTERM)
    reader.join(10)
    report(name, points, windows)
    bench.figure("top", f"{name}: the CPU of varve top itself", statistics.median(tops), "CPUs")


def report(name, points, windows):
    figures = [(rates(points, begin, end), cpu) for begin, end, cpu in windows]
    pairs = [(figures[i], figures[i + 1]) for i in range(0, len(figures) - 1, 2) if figures[i][0] and figures[i + 1][0]]
    if len(pairs) < 3:
        raise bench.Broken(f"too few windows: {figures}")
    for metric, index, sign in (("rate", 0, 1), ("CPU time of a pair", 1, -1)):
        lost = [sign * (1 - watched[0][index] / alone[0][index]) for alone, watched in pairs]
        alone = [alone[0][index] for alone, watched in pairs]
        quartiles = statistics.quantiles(lost, n=4)
        bench.figure("top", f"{name}: {metric}, lost to varve top", statistics.median(lost), "share", TARGET,
                     quartiles=[round(quartiles[0], 4), round(quartiles[2], 4)],
                     alone=round(statistics.median(alone), 1),
                     watched=round(statistics.median(watched[0][index] for _, watched in pairs), 1),
                     # what windows without top differ by, one after the other
                     noise=round(statistics.median(abs(1 - b / a) for a, b in zip(alone, alone[1:])), 4),
                     windows=2 * len(pairs))
    bench.figure("top", f"{name}: the collector's CPU", statistics.median(cpu for _, (_, cpu) in pairs), "CPUs",
                 alone=round(statistics.median(cpu for (_, cpu), _ in pairs), 3))


def measure(folder):
    for case in CASES:
        measure_case(folder, *case)


if __name__ == "__main__":
    bench.main(measure)
