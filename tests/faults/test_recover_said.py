#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `varve recover` says is what its database holds, also where an earlier recovery had come nearly to its end."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402


class Said(recording.Case):
    def record_and_kill(self):
        """The directory of a recording with losses whose collector was killed."""
        process = recording.start(self.record_command(
            recording.program("churn"), "--seconds", "0.5", "--threads", "2",
            options=["--overflow", "drop", "--ring-size", "4K", "--stacks", "none"]))
        recording.wait_until(lambda: recording.children_of(process.pid), what="the program's start")
        time.sleep(0.2)
        process.kill()
        recording.finish_orphan(process)

    def check(self, outcome, path):
        self.assertEqual(outcome.returncode, 0, outcome)
        said = json.loads(outcome.out)
        self.open(path)
        lost = self.one("SELECT sum(lost) FROM thread")
        self.assertGreater(lost, 0)
        self.assertEqual(
            (said["events"], said["lost"], said["threads"], said["processes"], said["allocations"]),
            (self.one("SELECT count(*) FROM event"), lost, self.one("SELECT count(*) FROM thread"),
             self.one("SELECT processes FROM recording"), self.one("SELECT count(*) FROM allocation")))

    def test_at_once(self):
        self.record_and_kill()
        self.check(recording.varve("recover", "--json", self.path + ".d"), self.path)

    def test_after_one_that_could_not_move_the_database(self):
        self.record_and_kill()
        elsewhere = os.path.join(self.folder, "missing", "x.db")
        outcome = recording.varve("recover", "-o", elsewhere, self.path + ".d")
        self.assertEqual(outcome.returncode, 2, outcome)
        self.assertTrue(os.path.exists(os.path.join(self.path + ".d", "trace.db")), outcome)
        self.check(recording.varve("recover", "--json", self.path + ".d"), self.path)


if __name__ == "__main__":
    recording.main()
