#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 12 s
# Only with an unsanitized command: programs are recorded.
"""A block of a Python program that records itself: what is in it and nothing else, phases, errors, and what IPython
shows of a cell."""

import json
import os
import sys
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import needs  # noqa: E402
import recording  # noqa: E402

SIZE = 3_000_000


class BlockCase(recording.AttachCase):
    def python(self, text, *before, status=0, **options):
        """A program of that text, whose recording is `path`; what it prints, as JSON."""
        program = self.write("block.py", f"import json, os, sys, threading\nimport varve\npath = sys.argv[1]\n"
                             f"SIZE = {SIZE}\n" + textwrap.dedent(text))
        outcome = recording.run([*before, sys.executable, program, self.path], **options)
        self.assertEqual(outcome.returncode, status, outcome)
        if os.path.exists(self.path):
            self.open()
        return [json.loads(line) for line in outcome.out.splitlines() if line.startswith(("{", "[", '"'))]

    def lines(self, least=SIZE):
        """Allocations of the recording of that size: user's line, live."""
        return self.sql(f"""SELECT u.line, a.size, a.free_ns IS NULL FROM allocation a JOIN callsite c
            ON c.id = a.callsite_id JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
            WHERE a.size >= {least} AND u.file LIKE '%/block.py' ORDER BY a.alloc_seq""")


class Blocks(BlockCase):
    def test_block_and_nothing_else(self):
        said = self.python("""
            kept = [bytearray(SIZE)]
            with varve.record(path) as recording:
                kept.append(bytearray(SIZE + 1))
                bytearray(SIZE + 2)
                thread = threading.Thread(target=lambda: kept.append(bytearray(SIZE + 3)))
                thread.start()
                thread.join()
            kept.append(bytearray(SIZE + 4))
            print(json.dumps([recording.summary, recording.peak(), varve.peak(path), recording.open().health.figures]))
            """)[0]
        self.assertEqual([(line, live) for line, _, live in self.lines()], [(8, 1), (9, 0), (10, 1)])
        summary, peak, peak_of_path, figures = said
        self.assertIn("nothing lost", summary)
        self.assertEqual(peak, peak_of_path)
        self.assertEqual(peak, dict(self.sql("SELECT domain, peak_bytes FROM total")))
        self.assertEqual(figures["lost"], 0)
        self.assertEqual(figures["programs_unrecorded"], 0)

    def test_peak_so_far(self):
        """It is that of the database, once everything before it has been taken; asking is no part of the program."""
        before, after, unrecorded, refused = self.python("""
            with varve.record(path) as recording:
                kept = bytearray(SIZE)
                before = recording.peak()["heap"]
                while before < SIZE:
                    before = varve.peak()["heap"]
            figures = recording.open().health.figures
            try:
                varve.peak()
            except varve.RecordingError as error:
                refused = str(error)
            print(json.dumps([before, recording.peak()["heap"], figures["programs_unrecorded"], refused]))
            """)[0]
        self.assertGreaterEqual(before, SIZE)
        self.assertLessEqual(before, after)
        self.assertEqual(unrecorded, 0)
        self.assertIn("records nothing, nor is it recorded", refused)

    def test_program_that_changes_its_folder(self):
        """A relative path is of where the block began; what `varve attach` would not say, the block needs."""
        path, heap = self.python("""
            import os
            os.chdir(os.path.dirname(path))
            with varve.record(os.path.basename(path), options=["-q"]) as recording:
                os.chdir("/")
                kept = bytearray(SIZE)
            print(json.dumps([recording.path, recording.peak()["heap"]]))
            """)[0]
        self.assertEqual(os.path.realpath(path), os.path.realpath(self.path))
        self.assertGreaterEqual(heap, SIZE)

    def test_error_inside(self):
        """It is the program's, and the database is there."""
        said = self.python("""
            try:
                with varve.record(path):
                    kept = bytearray(SIZE)
                    raise LookupError("mine")
            except LookupError as error:
                print(json.dumps(str(error)))
            with varve.record(path, force=True, native=False, keep="totals"):
                pass
            """)
        self.assertEqual(said, ["mine"])
        self.assertEqual(self.one("SELECT value FROM meta WHERE key = 'keep'"), "totals")

    def test_frames_of_python_alone(self):
        self.python("""
            with varve.record(path, native=False):
                kept = bytearray(SIZE)
            """)
        self.assertEqual([line for line, _, _ in self.lines()], [7])
        self.assertEqual(self.one("SELECT count(*) FROM symbol WHERE NOT is_python AND function IS NOT NULL"), 0)

    def test_fork_child_that_leaves_the_block(self):
        """The recording is its parent's, and goes on."""
        self.python("""
            with varve.record(path):
                child = os.fork()
                if child:
                    os.waitpid(child, 0)
                    kept = bytearray(SIZE)
            if child == 0:
                os._exit(0)
            """)
        self.assertEqual([line for line, _, _ in self.lines()], [10])
        self.assertEqual(self.one("SELECT count(*) FROM process"), 2)

    def refuse(self, block, *before, **options):
        text, = self.python("""
            try:
                BLOCK
            except varve.RecordingError as error:
                print(json.dumps(str(error)))
            """.replace("BLOCK", block), *before, **options)
        self.assertEqual(len(text.splitlines()), 1, text)
        return text

    def test_refusals(self):
        self.assertIn("one recording at a time", self.refuse("with varve.record(path), varve.record('other.db'): pass"))
        self.assertTrue(os.path.exists(self.path), "the outer one goes on")
        self.assertIn("exists already", self.refuse("with varve.record(path): pass"))
        self.assertIn("--keep must be one of", self.refuse("with varve.record(path, force=True, keep='all'): pass"))
        self.assertIn("cannot make", self.refuse("with varve.record(path + '/x.db'): pass"))
        self.assertIn("names the command", self.refuse("with varve.record(path, force=True): pass",
                                                env={**os.environ, "VARVE": "/nowhere/varve"}))
        self.assertIn("is recorded already, by varve record",
                      self.refuse("with varve.record(path, force=True): pass", recording.VARVE, "record", "-q", "-o",
                                  os.path.join(self.folder, "outer.db"), "--"))

    def test_attach_that_is_killed(self):
        """One line says what is left to do; the hooks are out at the end of the block."""
        text = self.refuse("""
                with varve.record(path) as recording:
                    kept = bytearray(SIZE)
                    recording._attach.kill()""")
        self.assertIn(f"varve recover {self.path}.d", text)
        self.varve("recover", self.path + ".d")
        self.open()
        self.assertEqual([(line, live) for line, _, live in self.lines()], [(9, 1)])


