#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""Programs with an allocator linked in: no hook sees their heap. They run as ever, and the recording says what it
lacks: before the start, in its last line, in data_loss."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402


class OwnAllocators(recording.Case):
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

    def test_stripped(self):
        """What other libraries must see cannot be stripped."""
        program = os.path.join(self.folder, "stripped")
        shutil.copy(recording.program("own_malloc"), program)
        subprocess.run(["strip", program], check=True)
        outcome = self.record(program, status=3)
        self.assert_reported(outcome, program, "its own malloc")

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
        self.assertEqual(self.count("heap_alloc", "size = 52017"), blocks)
        self.assertEqual(self.count("heap_free", "size = 52017"), blocks)


if __name__ == "__main__":
    recording.main()
