#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
"""Every event is there, once, in order: what the workload programs say that they did is what the database holds."""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

SIZE_MAX = (1 << 63) - 1


class Counts(recording.Case):
    def test_every_function(self):
        """The exact sequence of events of one thread, addresses and sizes included."""
        outcome = self.record(recording.program("counted"), options=recording.PLAIN)
        expected = recording.json_lines(outcome.out)
        sums = expected.pop()
        self.assert_recording()
        rows = [(kind, cause, addr, size, arg, flags & recording.FLAG_FAILED)
                for kind, cause, addr, size, arg, flags in self.sql(
                    "SELECT kind, cause, addr, size, coalesce(arg, 0), flags FROM events"
                    " WHERE kind LIKE 'heap%' OR kind IN ('mmap', 'munmap') ORDER BY seq")]
        at = 0
        for index, line in enumerate(expected):
            if "loose" in line:
                continue
            # SQL integers are signed: larger sizes are stored as the largest
            line["size"] = min(line["size"], SIZE_MAX)
            want = tuple(line[key] for key in ("kind", "cause", "addr", "size", "arg", "failed"))
            if index > 0 and "loose" in expected[index - 1]:
                # Behind the library's own calls: find the next one that was asked for.
                while at < len(rows) and rows[at] != want:
                    at += 1
            self.assertLess(at, len(rows), f"event {index} is missing: {want}")
            self.assertEqual(rows[at], want, f"event {index}, after {rows[max(0, at - 3):at]}")
            at += 1
        self.assertEqual(rows[at:], [], "more events than the program made")
        for mark in (line for line in expected if line.get("addr") and "loose" in line):
            self.assertGreaterEqual(self.one("SELECT count(*) FROM allocation WHERE addr = ? AND size >= ?",
                                             mark["addr"], mark["least"]), 1, mark)
        live = dict(self.sql("SELECT domain, live_bytes FROM total"))
        self.assertEqual(live, {"heap": sums["live_heap"], "mmap": sums["live_mmap"]})
        failed = sum(line.get("failed", 0) for line in expected)
        self.assertEqual(self.one("SELECT sum(failed) FROM total"), failed)

    def test_more_stacks_than_are_kept(self):
        """All events are there; the stacks for which there is no room are one call site, and counted."""
        self.record(recording.program("many_stacks"), "5000", "0", "0",
                    options=["--stacks", "native", "--max-stacks", "1000"])
        self.assert_finished()
        self.assertEqual(self.assert_conserved()[0], 0)
        kept = self.one("SELECT count(*) FROM callsite") - 1
        self.assertEqual(kept, 1000)
        limit = self.one("SELECT callsite_id FROM frame WHERE function = '(not kept: limit)' AND depth = 0")
        self.assertEqual(self.one("SELECT count(*) FROM frame WHERE callsite_id = ?", limit), 1)
        not_kept = self.one("SELECT count(*) FROM events WHERE kind = 'heap_alloc' AND size = 40009 AND callsite_id ="
                            " ?", limit)
        self.assertGreater(not_kept, 3900)
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE kind = 'heap_alloc' AND size = 40009"), 5000)
        lost = self.one("SELECT value FROM data_loss WHERE name = 'callsites_lost'")
        self.assertGreaterEqual(lost, not_kept)
        self.assertEqual(self.one("SELECT count(*) FROM data_loss"), 1)

    def test_deep_recursion(self):
        """A deep stack keeps its outermost frames, the innermost, and the number of the others if that is small."""
        for depth, mark in ((330, "… 64 frames …"), (4500, "… frames …"), (60000, "… frames …")):
            self.record(recording.program("many_stacks"), "0", str(depth), "20", options=["--stacks", "native"])
            self.assert_recording()
            callsites = self.sql("SELECT DISTINCT callsite_id FROM events WHERE kind = 'heap_alloc' AND size = 40013")
            self.assertEqual(len(callsites), 1)
            frames = self.functions(*callsites[0])
            self.assertIn("allocate", frames[:2])
            self.assertEqual(frames[-1], "_start")
            self.assertEqual(frames.count(mark), 1, frames)
            self.assertEqual(len(frames) - frames.index(mark) - 1, 64)
            self.assertTrue(192 <= frames.index(mark) < 256)
            self.assertTrue(240 < frames.count("recurse") < 319, frames.count("recurse"))

    def test_recursion_level_by_level(self):
        """Allocations at each level of a deep recursion: all are below main, what is left out of each stack is said in
        true figures, and levels that are farther down than these say are no call sites of their own."""
        depth, rounds = 6000, 3
        self.record(recording.program("many_stacks"), "levels", str(depth), str(rounds),
                    options=["--stacks", "native"])
        self.assert_recording()
        found = self.sql("SELECT size - 100000, callsite_id, count(*) FROM events"
                         " WHERE kind = 'heap_alloc' AND size > 100000 GROUP BY 1, 2 ORDER BY 1")
        self.assertEqual([(level, count) for level, _, count in found],
                         [(level, rounds) for level in range(1, depth + 1)])
        stacks = {}
        for site, function in self.sql("SELECT callsite_id, function FROM frame WHERE NOT is_inlined"
                                       " ORDER BY callsite_id, depth"):
            stacks.setdefault(site, []).append(function)
        others = len(stacks[found[0][1]]) - 1
        figures = set()
        for level, site, _ in found:
            stack = stacks[site]
            marks = [function for function in stack if "frames …" in (function or "")]
            self.assertEqual(len(marks), 0 if level + others < 320 else 1, level)
            self.assertIn("main", stack)
            left_out = re.search("([0-9,]+) frames", marks[0]) if marks else None
            figures.add(marks[0] if marks else None)
            if marks and left_out is None:
                self.assertGreater(level + others, 256 + 63 * 64)
            else:
                self.assertEqual(len(stack) - len(marks) + (int(left_out[1].replace(",", "")) if marks else 0),
                                 level + others)
        self.assertEqual(len(figures), 65)
        self.assertEqual(len({site for _, site, _ in found}), 319 - others + 64 * 64)
        tree = json.loads(self.varve("tree", "--json", "--metric", "leaked", self.path).out)
        main = next(node for node in tree["nodes"] if node["function"] == "main")
        self.assertEqual(main["bytes"], sum(range(100001, 100001 + depth)))

    def assert_churn(self, outcome):
        said = json.loads(outcome.out)
        self.assert_recording()
        for thread in said["threads"]:
            counted = self.sql(
                "SELECT sum(kind = 'heap_alloc'), sum(kind = 'heap_free' AND cause = 'free'), sum(kind ="
                " 'heap_realloc'),"
                " sum(CASE WHEN kind IN ('heap_alloc', 'heap_realloc') THEN size END) FROM events WHERE tid = ?",
                thread["tid"])
            self.assertEqual(counted, [(thread["allocs"], thread["frees"], thread["reallocs"], thread["bytes"])],
                             f"thread {thread['tid']}: allocations, frees, reallocations, bytes")

    def test_churn(self):
        """Four threads, frees on other threads than the allocations."""
        for seed in (1, 2):
            self.assert_churn(self.record(recording.program("churn"), "--ops", "30000", "--seed", str(seed),
                                          options=recording.PLAIN))

    def test_churn_leaking(self):
        self.assert_churn(self.record(recording.program("churn"), "--ops", "5000", "--leak",
                                      options=["--stacks", "native"]))
        self.assertGreater(self.one("SELECT count(*) FROM leak WHERE domain = 'heap'"), 100)
        self.assertGreater(self.one("SELECT count(*) FROM frame WHERE function = 'obtain'"), 0)

    def test_300_threads(self):
        said = json.loads(self.record(recording.program("threads300"), options=recording.PLAIN).out)
        self.assert_recording()
        self.assertEqual(self.sql("SELECT sum(kind = 32), sum(kind = 33), count(DISTINCT iif(kind = 32, tid, NULL))"
                                  " FROM event WHERE size BETWEEN 20000 AND 20999"),
                         [(said["allocs"], said["frees"], said["threads"])])
        self.assertGreaterEqual(self.one("SELECT count(*) FROM thread"), said["threads"])

    def test_thread_destructors(self):
        """Events after the recorder's own end of the thread are marked late, and none is missing."""
        said = json.loads(self.record(recording.program("threadend"), options=recording.PLAIN).out)
        self.assert_recording()
        self.assertEqual(self.pairs(30011), (said["allocs"], said["frees"]))
        self.assertGreater(self.count("heap_free", "size = 30011 AND flags & ? <> 0", recording.FLAG_LATE), 0)

    def check_signal_handlers(self, *arguments, stacks):
        """Until one of many signals has come in the middle of a record."""
        is_nested = False
        while not is_nested:
            said = self.check_signals_of_one_run(*arguments, stacks=stacks)
            is_nested = said["signals"] <= 100 or self.count("mmap", "flags & ? <> 0", recording.FLAG_NESTED) > 0

    def check_signals_of_one_run(self, *arguments, stacks):
        said = json.loads(self.record(recording.program("signaler"), *arguments, options=["--stacks", stacks]).out)
        self.assert_recording()
        self.assertEqual(self.pairs(40009), (said["allocs"], said["frees"]))
        self.assertEqual((self.count("mmap", "size = 20480"), self.count("munmap", "size = 20480")),
                         (said["maps"], said["unmaps"]))
        return said

    def test_signal_handlers(self):
        self.check_signal_handlers(stacks="none")

    def test_signal_handlers_with_stacks(self):
        self.check_signal_handlers("20000", stacks="native")

    def test_python(self):
        source = "import threading\n" \
                 "def work():\n    for i in range(2000): x = bytearray(100000 + i)\n" \
                 "threads = [threading.Thread(target=work) for _ in range(4)]\n" \
                 "[t.start() for t in threads]; [t.join() for t in threads]; print('done')\n"
        outcome = self.record("/usr/bin/python3", "-c", source, options=["--stacks", "all"])
        self.assertEqual(outcome.out, "done\n")
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size BETWEEN 100001 AND 102000"), 8000)
        self.assertGreater(self.one("SELECT count(*) FROM frame WHERE is_python AND function LIKE '%work'"), 0)


if __name__ == "__main__":
    recording.main()
