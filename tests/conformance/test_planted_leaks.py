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
SEEDS = (1, 2, 7) if recording.IS_FULL else (1,)


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
    def record_retimed(self, *command, options=()):
        """Recorded, and then the clock is set to the number of the event: what has grown in each tenth of the run is
        what the program did in it, however often a busy machine has stopped it."""
        self.record(*command, options=["--force", *options])
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE allocation_row SET alloc_ns = alloc_seq, lifetime_ns = lifetime_events")
            connection.execute("UPDATE process SET start_ns = 0, main_end_ns = main_end_seq,"
                               " end_ns = max(main_end_seq, coalesce((SELECT max(seq) FROM event_row), 0))")
        connection.close()

    def ask(self, *options):
        return json.loads(self.varve("leaks", "--json", *options, self.path).out)

    def leaks(self, command, options=()):
        self.record_retimed(*command, options=options)
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
                    lines = self.leaks([*command, str(seed)])["lines"]
                    self.assertTrue(lines)
                    self.check_evidence(lines)
                    self.assertEqual([line["evidence"] for line in lines[:5] if line["pattern"] == "growing"], [])
                    self.assertLess(max(line["score"] for line in lines), 0.5)

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
        self.record_retimed(recording.program("cxx_leaks"), "list", "1")
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
        self.record_retimed(recording.program("cxx_leaks"), "list", "1", options=["--keep", "totals"])
        text = self.varve("leaks", self.path).out
        self.assertIn("live when main() returned or exit() began", text)
        self.assertIn("of allocations that were freed nothing was kept", text)
        answer = self.ask()
        self.assertTrue(answer["only_live_kept"])
        self.assertTrue(marked(CXX, "list") & set(self.named(answer["lines"][:3], CXX)))


if __name__ == "__main__":
    recording.main()
