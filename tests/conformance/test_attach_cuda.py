#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""varve attach to a program that uses the CUDA driver (a fake one) by every kind of pointer that it keeps: all calls
from then on are recorded, each with the line that made it, and what it keeps is what it was afterwards."""

import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STEADY = recording.program("cuda_steady")
FAKE = os.path.join(recording.PROGRAMS, "cuda_fake")
WAYS = {1000: "linked", 2000: "by dlsym", 3000: "by cuGetProcAddress", 4000: "by dlsym, anew"}
ROUNDS = 50  # of the program
CALLS = "SELECT size, callsite_id FROM events WHERE kind = 'dev_alloc'"


class AttachCuda(recording.AttachCase):
    def steady(self):
        return self.begin(STEADY, self.folder, env={**os.environ, "LD_LIBRARY_PATH": FAKE})

    def record_rounds(self, process, name, *options):
        """(bytes, call site) of the allocations of all rounds."""
        self.path = os.path.join(self.folder, name)
        collector = self.attach(process.pid, *options)
        self.touch("go")
        self.assertEqual(process.stdout.readline(), "done\n")
        self.varve("detach", str(process.pid))
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn("nothing lost", outcome.err)
        self.open()
        return self.sql(CALLS)

    def test_ways(self):
        """Each kind of pointer in each round."""
        process = self.steady()
        for name in ("first.db", "second.db"):
            counts = collections.Counter(WAYS[size] for size, _ in self.record_rounds(process, name))
            self.assertEqual(counts, {way: ROUNDS for way in WAYS.values()})
            self.assertEqual(self.sql("SELECT count(*) FROM device"), [(1,)])
        self.assertEqual(self.quit(process), ["unchanged"])

    def test_lines(self):
        process = self.steady()
        sites = {site for _, site in self.record_rounds(process, "trace.db", "--stacks", "native")}
        self.quit(process)
        self.assertNotEqual(sites, set())
        for site in sites:
            functions = [name for name, in self.sql(f"SELECT function FROM frame WHERE callsite_id = {site}")]
            self.assertTrue({"round_of", "round_linked"} & set(functions), functions)

    def data_resident(self, process):
        """Bytes of the program's own data that are in memory."""
        resident, is_data = 0, False
        with open(f"/proc/{process.pid}/smaps", encoding="utf-8") as stream:
            for line in stream:
                words = line.split()
                if not words[0].endswith(":"):
                    is_data = words[1].startswith("rw") and words[-1] == STEADY
                elif is_data and words[0] == "Rss:":
                    resident += int(words[1]) << 10
        return resident

    def test_data_unread(self):
        """Data that the program has not written is not looked through: that would take long, and make it resident."""
        process = self.steady()
        before = self.data_resident(process)
        self.assertGreater(before, 0)
        self.record_rounds(process, "trace.db")
        self.assertLess(self.data_resident(process) - before, 1 << 20)
        self.assertEqual(self.quit(process), ["unchanged"])

    def test_heap_alone(self):
        """What is not asked for is not touched."""
        process = self.steady()
        self.assertEqual(self.record_rounds(process, "trace.db", "--heap"), [])
        self.assertEqual(self.quit(process), ["unchanged"])


if __name__ == "__main__":
    recording.main()
