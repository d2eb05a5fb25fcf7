#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
"""SIGKILL of the collector, then `varve recover`; a second recorder on the same output; what recover refuses.
(SIGKILL of the program and of both at random moments, many times: tests/stress/stress.)"""

import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402


class CollectorKilled(recording.Case):
    def kill_collector(self, process):
        """The program goes on alone; returns its pid."""
        program = recording.wait_until(lambda: recording.children_of(process.pid), what="the program's start")[0]
        self.assertIsNone(process.poll(), "varve was to be killed, but has ended")
        process.kill()
        return program

    def recover(self, *options, status=0):
        return self.varve("recover", *options, self.path + ".d", status=status)

    def check_pairs_of_victim(self, out):
        said = recording.json_lines(out)[0]
        self.assertEqual(self.count("heap_alloc", "size = 1234"), said["pairs"])
        self.assertEqual(self.count("heap_free", "size = 1234"), said["pairs"])

    def test_program_goes_on(self):
        """Nothing of it is missing after recover, whatever the policy and however small the rings."""
        for policy, size in (("spill", "4M"), ("spill", "4K"), ("block", "16K")):
            self.path = os.path.join(self.folder, f"{policy}-{size}.db")
            process = self.start_recording(recording.program("rmdir_victim"), "0.8", "50",
                                           options=["--overflow", policy, "--ring-size", size], said="started")
            time.sleep(0.2)
            self.kill_collector(process)
            out = recording.finish_orphan(process)
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
        self.kill_collector(process)
        out = recording.finish_orphan(process)
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
        self.kill_collector(process)
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
        time.sleep(0.2)
        self.kill_collector(process)
        said = json.loads(recording.finish_orphan(process))
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
        time.sleep(0.3)
        self.kill_collector(process)
        recording.finish_orphan(process)
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
        recording.finish_orphan(process)
        self.recover()
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 61"), 3000)

    def test_other_output(self):
        process = self.start_recording(recording.program("rmdir_victim"), "0.5", said="started")
        self.kill_collector(process)
        out = recording.finish_orphan(process)
        other = os.path.join(self.folder, "other.db")
        self.recover("-o", other)
        self.assert_recording(path=other)
        self.check_pairs_of_victim(out)
        self.assertFalse(os.path.lexists(self.path + ".d"))


class Refusals(recording.Case):
    def refuse(self, *command, words=()):
        outcome = recording.varve(*command)
        self.assert_refused(outcome, *words)
        return outcome

    def test_recover(self):
        self.refuse("recover", os.path.join(self.folder, "missing.db.d"), words=["missing.db.d"])
        plain = os.path.join(self.folder, "plain.db.d")
        with open(plain, "w", encoding="utf-8"):
            pass
        self.refuse("recover", plain, words=["plain.db.d"])
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
        self.refuse("record", "-o", self.path, "--", "/bin/true", words=["trace.db"])
        self.refuse("record", "--force", "-o", self.path, "--", "/bin/true", words=["trace.db"])
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 7, outcome)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 1234"), recording.json_lines(outcome.out)[0]["pairs"])

    def test_unfinished_recording_in_the_way(self):
        process = self.start_recording(recording.program("rmdir_victim"), "0.6", said="started")
        process.kill()
        recording.finish_orphan(process)
        outcome = self.refuse("record", "-o", self.path, "--", "/bin/true", words=["recover"])
        self.assertIn(self.path + ".d", outcome.err)
        self.varve("recover", self.path + ".d")
        self.assert_recording()

    def test_existing_database(self):
        self.record("/bin/true", options=recording.PLAIN)
        before = os.stat(self.path)
        self.refuse("record", "-o", self.path, "--", "/bin/true", words=["trace.db", "--force"])
        self.assertEqual(os.stat(self.path).st_mtime_ns, before.st_mtime_ns)
        self.record("/bin/ls", "/", options=[*recording.PLAIN, "--force"])
        self.assert_recording()
        self.assertGreater(self.one("SELECT count(*) FROM event"), 0)


if __name__ == "__main__":
    recording.main()
