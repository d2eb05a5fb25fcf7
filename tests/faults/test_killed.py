#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 7 s
"""SIGKILL of the collector, then `varve recover`; a second recorder on the same output; what recover refuses and says.
(SIGKILL of the program and of both at random moments, many times: tests/stress/stress.)"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402


class CollectorKilled(recording.Case):
    def recover(self, *options, status=0):
        return self.varve("recover", *options, self.path + ".d", status=status)

    def check_pairs_of_victim(self, out):
        self.assertEqual(self.pairs(1234), (recording.json_lines(out)[0]["pairs"],) * 2)

    def test_program_goes_on(self):
        """Nothing of it is missing after recover, whatever the policy and however small the rings."""
        for policy, size in (("spill", "4M"), ("spill", "4K"), ("block", "16K")):
            process = self.start_recording(recording.program("rmdir_victim"), "0.8", "50",
                                           options=["--overflow", policy, "--ring-size", size], said="started")
            out = self.kill_collector(process, 0.2)
            self.assertEqual(process.returncode, -signal.SIGKILL)
            self.assertFalse(os.path.exists(self.path), "a database that is not complete carries the final name")
            self.assertTrue(os.path.isdir(self.path + ".d"))
            said = json.loads(self.recover("--json").out)
            self.assert_recording()
            self.check_pairs_of_victim(out)
            self.assertEqual((said["lost"], said["database"]), (0, self.path))
            self.assertEqual(said["events"], self.one("SELECT count(*) FROM event"))

    def test_drop_goes_on(self):
        process = self.start_recording(recording.program("rmdir_victim"), "1", "300",
                                       options=["--overflow", "drop", "--ring-size", "4K"], said="started")
        out = self.kill_collector(process)
        self.recover()
        self.assert_recording(may_lose=True)
        lost = self.one("SELECT sum(lost) FROM thread")
        self.assertGreater(lost, 0)
        stored = self.count("heap_alloc", "size = 1234") + self.count("heap_free")
        self.assertGreaterEqual(stored + lost, 2 * recording.json_lines(out)[0]["pairs"])

    def test_while_the_program_runs(self):
        """recover waits for nobody: a program that still records is reported or refused, never half taken."""
        process = self.start_recording(recording.program("rmdir_victim"), "1.5", "50", said="started")
        time.sleep(0.3)
        process.kill()
        process.wait()
        outcome = recording.varve("recover", self.path + ".d")
        recording.finish_orphan(process)
        if outcome.returncode != 0:
            self.assertEqual(outcome.returncode, 2, outcome)
            self.assertEqual(len(outcome.err.splitlines()), 1, outcome)
            self.recover()
        self.assert_finished()
        self.assert_conserved()
        self.assert_sane_rows()

    def test_recover_killed(self):
        """recover itself may be killed and started again."""
        process = self.start_recording(recording.program("churn"), "--seconds", "1.0", "--pace", "1")
        said = json.loads(self.kill_collector(process, 0.2))
        for delay in (0.01, 0.05, 0.1, 0.3):
            if not os.path.exists(self.path + ".d"):
                break
            attempt = recording.start([recording.VARVE, "recover", self.path + ".d"])
            time.sleep(delay)
            attempt.kill()
            recording.finish(attempt)
        if os.path.exists(self.path + ".d"):
            self.recover()
        self.assert_recording()
        for thread in said["threads"]:
            self.assertEqual(self.count("heap_alloc", "tid = ?", thread["tid"]), thread["allocs"])

    def test_with_stacks(self):
        """Call sites are in the recording directory too."""
        process = self.start_recording(recording.program("churn"), "--seconds", "0.8", "--pace", "20",
                                       options=["--stacks", "native"])
        self.kill_collector(process, 0.3)
        self.recover()
        self.assert_recording()
        self.assertGreater(self.one("SELECT count(*) FROM frame WHERE function = 'obtain'"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM event WHERE callsite_id NOT IN (SELECT id FROM callsite)"
                                  " AND callsite_id <> 0"), 0)

    def test_new_process_after_the_kill(self):
        """A child that starts when no collector is there any more."""
        process = self.start_recording("/bin/sh", "-c", f"echo started; sleep 0.6;"
                                       f" {recording.program('burst')} 3000 61",
                                       said="started")
        self.kill_collector(process)
        self.recover()
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 61"), 3000)

    def test_other_output(self):
        process = self.start_recording(recording.program("rmdir_victim"), "0.5", said="started")
        out = self.kill_collector(process)
        other = os.path.join(self.folder, "other.db")
        self.recover("-o", other)
        self.assert_recording(path=other)
        self.check_pairs_of_victim(out)
        self.assertFalse(os.path.lexists(self.path + ".d"))


class Refusals(recording.Case):
    def refuse(self, *command, words=()):
        self.assert_refused(recording.varve(*command), *words)

    def test_recover(self):
        self.refuse("recover", os.path.join(self.folder, "missing.db.d"), words=["missing.db.d"])
        self.refuse("recover", self.write("plain.db.d"), words=["plain.db.d"])
        os.mkdir(os.path.join(self.folder, "empty.db.d"))
        self.refuse("recover", os.path.join(self.folder, "empty.db.d"), words=["empty.db.d"])
        self.assertEqual(sorted(os.listdir(self.folder)), ["empty.db.d", "plain.db.d"])

    def test_recover_of_a_living_recording(self):
        process = self.start_recording(recording.program("rmdir_victim"), "1.5", said="started")
        self.refuse("recover", self.path + ".d", words=["trace.db.d"])
        self.assertEqual(recording.finish(process).returncode, 7)
        self.assert_recording()

    def test_second_recorder_on_the_same_output(self):
        process = self.start_recording(recording.program("rmdir_victim"), "1.5", said="started")
        for force in ([], ["--force"]):
            self.refuse("record", *force, "-o", self.path, "--", "/bin/true", words=["trace.db"])
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 7, outcome)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 1234"), recording.json_lines(outcome.out)[0]["pairs"])

    def test_unfinished_recording_in_the_way(self):
        process = self.start_recording(recording.program("rmdir_victim"), "0.6", said="started")
        self.kill_collector(process)
        self.refuse("record", "-o", self.path, "--", "/bin/true", words=["recover", self.path + ".d"])
        self.varve("recover", self.path + ".d")
        self.assert_recording()

    def test_existing_database(self):
        self.record("/bin/true", options=recording.PLAIN)
        before = os.stat(self.path)
        self.refuse("record", "-o", self.path, "--", "/bin/true", words=["trace.db", "--force"])
        self.assertEqual(os.stat(self.path).st_mtime_ns, before.st_mtime_ns)
        self.varve("record", "--force", "-o", self.path, *recording.PLAIN, "--", "/bin/ls", "/")
        self.assert_recording()
        self.assertGreater(self.one("SELECT count(*) FROM event"), 0)


class Said(recording.Case):
    """What recover says is what its database holds, also where an earlier one had come nearly to its end; -o is where
    the database is then, or nothing is changed."""

    def record_and_kill(self):
        """The directory of a recording with losses whose collector was killed."""
        process = recording.start(self.record_command(
            recording.program("churn"), "--seconds", "0.5", "--threads", "2",
            options=["--overflow", "drop", "--ring-size", "4K", "--stacks", "none"]))
        self.kill_collector(process, 0.2)

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
        disk = self.mount_disk("64k")
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
        taken = self.write("taken.db", "mine")
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
