#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 40 s
"""Planted leaks, in C++ and in Python, among much that looks like leaks and is none: `varve leaks` names the line of
each among the first three entries, and says of no line of the same programs without their leak that it is growing.
The lines are those that the sources mark."""

import json
import os
import re
import sqlite3
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import recording  # noqa: E402

SOURCES = os.path.join(recording.ROOT, "tests", "programs")
CXX = os.path.join(SOURCES, "cxx_leaks.cc")
PYTHON = os.path.join(SOURCES, "python", "leaky_service.py")
PYTHON_COMMAND = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
SEEDS = range(1, 21) if recording.IS_FULL else (1,)
ERRORS = os.path.join(SOURCES, "cxx_error_path.cc")
IDLE = """
import sys, time
KEPT = []
def request(i):
    KEPT.append(bytearray(2000 + i % 7))
for i in range(2000):
    request(i)
time.sleep(float(sys.argv[1]))
"""

# What allocates much at once, between two requests, and a start that makes most of all allocations.
BURST = """
import time
KEPT, TABLE = [], []
def request(i):
    KEPT.append(bytearray(2000 + i % 7))
def once():
    TABLE.extend([bytearray(600) for _ in range(60000)])
for i in range(1500):
    request(i)
    if i == 10:
        once()
    time.sleep(0.0002)
"""
START = """
import asyncio, email.message, http.client, json, unittest, zlib
data = bytes(range(256)) * 4000
print(sum(len(zlib.compress(data)) for _ in range(40)))
"""

EQUAL = """
import json
table = {"key %d" % i: "x" * (50 + i % 900) for i in range(3000)}
def answer(i):
    return len(json.dumps({"step": i, "words": [str(j * i) for j in range(40)]}))
answers = {i: answer(i) for i in range(2000)}
"""


