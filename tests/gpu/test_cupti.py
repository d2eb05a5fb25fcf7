#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""The CUPTI recorder on a real GPU: a program with the static runtime library, which the loader's symbols say nothing
of, recorded by CUPTI alone and beside the CUDA recorder; what CUPTI's own activity records say of the same calls; the
subscription that another profiler holds, or wants (torch.profiler); and what a callback costs. Needs nvcc, the
profiler's part PyTorch too. Figures are printed as JSON lines, one object each."""

import collections
import functools
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cupti_workload.cu")
PYTHON = os.environ.get("VARVE_TEST_PYTHON") or sys.executable
FAILED, DUPLICATE = 1, 8  # event.flags
# of the device API, without what is derived or reported once
CALLS = ("dev_alloc", "dev_free", "dev_alloc_async", "dev_free_async", "vmm_reserve", "vmm_create", "vmm_map",
         "vmm_unmap", "vmm_release", "vmm_address_free", "vmm_set_access", "dev_oom", "dev_reset")


def figure(name, **values):
    print(json.dumps({"figure": name, **values}), flush=True)


@functools.lru_cache(None)
def missing():
    """Why nothing can be tested here; None if it can."""
    if not glob.glob("/dev/nvidia[0-9]*"):
        return "no NVIDIA GPU here"
    if not os.path.exists(os.path.join(os.path.dirname(recording.VARVE), "libvarve-cupti.so")):
        return "libvarve-cupti.so is not built"
    return None


@functools.lru_cache(None)
def program():
    """The workload with a static runtime library, or None without nvcc."""
    nvcc = shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda*/bin/nvcc")), None)
    if nvcc is None:
        return None
    folder = tempfile.mkdtemp(prefix="varve-test-")
    path = os.path.join(folder, "cupti_workload")
    subprocess.run([nvcc, "-cudart", "static", "-O1", "-g", "-arch=native", "-o", path, SOURCE, "-ldl", "-lpthread"],
                   check=True, stdout=subprocess.DEVNULL)
    return path


@functools.lru_cache(None)
def torch_works():
    code = "import torch; print(torch.cuda.is_available())"
    return subprocess.run([PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.strip() == "True"


def libcupti():
    """A file of it, for a program that wants it as well."""
    for pattern in ("/usr/local/cuda*/lib*/libcupti.so.13", "/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.13",
                    "/usr/local/cuda*/targets/*/lib/libcupti.so.13",
                    os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(PYTHON))),
                                 "lib/python3*/site-packages/nvidia/cu13/lib/libcupti.so.13"),
                    os.path.join(os.path.dirname(os.path.dirname(PYTHON)),
                                 "lib/python3*/site-packages/nvidia/cu13/lib/libcupti.so.13")):
        for path in glob.glob(pattern):
            return path
    return ""


class CuptiCase(recording.Case):
    def setUp(self):
        super().setUp()
        reason = missing()
        if reason and os.environ.get("VARVE_TESTS_STRICT") == "1":
            self.fail(reason)
        if reason:
            self.skipTest(reason)

    def run_program(self, what, *options, status=0, **environment):
        """Recorded; what it printed, and what was said on stderr."""
        if program() is None:
            self.skipTest("no nvcc here")
        outcome = self.record(program(), what, options=("-q", *options), status=status,
                              env={**os.environ, **environment})
        self.assert_finished()
        self.assert_no_loss()
        return recording.json_lines(outcome.out)[-1], outcome.err

    def calls(self, duplicate, columns="kind, addr, CASE WHEN kind LIKE 'dev_free%' THEN 0 ELSE size END, arg",
              kinds=CALLS):
        """Calls in each thread's order, as one recorder reports them. The size of a free is the collector's: that of
        the row that it ends, which of pinned and managed memory only the CUDA recorder's allocations have."""
        marks = ", ".join("?" * len(kinds))
        found = collections.defaultdict(list)
        for row in self.sql(f"SELECT tid, {columns} FROM events WHERE kind IN ({marks}) AND (flags & ? <> 0) = ? "
                            f"ORDER BY seq", *kinds, DUPLICATE, duplicate):
            found[row[0]].append(row[1:])
        return dict(found)

    def story(self):
        return [row[0] for row in self.sql("SELECT state FROM cupti_state ORDER BY seq")]

    def device_rows(self, domain="device"):
        return self.sql("SELECT a.addr, a.size FROM allocation a JOIN domain d ON d.code = a.domain WHERE d.name = ?"
                        " ORDER BY a.alloc_seq", domain)

    def assert_blocks(self, answer, domain="device"):
        """What the program knows that it allocated, in order, among what was recorded."""
        rows = iter(self.device_rows(domain))
        for block in answer["blocks"]:
            self.assertIn(tuple(block), rows)