class Phases(BlockCase):
    def marks(self):
        return self.sql("SELECT name, end_seq IS NOT NULL FROM mark ORDER BY begin_seq")

    def test_phases(self):
        """Of mark() each ends the one before; blocks nest, in these too."""
        self.python("""
            varve.mark("before")
            with varve.record(path):
                for step in range(2):
                    varve.mark(f"step {step}")
                    with varve.phase("inner ü\\n" + "x" * 40):
                        kept = bytearray(SIZE + step)
            varve.mark("after")
            """)
        inner = "inner ??" + "x" * 16
        self.assertEqual(self.marks(), [("step 0", 1), (inner, 1), ("step 1", 0), (inner, 1)])
        self.assertEqual(self.sql("SELECT a.size, m.name FROM allocation a JOIN mark m ON a.alloc_seq > m.begin_seq "
                                   f"AND a.alloc_seq < coalesce(m.end_seq, a.alloc_seq + 1) WHERE a.size >= {SIZE} "
                                   "ORDER BY a.size, m.begin_seq"),
                         [(SIZE + 1, "step 0"), (SIZE + 1, inner), (SIZE + 2, "step 1"), (SIZE + 2, inner)])

    def test_under_record(self):
        self.python("varve.mark('all of it')", recording.VARVE, "record", "-q", "-o", self.path, "--")
        self.assertEqual(self.marks(), [("all of it", 0)])

    def test_without_a_recording(self):
        self.assertEqual(self.python("varve.mark('a')\nwith varve.phase('b'): print('[1]')"), [[1]])


@needs("IPython")
class Cells(recording.AttachCase):
    def ipython(self, *cells):
        """What a shell prints for cells, and the outputs of the last one."""
        program = self.write("shell.py", textwrap.dedent(f"""
            import json
            from IPython.core.interactiveshell import InteractiveShell
            shell = InteractiveShell.instance()
            shell.run_line_magic("load_ext", "varve")
            for line, cell in {cells!r}:
                shown = shell.run_cell_magic("varve", line, cell)
            print(json.dumps(shown and shown._repr_mimebundle_()))
            """))
        outcome = recording.run([sys.executable, program], env={**os.environ, "IPYTHONDIR": self.folder,
                                                                "NO_COLOR": "1"})
        self.assertEqual(outcome.returncode, 0, outcome)
        if os.path.exists(self.path):
            self.open()
        *said, shown = outcome.out.splitlines()
        return "\n".join(said), json.loads(shown)

    def test_cell(self):
        said, shown = self.ipython(("", f"kept = bytearray({SIZE})\nprint('said')"))
        self.assertIn("said", said)
        self.assertRegex(shown["text/plain"], r"<module>  <ipython-input-\S+>:1 +2\.86 MiB")
        self.assertTrue(shown["text/html"].startswith('<iframe srcdoc="&lt;!'), shown["text/html"][:80])
        self.assertIn("&lt;/html&gt;", shown["text/html"])

    def test_cell_that_fails(self):
        said, shown = self.ipython(("", "1 / 0"))
        self.assertIn("ZeroDivisionError", said)
        self.assertIn("health    nothing lost", shown["text/plain"])

    def test_options(self):
        _, shown = self.ipython((f"-o {self.path} --keep totals", f"kept = bytearray({SIZE})"))
        self.assertIn("nothing lost", shown["text/plain"])
        self.assertEqual(self.one("SELECT value FROM meta WHERE key = 'keep'"), "totals")
        said, shown = self.ipython((f"--output={self.path}", "print('ran')"))
        self.assertIn("exists already", said)
        self.assertIsNone(shown)
        self.assertNotIn("ran", said)


if __name__ == "__main__":
    recording.main()
