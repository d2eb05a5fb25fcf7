#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 90 s
# Reads damaged input: directories of recordings.
"""`varve recover` says the truth whatever came before it. Recoveries that are themselves killed, before each system
call by which they change a file and at random moments, end in the database of one that was not; what had been dropped
before the collector died is still reported; and a file of the directory that is gone, cut or overwritten is a loss
that is reported."""

import json
import glob
import os
import random
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

# System calls of a recovery at which it is killed: of its end, where it renames and unlinks, and in the middle; and
# copies that are killed at random moments.
CALLS_LAST, CALLS_AMONG, COPIES, OFTEN = (30, 8, 20, 4) if recording.IS_FULL else (1, 0, 1, 1)
OPS = 2500 if recording.IS_FULL else 300
# When a process or thread whose end nobody saw is said to have ended: the time of the recovery.
VOLATILE = {"process": {"end_ns"}, "thread": {"end_ns"}}
STATS = {"events_emitted": "emitted", "events_spilled": "spilled", "events_uncommitted": "uncommitted",
         "events_lost": "lost", "bytes_lost": "lost_bytes"}


def contents(path):
    """All rows of all tables (of event_row and its like: as their views say), but for what may differ between two
    recoveries."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = {}
    for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE"
                                       " 'sqlite%'"):
        table = table.removesuffix("_row")
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns = [column for column in columns if column not in VOLATILE.get(table, ())]
        columns = ", ".join(columns)
        tables[table] = connection.execute(f"SELECT {columns} FROM {table} ORDER BY {columns}").fetchall()
    connection.close()
    return tables


def cut(to):
    """Damages a file: `to` is its new size, by its old one."""
    return lambda path: os.truncate(path, int(to(os.path.getsize(path))))


def overwrite(byte, share):
    """Damages a page of a file, at that share of its length."""
    def damage(path):
        size = os.path.getsize(path)
        with open(path, "r+b") as stream:
            stream.seek(int(size * share))
            stream.write(byte * min(size, 4096))
    return damage


class Header:
    """Of a ring: see struct ring_header."""

    def __init__(self, content):
        self.emitted, self.head, self.spill_head, self.spill_flushed = struct.unpack_from("<4Q", content, 64)
        self.tail, self.spill_tail = struct.unpack_from("<2Q", content, 192)


class Recovering(recording.Case):
    def copy(self, source, name):
        return recording.copy_directory(source, os.path.join(self.folder, name + ".db.d"))

    def leave_directory(self, *command, options=(), after=0.3, name="trace"):
        """A recording whose collector is killed while the program runs on to its end; returns the program's output."""
        self.path = os.path.join(self.folder, name + ".db")
        return self.kill_collector(self.start_recording(*command, options=options), after)

    def recover(self, directory, *options):
        outcome = self.varve("recover", "--json", *options, directory)
        return json.loads(outcome.out)

    def assert_sums(self, said):
        """stats, thread rows, what is stored, and what recover printed all say the same."""
        stats = dict(self.sql("SELECT name, value FROM stats WHERE idx = -1"))
        events = self.one("SELECT count(*) FROM event")
        unattached = stats["events_unattached"]
        for name, column in STATS.items():
            total = self.one(f"SELECT coalesce(sum({column}), 0) FROM thread")
            total += unattached if name == "events_emitted" else 0
            self.assertEqual(stats[name], total, f"{name} and the rows of thread")
        self.assertEqual((stats["events_stored"], said["events"]), (events, events))
        self.assertEqual(said["lost"], stats["events_lost"] + unattached)
        self.assertEqual(said["uncommitted"], stats["events_uncommitted"])
        self.assertEqual(stats["events_emitted"], events + said["lost"] + said["uncommitted"])
        reported = dict(self.sql("SELECT name, value FROM data_loss WHERE idx = -1"))
        self.assertEqual(reported.get("events_lost", 0), stats["events_lost"])
        self.assert_conserved()


