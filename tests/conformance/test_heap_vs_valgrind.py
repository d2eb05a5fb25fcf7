#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 80 s
"""heap_vs_valgrind as a test. The quick tier has all functions that allocate, threads, forks, and a control that must
come out as different."""

import os
import subprocess
import sys
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(FOLDER))
import recording  # noqa: E402



class Programs(unittest.TestCase):
    def test_real_programs(self):
        if recording.IS_SANITIZED:
            self.skipTest("what is compared is never sanitized: done in the plain build")
        command = [os.path.join(FOLDER, "heap_vs_valgrind"), *([] if recording.IS_FULL else ["--quick"])]
        status = subprocess.run(command, check=False).returncode
        self.assertEqual(status, 0)


if __name__ == "__main__":
    recording.main()
