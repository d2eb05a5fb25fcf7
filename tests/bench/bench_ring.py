#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One record into a ring while the collector runs, beside an LTTng-UST tracepoint with the same payload.

Two programs emit equal records in bursts, one each 10 ms, and time each: 10,000 records (1 M/s), 2,500, and the
same without pauses, where no collector keeps up and the ring overflows (`spilled_share` reports how far). The runs of
the two programs alternate. LTTng gets a session of its own with the largest usual channel (16 sub-buffers of 4 MiB
per CPU); a session daemon that runs already is used and left alone, otherwise one is started and ended. """

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import common as bench

ROUNDS = bench.number("VARVE_BENCH_RING_ROUNDS", 5)
BURSTS = bench.number("VARVE_BENCH_RING_BURSTS", 150)
FLAT = bench.number("VARVE_BENCH_RING_FLAT", 1_000_000)
TARGET_NS = 15
TARGET_RATIO = 8
WRAPPER = "liblttng-ust-libc-wrapper.so"


class Lttng:
    """A session daemon, unless one runs already; `run` makes a session for one run of a program."""

    def __init__(self, folder):
        self.home = os.path.join(folder, "lttng")
        os.mkdir(self.home)
        self.environment = dict(os.environ, LTTNG_HOME=self.home, LTTNG_UST_HOME=self.home)
        self.daemon = None
        self.count = 0
        if not self.answers():
            self.daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel"], env=self.environment,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL, start_new_session=True)
            for _ in range(100):
                if self.answers():
                    return
                time.sleep(0.1)
            self.close()
            raise bench.Broken("lttng-sessiond does not answer within 10 s")

    def lttng(self, *arguments):
        return subprocess.run(["lttng", "--no-sessiond", *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)

    def must(self, *arguments):
        result = self.lttng(*arguments)
        if result.returncode != 0:
            raise bench.Broken(f"lttng {' '.join(arguments)}: {result.stdout.strip()}")
        return result.stdout

    def answers(self):
        return self.lttng("list").returncode == 0

    @contextlib.contextmanager
    def session(self, event):
        """A session of its own that wants these events, which runs: its name. It goes with its trace."""
        self.count += 1
        name = f"varve_bench_{os.getpid()}_{self.count}"
        output = os.path.join(self.home, name)
        self.must("create", name, f"--output={output}")
        try:
            self.must("enable-channel", "--userspace", f"--session={name}", "--subbuf-size=4M", "--num-subbuf=16",
                      "--discard", "large")
            self.must("enable-event", "--userspace", f"--session={name}", "--channel=large", event)
            self.must("start", name)
            yield name
        finally:
            self.lttng("destroy", name)
            shutil.rmtree(output, ignore_errors=True)

    def run(self, arguments):
        """The program's figures, and how many events LTTng says that it discarded."""
        with self.session("varve_bench:record") as name:
            figures = bench.run_json(arguments, env=dict(self.environment, LTTNG_UST_REGISTER_TIMEOUT="-1"))
            found = re.search(r"(\d+) events? (?:were )?(?:discarded|lost)", self.must("stop", name))
        return {**figures, "discarded": int(found.group(1)) if found else 0}

    def wrapped(self, arguments):
        """The program's figures under LTTng's own wrapper of malloc and free."""
        with self.session("lttng_ust_libc:*"):
            return bench.run_json(arguments, env=dict(self.environment, LD_PRELOAD=WRAPPER,
                                                      LTTNG_UST_REGISTER_TIMEOUT="-1"))

    def close(self):
        if self.daemon:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()


def has_tracepoint():
    return os.path.exists(os.path.join(bench.BUILD, "bench", "bench_ring_lttng"))


def has_wrapper():
    """Asked of a process of its own, which a library that can't be found does not end."""
    return subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{WRAPPER}')"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def start_lttng(folder, name="ring", has_peer=has_tracepoint):
    """None, with a line that says why, if there is no LTTng here."""
    missing = [tool for tool in ("lttng", "lttng-sessiond") if shutil.which(tool) is None]
    if missing:
        bench.skip(name, f"no comparison with LTTng-UST: {missing[0]} is missing (lttng-tools)")
        return None
    if not has_peer():
        bench.skip(name, "no comparison with LTTng-UST: its library is missing (liblttng-ust-dev)")
        return None
    return Lttng(folder)


def loads():
    """Name, arguments of the program, targets in ns and as a ratio, rounds. The targets are about bursts of 10,000."""
    yield "1 M records/s in bursts", ("bursts", str(BURSTS), "10000"), TARGET_NS, TARGET_RATIO, ROUNDS
    yield "0.25 M records/s in bursts", ("bursts", str(BURSTS), "2500"), None, None, min(ROUNDS, 3)
    yield "flat out", ("flat", str(FLAT)), None, None, min(ROUNDS, 3)


def measure_load(folder, lttng, name, arguments, target_ns, target_ratio, rounds):
    ours, theirs = [], []
    for _ in range(rounds):
        # The program brings its own recorder: without the preload library there is one, not two.
        ours.append(bench.recorded(folder, ["env", "-u", "LD_PRELOAD", bench.program("bench_ring_emit", "bench"),
                                            *arguments], ("--stacks", "none"), lambda figures: figures["records"]))
        if lttng:
            theirs.append(lttng.run([bench.program("bench_ring_lttng", "bench"), *arguments]))
    our_ns = bench.column(ours, "ns")
    tails = {key: round(statistics.median(bench.column(ours, key)), 3)
             for key in ("ns_p90", "ns_p99") if key in ours[0]}
    bench.figure("ring", f"record, collector running, {name}", statistics.median(our_ns), "ns", target_ns,
                 **tails, ns_least=min(our_ns), **bench.overflow_figures(ours),
                 lost=sum(bench.column(ours, "lost")))
    if theirs:
        bench.compare("ring", f"record beside a tracepoint, {name}", our_ns, bench.column(theirs, "ns"), "ns",
                      "LTTng-UST tracepoint, 4M x 16", target_ratio,
                      peer_discarded=sum(bench.column(theirs, "discarded")))


def measure(folder):
    lttng = start_lttng(folder)
    try:
        for load in loads():
            measure_load(folder, lttng, *load)
    finally:
        if lttng:
            lttng.close()


if __name__ == "__main__":
    bench.main(measure)
