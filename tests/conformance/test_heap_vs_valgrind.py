#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 110 s
"""heap_vs_valgrind as a test, after tests of what it decides by: that it notices other figures, that a fork child is
found at one point of its parent's history or not at all, and that a rule takes no more than it predicts."""

import collections
import os
import sqlite3
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]
import heap_vs_valgrind_match as matching  # noqa: E402
import heap_vs_valgrind_rules as rules  # noqa: E402
import recording  # noqa: E402
from heap_vs_valgrind_match import Figures  # noqa: E402

SCHEMA = """
CREATE TABLE process(id INTEGER PRIMARY KEY, pid, executable, command_line, end_cause);
CREATE TABLE thread(id INTEGER PRIMARY KEY, process_id);
CREATE TABLE event(seq INTEGER PRIMARY KEY, kind, addr, size, arg, cause, flags, thread_id, callsite_id);
CREATE TABLE total_process(process_id, domain, allocations, frees, bytes, live_allocations, live_bytes);
CREATE TABLE leak(process_id, domain, size);
CREATE TABLE data_loss(name, value);
CREATE TABLE meta(key, value);
INSERT INTO meta VALUES ('complete', '1');
"""
PARENT, CHILD = 1, 2
QUICK = ("perl",)  # it forks, too


def report(pid, depth, command, figures, sizes=()):
    made = matching.Report.__new__(matching.Report)
    made.pid, made.fork_depth, made.is_forked = pid, depth, depth > 1
    made.command = made.key = command
    made.figures, made.sizes = figures, collections.Counter(sizes)
    return made


class Synthetic(unittest.TestCase):
    """A parent that allocates 10 and 20, forks, allocates 40; its child allocates 5 and frees the 10."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "t.db")
        with sqlite3.connect(path) as connection:
            connection.executescript(SCHEMA)
            connection.executemany("INSERT INTO process VALUES (?, ?, '/bin/p', 'p x', 'exit')", [(1, 100), (2, 101)])
            connection.executemany("INSERT INTO thread VALUES (?, ?)", [(1, 1), (2, 2)])
            connection.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, 0, ?, 0)", [
                (1, matching.KIND_START, 0, 0, 0, 0, PARENT), (2, 32, 0x10, 10, 0, 16, PARENT),
                (3, 32, 0x20, 20, 0, 16, PARENT), (4, matching.KIND_START, 0, 0, PARENT, 0, CHILD),
                (5, 32, 0x30, 40, 0, 16, PARENT), (6, 32, 0x30, 5, 0, 16, CHILD), (7, 33, 0x10, 0, 0, 29, CHILD)])
            connection.executemany("INSERT INTO total_process VALUES (?, 'heap', ?, ?, ?, ?, ?)",
                                   [(1, 3, 0, 70, 3, 70), (2, 1, 0, 5, 1, 5)])
        connection.close()
        self.database = matching.Database(path, str)
        self.addCleanup(self.database.close)

    def pairs(self, *reports):
        return matching.match(list(reports), 100, self.database, 99, 32768)

    def test_equal_and_different(self):
        pair = self.pairs(report(100, 1, "p x", Figures(3, 0, 70, 3, 70)))[0]
        self.assertEqual(pair.difference(), matching.ZERO)
        pair = self.pairs(report(100, 1, "p x", Figures(3, 0, 71, 3, 71)))[0]
        self.assertEqual(pair.difference(), Figures(0, 0, 1, 0, 1))

    def test_fork_child_is_found_at_its_fork(self):
        pairs = self.pairs(report(100, 1, "p x", Figures(3, 0, 70, 3, 70)),
                           report(101, 2, "p x", Figures(3, 1, 35, 2, 25)))
        self.assertEqual([pair.is_matched for pair in pairs], [True, True])
        self.assertEqual(pairs[1].difference(), matching.ZERO)
        self.assertIn("after its event 3", pairs[1].note)

    def test_fork_child_that_fits_nowhere(self):
        for wrong in (Figures(3, 1, 35, 2, 26), Figures(3, 0, 35, 3, 35), Figures(4, 1, 75, 3, 65)):
            pairs = self.pairs(report(100, 1, "p x", Figures(3, 0, 70, 3, 70)), report(101, 2, "p x", wrong))
            self.assertEqual([pair.is_matched for pair in pairs], [True, False, False], wrong)

    def test_silent_fork_child(self):
        pairs = self.pairs(report(100, 1, "p x", Figures(3, 0, 70, 3, 70)),
                           report(101, 2, "p x", Figures(3, 1, 35, 2, 25)),
                           report(102, 2, "p x", Figures(2, 0, 30, 2, 30)))
        self.assertEqual([pair.is_matched for pair in pairs], [True, True, True])

    def test_missing_process(self):
        pairs = self.pairs(report(100, 1, "other", Figures(1, 0, 1, 1, 1)))
        self.assertEqual([pair.is_matched for pair in pairs], [False, False, False])

    def evidence(self, figures, sizes):
        image = self.database.by_id[PARENT]
        return rules.Evidence(matching.Pair(report(100, 1, "p x", figures, sizes), image, image.figures),
                              self.database, self.fail)

    def test_rule_takes_what_it_predicts(self):
        self.database.sizes = lambda image: collections.Counter({288: 2, 10: 1})
        found = self.evidence(Figures(3, 0, 38, 3, 70), {272: 2, 10: 1})
        self.assertEqual(len(found.explain([rules.ThreadVectors(2)])), 1)
        self.assertTrue(found.is_complete(), found.left())

    def test_rule_leaves_the_rest(self):
        self.database.sizes = lambda image: collections.Counter({288: 2, 10: 1})
        more = self.evidence(Figures(3, 0, 39, 3, 71), {272: 2, 11: 1})
        self.assertEqual(len(more.explain([rules.ThreadVectors(2)])), 1)
        self.assertFalse(more.is_complete())
        other = self.evidence(Figures(3, 0, 38, 3, 38), {272: 2, 10: 1})
        self.assertEqual(other.explain([rules.ThreadVectors(3)]), [])
        self.assertFalse(other.is_complete())


class Programs(unittest.TestCase):
    def test_real_programs(self):
        if recording.IS_SANITIZED:
            self.skipTest("what is compared is never sanitized: done in the plain build")
        status = subprocess.run([os.path.join(FOLDER, "heap_vs_valgrind"), *([] if recording.IS_FULL else QUICK)], check=False).returncode
        self.assertEqual(status, 0)


if __name__ == "__main__":
    recording.main()
