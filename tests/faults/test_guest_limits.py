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

    def each(self, how, values, is_lost=None, stacks="none", pairs=1000):
        for value in values:
            with self.subTest(value=value, stacks=stacks):
                _, lost = self.limited(how, value, pairs, stacks)
                if is_lost is not None:
                    self.assertEqual(lost > 0, is_lost)

    def each_complete(self, how, values):
        """Few events, and more than the memory holds that is there before; with the stacks and names of each."""
        for stacks in ("none", "all"):
            for pairs in (1000, 20000):
                self.each(how, values, False, stacks, pairs)
        self.assertEqual(self.count("heap_alloc", "callsite_id IS NULL"), 0)
        functions = {row[0] for row in self.sql("SELECT function FROM frame")}
        self.assertTrue({"allocate", "main"} <= functions, functions)

    def test_files_shorter_than_a_ring(self):
        self.each_complete("file", [1000000])

    def test_files_too_short_for_a_ring(self):
        self.each_complete("file", [0, 4096, 100000])

    def test_signal_of_the_program_stays_pending(self):
        self.each("sent", [4096, 1000000])

    def test_no_descriptor(self):
        self.each_complete("files", [3, 20])

    def test_little_address_space(self):
        self.each("space", [3000000], False)

    def test_no_address_space(self):
        self.each("space", [200000])

    def test_another_root(self):
        self.each_complete("root", [0])

    def test_another_user(self):
        self.each_complete("user", [65534])


class Workers(Counted):
    """Of another user, which can open nothing of the recording: the reserve has rings for them."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root becomes another user")

    def leaked(self):
        return self.sql("SELECT count(*), sum(size) FROM allocations a JOIN frame f USING (callsite_id)"
                        " WHERE f.function = 'serve' AND a.free_ns IS NULL")[0]

    def test_more_than_there_are_slots(self):
        """Each has a page and two rings: slots are used many times."""
        outcome = self.record(recording.program("workers"), "60", "10", "20")
        self.assertIn("nothing lost", outcome.err)
        self.open()
        self.assertEqual(self.leaked(), (int(outcome.out), int(outcome.out) * 50))
        self.assert_conserved()

    def test_rings_and_stacks_grow(self):
        outcome = self.record(recording.program("workers"), "1", "3", "60000")
        self.assertIn("nothing lost", outcome.err)
        self.open()
        self.assertEqual(self.leaked(), (360000, 360000 * 50))

    def test_collector_is_killed(self):
        """What the slots hold is recovered, and what found none is counted."""
        script = f'{recording.program("workers")} 1 1 300; kill -9 $PPID; {recording.program("workers")} 1 4 300'
        recording.finish_orphan(recording.start(self.record_command("sh", "-c", script)))
        self.varve("recover", self.path + ".d")
        self.open()
        self.assertGreater(self.leaked()[0], 600)
        self.assertGreaterEqual(self.leaked()[0] + self.lost(), 5 * 600)


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

    def test_rings_of_other_users_make_do(self):
        """Forty that would grow to 4 MiB each: the collector refuses, and they wait for it in what they have."""
        if os.geteuid() != 0:
            self.skipTest("only root becomes another user")
        outcome = self.record_in(f'exec {recording.program("workers")} 1 20 20000')
        self.assertIn("nothing lost", outcome.err)
        self.assertGreaterEqual(self.count("heap_alloc", "size = 50"), int(outcome.out))

    def test_the_program_keeps_its_share(self):
        """Four rings of 64 MiB that nobody empties, in 66 MiB: half of it stays free."""
        outcome = self.record_in(f'kill -STOP $PPID; {recording.program("churn")} --ops 400000 --threads 4; '
                                 "df --output=avail -B1 /dev/shm | tail -n 1; kill -CONT $PPID", "--ring-size", "64M")
        self.assertGreaterEqual(int(outcome.out.split()[-1]), 30 << 20, outcome)
        self.assertIn("nothing lost", outcome.err)


class LockedMemory(Counted):
    def test_counts_only_what_is_the_programs(self):
        """Within 8 MiB, where one ring would have four."""
        plain = recording.run([recording.program("locked"), "8"])
        if plain.returncode != 0:
            self.skipTest(f"the program alone can't lock its memory: {plain}")
        outcome = self.record(recording.program("locked"), "8")
        self.assertEqual(outcome.out, plain.out)
        self.assertIn("nothing lost", outcome.err)
        self.open()
        self.assertEqual((self.count("heap_alloc", "size = 1000"), self.count("heap_alloc", "size = 300000")), (4, 3))


def group_folder():
    """Of a memory control group for this process, which can be made here; None: it can't."""
    for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = os.path.join(base, f"varve-test-{os.getpid()}")
        try:
            os.mkdir(folder)
        except OSError:
            continue
        if os.path.exists(os.path.join(folder, limit)):
            return folder, limit
        os.rmdir(folder)
    return None, None


class Group(Counted):
    """A memory control group, which the kernel kills a process of when it is full."""

    def setUp(self):
        super().setUp()
        self.group, self.limit = group_folder()
        if self.group is None:
            self.skipTest("no memory control group can be made here")
        self.addCleanup(os.rmdir, self.group)

    def allow(self, mib):
        with open(os.path.join(self.group, self.limit), "w") as file:
            file.write(str(mib << 20))

    def test_of_the_program_alone(self):
        """Thirty-two rings of 4 MiB, in 48 MiB."""
        self.allow(48)
        churn = " ".join([recording.program("churn"), "--ops", "20000", "--threads", "32"])
        script = f"echo $$ > {self.group}/cgroup.procs; exec {churn}"
        outcome = self.record("sh", "-c", script, options=["--stacks", "none"])
        said = json.loads(outcome.out)
        self.assertIn("nothing lost", outcome.err)
        self.open()
        self.assertGreaterEqual(self.count("heap_alloc"), said["allocs"])
        self.assert_conserved()


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
