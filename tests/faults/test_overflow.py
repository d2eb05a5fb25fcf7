#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""Rings too small for a burst, disks too small for the recording, a recording directory that is deleted: the program is
never harmed, and what is missing is counted and said."""

import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

DISK_PAIRS = 80000  # twice as many events of 64 bytes as the small disk holds, and more


class SmallRings(recording.Case):
    def record_burst(self, policy, pairs, *options):
        outcome = self.record(recording.program("burst"), str(pairs),
                              options=[*recording.PLAIN, "--ring-size", "4K", "--overflow", policy, *options])
        said = json.loads(outcome.out)
        self.assertEqual(said["pairs"], pairs)
        return said

    def test_spill_and_block_lose_nothing(self):
        for policy in ("spill", "block"):
            said = self.record_burst(policy, 50000)
            self.assert_recording()
            self.assertEqual(self.pairs(48), (said["pairs"],) * 2)
            self.assertEqual(self.one("SELECT sum(spilled) FROM thread") > 0, policy == "spill")

    def test_drop_counts(self):
        said = self.record_burst("drop", 300000)
        self.assert_recording(may_lose=True)
        lost = self.one("SELECT sum(lost) FROM thread")
        self.assertGreater(lost, 0, "a burst of 300000 pairs did fit a ring of 64 records")
        stored = self.count("heap_alloc", "size = 48") + self.count("heap_free")  # also of blocks whose malloc was lost
        self.assertGreaterEqual(stored + lost, 2 * said["pairs"])
        self.assertEqual(self.one("SELECT value FROM data_loss WHERE name = 'events_lost'"), lost)
        self.assertGreater(self.one("SELECT sum(lost_bytes) FROM thread"), 0)
        reported = self.one("SELECT coalesce(sum(arg), 0) FROM events WHERE kind = 'lost'")
        ended_in_gap = self.one("SELECT count(*) FROM events WHERE kind = 'process_exit'") == 0
        self.assertTrue(reported > 0 or ended_in_gap, "a gap is reported as soon as there is room again")
        self.assertLessEqual(reported, lost)
        for command in ("report", "leaks", "peak"):
            outcome = self.varve(command, self.path)
            self.assertRegex((outcome.out + outcome.err).lower(), "data loss|lost [0-9]|incomplete|missing", command)

    def test_threads_on_small_rings(self):
        for policy in ("spill", "block"):
            outcome = self.record(recording.program("churn"), "--ops", "15000",
                                  options=[*recording.PLAIN, "--ring-size", "4K", "--overflow", policy])
            said = json.loads(outcome.out)
            self.assert_recording()
            for thread in said["threads"]:
                self.assertEqual(self.count("heap_alloc", "tid = ?", thread["tid"]), thread["allocs"], policy)

    def test_signal_handlers_on_small_rings(self):
        """Handlers that allocate while the thread is in the middle of a spill."""
        outcome = self.record(recording.program("signaler"), "50000", options=[*recording.PLAIN, "--ring-size", "4K"])
        said = json.loads(outcome.out)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 40009"), said["allocs"])
        self.assertEqual(self.count("munmap", "size = 20480"), said["unmaps"])


class FullDisk(recording.Case):
    def setUp(self):
        super().setUp()
        self.disk = self.mount_disk("3m")
        self.path = os.path.join(self.disk, "trace.db")

    def check(self, policy):
        """Far more than 3 MB of events; the program must neither fail nor hang."""
        outcome = recording.run(self.record_command(recording.program("burst"), str(DISK_PAIRS), options=[
            *recording.PLAIN, "--ring-size", "64K", "--overflow", policy]))
        # the program had ended well; the database could not be written
        self.assertEqual(outcome.returncode, 2, outcome)
        self.assertEqual(json.loads(outcome.out)["pairs"], DISK_PAIRS, outcome)
        self.assertNotEqual(outcome.err, "", "not a word about a full disk")
        if os.path.exists(self.path):
            self.assert_finished()
            self.assert_conserved()
            self.assertNotEqual(self.sql("SELECT * FROM data_loss"), [])
            return
        self.assertIn("recover", outcome.err)
        self.assertTrue(os.path.isdir(self.path + ".d"), os.listdir(self.disk))
        refused = recording.varve("recover", self.path + ".d")
        self.assertEqual(refused.returncode, 2, refused)
        # With room again, what was committed anywhere is there and the rest is counted.
        self.make_room()
        self.varve("recover", self.path + ".d")
        self.assert_finished()
        self.assert_sane_rows()
        lost, _ = self.assert_conserved()
        stored = self.count("heap_alloc", "size = 48") + self.count("heap_free")
        self.assertGreaterEqual(stored + lost, 2 * DISK_PAIRS)
        if lost:
            self.assertEqual(self.one("SELECT value FROM data_loss WHERE name = 'events_lost'"), lost)

    def test_spill(self):
        self.check("spill")

    def test_block(self):
        self.check("block")

    def test_drop(self):
        self.check("drop")

    def make_room(self):
        subprocess.run(["mount", "-o", "remount,size=200m", self.disk], check=True)

    def fill(self):
        """The path of what takes all of the room."""
        filler = os.path.join(self.disk, "filler")
        with open(filler, "wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(4096))
            except OSError:
                return filler

    def test_no_room_to_begin(self):
        self.fill()
        outcome = recording.run(self.record_command("/bin/echo", "ran"))
        self.assertEqual((outcome.returncode, outcome.out), (2, ""), outcome)
        self.assertIn("space", outcome.err)
        self.assertEqual(os.listdir(self.disk), ["filler"])

    def test_room_comes_back(self):
        """A disk that is full for a while: with `spill` into a file the recording survives as a whole."""
        process = self.start_recording(recording.program("rmdir_victim"), "1", "60", said="started")
        filler = self.fill()
        time.sleep(0.4)
        os.unlink(filler)
        self.make_room()
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 7, outcome)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 1234"), recording.json_lines(outcome.out)[0]["pairs"])


class Deleted(recording.Case):
    def delete(self, folder):
        """Again, where a file was made meanwhile."""
        recording.wait_until(lambda: shutil.rmtree(folder, ignore_errors=True) or not os.path.exists(folder),
                             what=f"the end of {folder}")

    def record_and_delete(self, *options, what=lambda path: path):
        process = self.start_recording(recording.program("rmdir_victim"), "1", "100", options=options,
                                       said="started")
        time.sleep(0.2)
        self.rings = os.path.realpath(os.path.join(self.path + ".d", "ring"))
        self.delete(what(self.path + ".d"))
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 7, outcome)
        self.assertGreater(recording.json_lines(outcome.out)[0]["pairs"], 1000)
        return outcome

    def check(self, outcome):
        """Either the database is whole in spite of it, or a line says that it is not."""
        if os.path.exists(self.path):
            self.assert_finished()
            self.assert_conserved()
        else:
            self.assertNotEqual(outcome.err.strip(), "")
            self.assertIn(self.path, outcome.err)

    def test_recording_directory(self):
        """Also where the spill, which small rings need, has no folder any more."""
        for policy in recording.POLICIES:
            for options in ([], ["--ring-size", "4K"]):
                self.check(self.record_and_delete("--overflow", policy, *options))

    def test_ring_folder(self):
        self.check(self.record_and_delete(what=lambda path: os.path.realpath(os.path.join(path, "ring"))))

    def test_no_folder_left_in_shared_memory(self):
        self.record_and_delete()
        self.assertFalse(os.path.exists(self.rings), self.rings)


if __name__ == "__main__":
    recording.main()
