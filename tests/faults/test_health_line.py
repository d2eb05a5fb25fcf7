#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
"""The line about health is in the words of what happened: still running when the recording stopped, killed, lost, not
recordable; and a recording lasts as long as its program."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STATIC = recording.program("static_hello")
WAYS = recording.program("run_ways")


class Case(recording.Case):
    def health(self):
        """The line, and those that belong to it, of `info`; `report` says the same."""
        found = []
        for command in ("info", "report"):
            lines = recording.varve(command, self.path).out.splitlines()
            first = next(i for i, line in enumerate(lines) if line.startswith("  health "))
            last = next(i for i in range(first + 1, len(lines) + 1) if i == len(lines)
                        or not lines[i].startswith("      "))
            found.append("\n".join(line.strip() for line in lines[first:last]).replace("health    ", ""))
        self.assertEqual(found[0], found[1])
        return found[0]

    def loss(self):
        return json.loads(recording.varve("info", "--json", self.path).out)["loss"]


class Words(Case):
    def test_nothing(self):
        outcome = self.record("ls", "/", options=recording.PLAIN)
        self.assertRegex(outcome.err, r"^varve: [0-9,]+ events of 1 process, 1 thread; nothing lost; next: [^;]*\n$")
        self.assertRegex(self.health(), r"^nothing lost: [0-9,]+ events emitted, all stored$")

    def test_running(self):
        outcome = self.record("/bin/sh", "-c", "python3 -S -c 'import time; time.sleep(2)' & sleep 0.5; exit 0",
                              options=[*recording.PLAIN, "--linger", "0"])
        self.assertIn("; 1 process still running when the recording stopped; ", outcome.err)
        self.assertIn("; nothing lost; ", outcome.err)
        health = self.health()
        self.assertRegex(health, r"^nothing lost: [0-9,]+ events emitted, all stored\n"
                                 r"1 process still running when the recording stopped$")
        self.assertEqual((self.loss()["nothing_lost"], self.loss()["processes_running"]), (True, 1))
        self.open()
        self.assertEqual(self.sql("SELECT * FROM data_loss"), [])
        self.assertEqual(self.one("SELECT count(*) FROM process WHERE end_cause = 'running' AND end_ns IS NULL"), 1)

    def test_killed(self):
        """Not a loss, but worth a word."""
        outcome = self.record("/usr/bin/python3", "-S", "-c", "import os; os.kill(os.getpid(), 9)",
                              options=recording.PLAIN, status=-9)
        self.assertIn("; nothing lost; 1 process killed (signal 9); ", outcome.err)
        self.assertRegex(self.health(), r"^nothing lost: [0-9,]+ events emitted, all stored.*\n"
                                        r"1 process killed \(signal 9\): what was recorded up to then is here$")
        self.assertEqual((self.loss()["nothing_lost"], self.loss()["processes_killed"]), (True, 1))

    def test_interrupted(self):
        """What came in between an event's begin and its commit: a kill is said only where something was killed."""
        self.record(recording.program("burst"), "10", options=recording.PLAIN)
        for causes, words in (
                (("signal",), "2 that a kill interrupted"), (("exec",), "2 that an exec interrupted"),
                (("exit", "unknown"), "2 that the end of their process interrupted"),
                (("running",), "2 that were under way when the recording stopped")):
            for cause in causes:
                with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
                    connection.execute("UPDATE process SET end_cause = ?", (cause,))
                    connection.execute("UPDATE thread SET emitted = stored + 2, uncommitted = 2")
                self.assertIn(f"events emitted, all stored but {words}", " ".join(self.health().split()))

    def test_killed_child(self):
        """How it ended is its parent's secret."""
        outcome = self.record("/bin/sh", "-c", "python3 -S -c 'import os; os.kill(os.getpid(), 9)'; exit 0",
                              options=recording.PLAIN)
        self.assertIn("; nothing lost; 1 process ended for an unknown reason (killed?); ", outcome.err)
        self.assertIn("\n1 process ended for an unknown reason (killed?)", self.health())

    def test_lost(self):
        """Dropped, and nothing else."""
        outcome = self.record(recording.program("burst"), "300000", options=[
            *recording.PLAIN, "--overflow", "drop", "--ring-size", "4096"])
        lost = self.one_lost()
        self.assertIn(f"; LOST {lost:,}; next: ", outcome.err)
        self.assertRegex(self.health(), rf"^DATA LOSS: {lost:,} of [0-9,]+ events \(.*\) of 1 thread were dropped\n"
                                        r"their allocations had .*: all figures are lower bounds\n"
                                        r"[0-9,]+ frees? of blocks whose allocation was lost: in no total either$")

    def one_lost(self):
        self.open()
        lost = self.one("SELECT sum(lost) FROM thread")
        self.assertGreater(lost, 0)
        return lost

    def test_all_together(self):
        outcome = self.record(
            "/bin/sh", "-c", f"{STATIC}; python3 -S -c 'import time; time.sleep(2)' & sleep 0.5; kill -9 $$",
            options=[*recording.PLAIN, "--linger", "0"], status=-9)
        self.assertIn("; 1 process still running when the recording stopped; 1 program not recorded; 1 process killed "
                      "(signal 9); next: ", outcome.err)
        self.assertIn(f"1 program could not be recorded: {STATIC} (statically linked)", outcome.err)
        self.assertTrue(" ".join(self.health().split()).endswith(
            " 1 process still running when the recording stopped"
            f" 1 program could not be recorded: {STATIC} (statically linked)"
            " 1 process killed (signal 9): what was recorded up to then is here"))


