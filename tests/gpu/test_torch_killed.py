#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""SIGKILL in the middle of a training on the GPU: everything up to the last committed event is in the database, and the
commands work on it."""

import json
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import GpuCase, figure, recording  # noqa: E402


class Killed(GpuCase):
    def kill_in_training(self, options):
        """Returns what the program had counted in its last word: its own allocations."""
        process = self.start(self.command("answer.json", ["--model", "conv", "--steps", "1000000"], options))
        said = None
        for _ in range(60):
            said = self.line(process, "step")
        self.pid = recording.children_of(process.pid)[0]
        os.kill(self.pid, signal.SIGKILL)
        for line in process.stdout:
            if line.startswith("step ") and line.endswith("\n"):
                said = line.split()[1:]
        self.assertEqual(process.wait(), -signal.SIGKILL, self.errors())
        return [int(word) for word in said]

    def check(self):
        self.assert_finished()
        lost, uncommitted = self.assert_conserved()
        self.assertEqual(lost, 0)
        self.assertIn(("signal", signal.SIGKILL), self.sql("SELECT end_cause, exit_status FROM process WHERE pid = ?",
                                                           self.pid))
        report = recording.varve("report", "--json", self.path)
        self.assertEqual(report.returncode, 0, report)
        json.loads(report.out)
        return uncommitted

    def test_own_allocator(self):
        steps, allocations = self.kill_in_training(["--torch", "--stacks", "python"])
        uncommitted = self.check()
        stored = self.count("alloc")
        figure("killed", steps=steps, reported_allocations=allocations, stored_allocations=stored,
               uncommitted=uncommitted)
        self.assertGreaterEqual(stored, allocations, "what the program had counted when it last spoke")
        numbers = self.sql("SELECT count(*), max(dev_seq) - min(dev_seq) + 1 FROM event WHERE dev_seq IS NOT NULL"
                           " AND dev_seq > 0 AND kind < 12")
        figure("killed_sequence", numbers=numbers)
        self.assertEqual(self.one("SELECT count(*) FROM allocations WHERE domain = 'block'"), stored)

    def test_native(self):
        """With PyTorch's own allocator: its segments, by the CUDA recorder."""
        self.kill_in_training(["--cuda", "--stacks", "none"])
        self.check()
        self.assertGreater(self.count("dev_alloc"), 0)


if __name__ == "__main__":
    recording.main()
