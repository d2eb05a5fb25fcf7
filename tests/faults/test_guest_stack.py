#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""The recorder in somebody else's threads: how much of their stacks it takes, and that a hook waits for nobody's lock
and reads no memory that may go."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STACK_BYTES_MAX = 1152  # mmap has the most: its own frame, the capture and the walk
MODES = ("native", "python", "all", "none")


class GuestStack(recording.Case):
    def used(self, *command, options=None):
        """What the program prints, as {case: (bytes used, bytes there)}; recorded where options are given."""
        if options is None:
            outcome = recording.run(command)
            self.assertEqual(outcome.returncode, 0, outcome)
        else:
            outcome = self.record(*command, options=options)
        cases = {}
        for line in outcome.out.splitlines():
            place, name, depth, used, there = line.split()
            cases[place, name, depth] = int(used), int(there)
        self.assertGreater(len(cases), 20, outcome)
        return cases

    def assert_little(self, bare, recorded, options):
        self.assertEqual(set(bare), set(recorded))
        for case, (used, there) in recorded.items():
            self.assertLessEqual(used, there, f"{case} {options}: written below the stack")
            self.assertLessEqual(used - bare[case][0], STACK_BYTES_MAX, f"{case} {options}: of the program's stack")

    def test_small_stacks(self):
        """Threads of PTHREAD_STACK_MIN, signal stacks, coroutines, fork children; first events, new and known call
        sites, the end of a thread, handlers in the midst of a hook."""
        bare = self.used(recording.program("guest_stack"))
        for stacks in MODES:
            for depth in ("64", "256") if stacks != "none" else ("64",):
                options = ["--stacks", stacks, "--stack-depth", depth]
                self.assert_little(bare, self.used(recording.program("guest_stack"), options=options), options)

    def test_full_rings(self):
        bare = self.used(recording.program("guest_stack"))
        for overflow in recording.POLICIES:
            options = ["--overflow", overflow, "--ring-size", "4096"]
            self.assert_little(bare, self.used(recording.program("guest_stack"), options=options), options)

    def test_python(self):
        """Below Python frames, before and after the recorder has come to trust what it sees of the interpreter."""
        command = [sys.executable, os.path.join(recording.ROOT, "tests", "programs", "guest", "guest_stack.py"),
                   recording.program("lib_guest_stack.so")]
        bare = self.used(*command)
        for stacks in ("python", "all"):
            options = ["--stacks", stacks, "--stack-depth", "256"]
            self.assert_little(bare, self.used(*command, options=options), options)


class GuestThreads(recording.Case):
    def test_known_stack(self):
        """Threads that meet known stacks write nothing that another one reads: not a word of the recorder's own."""
        for stacks in MODES:
            outcome = self.record(recording.program("known_stack"), options=["--stacks", stacks])
            self.assertEqual(outcome.out, "known\n", f"{stacks}: {outcome}")
            self.assert_recording()


class GuestRaces(recording.Case):
    def races(self, *arguments):
        bare = recording.run([recording.program("guest_races"), *arguments])
        if bare.returncode == 77:
            self.skipTest("guest_races is for x86-64")
        self.assertEqual(bare.out, "done\n", bare)
        for stacks in ("native", "all"):
            outcome = self.record(recording.program("guest_races"), *arguments, options=["--stacks", stacks])
            self.assertEqual(outcome.out, "done\n", outcome)
            self.assert_recording()

    def test_constructor(self):
        """A constructor, under the loader's lock, waits for one whose holder allocates at a frame that no rule of ours
        describes: no hook may open a library."""
        self.races("constructor", recording.program("lib_guest_constructor.so"))

    def test_iteration(self):
        """So does a callback of dl_iterate_phdr."""
        self.races("iterate")

    def test_memory_that_goes(self):
        """Code without unwind tables, rbp near memory that another thread protects and opens all the time."""
        self.races("protect")


if __name__ == "__main__":
    recording.main()
