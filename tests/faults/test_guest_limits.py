#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""Programs under limits (file size, descriptors, address space, another root, another user) and recordings without
room: the program is never harmed, and what could not be recorded is counted."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

LIMITED = recording.program("limited")
CHURN = ("--ops", "50000", "--threads", "4")


class Counted(recording.Case):
    """Each test adds up what was recorded and what was lost."""

    def lost(self):
        return self.one("SELECT coalesce(sum(value), 0) FROM data_loss WHERE name IN ('events_lost',"
                        " 'events_unattached')")

    def events(self):
        return self.one("SELECT count(*) FROM events WHERE kind <> 'lost'")

    def assert_said(self, outcome):
        lost = self.one("SELECT count(*) FROM data_loss") > 0
        self.assertEqual("nothing lost" in outcome.err, not lost, outcome)


class Limits(Counted):
    def limited(self, how, value, pairs=1000, stacks="none"):
        """Pairs, and how many of their events were recorded or counted as lost; the program ended well."""
        plain = recording.run([LIMITED, how, str(value), str(pairs)])
        if plain.returncode == 77:
            self.skipTest(plain.err.strip())
        outcome = self.record(LIMITED, how, str(value), str(pairs), options=["--stacks", stacks])
        said = json.loads(outcome.out)
        self.assertEqual(said, json.loads(plain.out))
        self.open()
        self.assert_said(outcome)
        stored = self.count("heap_alloc", "size = 1234") + self.count("heap_free")
        self.assertGreaterEqual(stored + self.lost(), 2 * said["pairs"], outcome)
        return said["pairs"], self.lost()

    def each(self, how, values, is_lost=None, stacks="none"):
        for value in values:
            with self.subTest(value=value, stacks=stacks):
                _, lost = self.limited(how, value, stacks=stacks)
                if is_lost is not None:
                    self.assertEqual(lost > 0, is_lost)

    def test_files_shorter_than_a_ring(self):
        for stacks in ("none", "all"):
            self.each("file", [1000000], False, stacks)

    def test_files_too_short_for_a_ring(self):
        self.each("file", [0, 4096, 100000], True)

    def test_signal_of_the_program_stays_pending(self):
        self.each("sent", [4096, 1000000])

    def test_no_descriptor(self):
        self.each("files", [3, 20], True)

    def test_little_address_space(self):
        self.each("space", [3000000], False)

    def test_no_address_space(self):
        self.each("space", [200000])

    def test_another_root(self):
        self.each("root", [0], True)

    def test_another_user(self):
        self.each("user", [65534], True)

        # a process without a page
        self.assertEqual(self.one("SELECT value FROM data_loss WHERE name = 'processes_unattached'"), 1)


class SmallMemory(Counted):
    """A /dev/shm of its own for each recording, with room for rings when it starts."""

    def record_in(self, script, *options):
        if not recording.is_tmpfs_possible() or not shutil.which("unshare"):
            self.skipTest("tmpfs can't be mounted here")
        command = self.record_command("sh", "-c", script, options=[*recording.PLAIN, *options])
        outcome = recording.run(["unshare", "-m", "sh", "-c",
                                 'mount -t tmpfs -o size=66m none /dev/shm && exec "$@"', "sh", *command])
        self.assertEqual(outcome.returncode, 0, outcome)
        self.open()
        return outcome

    def check_complete(self, fill, *options):
        """The program first fills /dev/shm with `fill` bytes."""
        churn = " ".join([recording.program("churn"), *CHURN])
        outcome = self.record_in(f"head -c {fill} /dev/zero >/dev/shm/full 2>/dev/null; exec {churn}", *options)
        said = json.loads(outcome.out)
        self.assertIn("nothing lost", outcome.err)
        self.assertEqual(self.one("SELECT count(*) FROM data_loss"), 0)
        allocs = sum(thread["allocs"] for thread in said["threads"])
        self.assertGreaterEqual(self.count("heap_alloc"), allocs)
        self.assert_conserved()

    def test_full(self):
        """Nearly, and quite."""
        for fill in ("64m", "80m"):
            for policy in ("spill", "block"):
                with self.subTest(fill=fill, policy=policy):
                    self.check_complete(fill, "--overflow", policy)

    def test_the_program_keeps_its_share(self):
        """Four rings of 64 MiB that nobody empties, in 66 MiB: half of it stays free."""
        outcome = self.record_in(f'kill -STOP $PPID; {recording.program("churn")} --ops 400000 --threads 4; '
                                 "df --output=avail -B1 /dev/shm | tail -n 1; kill -CONT $PPID", "--ring-size", "64M")
        self.assertGreaterEqual(int(outcome.out.split()[-1]), 30 << 20, outcome)
        self.assertIn("nothing lost", outcome.err)


class SpillLimit(Counted):
    def test_collector_is_gone(self):
        """What waits beside the rings has a limit; the rest is counted, and recover reports it."""
        script = 'kill -9 $PPID; "$@"; du -cb "$0".d/ring/*.spill* | tail -n 1'
        command = [recording.VARVE, "record", "-o", self.path, *recording.PLAIN, "--ring-size", "4K", "--max-spill",
                   "300K", "--", "sh", "-c", script, self.path, recording.program("burst"), "300000"]
        out = recording.finish_orphan(recording.start(command))
        self.assertLessEqual(int(re.search(r"^(\d+)\s+total", out, re.M).group(1)), 300 << 10)
        outcome = self.varve("recover", self.path + ".d")
        self.assertIn("LOST", outcome.out)
        self.open()
        self.assertGreaterEqual(self.events() + self.lost(), 600000)
        self.assertGreater(self.events(), 4096)

    def test_collector_lives(self):
        """Whatever the limit keeps out, recorded and lost add up to what was emitted."""
        outcome = self.record("sh", "-c", f'for i in 1 2 3 4 5 6 7 8; do {recording.program("burst")} 20000; done',
                              options=[*recording.PLAIN, "--ring-size", "4K", "--max-spill", "1M"])
        self.open()
        self.assert_said(outcome)
        self.assertGreaterEqual(self.events() + self.lost(), 8 * 40000)
        self.assertEqual(glob.glob(self.path + ".d"), [])

    def test_limit_is_a_number_of_bytes(self):
        self.varve("record", "-o", self.path, "--max-spill", "0", "--", "true", status=2)


if __name__ == "__main__":
    recording.main()
