#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 15 s
"""varve attach --torch: a training that runs already (of a torch that is none) has PyTorch's own history kept from then
on: what is recorded is a part of what the program did, without a gap, and PyTorch is afterwards what it was before."""

import glob
import json
import os
import signal
import sqlite3
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from torch_shim import FAKE, FAKE_LIBRARY  # noqa: E402

PROGRAM = os.path.join(recording.ROOT, "tests", "programs", "python", "torch_steady.py")
EVENTS = "SELECT kind, addr, requested FROM events WHERE kind IN ('alloc', 'free_requested', 'free_completed') " \
         "AND cause IS NOT 'inherited' ORDER BY seq"


class AttachTorch(recording.AttachCase):
    def training(self, *modes, **environment):
        return self.begin(sys.executable, PROGRAM, self.folder, *modes, env={
            **os.environ, "PYTHONPATH": FAKE, "FAKE_TORCH_LIBRARY": FAKE_LIBRARY, **environment})

    def answer(self, process):
        self.touch("quit")
        outcome = recording.finish(process)
        self.assertEqual((outcome.returncode, outcome.err), (0, ""), outcome)
        return recording.json_lines(outcome.out)[-1]

    def history_path(self):
        """Of the program's only process."""
        found = glob.glob(self.path.removesuffix(".db") + ".torch.*.db")
        self.assertEqual(len(found), 1, os.listdir(self.folder))
        return found[0]

    def history(self):
        return sqlite3.connect(self.history_path())

    def attach_through_steps(self, process):
        """The collector, once the process has done all steps."""
        self.path = os.path.join(self.folder, "trace.db")
        collector = self.attach(process.pid, "--torch")
        self.assertEqual(process.stdout.readline(), "stepped\n")
        return collector

    def record(self, process, name, *options):
        """All steps of the process."""
        self.path = os.path.join(self.folder, name)
        return self.interrupted(self.attach(process.pid, "--torch", *options), process)

    def record_nothing(self, process):
        """Of a process that does no steps; what is said."""
        self.path = os.path.join(self.folder, "trace.db")
        return self.varve("attach", "--torch", "--for", "0", "-f", "-o", self.path, str(process.pid)).err

    def assert_part(self, log):
        """The history is a part of the log. The entries of a call are not all there at either end."""
        events = self.history().execute(EVENTS).fetchall()
        self.assertGreater(len(events), 100)
        named = [[{"alloc": "alloc"}.get(kind, kind), addr] for kind, addr, _ in events]
        logged = [entry[:2] for entry in log]
        firsts = [at for at in range(len(logged)) if logged[at:at + len(named)] == named]
        self.assertEqual(len(firsts), 1)

    def assert_restored(self, answer):
        self.assertEqual(answer["after"], answer["before"])

    def test_again_and_again(self):
        process = self.training()
        for name in ("first.db", "second.db", "third.db"):
            self.record(process, name)
        answer = self.answer(process)
        for name in ("first.db", "second.db", "third.db"):
            self.path = os.path.join(self.folder, name)
            self.assert_part(answer["log"])
        self.assert_restored(answer)

    def test_python_writes(self):
        """A PyTorch whose C++ writes no history."""
        process = self.training(FAKE_TORCH="unpickled")
        self.record(process, "trace.db")
        answer = self.answer(process)
        self.assert_part(answer["log"])
        self.assert_restored(answer)

    def test_backward(self):
        """What a backward pass allocates has the line that called it."""
        process = self.training("backward")
        self.record(process, "trace.db")
        self.answer(process)
        functions = self.history().execute(
            "SELECT DISTINCT f.function FROM allocations a JOIN frame f USING (callsite_id) "
            "WHERE a.domain = 'block' AND a.requested = 4096 AND f.file LIKE '%/torch_steady.py'").fetchall()
        self.assertEqual(sorted(functions), [("<module>",), ("main",), ("step",)])

    def test_program_keeps_history(self):
        process = self.training("theirs")
        self.assertEqual(process.stdout.readline(), "stepped\n")
        self.assertIn("keeps PyTorch's history itself", self.record_nothing(process))
        answer = self.answer(process)
        self.assertTrue(answer["after"]["is_recording"])
        self.assert_restored({**answer, "before": {**answer["before"], "is_recording": True}})

    def test_cuda_starts_later(self):
        process = self.training("late")
        self.assertIn("CUDA was not started", self.record_nothing(process))
        self.path = os.path.join(self.folder, "late.db")
        collector = self.attach(process.pid, "--torch")
        self.touch("cuda")
        self.interrupted(collector, process)
        answer = self.answer(process)
        self.assert_part(answer["log"])
        self.assert_restored(answer)

    def test_program_ends(self):
        process = self.training()
        collector = self.attach_through_steps(process)
        answer = self.answer(process)
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assert_part(answer["log"])

    def test_collector_is_killed(self):
        """PyTorch is as it was, and its history comes with what is recovered."""
        process = self.training()
        collector = self.attach_through_steps(process)
        collector.kill()
        collector.wait()
        history = os.path.join(self.path + ".d", "torch.pickle")
        recording.wait_until(lambda: os.path.exists(history), what="the history")
        recording.wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/task")) == 1, what="the end of the thread")
        self.varve("detach", str(process.pid))
        answer = self.answer(process)
        self.assert_restored(answer)
        self.varve("recover", self.path + ".d")
        self.assert_part(answer["log"])

    def test_program_is_killed(self):
        process = self.training()
        collector = self.attach_through_steps(process)
        process.kill()
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn("it left no history", outcome.err)

    def test_history_is_there_already(self):
        """That of an earlier recording stays."""
        process = self.training()
        for end in ("db", "pickle"):
            self.path = os.path.join(self.folder, f"{end}.db")
            earlier = os.path.join(self.folder, f"{end}.torch.{process.pid}.{end}")
            with open(earlier, "w", encoding="ascii") as stream:
                stream.write("mine")
            outcome = self.varve("attach", "--torch", "-o", self.path, str(process.pid), status=2)
            self.assertIn(earlier, outcome.err)
        self.assert_restored(self.answer(process))

    def test_no_python(self):
        """A program that has PyTorch's libraries alone."""
        process = self.begin(recording.program("attach_target"), self.folder, "1", env={
            **os.environ, "LD_PRELOAD": FAKE_LIBRARY})
        self.assertIn("no Python runs in it", self.record_nothing(process))
        self.touch("begin")
        self.touch("end")
        self.assertIn("errors 0", " ".join(self.quit(process)))

    def interrupted(self, collector, process):
        """What the collector has, and says, of all steps of the process."""
        self.assertEqual(process.stdout.readline(), "stepped\n")
        collector.send_signal(signal.SIGINT)
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        return outcome

    def test_advise(self):
        """The same as of the history that is kept, and nothing else is left."""
        places = os.path.join(self.folder, "places")
        os.mkdir(places)
        process = self.training()
        advising = recording.start([recording.VARVE, "advise", "--json", "--attach", str(process.pid), "--for", "1000"],
                                   env={**os.environ, "TMPDIR": places})
        self.addCleanup(recording.kill_group, advising)
        outcome = self.interrupted(advising, process)
        self.assertEqual((outcome.err, os.listdir(places)), ("", []))
        found = json.loads(outcome.out)
        self.assertEqual(found.pop("trace"), f"process {process.pid}")
        self.assert_restored(self.answer(process))
        os.unlink(os.path.join(self.folder, "quit"))

        process = self.training()
        self.path = os.path.join(self.folder, "trace.db")
        self.interrupted(self.attach(process.pid, "--torch"), process)
        self.answer(process)
        kept = json.loads(self.varve("advise", "--json", self.history_path()).out)
        del kept["trace"]
        for answer in (found, kept):  # which is time
            self.assertGreater(answer.pop("duration_ns"), 0)
        self.assertEqual(found["largest_request"], 512 + 6)
        self.assertEqual(found, kept)

    def test_advise_without_history(self):
        process = self.training("late")
        self.path = os.path.join(self.folder, "trace.db")
        outcome = self.varve("advise", "--attach", str(process.pid), "--for", "0.1", status=2)
        self.assertEqual((outcome.out, outcome.err), (
            "", f"varve advise: process {process.pid}: CUDA was not started in it: PyTorch has no history\n"))
        self.answer(process)

    def top(self):
        return json.loads(self.varve("top", "--json", self.path).out)["figures"]

    def await_text(self, text):
        recording.wait_until(lambda: text in self.varve("top", "--once", self.path).out, what=text)

    def end(self, collector, process):
        """The history of a watched process is whole, and PyTorch as it was; the program's answer."""
        collector.send_signal(signal.SIGINT)
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        answer = self.answer(process)
        self.assert_part(answer["log"])
        self.assert_restored(answer)
        return answer

    def test_top(self):
        """The blocks that the program has, by its lines, while it is recorded; and none of it if nobody looks."""
        process = self.training()
        self.path = os.path.join(self.folder, "trace.db")
        collector = self.attach(process.pid, "--torch")
        now = os.path.join(self.path + ".d", "torch.now.pickle")
        self.assertEqual(process.stdout.readline(), "stepped\n")
        self.assertFalse(os.path.exists(now))
        figures = recording.wait_until(lambda: (found := self.top())["torch"] and found, what="PyTorch's memory")
        self.await_text("PyTorch's blocks are those of")
        recording.wait_until(lambda: not os.path.exists(now), what="the end of what nobody watches")
        log = self.end(collector, process)["log"]

        live = {}
        for action, address, size in log:
            if action == "alloc":
                live[address] = size
            elif action == "free_completed":
                del live[address]
        self.assertEqual(figures["torch"]["is_seen"], 1)
        total, = [row for row in figures["totals"] if row["domain"] == "block"]
        self.assertEqual((total["live_allocations"], total["live_bytes"], total["bytes"], total["peak_bytes"]),
                         (len(live), sum(live.values()), None, None))
        allocator, = figures["allocators"]
        self.assertEqual((allocator["pid"], allocator["device"], allocator["segments"], allocator["allocated"]),
                         (process.pid, 0, 1, sum(live.values())))
        self.assertEqual(allocator["reserved"] % (1 << 21), 0)
        self.assertGreater(allocator["reserved"], max(live) - min(live))
        self.assertEqual([(line["user_function"], line["user_file"], line["user_line"], line["live_bytes"])
                          for line in figures["lines"] if line["domain"] == "block"],
                         [("step", "train.py", 3, sum(live.values()))])

    def test_top_of_older_versions(self):
        """Which have no snapshots without their history: that is said, and none is made."""
        process = self.training(FAKE_TORCH_VERSION="2.10.0")
        collector = self.attach_through_steps(process)
        figures = recording.wait_until(lambda: (found := self.top())["torch"] and found, what="what PyTorch lacks")
        self.assertEqual((figures["torch"]["is_seen"], figures["totals"], figures["allocators"]), (0, [], []))
        self.await_text("from PyTorch 2.11 on")
        self.assertEqual(self.end(collector, process)["alone"], 0)

    def test_top_of_what_fails(self):
        process = self.training(FAKE_TORCH="unseen")
        collector = self.attach_through_steps(process)
        self.assertIsNone(self.top()["torch"])
        self.assertGreater(self.end(collector, process)["alone"], 0)

    def test_no_torch(self):
        process = self.begin(sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(100)")
        self.path = os.path.join(self.folder, "trace.db")
        outcome = self.varve("attach", "--torch", "-o", self.path, str(process.pid), status=2)
        self.assertEqual(outcome.err, f"varve attach: process {process.pid} has no PyTorch loaded\n")
        outcome = self.varve("advise", "--attach", str(process.pid), status=2)
        self.assertEqual(outcome.err, f"varve advise: process {process.pid} has no PyTorch loaded\n")


if __name__ == "__main__":
    recording.main()
