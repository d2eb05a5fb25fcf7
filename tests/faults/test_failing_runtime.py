#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""The n-th allocation of a program that computes in a runtime fails, once, or it and all after it: the operation says
so, or goes on without it; nothing crashes."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import failing_malloc  # noqa: E402
import recording  # noqa: E402

PROGRAM = "storage_runtime"


class FailingRuntime(failing_malloc.Case):
    def fail_at(self, number, for_ever):
        return self.run_failing(number, for_ever, recording.program(PROGRAM), "2", name=PROGRAM)

    def play(self, for_ever):
        outcome, count = self.fail_at(0, False)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertGreater(count, 100)
        refused = 0
        for number in range(1, count + 1, 1 if recording.IS_FULL else 3):
            outcome, _ = self.fail_at(number, for_ever)
            self.assertIn(outcome.returncode, (0, 2), (number, outcome))
            if outcome.returncode == 2:
                self.assertEqual(len(outcome.err.splitlines()), 1, (number, outcome))
                refused += 1
        self.assertGreater(refused, 10)

    def test_one_fails(self):
        self.play(False)

    def test_all_from_one_on_fail(self):
        self.play(True)


if __name__ == "__main__":
    recording.main()