class StaticRuntime(CuptiCase):
    def graph_allocations(self):
        """How often each recorder has one."""
        return self.sql("SELECT flags & ?, count(*) FROM events WHERE kind = 'dev_alloc_async' AND cause = 'graph' "
                        "GROUP BY 1"
                        " ORDER BY 1", DUPLICATE)

    def test_alone(self):
        """CUPTI is the only recorder: nothing else sees this program."""
        answer, err = self.run_program("all", "--cupti")
        self.assertEqual(err, "")
        self.assertEqual(self.story()[:2], ["cupti_begin", "cupti_clock"])
        self.assertEqual(self.story()[-1], "cupti_end")
        self.assert_blocks(answer)
        kinds = dict(self.sql("SELECT kind, count(*) FROM events GROUP BY 1"))
        figure("static_alone", version=self.one("SELECT arg FROM cupti_state WHERE state = 'cupti_begin'"), kinds=kinds,
               devices=self.sql("SELECT name, uuid, total_bytes FROM device"), story=self.story())
        for kind in CALLS[:-1]:
            self.assertGreater(kinds.get(kind, 0), 0, kind)
        self.assertEqual(self.sql("SELECT sum(allocations) - sum(frees) FROM total WHERE domain = 'device'"),
                         [(1,)], "all but one block were freed")
        self.assertEqual(self.graph_allocations(), [(0, 1)])
        stack = self.sql("SELECT f.function FROM events e JOIN frame f USING(callsite_id) WHERE e.kind = 'dev_oom' "
                         "ORDER BY f.depth")
        figure("stack_of_oom", frames=[row[0] for row in stack])
        self.assertIn("main", [row[0] for row in stack],
                      "the call stack goes through CUPTI and the driver to the program")

    def test_both(self):
        """The CUDA recorder and CUPTI report the same calls, in the same order in each thread."""
        answer, _ = self.run_program("all", "--cuda", "--cupti", "--stacks", "none")
        own, reported = self.calls(0), self.calls(1)
        figure("recorders", threads=len(reported), preload=sum(map(len, own.values())),
               cupti=sum(map(len, reported.values())),
               syncs=[sum(map(len, self.calls(side, kinds=("dev_sync",)).values())) for side in (0, 1)])
        for tid in sorted(set(own) | set(reported)):
            for index, (one, other) in enumerate(zip(own.get(tid, []), reported.get(tid, []))):
                self.assertEqual(one, other, f"call {index} of thread {tid}")
            self.assertEqual(len(own.get(tid, [])), len(reported.get(tid, [])), f"calls of thread {tid}")
        self.assertEqual(sorted(self.device_rows("device")), sorted(self.device_rows("cupti")),
                         "threads may meet between the two")
        self.assertEqual(self.graph_allocations(), [(0, 1), (DUPLICATE, 1)])
        self.assertEqual(self.sql("SELECT * FROM cupti_difference"), [])
        self.assert_blocks(answer, "cupti")

    def test_activity(self):
        """CUPTI's own records of the same operations, in another way and later."""
        self.run_program("all", "--cupti", "--stacks", "none")
        dropped = self.one("SELECT coalesce(sum(arg), 0) FROM cupti_state WHERE state = 'cupti_dropped'")
        reported = collections.Counter(self.sql("SELECT addr, size FROM events WHERE kind IN ('dev_alloc', "
                                                "'dev_alloc_async') AND"
                                            " flags & ? = 0 AND addr <> 0 AND cause <> 'graph'", FAILED))
        seen = collections.Counter(self.sql("SELECT addr, size FROM cupti_memory WHERE op = 'allocation'"))
        plain = collections.Counter(self.sql("SELECT e.addr, e.size FROM event e WHERE e.kind = 37 AND "
                                             "e.flags & ? = 0 AND (SELECT text FROM event_cause "
                                             "WHERE code = e.cause) = 'cuMemAlloc'", FAILED))
        figure("activity", dropped=dropped, callbacks=sum(reported.values()), records=sum(seen.values()),
               both=sum((reported & seen).values()), only_callbacks=sum((reported - seen).values()),
               only_activity=sum((seen - reported).values()), cuMemAlloc=sum(plain.values()),
               kinds=self.sql("SELECT op, memory_kind, count(*) FROM cupti_memory GROUP BY 1, 2"),
               pools=self.sql("SELECT c.text, e.addr, e.size, e.requested, e.arg FROM event e JOIN event_cause c ON"
                              " c.code = e.cause WHERE e.kind = 48 ORDER BY e.seq"))
        self.assertEqual(dropped, 0)
        self.assertEqual(plain - seen, collections.Counter(), "cuMemAlloc without an activity record")
        clock = self.sql("SELECT ts_ns, time_ns FROM cupti_state WHERE state = 'cupti_clock' ORDER BY seq")
        figure("clock", cupti_behind_us=[(ts - time) / 1000 for ts, time in clock])
        for ts, time in clock:
            self.assertLess(abs(ts - time), 1_000_000_000, "CUPTI's clock is the trace's real time")
        self.run_program("linear", "--cupti", "--force", VARVE_CUPTI_ACTIVITY="0")
        self.assertEqual(self.one("SELECT count(*) FROM cupti_memory"), 0)

    # ---- ends ----

    def test_ends(self):
        """A reset, a fork, frees after all exit handlers."""
        for what in ("reset", "fork", "late"):
            answer, err = self.run_program(what, "--cupti", "--force", "--stacks", "none")
            self.assert_blocks(answer)
            live = self.one("SELECT sum(live_allocations) FROM total WHERE domain = 'device'")
            figure("end", of=what, story=self.story(), live=live, said=err,
                   last=self.sql("SELECT kind, cause FROM events ORDER BY seq DESC LIMIT 4"),
                   resets=self.sql("SELECT cause, pool & 4095 FROM events WHERE kind = 'dev_reset'"))
            self.assertEqual(self.story()[-1], "cupti_end")
            # CUDA may refuse the last free before it comes to the driver
            self.assertIn(live, {"reset": (1,), "fork": (1,), "late": (0, 1)}[what], what)

    def test_killed(self):
        """Callbacks are in the ring when they return: a SIGKILL loses none of them."""
        if program() is None:
            self.skipTest("no nvcc here")
        process = recording.start(self.record_command(program(), "killed", options=("-q", "--cupti")))
        self.addCleanup(process.kill)
        answer = json.loads(process.stdout.readline())
        for pid in recording.children_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        recording.finish(process)
        self.assert_finished()
        self.assert_blocks(answer)
        figure("killed", blocks=len(answer["blocks"]), story=self.story(),
               activity=self.one("SELECT count(*) FROM cupti_memory"))

    # ---- the subscription ----

    def test_subscription_taken(self):
        answer, err = self.run_program("subscription", "--cuda", "--cupti", VARVE_CUPTI_LIBRARY=libcupti())
        figure("subscription_taken", said=err, state=self.sql("SELECT state, arg FROM cupti_state"))
        self.assertEqual(self.sql("SELECT state, arg FROM cupti_state"), [("cupti_refused", 39)])
        self.assertIn("varve: CUPTI serves one profiler per process", err)
        self.assert_blocks(answer)

    def test_not_found(self):
        _, err = self.run_program("linear", "--cupti", VARVE_CUPTI_LIBRARY="/nowhere/libcupti.so")
        self.assertEqual(self.story(), ["cupti_refused"])
        self.assertIn("VARVE_CUPTI_LIBRARY", err)

    def test_costs(self):
        """Natively, recorded by either, by both."""
        if program() is None:
            self.skipTest("no nvcc here")
        native = recording.json_lines(recording.run([program(), "costs"]).out)[0]
        figure("cost", recorder="none", **native)
        for options in (("--cuda",), ("--cupti",), ("--cuda", "--cupti")):
            for stacks in ("none", "native"):
                answer, _ = self.run_program("costs", *options, "--stacks", stacks, "--force")
                figure("cost", recorder=" ".join(options), stacks=stacks,
                       added_event_synchronize_ns=round(answer["event_synchronize_ns"] - native["event_synchronize_ns"],
                                                        1),
                       **answer)
        answer, _ = self.run_program("costs", "--cupti", "--stacks", "none", "--force", VARVE_CUPTI_ACTIVITY="0")
        figure("cost", recorder="--cupti", stacks="none", activity=False,
               added_event_synchronize_ns=round(answer["event_synchronize_ns"] - native["event_synchronize_ns"],
                                                1), **answer)


