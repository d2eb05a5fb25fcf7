#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 60 s
"""varve attach --torch to a training of the real PyTorch, many times over: the same losses as in a run that nobody
attached to, totals that are the allocator's own at each step from then on, and PyTorch as it was; varve top sees its
memory meanwhile. How long anything was held is printed. VARVE_TEST_ATTACHES (20) is how often."""

import glob
import json
import os
import re
import sqlite3
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import HERE, PYTHON, GpuCase, figure, recording  # noqa: E402

PROGRAM = os.path.join(HERE, "torch_attached.py")
ATTACHES = int(os.environ.get("VARVE_TEST_ATTACHES", "20"))
MARK = 100_000


class TorchAttach(GpuCase, recording.AttachCase):
    def history(self, number):
        found = glob.glob(self.file(f"run{number}.torch.*.db"))
        self.assertEqual(len(found), 1, os.listdir(self.folder))
        return sqlite3.connect(found[0])

    def check_totals(self, number, steps):
        """At each mark in the history: allocations since the one before, and bytes asked for that are live."""
        marks = self.history(number).execute(
            """WITH block AS (SELECT requested, alloc_seq, free_completed_seq FROM allocations WHERE domain = 'block')
            SELECT m.requested, (SELECT count(*) FROM block o WHERE o.alloc_seq <= m.alloc_seq),
                (SELECT sum(o.requested) FROM block o WHERE coalesce(o.alloc_seq, 0) <= m.alloc_seq AND
                    (o.free_completed_seq IS NULL OR o.free_completed_seq > m.alloc_seq))
            FROM block m WHERE m.requested >= ? AND m.requested < ? ORDER BY m.alloc_seq""",
            (MARK, MARK + len(steps))).fetchall()
        self.assertGreater(len(marks), 2, f"attach {number}")
        wrong = []
        for (mark, count, _), (later, its_count, live) in zip(marks, marks[1:]):
            ours, theirs = (its_count - count, live), (steps[later - MARK][1] - steps[mark - MARK][1],
                                                       steps[later - MARK][2])
            if ours != theirs:
                wrong.append((number, later - MARK, *ours, *theirs))
        figure("totals", attach=number, steps=len(marks), wrong=len(wrong))
        return wrong

    def driver_calls(self, number):
        database = sqlite3.connect(self.file(f"run{number}.db"))
        return database.execute(
            "SELECT count(*) FROM events WHERE kind LIKE 'dev_%' OR kind LIKE 'vmm_%'").fetchone()[0]

    def test_training(self):
        process = self.begin(PYTHON, PROGRAM, self.folder, cwd=self.folder, env=self.environment)
        held = []
        for number in range(ATTACHES):
            options = (["--torch"], ["--torch", "--heap"])[number % 5 == 4]
            outcome = self.varve("attach", *options, "--for", "0.5", "-o", self.file(f"run{number}.db"),
                                 str(process.pid))
            said = re.search(r"one thread was held for ([0-9.]+) (\w+)", outcome.err)
            held.append(float(said[1]) * {"us": 1e-3, "ms": 1, "s": 1e3}[said[2]])
            self.assertIn("nothing lost", outcome.err)
        self.touch("quit")
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 0, outcome)
        attached = self.answer("answer.json")
        steps = attached["steps"]
        plain = recording.run([PYTHON, PROGRAM, self.folder, str(len(steps))], cwd=self.folder, env=self.environment)
        self.assertEqual(plain.returncode, 0, plain)
        alone = self.answer("answer.json")
        figure("held", milliseconds=held, longest=max(held))
        for name, answer in (("attached", attached), ("alone", alone)):
            times = sorted(step[-1] * 1e3 for step in answer["steps"][20:])
            figure("step", run=name, steps=len(times), median=statistics.median(times), longest=times[-ATTACHES:])
        figure("driver", calls=[self.driver_calls(number) for number in range(ATTACHES)])
        wrong = [one for number in range(ATTACHES) for one in self.check_totals(number, steps)]
        self.assertEqual([step[:4] for step in steps], [step[:4] for step in alone["steps"]])
        self.assertEqual(wrong, [])
        self.assertEqual(attached["after"], {**attached["before"], "kept": 0})

    def test_top(self):
        """What is live and reserved is seen while it is recorded, with lines of the program."""
        process = self.begin(PYTHON, PROGRAM, self.folder, cwd=self.folder, env=self.environment)
        self.path = self.file("watched.db")
        collector = self.attach(process.pid, "--torch")

        def look():
            figures = json.loads(self.varve("top", "--json", self.path).out)["figures"]
            return figures if figures["torch"] else None

        figures = recording.wait_until(look, what="PyTorch's memory")
        self.varve("detach", str(process.pid))
        self.assertEqual(recording.finish(collector).returncode, 0)
        self.touch("quit")
        self.assertEqual(recording.finish(process).returncode, 0)
        self.assertEqual(figures["torch"]["is_seen"], 1)
        allocator, = figures["allocators"]
        total, = [row for row in figures["totals"] if row["domain"] == "block"]
        figure("top", age_ms=figures["torch"]["age_ns"] / 1e6, blocks=total["live_allocations"],
               reserved=allocator["reserved"], allocated=allocator["allocated"])
        self.assertEqual(allocator["allocated"], total["live_bytes"])
        self.assertGreater(allocator["reserved"], allocator["allocated"])
        self.assertIn(PROGRAM, {line["user_file"] for line in figures["lines"]})


if __name__ == "__main__":
    recording.main()
