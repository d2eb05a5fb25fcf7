#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""While the database is written: Ctrl-C is answered at once and stops at the second time, what was recorded is kept
then, and the exit status says whether there is a database."""

import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

EVENTS = 400_000


def takes_interrupts(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as stream:
        blocked = next(line for line in stream if line.startswith("SigBlk:"))
    return not int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1


class Interrupted(recording.Case):
    def begin(self):
        """A `varve record` that has a lot to write, once it begins to: it was stopped while the program ran."""
        while True:
            process = recording.start(self.record_command(recording.program("burst"), str(EVENTS),
                                                          options=recording.PLAIN))
            pid = recording.wait_until(lambda: recording.program_of(process, "burst"))
            process.send_signal(signal.SIGSTOP)
            recording.wait_until(lambda: recording.process_state(pid) == "Z", what="the program's end")
            process.send_signal(signal.SIGCONT)
            recording.wait_until(lambda: takes_interrupts(process.pid) or recording.process_state(process.pid) == "Z",
                                 what="the beginning of the end")
            if recording.process_state(process.pid) != "Z":
                return process
            recording.finish(process)  # on a busy machine it may come to its end unseen

    def test_twice(self):
        process = self.begin()
        process.send_signal(signal.SIGINT)
        line = process.stderr.readline()
        self.assertIn(f"the database is being written; Ctrl-C again stops, `varve recover {self.path}.d` finishes it"
                      " later", line)
        process.send_signal(signal.SIGINT)
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 130)
        self.assertEqual(outcome.err, f"varve: stopped; `varve recover {self.path}.d` finishes the database\n")
        self.assertFalse(os.path.exists(self.path))
        self.varve("recover", self.path + ".d")
        self.assert_recording()
        self.assertGreaterEqual(self.one("SELECT count(*) FROM event"), EVENTS)

    def test_once(self):
        process = self.begin()
        process.send_signal(signal.SIGINT)
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn("Ctrl-C again stops", outcome.err)
        self.assert_recording()


class Status(recording.Case):
    def record_into_a_folder(self, end):
        """The place of the database is taken while the program runs."""
        outcome = recording.run(self.record_command("/bin/sh", "-c", f"mkdir -p {self.path}/x; {end}",
                                                    options=recording.PLAIN))
        self.assertIn(f"varve recover {self.path}.d", outcome.err)
        self.assertTrue(os.path.exists(os.path.join(self.path + ".d", "trace.db")))
        for folder in (self.path, self.path + ".d"):
            shutil.rmtree(folder)
        return outcome.returncode

    def test_without_a_database(self):
        """2, or the program's own, or that of its signal."""
        for end, status in (("exit 0", 2), ("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM)):
            self.assertEqual(self.record_into_a_folder(end), status)


if __name__ == "__main__":
    recording.main()