PROFILE = """
import ctypes, json, os, sys, torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(1 << 20, device="cuda")
torch.cuda.synchronize()
released = None
if sys.argv[1] == "release":
    released = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).varve_cupti_release()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    for _ in range(10):
        x = x * 2
    torch.cuda.synchronize()
events = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
y = torch.ones(1 << 26, device="cuda")
torch.cuda.synchronize()
print(json.dumps({"released": released, "cuda_events": len(events),
                  "device_alloc": torch.cuda.memory_stats()["num_device_alloc"]}))
"""


class Profiler(CuptiCase):
    def profile(self, what, *options, **environment):
        if not torch_works():
            self.skipTest(f"{PYTHON} has no PyTorch with a GPU")
        outcome = self.record(PYTHON, "-c", PROFILE, what, options=("-q", "--stacks", "none", "--force", *options),
                              env={**os.environ, **environment})
        self.assert_finished()
        self.assert_no_loss()
        answer = recording.json_lines(outcome.out)[-1]
        figure("profiler", what=what, options=options, said=outcome.err[-1500:], story=self.story(), **answer)
        return answer

    def test_released(self):
        """Once the subscription of CUPTI is given back, torch.profiler sees kernels; the CUDA recorder goes on."""
        answer = self.profile("release", "--cuda", "--cupti", VARVE_CUPTI_PROFILER="keep")
        self.assertEqual(answer["released"], 0)
        self.assert_released(answer)
        allocs = self.one("SELECT count(*) FROM events WHERE kind = 'dev_alloc' AND flags & ? = 0 AND cause = "
                          "'cudaMalloc'", DUPLICATE)
        self.assertGreaterEqual(allocs, answer["device_alloc"])

    def assert_released(self, answer):
        self.assertGreaterEqual(answer["cuda_events"], 10)
        self.assertEqual(self.sql("SELECT state, arg FROM cupti_state ORDER BY seq")[-1], ("cupti_end", 1))
        # the last tensor came when CUPTI was gone: what only one of the two can report is no difference
        self.assertGreater(self.one("SELECT count(*) FROM events WHERE kind = 'dev_alloc' AND flags & ? = 0",
                                    DUPLICATE),
                           self.one("SELECT count(*) FROM events WHERE kind = 'dev_alloc' AND flags & ? <> 0",
                                    DUPLICATE))
        self.assertEqual(self.sql("SELECT * FROM cupti_difference"), [])

    def test_given_up(self):
        """The program's profiler gets the subscription without its asking: the shim gives it up."""
        answer = self.profile("keep", "--cuda", "--cupti")
        self.assertIsNone(answer["released"])
        self.assert_released(answer)

    def test_held(self):
        """While we have the subscription the profiler has none: the program runs on all the same, and the trace is
        whole."""
        answer = self.profile("keep", "--cuda", "--cupti", VARVE_CUPTI_PROFILER="keep")
        self.assertIsNone(answer["released"])
        self.assertEqual(self.story()[-1], "cupti_end")
        self.assertGreater(self.one("SELECT count(*) FROM events WHERE kind = 'dev_alloc' AND flags & ? <> 0",
                                    DUPLICATE), 0)
        self.assertEqual(self.sql("SELECT * FROM cupti_difference"), [])

    def test_without_cupti(self):
        """What the profiler sees without us, to compare with."""
        answer = self.profile("keep", "--cuda")
        self.assertGreaterEqual(answer["cuda_events"], 10)


def main():
    try:
        recording.main()
    finally:
        if program.cache_info().currsize and program():
            shutil.rmtree(os.path.dirname(program()), ignore_errors=True)


if __name__ == "__main__":
    main()