class Time(Case):
    def duration_s(self):
        answer = json.loads(recording.varve("info", "--json", self.path).out)
        self.assertEqual(json.loads(recording.varve("report", "--json", self.path).out)["duration_ns"],
                         answer["duration_ns"])
        return answer["duration_ns"] / 1e9

    def test_of_the_program(self):
        """From its start to its end, whether it emits anything or not."""
        self.record(WAYS, "sleep", "500", options=recording.PLAIN)
        self.assertGreaterEqual(self.duration_s(), 0.5)
        self.assertRegex(recording.varve("report", self.path).out, r"recorded .*, [0-9.]+ m?s.*; 0 events")

    def test_killed(self):
        self.record("/usr/bin/python3", "-S", "-c", "import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)",
                    options=recording.PLAIN, status=-9)
        self.assertGreaterEqual(self.duration_s(), 0.5)

    def test_what_it_left_behind(self):
        """Up to the end of it, which may be long after its last event; the timeline goes as far."""
        self.record("/bin/sh", "-c", "sleep 0.8 & exit 0", options=recording.PLAIN)
        self.assertGreaterEqual(self.duration_s(), 0.8)
        self.open()
        end_ns = self.one("SELECT end_ns FROM recording")
        self.assertGreaterEqual(end_ns, self.one("SELECT max(end_ns) FROM process"))
        points = json.loads(recording.varve("timeline", "--json", self.path).out)["points"]
        self.assertEqual(points[-1]["end_ns"], end_ns + 1)
        self.assertEqual(points[-1]["live"], self.one("SELECT count(*) FROM leak WHERE domain = 'heap'"))

    def test_of_one_that_still_runs(self):
        """Up to the moment when the recording stopped."""
        self.record("/bin/sh", "-c", "sleep 3 & sleep 0.3; exit 0", options=[*recording.PLAIN, "--linger", "0.4"])
        self.assertTrue(0.7 <= self.duration_s() < 3, self.duration_s())

    def test_recovered_later(self):
        """When it was recovered says nothing about when it ended."""
        self.kill_collector(self.start_recording("/usr/bin/python3", "-S", "-c", "import time; time.sleep(1.5)"), 0.3)
        time.sleep(2.5)
        self.varve("recover", self.path + ".d")
        self.assertLess(self.duration_s(), 2.4)
        self.open()
        self.assertLess(self.one("SELECT max(end_ns) FROM process"), 2_400_000_000)
        self.assertEqual(self.one("SELECT count(*) FROM thread t JOIN process p ON p.id = t.process_id"
                                  " WHERE t.end_ns > p.end_ns OR p.end_ns < p.start_ns"), 0)


