#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""What `varve recover` says is what its database holds, also where an earlier recovery had come nearly to its end;
and -o is where the database is then, or nothing is changed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
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
        """The disk of -o is full: the database stays in the directory, and goes elsewhere."""
        if not recording.is_tmpfs_possible():
            self.skipTest("no tmpfs can be mounted")
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "varve-test", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=False)
        self.record_and_kill()
        outcome = recording.varve("recover", "-o", os.path.join(disk, "x.db"), self.path + ".d")
        self.assert_refused(outcome, "No space left")
        self.assertEqual(os.listdir(disk), [])
        self.assertTrue(os.path.exists(os.path.join(self.path + ".d", "trace.db")), outcome)
        self.check(recording.varve("recover", "--json", self.path + ".d"), self.path)

    def test_other_file_system(self):
        if os.stat("/dev/shm").st_dev == os.stat(self.folder).st_dev:
            self.skipTest("/dev/shm is no other file system")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            target = os.path.join(folder, "x.db")
            self.record_and_kill()
            self.check(recording.varve("recover", "--json", "-o", target, self.path + ".d"), target)
            self.assertEqual(os.listdir(folder), ["x.db"])
            self.assertEqual(os.listdir(self.folder), [])

    def test_where_it_cannot_be_written(self):
        """Said before the work: the directory is as it was."""
        self.record_and_kill()
        before = sorted(os.listdir(self.path + ".d"))
        taken = os.path.join(self.folder, "taken.db")
        with open(taken, "w", encoding="utf-8") as stream:
            stream.write("mine")
        for target, words in ((taken, "exists"), (self.folder, "exists"), (taken + "/x.db", "is no folder"),
                              (os.path.join(self.folder, "missing", "x.db"), "missing/x.db"), ("x" * 5000, "too long")):
            self.assert_refused(recording.varve("recover", "-o", target, self.path + ".d"), words)
            self.assertEqual(sorted(os.listdir(self.path + ".d")), before)
        with open(taken, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "mine")
        other = os.path.join(self.folder, "other.db")
        self.check(recording.varve("recover", "--json", "-o", other, self.path + ".d"), other)
        self.assertEqual(sorted(os.listdir(self.folder)), ["other.db", "taken.db"])

    def test_of_a_recording_that_had_come_to_its_place(self):
        """Killed after the database was moved and before the directory went: -o gets a copy."""
        self.record_and_kill()
        shutil.copytree(self.path + ".d", self.path + ".copy", symlinks=True, ignore=lambda *_: ["ring"])
        self.check(recording.varve("recover", "--json", self.path + ".d"), self.path)
        os.rename(self.path + ".copy", self.path + ".d")
        for name in os.listdir(self.path + ".d"):
            if name != "owner":
                os.unlink(os.path.join(self.path + ".d", name))
        other = os.path.join(self.folder, "other.db")
        self.check(recording.varve("recover", "--json", "-o", other, self.path + ".d"), other)
        self.assertEqual(sorted(os.listdir(self.folder)), ["other.db", "trace.db"])


if __name__ == "__main__":
    recording.main()
