#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 20 s
"""record --python-allocators: each object of a Python program is an allocation with its line, none is counted twice
or freed without having been seen, and the program runs as it does without."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

PROGRAM = """
import gc, os, sys, threading


class Node:
    __slots__ = ("next",)


def nodes(count):
    return [Node() for _ in range(count)]


def grow(count):
    kept = []
    for number in range(count):
        kept.append([number])
    return kept


def temporaries(count):
    for _ in range(count):
        [None] * 20


gc.disable()
kept = nodes(1234)
grown = grow(567)
temporaries(890)
threads = [threading.Thread(target=nodes, args=(100,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(kept) + len(grown))
sys.stdout.flush()
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        del kept
        os._exit(len(nodes(10)))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class PythonAllocators(recording.Case):
    def setUp(self):
        super().setUp()
        self.script = os.path.join(self.folder, "program.py")
        with open(self.script, "w", encoding="ascii") as stream:
            stream.write(PROGRAM)

    def record_script(self, *arguments, options=(), status=0, **more):
        outcome = self.record(sys.executable, self.script, *arguments, status=status,
                              options=["--force", "--python-allocators", "--keep", "events", *options], **more)
        self.assertEqual(outcome.out, "1801\n")
        self.assert_recording(may_know_unknown=True)

    def objects(self, function):
        """Allocations, and those that were live when main ended, of the sizes that a function's own objects have."""
        return self.sql("SELECT a.size, count(*), sum(coalesce(a.free_requested_seq, 1 << 60) > p.main_end_seq)"
                        " FROM allocation a JOIN process p ON p.id = a.process_id JOIN callsite c ON c.id ="
                        " a.callsite_id"
                        " JOIN symbol s ON s.id = c.user_symbol_id WHERE a.domain = 9 AND s.function = ? AND s.file = ?"
                        " GROUP BY a.size HAVING count(*) >= 500", function, self.script)

    def assert_replayed(self):
        """A model of the interpreter's allocator: nobody frees what is not there, in one process without children."""
        live, total, pending, left = {}, [0, 0], {}, None
        for kind, cause, thread, addr, size, flags in self.sql(
                "SELECT e.kind, c.text, e.thread_id, e.addr, e.size, e.flags FROM event e"
                " JOIN event_cause c ON c.code = e.cause WHERE e.kind IN (65, 66, 67, 68) ORDER BY e.seq"):
            if kind == recording.KIND_MAIN_END:
                left = left or dict(live)
            elif kind == 67:
                self.assertIn(addr, live, cause)
                self.assertEqual(live[addr], size)
                pending[thread] = live.pop(addr)
            elif flags & recording.FLAG_FAILED:
                live.update({addr: pending[thread]} if kind == 68 else {})
            else:
                self.assertNotIn(addr, live)
                live[addr] = size
                total[0] += 1
                total[1] += size
        self.assertEqual(self.sql("SELECT allocations, bytes, live_allocations, live_bytes FROM total WHERE domain ="
                                  " 'python'"),
                         [(*total, len(left), sum(left.values()))], "live when main ended")

    def test_objects(self):
        self.record_script()
        self.assert_replayed()
        nodes = [row[1:] for row in self.objects("<listcomp>") + self.objects("nodes")]
        self.assertTrue(any(1234 <= live < 1300 and count - live == 4 * 100 for count, live in nodes), nodes)
        self.assertTrue(any(row[1] >= 567 and row[2] >= 567 for row in self.objects("grow")), self.objects("grow"))
        self.assertTrue(any(row[1] >= 890 and row[2] == 0 for row in self.objects("temporaries")))
        # What the interpreter takes from malloc for large objects is there as ever, in its own domain.
        recorded = self.one("SELECT count(*) FROM allocation WHERE domain = 1 AND size > 512")
        self.record(sys.executable, self.script, options=["--force"])
        self.assert_recording(may_know_unknown=True)
        self.assertEqual(self.sql("SELECT 1 FROM total WHERE domain = 'python'"), [])
        plain = self.one("SELECT count(*) FROM allocation WHERE domain = 1 AND size > 512")
        self.assertAlmostEqual(recorded / plain, 1, delta=0.05)

    def told(self, *arguments):
        (answer,) = recording.json_lines(self.varve(*arguments, "--json", self.path).out)
        return answer

    def test_together(self):
        """A line that has objects of its own and bytes in the heap: each and together, in every answer alike, and large
        objects, which are in both, once. No such keys where no object was recorded."""
        keys = ("heap_bytes", "python_bytes", "together_bytes")
        with open(self.script, "w", encoding="ascii") as stream:
            stream.write("from ctypes import CDLL; malloc = CDLL(None).malloc; malloc.restype = None\n"
                         "def both(kept):\n    for n in range(200):\n"
                         "        kept.append((bytes(100 + n), bytes(5000 + n), malloc(3000)))\n"
                         "kept = []\nboth(kept)\nboth([])\n")
        self.record(sys.executable, self.script, options=["--python-allocators", "--keep", "events", "--force"])
        self.open()
        of = ("FROM allocation a JOIN callsite c ON c.id = a.callsite_id JOIN symbol s ON s.id = c.user_symbol_id"
              f" WHERE s.file = '{self.script}' AND s.line = 4")
        sums = "coalesce(sum(size), 0)"
        heap, python, shared = (self.one(f"SELECT {sums} {of} AND {domain}") for domain in (
            "domain = 1", "domain = 9", "domain = 9 AND size > 512"))
        self.assertGreater(shared, 2 * 200 * 5000)
        self.assertGreater(python - shared, 2 * 200 * 100)
        report = self.told("report")
        lists = {one["domain"]: one for one in report["domains"]}
        expected = {"by_bytes": (heap, python, heap + python - shared)}
        (line,) = [one for one in self.told("leaks", "--all", "--top", "10000")["lines"]
                   if one["user_file"] == self.script and one["user_line"] == 4]
        expected["leaks"] = tuple(line[key] for key in keys)
        self.assertGreater(expected["leaks"][2], expected["leaks"][1])
        for domain in ("heap", "python"):
            for ranking, wanted in expected.items():
                (entry,) = [one for one in lists[domain][ranking]["callsites"]
                            if one["user_file"] == self.script and one["user_line"] == 4]
                self.assertEqual(tuple(entry[key] for key in keys), wanted, (domain, ranking))
        self.assertIn(wanted[2], [row["live_together_bytes"] for row in report["lines_together"]])
        self.assertIn(" together (heap ", self.varve("report", self.path).out)
        (differ,) = recording.json_lines(self.varve("diff", "--metric", "leaked", "--all", "--json", self.path,
                                                    self.path).out)
        (entry,) = [one for domain in differ["domains"] if domain["domain"] == "heap" for one in domain["entries"]
                    if one["file"] == self.script and one["line"] == 4]
        for side in "ab":
            self.assertEqual(tuple(entry[side][key] for key in keys), expected["leaks"])
        self.record(sys.executable, self.script, options=["--force"])
        report = self.varve("report", "--json", self.path).out
        self.assertFalse([key for key in (*keys[1:], "lines_together") if f'"{key}"' in report])

    def test_fork(self):
        self.record_script("fork", status=10)
        causes = dict(self.sql("SELECT p.parent_id > 0, sum(c.text = 'unknown_address') FROM event e"
                               " JOIN event_cause c ON c.code = e.cause JOIN thread t ON t.id = e.thread_id"
                               " JOIN process p ON p.id = t.process_id WHERE e.kind = 67 GROUP BY 1"))
        self.assertEqual(set(causes.values()), {0})

    def test_without_the_environment(self):
        """-I ignores variables of the environment; PYTHONMALLOC takes the hooks' place, and nothing is recorded."""
        self.record(sys.executable, "-I", self.script, options=["--force", "--python-allocators", "--keep", "events",
                                                                "--stacks", "none"])
        self.assert_recording(may_know_unknown=True)
        self.assertGreater(self.one("SELECT allocations FROM total WHERE domain = 'python'"), 5000)
        self.record_script(env={**os.environ, "PYTHONMALLOC": "malloc"})
        self.assertEqual(self.sql("SELECT 1 FROM total WHERE domain = 'python' AND live_allocations > 5000"), [])

    def test_others_hooks(self):
        """tracemalloc sets hooks of its own, and takes them back."""
        code = "import tracemalloc\ntracemalloc.start()\nx = [object() for _ in range(1000)]\ntracemalloc.stop()\ndel x"
        self.record(sys.executable, "-c", code, options=["--python-allocators", "--keep", "events"])
        self.assert_recording(may_know_unknown=True)
        self.assert_replayed()

    def test_lasting(self):
        """By default what is freed at once has no row; its figures are those of a recording that has all rows."""
        lines = ("SELECT user_function, user_line, allocations, bytes, live_allocations, live_bytes FROM line_total"
                 " WHERE domain = 'python' AND user_file = ? AND user_function IN ('nodes', '<listcomp>', 'grow')"
                 " ORDER BY 1, 2")
        short = ("SELECT count(*) FROM allocation a JOIN leak_moment m ON m.process_id = a.process_id WHERE a.domain IN"
                 " (1, 9) AND a.free_requested_seq - a.alloc_seq <= 4096 AND NOT (a.alloc_ns <= m.at_ns AND a.free_ns >"
                 " m.at_ns)")
        self.record_script()
        whole, rows = self.sql(lines, self.script), self.one("SELECT count(*) FROM allocation")
        self.assertGreater(self.one(short), rows / 2)
        self.record(sys.executable, self.script, options=["--force", "--python-allocators"])
        self.open()
        self.assertEqual(self.one("SELECT value FROM meta WHERE key = 'keep'"), "lasting")
        self.assertEqual(self.one(short), 0)
        self.assertEqual(self.sql(lines, self.script), whole)
        self.assertLess(self.one("SELECT count(*) FROM allocation"), rows / 2)
        self.assertLess(self.one("SELECT count(*) FROM allocation"), self.one(
            "SELECT sum(allocations) FROM total WHERE domain IN ('heap', 'python')"))
        self.assertIn("freed within 4096 events", self.varve("report", self.path).out.replace("\n            ", " "))

    def test_program_unharmed(self):
        """Tests of the interpreter's own, where it has them."""
        tests = ["-m", "test", "test_list", "test_dict"] if recording.IS_FULL else ["-m", "unittest", "test.test_list"]
        if subprocess.run([sys.executable, *tests], check=False, capture_output=True).returncode != 0:
            self.skipTest("no tests of Python itself, or they fail without the recorder")
        self.record(sys.executable, *tests, options=["--python-allocators", "--keep", "totals"])


if __name__ == "__main__":
    recording.main()
