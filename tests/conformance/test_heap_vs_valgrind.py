#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 80 s
"""heap_vs_valgrind as a test. The quick tier has all functions that allocate, threads, forks, and a control that must
come out as different; how fork children are found is shown on process images made by hand."""

import collections
import os
import subprocess
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [FOLDER, os.path.dirname(FOLDER)]
import heap_vs_valgrind_match as matching  # noqa: E402
import recording  # noqa: E402
from heap_vs_valgrind_match import Figures, KIND_ALLOC, KIND_FREE  # noqa: E402


class Recorded:
    """A parent that allocates 10 and 20, forks, allocates 40; its child allocates 5 and frees the 10."""

    def __init__(self):
        rows = ((1, 100, "/bin/p", "p x", "exit"), (2, 101, "/bin/p", "p x", "exit"))
        self.images = [matching.Image(rows[0], 0, Figures(3, 0, 70, 3, 70), str),
                       matching.Image(rows[1], 1, Figures(1, 0, 5, 1, 5), str)]
        self.by_id = {image.id: image for image in self.images}

    def events(self, image):
        return {1: [(2, KIND_ALLOC, 0x10, 10, 0, 16, 0, 1), (3, KIND_ALLOC, 0x20, 20, 0, 16, 0, 1),
                    (5, KIND_ALLOC, 0x30, 40, 0, 16, 0, 1)],
                2: [(6, KIND_ALLOC, 0x30, 5, 0, 16, 0, 2), (7, KIND_FREE, 0x10, 0, 0, 29, 0, 2)]}[image.id]

    def first_seq(self, image):
        return self.events(image)[0][0]


def report(pid, depth, figures):
    made = matching.Report.__new__(matching.Report)
    made.pid, made.fork_depth, made.is_forked, made.command, made.key = pid, depth, depth > 1, "p x", "p x"
    made.figures, made.sizes = figures, collections.Counter()
    return made


class Matching(unittest.TestCase):
    def pairs(self, *reports):
        return matching.match(list(reports), 100, Recorded(), 99, 32768)

    def test_fork_child(self):
        """It is found at one point of its parent's history, or not at all; one that varve has not seen is a copy."""
        parent = report(100, 1, Figures(3, 0, 70, 3, 70))
        pairs = self.pairs(parent, report(101, 2, Figures(3, 1, 35, 2, 25)), report(102, 2, Figures(2, 0, 30, 2, 30)))
        self.assertEqual([pair.is_matched for pair in pairs], [True] * 3)
        self.assertEqual({pair.difference() for pair in pairs}, {matching.ZERO})
        self.assertIn("after its event 3", pairs[1].note)
        for wrong in (Figures(3, 1, 35, 2, 26), Figures(3, 0, 35, 3, 35), Figures(4, 1, 75, 3, 65)):
            pairs = self.pairs(parent, report(101, 2, wrong))
            self.assertEqual([pair.is_matched for pair in pairs], [True, False, False], wrong)


class Programs(unittest.TestCase):
    def test_real_programs(self):
        if recording.IS_SANITIZED:
            self.skipTest("what is compared is never sanitized: done in the plain build")
        command = [os.path.join(FOLDER, "heap_vs_valgrind"), *([] if recording.IS_FULL else ["--quick"])]
        status = subprocess.run(command, check=False).returncode
        self.assertEqual(status, 0)


if __name__ == "__main__":
    recording.main()
