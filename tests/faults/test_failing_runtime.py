#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""The n-th allocation of a program that computes in a runtime fails, once, or it and all after it: the operation says
so, or goes on without it; nothing crashes."""

import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STEPS = struct.Struct("<QQ")
PROGRAM = "storage_runtime"


class FailingRuntime(recording.Case):
    def setUp(self):
        super().setUp()
        if os.environ.get("VARVE_SANITIZE", "none") not in ("none", "trap"):
            self.skipTest("a sanitizer has a malloc of its own")

    def run_failing(self, number, for_ever):
        """(outcome, allocations made): the program with its allocation `number` (0: none) failing."""
        steps = os.path.join(self.folder, "steps")
        with open(steps, "wb") as stream:
            stream.write(STEPS.pack(number, 0))
        environment = {**os.environ, "LD_PRELOAD": recording.program("lib_failing_malloc.so"),
                       "VARVE_TESTS_FAIL_IN": PROGRAM, "VARVE_TESTS_FAIL_FILE": steps}
        if for_ever:
            environment["VARVE_TESTS_FAIL_FOR_EVER"] = "1"
        outcome = recording.run([recording.program(PROGRAM), "2"], env=environment)
        with open(steps, "rb") as stream:
            return outcome, STEPS.unpack(stream.read())[1]

    def play(self, for_ever):
        outcome, count = self.run_failing(0, False)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertGreater(count, 100)
        refused = 0
        for number in range(1, count + 1, 1 if recording.IS_FULL else 3):
            outcome, _ = self.run_failing(number, for_ever)
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
