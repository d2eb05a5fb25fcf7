#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 65 s
# Only with an unsanitized command: what is recorded is never sanitized.
"""Python stacks of every CPython that is found, of which each block of programs/python/python_frames.py has the frames
that sys._getframe says: also where process_vm_readv is forbidden, where every block of the interpreter is from malloc,
and where a signal handler comes in between; and of an interpreter that is loaded late, for nobody else."""

import glob
import json
import os
import re
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

FRAMES = os.path.join(recording.ROOT, "tests", "programs", "python", "python_frames.py")
LIBRARY = recording.program("lib_python_frames.so")
DEPTH = 256
SIZES = 300007, 400000  # of the blocks that were noted
LEFT_OUT = re.compile(r"… (?:([\d,]+) )?frames? …")
PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}
SURROGATE = re.compile(r"(?<!\\ud8.{2})(?<!\\ud9.{2})\\ud[c-f].{2}")  # alone: what is no UTF-8 in a name
FEW = () if recording.IS_FULL else ("functions", "executed", "threads", "code_reused", "resumed_elsewhere")  # () all
LATE = "\ndef function():\n    return bytes(7654321)\n\nfunction()\n"


def forbid_readv():
    recording.confine(PROCESS_VM_READV[os.uname().machine])


class PythonStack(recording.Case):
    def same(self, frames, wanted):
        """Frame for frame; what of a deep stack is left out is in one place, and as many frames as is said."""
        if wanted and wanted[-1] is None:
            frames, wanted = frames[:len(wanted) - 1], wanted[:-1]
        at = next((at for at, frame in enumerate(frames) if LEFT_OUT.fullmatch(frame[0] or "")), None)
        if at is not None:
            outside = len(frames) - at - 1
            self.assertEqual(outside, DEPTH // 4)
            self.assertTrue(DEPTH - outside <= at < DEPTH, at)
            number = LEFT_OUT.fullmatch(frames[at][0])[1]
            self.assertEqual(number is not None, len(wanted) < 4300, len(wanted))
            self.assertEqual(at + int((number or str(len(wanted) - at - outside)).replace(",", "")) + outside,
                             len(wanted))
            wanted = [*wanted[:at], frames[at], *wanted[-outside:]]
        return len(frames) == len(wanted) and all(
            (function, line) == (name, number) and file in (None, path)
            for (name, path, number), (function, file, line) in zip(frames, wanted))

    def check(self, python, *options, cases=(), **more):
        """Records the program, and compares what it noted of each block."""
        answer = os.path.join(self.folder, "answer")
        for name in glob.glob(answer + ".*"):
            os.unlink(name)
        self.record(python, FRAMES, answer, LIBRARY, *cases, options=["--stack-depth", str(DEPTH), *options], **more)
        self.assert_finished()
        self.assertEqual(self.assert_conserved()[0], 0)
        frames, loops = {}, {}
        for site, function, file, line, is_python in self.sql(
                "SELECT callsite_id, function, file, coalesce(line, 0), is_python FROM frame WHERE callsite_id IN"
                " (SELECT callsite_id FROM event WHERE kind = 32 AND size BETWEEN ? AND ?) ORDER BY callsite_id, depth",
                *SIZES):
            if is_python:
                frames.setdefault(site, []).append((function, file, line))
            loops.setdefault(site, []).append(bool(is_python))
        checks = in_loops = 0
        for name in glob.glob(answer + ".*"):
            with open(name, encoding="utf-8") as stream:
                noted = json.loads(SURROGATE.sub(r"\\ufffd", stream.read()))
            sites = {}
            for size, site in self.sql("SELECT size, callsite_id FROM events WHERE kind = 'heap_alloc' AND pid = ?"
                                       " AND size BETWEEN ? AND ?", int(name.rsplit(".", 1)[1]), *SIZES):
                sites.setdefault(size, []).append(site)
            for size, (wanted, count) in noted.items():
                found = sites.get(int(size), [])
                match = [site for site in found if self.same(frames.get(site, []), wanted)]
                self.assertTrue(match, (wanted, [frames.get(site) for site in found]))
                if "all" in options and count and len(wanted) <= DEPTH // 8:  # nothing native is left out either
                    kinds = loops[match[0]]
                    runs = sum(one and not before for before, one in zip([False, *kinds], kinds))
                    self.assertEqual(runs, count, wanted[:9])
                    in_loops += 1
                checks += 1
        self.assertGreater(checks, 200 if cases else 900)
        return in_loops

    def each(self, *options, **more):
        """How often loops were counted."""
        return sum(self.check(python, *options, **more)
                   for python in recording.interpreters()[:None if recording.IS_FULL else 1])

    def test_same_as_getframe(self):
        self.each("--stacks", "python")

    def test_among_native_frames(self):
        """Each loop of the interpreter on the C stack is in the place of its own frames."""
        self.assertGreater(self.each("--stacks", "all"), 100)

    def test_in_a_sandbox(self):
        self.each("--stacks", "python", cases=FEW, preexec_fn=forbid_readv)

    def test_every_malloc(self):
        self.each("--stacks", "python", cases=FEW, env={**os.environ, "PYTHONMALLOC": "malloc"})
        self.assertEqual(self.sql("SELECT * FROM frame WHERE is_python AND (coalesce(function, '') = '' OR"
                                  " coalesce(file, '') = '' AND function NOT GLOB '… * …' OR line > 1000000)"), [])
        self.assertGreater(self.one("SELECT avg(callsite_id <> 0) FROM events WHERE kind = 'heap_alloc'"), 0.5)

    def test_signal_handler(self):
        """Its own stacks may be wrong (a frame half linked), but nothing must break."""
        self.each("--stacks", "python", cases=FEW,
                  env={**os.environ, "LD_PRELOAD": LIBRARY, "PYTHON_FRAMES_TIMER": "1"})
        self.assertGreater(self.count("munmap", "size = 4096"), 100)
        self.assertGreater(self.one("SELECT avg(callsite_id <> 0) FROM events WHERE kind = 'munmap' AND size = 4096"),
                           0.5)

    def test_late_and_local(self):
        library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
        if ".so" not in library or not os.path.exists(library):
            self.skipTest("no shared libpython was found")
        self.record(recording.program("main_ends"), "embed", library, LATE, options=["--stacks", "python"],
                    env={**os.environ, "PYTHONHOME": sys.base_prefix})
        self.open()
        site = self.one("SELECT callsite_id FROM events WHERE kind = 'heap_alloc' AND size = 7654321 + 33")
        self.assertEqual(self.sql("SELECT function, file, line FROM frame WHERE callsite_id = ? ORDER BY depth", site),
                         [("function", "<string>", 3), ("<module>", "<string>", 5)])


if __name__ == "__main__":
    recording.main()
