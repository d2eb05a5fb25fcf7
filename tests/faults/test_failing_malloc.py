#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""Some allocations of `varve record`, `recover` and `import` fail, each alone or with all after it; seeds are fixed.
`./dev stress` goes on with others."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import failing_malloc  # noqa: E402
import recording  # noqa: E402


class Steps(unittest.TestCase):
    def play_steps(self, subject, steps, ways=(False, True)):
        """`steps` allocations, spread evenly over all that there are, each alone and with all after it."""
        count = self.play(subject, 0, False)
        self.assertGreater(count, 1000)
        for step in range(steps):
            for for_ever in ways:
                with self.subTest(subject=subject, step=step, for_ever=for_ever):
                    self.play(subject, count * (2 * step + 1) // (2 * steps), for_ever)

    def play(self, subject, number, for_ever):
        case = failing_malloc.FailingMalloc()
        try:
            case.setUp()
            return case.play(subject, number, for_ever)
        finally:
            case.doCleanups()

    def test_record(self):
        self.play_steps("record", 30)

    def test_recover(self):
        self.play_steps("recover", 6)

    def test_import(self):
        self.play_steps("import", 10, ways=(False,))
        # Close enough to meet each stage: while the database is written, what ends the process has a folder to remove
        self.play_steps("import", 110, ways=(True,))


if __name__ == "__main__":
    recording.main()
