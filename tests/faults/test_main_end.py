#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 7 s, full 14 s
"""The event main_end: once for each process whose own code came to an end, after all that it did and before what exit
handlers, static destructors and the teardown of an interpreter free."""

import os
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

KEEPER = """
import atexit, sys
keep = [bytes(81000 + i) for i in range(100)]
for i in range(100):
    bytes(91000 + i)
exec(sys.argv[1])
"""


class MainEnd(recording.Case):
    def ends(self):
        """Of each process its own main_end, or None; the table says what the events say."""
        events = self.sql("SELECT p.id, e.seq, e.ts_ns FROM process p LEFT JOIN event e ON e.kind = 65 AND"
                          " e.thread_id IN (SELECT id FROM thread t WHERE t.process_id = p.id) ORDER BY p.id")
        self.assertEqual(events, self.sql("SELECT id, main_end_seq, main_end_ns FROM process ORDER BY id"))
        return [seq for _, seq, _ in events]

    def ways(self, *arguments, status=0, **more):
        self.record(recording.program("main_ends"), *arguments, status=status, **more)
        self.assert_recording()
        return self.ends()

    def test_ways_to_end(self):
        for way, status in (("return", 0), ("exit", 0), ("thread", 3)):
            (end,) = self.ways(way, status=status)
            allocated, freed = self.sql("SELECT alloc_seq, free_requested_seq FROM allocation WHERE size = 7001")[0]
            self.assertLess(allocated, end, way)
            self.assertLess(end, freed, way)

    def test_no_word(self):
        self.assertEqual(self.ways("_exit"), [None])
        self.assertEqual(self.ways("abort", status=-6), [None])

    def test_fork(self):
        ends = self.ways("fork")
        self.assertEqual(len(ends), 2)
        self.assertNotIn(None, ends)

    def test_embedded_python(self):
        """A program whose Python ends goes on."""
        library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
        if ".so" not in library or not os.path.exists(library):
            self.skipTest("no shared libpython")
        home = {"LD_PRELOAD": library, "PYTHONHOME": sys.base_prefix}
        (end,) = self.ways("embed", env={**os.environ, **home})
        self.assertLess(self.one("SELECT alloc_seq FROM allocation WHERE size = 7002"), end)

    def test_python(self):
        ends = (("pass", 0), ("sys.exit(4)", 4), ("atexit.register(print, 'bye')", 0), ("1 // 0", 1))
        for number, python in enumerate(recording.interpreters()):
            for turn, (last, status) in enumerate(ends, number):
                for stacks in ("all", "none") if recording.IS_FULL else (("all", "none")[turn % 2],):
                    self.record(python, "-c", KEEPER, last, status=status, options=["--stacks", stacks])
                    self.assert_recording(may_know_unknown=True)
                    (end,) = self.ends()
                    kept = self.sql("SELECT alloc_seq < ?, free_requested_seq < ? FROM allocation"
                                    " WHERE domain = 1 AND size BETWEEN 81033 AND 81132", end, end)
                    self.assertEqual(kept, [(1, 0)] * 100, (python, last))
                    gone = self.one("SELECT count(*) FROM allocation WHERE domain = 1 AND size BETWEEN 91033 AND 91132"
                                    " AND free_requested_seq < ?", end)
                    self.assertEqual(gone, 100, (python, last))


if __name__ == "__main__":
    recording.main()