class Counts(Case):
    def test_of_processes(self):
        """One number everywhere: a process that executes another program is no other process."""
        outcome = self.record("/bin/sh", "-c", "ls / > /dev/null; ls / > /dev/null; exec /bin/sh -c 'exec ls /'",
                              options=recording.PLAIN)
        self.open()
        images = self.one("SELECT count(*) FROM process")
        self.assertGreaterEqual(images, 5)
        self.assertEqual(self.sql("SELECT processes, images FROM recording"), [(3, images)])
        words = f"3 processes ({images} program images)"
        self.assertIn(f" events of {words}, ", outcome.err)
        for command in ("info", "report"):
            self.assertIn(f"{words}, ", recording.varve(command, self.path).out)
            answer = json.loads(recording.varve(command, "--json", self.path).out)
            self.assertEqual((answer["processes"], answer["images"]), (3, images))


class OwnAllocators(Case):
    """Programs with an allocator linked in: no hook sees their heap. They run as ever, and the recording says what it
    lacks: before the start, in its last line, in data_loss."""

    def assert_reported(self, outcome, program, allocator, warned=True):
        """The warning, the health line, and the row that `info` and `report` print."""
        if warned:
            self.assertIn(f"{program} has {allocator} linked in", outcome.err)
        self.assertIn("HEAP NOT RECORDED of 1 process", outcome.err)
        self.assertNotIn("nothing lost", outcome.err)
        self.assert_finished()
        self.assertEqual(self.sql("SELECT name, source, value FROM data_loss"),
                         [("heap_not_recorded", f"{allocator}, linked into {os.path.realpath(program)}", 1)])
        for command in ("info", "report"):
            shown = self.varve(command, self.path)
            self.assertIn("heap_not_recorded", shown.out)
            self.assertIn(f"{allocator}, linked into", shown.out)
            self.assertNotIn("nothing lost", shown.out)

    def test_malloc_of_its_own(self):
        program = recording.program("own_malloc")
        outcome = self.record(program, status=3)
        self.assertEqual(outcome.out, "done\n")
        self.assert_reported(outcome, program, "its own malloc")

    def test_malloc_that_maps_under_its_lock(self):
        """Nothing that a hook does comes back to the program's allocator."""
        program = recording.program("own_malloc_locked")
        outcome = self.record(program, status=3)
        self.assertEqual(outcome.out, "done\n")
        self.assert_reported(outcome, program, "its own malloc")
        self.assertEqual(self.record(program, options=["--force", "--cuda"], status=3).out, "done\n")

    def test_stripped(self):
        """What other libraries must see cannot be stripped."""
        program = shutil.copy(recording.program("own_malloc"), os.path.join(self.folder, "stripped"))
        subprocess.run(["strip", program], check=True)
        self.assert_reported(self.record(program, status=3), program, "its own malloc")

    def test_other_name(self):
        """As jemalloc in Rust programs; what the C library allocates is recorded."""
        program = recording.program("prefixed_malloc")
        outcome = self.record(program)
        self.assertEqual(outcome.out, "done\n")
        self.assert_reported(outcome, program, "jemalloc")
        self.assertEqual(self.count("heap_alloc", "size = 1003"), 0)

    def test_no_event(self):
        """Nor does it come to any event by which the recorder would notice it."""
        program = recording.program("prefixed_malloc")
        self.assert_reported(self.record(program, "quiet", status=4), program, "jemalloc")

    def test_child(self):
        """Not the program that was named, but one that it starts."""
        program = recording.program("own_malloc")
        outcome = self.record("/bin/sh", "-c", f"{program}; exit 0")
        self.assert_reported(outcome, program, "its own malloc", warned=False)

    def test_heap_not_wanted(self):
        outcome = self.record(recording.program("own_malloc"), options=["--cuda"], status=3)
        self.assertNotIn("linked in", outcome.err)

    def test_shared_allocators(self):
        """Programs without one, and the C library's other ways to free."""
        outcome = self.record(recording.program("free_forms"))
        blocks = recording.json_lines(outcome.out)[0]["blocks"]
        self.assertGreater(blocks, 0)
        self.assertNotIn("linked in", outcome.err)
        self.assert_recording()
        self.assertEqual(self.pairs(52017), (blocks, blocks))


if __name__ == "__main__":
    recording.main()