class Interrupted(Recovering):
    """The same end, however often a recovery was killed on the way."""

    def leave(self, policy, size, stacks):
        churn = recording.program("churn")
        command = (f"{recording.program('threads300')} 12 4; {churn} --ops 1500 --threads 3 --seed 1; sleep 0.3;"
                   f"{churn} --ops {OPS} --threads 4 --seed 2; {recording.program('forker')} storm 3; sleep 0.7; "
                   f"{churn} --ops {OPS} --threads 2 --seed 3; {recording.program('burst')} {OPS}")
        self.leave_directory("/bin/sh", "-c", command, after=1.0, name=f"{policy}{size}{stacks}",
                             options=["--overflow", policy, "--ring-size", size, "--stacks", stacks])
        return self.path + ".d"

    def attempt(self, directory, call):
        """(how it ended, how many calls that change files it made)."""
        reader, writer = os.pipe()
        try:
            process = subprocess.run(
                ["/bin/sh", "-c", f'exec 3>&{writer} "$@"', "sh", recording.program("kill_at_call"), str(call),
                 recording.VARVE, "recover", directory], pass_fds=[writer], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, check=False, # a traced process can't look for leaks
                env={**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"})
        finally:
            os.close(writer)
        with os.fdopen(reader) as stream:
            words = stream.read().split()
        self.assertEqual(words[:1], ["calls"], process)
        self.assertIn(process.returncode, (0, 137), process)
        return process.returncode, int(words[1])

    def assert_same(self, directory, expected, how):
        if os.path.isdir(directory):
            self.assert_reported(directory)
        else:
            self.open(directory[:-2])
        self.assert_finished(directory[:-2])
        found = contents(directory[:-2])
        for table, rows in expected.items():
            self.assertEqual(found[table], rows, f"table {table} after {how}")
        os.unlink(directory[:-2])

    def assert_reported(self, directory):
        said = self.recover(directory)
        self.open(directory[:-2])
        if said["events"] > 0:
            self.assert_sums(said)

    def interrupt(self, number, policy, size, stacks):
        """Kill one recovery of each copy at each call in turn, of which only a part is tried where there are many."""
        source = self.leave(policy, size, stacks)
        reference = self.copy(source, "reference")
        self.assert_reported(reference)
        self.assert_finished(reference[:-2])
        expected = contents(reference[:-2])
        if policy == "drop":
            self.assertGreater(self.one("SELECT sum(lost) FROM thread"), 0, "nothing was dropped: this shows nothing")
        status, calls = self.attempt(self.copy(source, "counted"), 0)
        self.assertEqual(status, 0)
        chance = random.Random(number)
        last = range(max(1, calls - CALLS_LAST), calls + 1)
        chosen = sorted({*last, *chance.sample(range(1, calls + 1), min(calls, CALLS_AMONG))})
        for call in chosen:
            directory = self.copy(source, f"at{call}")
            status, _ = self.attempt(directory, call)
            self.assertEqual(status, 137, f"call {call} of {calls}")
            self.assert_same(directory, expected, f"a kill before call {call} of {calls}")
        for attempt in range(OFTEN):
            directory = self.copy(source, f"often{attempt}")
            at = []
            while os.path.isdir(directory) and len(at) < 6:
                at.append(chance.randint(1, calls))
                self.attempt(directory, at[-1])
            self.assert_same(directory, expected, f"kills before calls {at} of {calls}")

    # Threads and processes that end before the collector is killed and after it, all that a small ring does not hold.

    def test_drop(self):
        self.interrupt(1, "drop", "4K", "none")

    def test_spill(self):
        self.interrupt(2, "spill", "4K", "none")

    def test_stacks(self):
        self.interrupt(3, "spill", "64K", "native")

    def test_random_moments(self):
        """Not at system calls: in between, while memory that both sides map is written."""
        source = self.leave("drop", "4K", "none")
        reference = self.copy(source, "reference")
        begin = time.monotonic()
        self.assert_reported(reference)
        took = time.monotonic() - begin
        expected = contents(reference[:-2])
        chance = random.Random(4)
        for number in range(COPIES):
            directory = self.copy(source, f"random{number}")
            for _ in range(chance.randint(1, 3)):
                if os.path.isdir(directory):
                    process = recording.start([recording.VARVE, "recover", directory])
                    time.sleep(chance.random() * took)
                    process.kill()
                    self.assertIn(recording.finish(process).returncode, (-9, 0))
            self.assert_same(directory, expected, f"random kills, copy {number}")


class Losses(Recovering):
    """What was lost before the collector died is reported afterwards."""

    def test_dropped_before_the_kill(self):
        """Rings that dropped events and were retired long before: their threads had ended."""
        churn = recording.program("churn")
        out = self.leave_directory("/bin/sh", "-c", f"{churn} --ops 20000 --threads 4; sleep 1.5", after=1.2,
                                   options=["--stacks", "none", "--overflow", "drop", "--ring-size", "4K"])
        said = self.recover(self.path + ".d")
        self.assert_finished()
        self.assert_sums(said)
        counted = sum(thread["allocs"] + thread["frees"] + 2 * thread["reallocs"]
                      for thread in recording.json_lines(out)[0]["threads"])
        stored = self.one("SELECT count(*) FROM events WHERE kind LIKE 'heap%'")
        self.assertGreater(said["lost"], 0)
        self.assertGreaterEqual(stored + said["lost"], counted)


class Damaged(Recovering):
    """For every file of a directory and each damage to it: refused, or equal to undamaged, or a loss that is
    reported."""

    made = None  # (a whole directory, what is recovered of it): one for all tests

    def setUp(self):
        super().setUp()
        if self.made is None:
            folder = tempfile.TemporaryDirectory(prefix="varve-test-")
            unittest.addModuleCleanup(folder.cleanup)
            Damaged.made = self.make(folder.name)
        self.whole, self.expected = self.made

    def make(self, folder):
        churn = recording.program("churn")
        self.leave_directory("/bin/sh", "-c", f"{churn} --ops 300 --threads 2 --seed 1; sleep 0.8;"
                             f"{churn} --ops 6000 --threads 2 --seed 2", after=0.6, name="whole",
                             options=["--stacks", "native", "--ring-size", "4K"])
        whole = shutil.move(self.copy(self.path + ".d", "source"), folder)
        reference = self.copy(whole, "reference")
        self.recover(reference)
        return whole, contents(reference[:-2])

    def files(self):
        for folder in ("", "ring"):
            for name in sorted(os.listdir(os.path.join(self.whole, folder))):
                if os.path.isfile(os.path.join(self.whole, folder, name)):
                    yield os.path.join(folder, name)

    def files_to_damage(self):
        """All; in a quick run the last of a kind: of the rings, say."""
        kinds = {}
        for name in self.files():
            kinds.setdefault(re.sub(r"\d+", "N", name), []).append(name)
        for names in kinds.values():
            yield from names if recording.IS_FULL or len(names) < 3 else names[-1:]

    def half(self, first, *wanted):
        """In a quick run every second one, and these."""
        names = list(self.files_to_damage())
        return names if recording.IS_FULL else sorted({*names[first::2], *wanted})

    def outcome_of(self, directory, what):
        outcome = recording.varve("recover", "--json", directory)
        self.assertIn(outcome.returncode, (0, 2), (what, outcome))
        if outcome.returncode == 2:
            self.assertEqual(len(outcome.err.splitlines()), 1, (what, outcome))
            return "refused"
        self.assert_finished(directory[:-2])
        losses = self.sql("SELECT name, idx, value FROM data_loss")
        self.assertEqual(json.loads(outcome.out)["data_loss"], len(losses), what)
        found = contents(directory[:-2])
        differing = [table for table, rows in self.expected.items() if found[table] != rows]
        self.assertFalse(differing and not losses, f"{what}: tables {differing} differ, and no loss is reported")
        self.assert_conserved()
        if not losses:
            return "equal"
        self.assertNotIn("nothing lost", recording.varve("report", directory[:-2]).out, what)
        return "reported"

    def damage_all(self, damage, names=None):
        outcomes = {}
        for number, name in enumerate(names or self.files_to_damage()):
            directory = self.copy(self.whole, f"damaged{number}")
            damage(os.path.join(directory, name))
            outcomes[name] = self.outcome_of(directory, name)
            shutil.rmtree(directory, ignore_errors=True)
            if os.path.exists(directory[:-2]):
                os.unlink(directory[:-2])
        return outcomes

    def test_missing(self):
        outcomes = self.damage_all(os.unlink, self.half(1, "ring/session"))
        self.assertIn("reported", outcomes.values())
        self.assertEqual(outcomes["ring/session"], "refused")

    def test_cut(self):
        self.damage_all(cut(lambda size: size / 2), self.half(0))
        if recording.IS_FULL:
            self.damage_all(cut(lambda size: 0))
        outcomes = self.damage_all(cut(lambda size: max(0, size - 100)),
                                   None if recording.IS_FULL else ["trace.db-wal"])
        self.assertEqual(outcomes["trace.db-wal"], "reported")

    def test_overwritten(self):
        self.damage_all(overwrite(b"\xa5", 0), self.half(1))
        if recording.IS_FULL:
            self.damage_all(overwrite(b"\0", 0.5))
            self.damage_all(overwrite(b"\0", 0))
            self.damage_all(overwrite(b"\xa5", 0.5))

    def ring_with(self, condition):
        """A ring of the directory whose header meets the condition: (name, its fields)."""
        for name in self.files():
            match = re.fullmatch(r"ring/p(\d+)\.r(\d+)", name)
            if match:
                with open(os.path.join(self.whole, name), "rb") as stream:
                    header = Header(stream.read(256))
                if condition(header):
                    return name, header
        self.fail("no such ring is left")
        return None

    def test_missing_ring(self):
        """A ring that the database knows: what was stored of it stays, its row says that the rest is not known."""
        name, header = self.ring_with(lambda header: header.spill_head > 0)
        directory = self.copy(self.whole, "missing")
        os.unlink(os.path.join(directory, name))
        self.assertEqual(self.outcome_of(directory, name), "reported")
        reported = dict(self.sql("SELECT name, sum(value) FROM data_loss GROUP BY name"))
        self.assertGreaterEqual(reported.get("rings_damaged", 0) + reported.get("rings_missing", 0), 1)
        self.assertIn("DATA LOSS", recording.varve("report", directory[:-2]).out)
        again = self.copy(self.whole, "again")
        os.unlink(os.path.join(again, name))
        self.assertNotIn("nothing lost", recording.varve("recover", again).out)

    def test_missing_spill(self):
        """Of a spill that is gone the number of records is known exactly: the ring's header has counted them."""
        name, header = self.ring_with(lambda header: header.spill_flushed > header.spill_tail)
        directory = self.copy(self.whole, "spill")
        pieces = glob.glob(os.path.join(directory, name + ".spill*")) + \
            glob.glob(os.path.join(directory, os.path.basename(name) + ".spill*"))
        self.assertGreater(len(pieces), 0)
        for piece in pieces:
            os.unlink(piece)
        self.assertEqual(self.outcome_of(directory, name), "reported")
        process, ring = re.fullmatch(r"ring/p(\d+)\.r(\d+)", name).groups()
        gone = header.spill_flushed - header.spill_tail
        self.assertEqual(self.sql("SELECT emitted, lost, unreadable FROM thread WHERE process_id = ? AND ring = ?",
                                  process, ring),
                         [(header.emitted, gone, gone)])

    def test_missing_page(self):
        """The control page of a process: its rings are read all the same, and that it is missing is reported."""
        name, _ = self.ring_with(lambda header: header.spill_head > 0)
        page = name.split(".")[0]
        directory = self.copy(self.whole, "page")
        os.unlink(os.path.join(directory, page))
        self.assertEqual(self.outcome_of(directory, page), "reported")
        self.assertEqual(self.sql("SELECT value FROM data_loss WHERE name = 'processes_missing'"), [(1,)])
        self.assertEqual(self.one("SELECT count(*) FROM event"), len(self.expected["event"]))


if __name__ == "__main__":
    recording.main()