def marked(source, kind):
    """(function, line) of each line that the comment `leak: KIND` marks; the function is the last one begun above
    it."""
    found, function = set(), None
    with open(source, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            begin = re.match(r"def (\w+)\(|\w+ (\w+)\(.*\)$", line)
            if begin:
                function = begin.group(1) or begin.group(2)
            if re.search(rf"leak: {kind}$", line):
                found.add((function, number))
    return found


class PlantedLeaks(recording.Case):
    def ask(self, *options):
        return json.loads(self.varve("leaks", "--json", *options, self.path).out)

    def leaks(self, command, options=()):
        self.record(*command, options=["--force", *options])
        return self.ask()

    def named(self, entries, source):
        """The lines of entries, with the functions as the source has them: without parameters and namespaces."""
        return [(re.sub(r"\(.*", "", entry["user_function"] or "").split("::")[-1], entry["user_line"])
                for entry in entries
                if os.path.basename(entry["user_file"] or "") == os.path.basename(source)]

    def check_leak(self, command, source, kind, options=()):
        answer = self.leaks(command, options)
        lines = answer["lines"]
        at = marked(source, kind)
        self.assertTrue(at, kind)
        self.assertEqual(answer["moment"]["at"], "exit of main")
        self.assertTrue(at & set(self.named(lines[:3], source)), (kind, at, [line["evidence"] for line in lines[:5]],
                                                                 self.named(lines[:5], source)))
        leak = next(line for line in lines if self.named([line], source) and self.named([line], source)[0] in at)
        self.assertEqual(leak["pattern"], "growing", leak)
        self.assertIn("still growing at the end", leak["evidence"])
        self.check_evidence(lines)

    def check_evidence(self, lines):
        """The figures of the sentences are those of the entries, and what is said to grow grows."""
        for line in lines:
            counts = [int(count.replace(",", "")) for count in re.findall(r"[\d,]+",
                                                                          line["evidence"].split(" not freed")[0])]
            self.assertEqual(counts[:2], [line["allocations"], line["allocations_made"]], line)
            self.assertEqual(line["live"][-1], line["allocations"])
            self.assertLessEqual(line["allocations"], line["allocations_made"])
            if "still growing" in line["evidence"]:
                self.assertTrue(line["live"][-1] > line["live"][-2] or line["live_bytes"][-1] > line["live_bytes"][-2],
                                line)

    def test_cxx(self):
        for seed in SEEDS:
            for kind in ("cache", "list", "cycle"):
                with self.subTest(kind=kind, seed=seed):
                    self.check_leak([recording.program("cxx_leaks"), kind, str(seed)], CXX, kind)

    def test_python(self):
        for seed in SEEDS:
            for kind, options in (("list", ["--python-allocators"]), ("dict", ["--python-allocators"]), ("ctypes", [])):
                with self.subTest(kind=kind, seed=seed):
                    self.check_leak([PYTHON_COMMAND, PYTHON, kind, str(seed)], PYTHON, kind, options)

    def test_innocent(self):
        for command, source in (([recording.program("cxx_leaks"), "none"], CXX),
                                ([PYTHON_COMMAND, PYTHON, "none"], PYTHON)):
            for seed in SEEDS:
                with self.subTest(source=os.path.basename(source), seed=seed):
                    self.leaks([*command, str(seed)])
                    lines = self.ask("--all", "--top", "1000")["lines"]
                    self.assertTrue(lines)
                    self.check_evidence(lines)
                    self.assertEqual([line for line in lines if line["score"] >= 0.2], [])

    def test_error_path(self):
        """Most of the line's blocks are freed and a few stay, in threads that are over long before the end."""
        lines = self.leaks([recording.program("cxx_error_path"), "4", "1000"])["lines"]
        first = lines[0]
        self.assertTrue(marked(ERRORS, "error") & set(self.named([first], ERRORS)), self.named(lines[:3], ERRORS))
        self.assertEqual((first["allocations"], first["allocations_made"], first["pattern"]), (80, 4000, "few"))
        self.assertGreater(first["score"], 0.5)
        self.assertIn("80 of 4,000 allocations not freed, and they came all along", first["evidence"])
        others = [line for line in self.ask("--all")["lines"] if line["allocations"] > 80]
        self.assertTrue(others and max(line["score"] for line in others) < 0.2, others)

    def test_waiting_is_no_time(self):
        """A program that idles at its end, or is stopped by a busy machine, has done the same work."""
        scores = []
        for idle in ("0", "0.6", "1.5"):
            self.record(PYTHON_COMMAND, "-c", IDLE, idle, options=["--force"])
            self.open()
            (score, count), = self.sql("SELECT score, live_allocations FROM leak_line WHERE user_function = 'request'"
                                       " AND domain = 'heap'")
            scores.append(score)
            self.assertGreaterEqual(count, 2000)
        self.assertGreater(min(scores), 0.9)
        self.assertLessEqual(max(scores) - min(scores), 0.02)

    def test_burst(self):
        """A table that one step makes at once hides no leak, however many allocations it has, and is none."""
        self.record(PYTHON_COMMAND, "-c", BURST)
        self.open()
        scores = dict(self.sql("SELECT user_function, max(score) FROM leak_line WHERE user_function IN ('request',"
                               " '<listcomp>', 'once') AND live_allocations > 1000 GROUP BY 1"))
        self.assertGreater(scores.pop("request"), 0.4)
        self.assertLess(max(scores.values()), 0.2, scores)

    def test_start(self):
        """Imports are no leak, even if hardly anything is allocated after them."""
        self.record(PYTHON_COMMAND, "-c", START)
        lines = self.ask("--all", "--top", "1000")["lines"]
        self.assertTrue(lines)
        self.assertEqual([line for line in lines if line["score"] >= 0.2], [])

    def test_list(self):
        """Sorted by what is printed; what is no sign of a leak is counted, and so is what was suppressed."""
        self.leaks([recording.program("cxx_leaks"), "list", "1"])
        every = self.ask("--all", "--top", "1000")
        short = self.ask("--top", "1000")
        scores = [round(line["score"], 2) for line in every["lines"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        unlikely = [line for line in every["lines"] if round(line["score"], 2) == 0]
        self.assertTrue(unlikely and all(round(line["score"], 2) > 0 for line in short["lines"]))
        self.assertEqual(short["lines_unlikely"], len(unlikely))
        self.assertEqual(short["lines_all"] + short["lines_unlikely"], every["lines_all"])
        self.assertIn(f"{len(unlikely)} lines of score 0.00 are not listed: --all", self.varve("leaks", self.path).out)
        self.assertEqual(sum(line["bytes"] for line in every["lines"]), every["bytes"], "the head has them all")
        self.check_suppressions()
        self.check_configuration()

    def check_suppressions(self):
        path = os.path.join(self.folder, "known.txt")
        leak = self.ask()["lines"][0]
        self.assertIn("file_ticket", leak["user_function"])
        for text, is_hidden in (("leak:file_ticket\n", True), ("# known\n\nleak:^main$\n", True),
                                ("leak:cxx_leaks.cc\n", True), ("leak:*ti*ket$\n", True),
                                ("leak:^file_ticket\n", "::" not in leak["user_function"]), ("leak:ticket[\n", False)):
            with self.subTest(text=text):
                with open(path, "w", encoding="utf-8") as stream:
                    stream.write(text)
                answer = self.ask("--suppress", path)
                names = [line["user_function"] for line in answer["lines"]]
                self.assertEqual(leak["user_function"] not in names, is_hidden, names)
                self.assertEqual(answer["lines_suppressed"] > 0, is_hidden)
                if is_hidden:
                    self.assertGreaterEqual(answer["bytes_suppressed"], leak["bytes"])
                    self.assertIn("suppressed: ", self.varve("leaks", "--suppress", path, self.path).out)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("leak:a\nrace:b\n")
        self.assert_refused(recording.varve("leaks", "--suppress", path, self.path), "line 2", "leak:PATTERN")
        self.assert_refused(recording.varve("leaks", "--suppress", path + ".none", self.path), "cannot be read")

    def check_configuration(self):
        config = self.write("config", "[suppressions]\nleak = file_ticket\n")
        self.assertIn("suppressed: 1 line",
                      recording.varve("leaks", self.path, env={**os.environ, "VARVE_CONFIG": config}).out)
        page = os.path.join(self.folder, "page.html")
        for config, is_there in ((config, False), ("", True)):
            recording.varve("report", "-f", "--html", page, self.path, env={**os.environ, "VARVE_CONFIG": config})
            with open(page, encoding="utf-8") as stream:
                text = stream.read()
            self.assertIn("Likely leaks", text)
            self.assertEqual("301 of 301 allocations not freed" in text or "300 of 300 allocations not freed" in text,
                             is_there)

    def test_equal_runs(self):
        """Two of them, without threads, differ by an arena or a few blocks, which are called noise; a leak is not."""
        paths = []
        for _ in range(2):
            self.record(PYTHON_COMMAND, "-c", EQUAL, options=["--force"])
            paths.append(os.path.join(self.folder, f"{len(paths)}.db"))
            os.rename(self.path, paths[-1])

        def lines_of(*sides):
            answer = json.loads(self.varve("diff", "--metric", "leaked", "--json", *sides).out)
            return [entry["line"] for domain in answer["domains"] for entry in domain["entries"]]

        self.assertEqual(lines_of(*paths[:2]), [])
        self.assertIn("by line: no change", self.varve("diff", "--metric", "leaked", *paths[:2]).out)
        self.record(recording.program("cxx_leaks"), "none", "1", options=["--force"])
        os.rename(self.path, paths[0])
        self.record(recording.program("cxx_leaks"), "list", "1", options=["--force"])
        self.assertLessEqual({line for _, line in marked(CXX, "list")}, set(lines_of(paths[0], self.path)))

    def test_destructors(self):
        """What destructors of static objects free is live when main returns, and no more at the end."""
        lines = self.leaks([recording.program("cxx_leaks"), "cache", "1"])["lines"]
        at_end = self.ask("--at", "end", "--top", "1000")
        self.assertTrue(marked(CXX, "cache") & set(self.named(lines[:3], CXX)))
        self.assertEqual(at_end["moment"]["at"], "end")
        self.assertFalse(marked(CXX, "cache") & set(self.named(at_end["lines"], CXX)))
        self.open()
        for answer, condition in ((at_end, "free_ns IS NULL"), (self.ask(), "alloc_ns <= (SELECT main_end_ns FROM"
                                  " process) AND coalesce(free_ns > (SELECT main_end_ns FROM process), 1)")):
            self.assertEqual([answer["allocations"], answer["bytes"]],
                             list(self.sql("SELECT count(*), sum(size) FROM allocation WHERE domain = 1 AND "
                                           + condition)[0]))
        one = [self.sql("SELECT live_allocations, live_bytes FROM total WHERE domain = 'heap'")[0],
               self.sql("SELECT sum(live_allocations), sum(live_bytes) FROM callsite_total WHERE domain = 'heap'")[0],
               self.sql("SELECT sum(live_allocations), sum(live_bytes) FROM size_total WHERE domain = 'heap'")[0],
               self.sql("SELECT count(*), sum(size) FROM leak WHERE domain = 'heap'")[0]]
        self.assertEqual(one, [(answer["allocations"], answer["bytes"])] * len(one), "one meaning of the end")

    def test_window(self):
        """--from and --to against the allocations themselves."""
        self.record(recording.program("cxx_leaks"), "list", "1")
        self.open()
        begin, end = self.sql("SELECT start_ns, main_end_ns FROM process WHERE main_end_ns IS NOT NULL")[0]
        first, last = begin + (end - begin) // 3, begin + (end - begin) * 2 // 3
        window = self.ask("--from", f"{first}ns", "--to", f"{last}ns")
        self.assertEqual([window["allocations"], window["bytes"]], list(self.sql(
            "SELECT count(*), sum(size) FROM allocation WHERE domain = 1 AND alloc_ns > ?1 AND alloc_ns <= ?2"
            " AND (free_ns IS NULL OR free_ns > ?2)", first, last)[0]))
        self.assertTrue(marked(CXX, "list") & set(self.named(window["lines"][:3], CXX)))

    def test_totals(self):
        """Without freed allocations: what is live is known, and what is not is said."""
        self.record(recording.program("cxx_leaks"), "list", "1", options=["--keep", "totals"])
        text = self.varve("leaks", self.path).out
        self.assertIn("live when main() returned or exit() began", text)
        self.assertIn("of allocations that were freed nothing was kept", text)
        answer = self.ask()
        self.assertTrue(answer["only_live_kept"])
        self.assertTrue(marked(CXX, "list") & set(self.named(answer["lines"][:3], CXX)))


if __name__ == "__main__":
    recording.main()
