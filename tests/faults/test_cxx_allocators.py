#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s
# Only with an unsanitized command: a preloaded allocator would stand in front of the sanitizer's, in varve itself.
"""operator new and delete, whoever serves them: the C++ library, jemalloc, tcmalloc, mimalloc, linked or preloaded, a
library that only its own users see, the program itself. Each allocation is recorded once, and ends where it would."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

SOURCES = os.path.join(recording.ROOT, "tests", "programs")
MARK = 7654321
ALLOCATORS = {  # library, Debian package
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    "mimalloc": ("libmimalloc.so.2.0", "libmimalloc2.0"),
}
COMPILER = os.environ.get("CXX") or shutil.which("c++")


def library_path(name):
    """As the linker finds it; None if it is not there."""
    if not COMPILER:
        return None
    found = subprocess.run([COMPILER, f"-print-file-name={name}"], capture_output=True, text=True,
                           check=True).stdout.strip()
    return os.path.realpath(found) if os.path.isabs(found) else None


# mimalloc is C as Debian builds it, and aborts where it would have to throw.
ARGUMENTS = {"mimalloc": ["nothing-fails"]}


class Allocators(recording.Case):
    def allocator(self, name):
        library, package = ALLOCATORS[name]
        path = library_path(library)
        if path is None:
            self.skipTest(f"{library} is not there ({package}), or no C++ compiler to find it with")
        return path

    def linked(self, source, *libraries):
        """The program, linked with a library in front of the C++ library."""
        target = os.path.join(self.folder, "program")
        subprocess.run([COMPILER, "-std=c++17", "-g", "-O1", "-fno-builtin", os.path.join(SOURCES, source), "-o",
                        target, "-Wl,--no-as-needed", *libraries, "-pthread"], check=True)
        return target

    def assert_counted(self, outcome, allocator):
        """What the program says that it did is what the database holds, each allocation once."""
        lines = recording.json_lines(outcome.out)
        sums = lines.pop()
        if allocator != "mimalloc":
            self.assertEqual((sums["caught"], sums["handled"]), (4, 2), "failed requests, as without a recorder")
        self.assert_recording()
        marks = [row[0] for row in self.sql("SELECT seq FROM events WHERE kind = 'heap_alloc' AND size = ? ORDER BY"
                                            " seq", MARK)]
        self.assertEqual(len(marks), 2)
        between = "kind IN ('heap_alloc', 'heap_realloc') AND flags & 1 = 0 AND seq > ? AND seq < ? AND size >= 20000"
        self.assertEqual(self.sql(f"SELECT count(*), sum(size) FROM events WHERE {between}", *marks),
                         [(sums["allocations"], sums["bytes"])])
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE kind = 'heap_free' AND seq > ? AND seq < ?"
                                  " AND size BETWEEN 20000 AND 7654320", *marks), sums["frees"])
        for line in lines:
            if line["form"] != "realloc":
                self.assertEqual(self.sql(f"SELECT addr, coalesce(arg, 0) FROM events WHERE {between} AND size = ?",
                                          *marks, line["size"]), [(line["addr"], line["alignment"])], line)
        return lines

    def top_function(self, size):
        callsite = self.one("SELECT DISTINCT callsite_id FROM events WHERE kind = 'heap_alloc' AND size = ?", size)
        return self.sql("SELECT function, module FROM frame WHERE callsite_id = ? ORDER BY depth", callsite)

    def test_cxx_library(self):
        """malloc records what the C++ library asks of it, from the stack that there is without a recorder."""
        outcome = self.record(recording.program("cxx_counted"))
        lines = self.assert_counted(outcome, None)
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE cause = 'operator new'"), 0)
        first = self.top_function(lines[0]["size"])
        self.assertTrue(first[0][0].startswith("operator new("), first)
        self.assertIn("plain", first[1][0])
        self.assertEqual([row for row in first if "libvarve" in (row[1] or "")], [], "no frame of the recorder's")

    def serve(self, name, is_linked):
        path = self.allocator(name)
        program = self.linked("cxx_counted.cc", path) if is_linked else recording.program("cxx_counted")
        outcome = self.record(program, *ARGUMENTS.get(name, []),
                              env=dict(os.environ) if is_linked else {**os.environ, "LD_PRELOAD": path})
        lines = self.assert_counted(outcome, name)
        self.assertGreater(self.one("SELECT count(*) FROM events WHERE cause = 'operator new'"), 0,
                           "the allocator's own operator new served")
        self.assertIn("plain", self.top_function(lines[0]["size"])[0][0], "the call site is the program's")

    def test_jemalloc(self):
        self.serve("jemalloc", False)
        self.serve("jemalloc", True)

    def test_tcmalloc(self):
        self.serve("tcmalloc", False)
        self.serve("tcmalloc", True)

    def test_mimalloc(self):
        self.serve("mimalloc", False)
        self.serve("mimalloc", True)

    def test_plugins(self):
        """A C program opens libraries with RTLD_LOCAL: one uses the C++ library, another its own operator new; closed
        and opened again, they find themselves again."""
        own, plugin = recording.program("lib_cxx_own.so"), recording.program("lib_cxx_plugin.so")
        self.record(recording.program("plugin_host"), "3", plugin, own, plugin, own)
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 31013"), 600)
        self.assertEqual(self.count("heap_free", "size = 31013"), 600)
        self.assertEqual(self.count("heap_alloc", "size = 32 AND cause = 'operator new'"), 0, "another's memory")

    def test_threads_and_fork(self):
        for name in ALLOCATORS:
            with self.subTest(name):
                self.record(recording.program("cxx_threads"), options=["--force", "--stacks", "none"],
                            env={**os.environ, "LD_PRELOAD": self.allocator(name)})
                self.assert_finished()
                self.assert_no_loss()
                self.assertEqual(self.sql("SELECT kind, cause, count(*) FROM events WHERE size = 44444 OR size"
                                          " BETWEEN 33333 AND 33340 GROUP BY 1, 2 ORDER BY 1, 2"),
                                 [("heap_alloc", "operator new", 121000), ("heap_free", "free", 60000),
                                  ("heap_free", "operator delete", 61000)])
                self.assertEqual(self.one("SELECT count(*) FROM events WHERE cause = 'unknown_address'"), 0)

    def test_other_ways_to_free(self):
        """cfree is what tcmalloc and mimalloc have; the C23 forms may come from anybody."""
        for name in ("tcmalloc", "mimalloc"):
            with self.subTest(name):
                outcome = self.record(recording.program("free_forms"), options=["--force"],
                                      env={**os.environ, "LD_PRELOAD": self.allocator(name)})
                blocks = recording.json_lines(outcome.out)[0]["blocks"]
                self.assertGreater(blocks, 0)
                self.assert_recording()
                self.assertEqual(self.pairs(52017), (blocks, blocks))

    def test_plugin_under_jemalloc(self):
        """What is global serves the library too."""
        path = self.allocator("jemalloc")
        self.record(recording.program("plugin_host"), "2", recording.program("lib_cxx_plugin.so"),
                    env={**os.environ, "LD_PRELOAD": path})
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = 31013 AND cause = 'operator new'"), 200)
        self.assertEqual(self.pairs(31013), (200, 200))

    def test_programs_own(self):
        """A program's own operator new stays what it calls, also behind the forms that it does not define."""
        self.record(recording.program("cxx_own"))
        self.assert_recording()
        self.assertEqual(self.count("heap_alloc", "size = ?", 41011 + 32), 120)
        self.assertEqual(self.count("heap_alloc", "size = 41011"), 0)


if __name__ == "__main__":
    recording.main()
