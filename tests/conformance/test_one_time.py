#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""One moment has one number, whoever is asked: the time of a peak, of an allocation, of the end. Times are ns since the
program was started."""

import csv
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

BYTES, HELD_MS = 1_234_567, 30
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class OneTime(recording.Case):
    def setUp(self):
        super().setUp()
        self.before_ns = time.time_ns()
        self.record(recording.program("plateau"), str(BYTES), str(HELD_MS), "1000")
        self.open()
        self.end_ns = self.one("SELECT end_ns FROM recording")

    def told(self, *arguments):
        (answer,) = recording.json_lines(self.varve(*arguments, "--json", self.path).out)
        return answer

    def assert_words(self, ns, *arguments):
        """As text: in three digits, as durations are."""
        text = self.varve(*arguments, self.path).out
        words = re.findall(r"([\d.]+) (ns|us|ms|s) after the start", text)
        self.assertTrue(words, text)
        number, unit = words[0]
        self.assertAlmostEqual(float(number) * UNITS[unit], ns, delta=0.01 * ns)

    def part(self, name):
        page = os.path.join(self.folder, "page.html")
        self.varve("report", "--html", page, "--force", self.path)
        with open(page, encoding="utf-8") as stream:
            return json.loads(re.search(rf'id="data-{name}"[^>]*>(.*?)</script>', stream.read(), re.DOTALL)[1])

    def test_peak(self):
        ((seq, peak_ns),) = self.sql("SELECT seq, ts_ns FROM peak_time WHERE domain = 'heap'")
        self.assertEqual(self.one("SELECT ts_ns FROM event WHERE seq = ?", seq), peak_ns)
        (heap,) = [one for one in self.told("report")["domains"] if one["domain"] == "heap"]
        self.assertEqual([(one["seq"], one["ts_ns"]) for one in heap["peaks"]], [(seq, peak_ns)])
        self.assertEqual(self.told("peak")["ts_ns"], peak_ns)
        for command in (("report",), ("peak",), ("tree",)):
            self.assert_words(peak_ns, *command)
        points = self.told("timeline", "--points", "100")["points"]
        highest = max(points, key=lambda point: point["allocated_max"])
        self.assertLessEqual(highest["begin_ns"], peak_ns)
        self.assertLess(peak_ns, highest["end_ns"])
        (series,) = [one for one in self.part("curves")["series"] if one["domain"] == "heap"]
        self.assertEqual(series["peak_t"], peak_ns)

    def test_allocation(self):
        ((alloc_ns, alloc_seq),) = self.sql("SELECT alloc_ns, alloc_seq FROM allocations WHERE size = ?", BYTES)
        self.assertEqual(self.one("SELECT ts_ns FROM event WHERE seq = ?", alloc_seq), alloc_ns)
        moment = f"{alloc_ns}ns"
        (line,) = [one for one in self.told("leaks", "--all", "--at", moment)["lines"] if one["bytes"] == BYTES]
        self.assertEqual((line["first_ns"], line["last_ns"]), (alloc_ns, alloc_ns))
        self.assertEqual(self.told("leaks", "--at", moment)["moment"]["last_ns"], alloc_ns)
        text = self.varve("export", "--to", "csv", "--view", "allocations", "-o", "-", self.path).out
        rows = csv.DictReader(text.splitlines())
        self.assertEqual([int(row["alloc_ns"]) for row in rows if row["size"] == str(BYTES)], [alloc_ns])
        self.assertEqual(self.told("diff", f"--from={moment}", f"--to={moment}")["b"]["ts_ns"], alloc_ns)

    def test_end(self):
        self.assertEqual(self.told("report")["duration_ns"], self.end_ns)
        self.assertEqual(self.told("info")["duration_ns"], self.end_ns)
        self.assertEqual(self.told("timeline")["points"][-1]["end_ns"], self.end_ns + 1)
        self.assertEqual(self.part("meta")["end"], self.end_ns)

    def test_start(self):
        """0 is when the program was started: not while the recording was prepared, nor when its first event came."""
        real_ns = self.one("SELECT value FROM meta WHERE key = 'start_real_ns'")
        self.assertEqual(self.one("SELECT begin_ns FROM recording"), 0)
        self.assertGreater(real_ns, self.before_ns)
        self.assertGreater(self.one("SELECT start_ns FROM process"), 0)
        self.assertLess(real_ns + self.end_ns, time.time_ns())


if __name__ == "__main__":
    recording.main()
