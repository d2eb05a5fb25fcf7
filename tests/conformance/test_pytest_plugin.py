#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 12 s
# Only with an unsanitized command: programs are recorded.
"""Limits of tests in pytest: that they hold and break where they should, each test for itself, in one process and in
workers; what the table and the reports have."""

import os
import re
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import needs  # noqa: E402
import recording  # noqa: E402

SUITE = """
import pytest
kept = []

@pytest.fixture
def large():
    return bytearray(60 << 20)

@pytest.mark.limit_memory("24 MB")
def test_holds():
    bytearray(20 << 20)
    bytearray(20 << 20)

@pytest.mark.limit_memory("24 MB")
def test_two_at_a_time():
    first = bytearray(13 << 20)
    second = bytearray(13 << 20)

@pytest.mark.limit_memory("8MiB")
def test_small_objects():
    numbers = [float(number) for number in range(500000)]

@pytest.mark.limit_memory("1 MB")
def test_fixture_is_not_counted(large):
    assert large[0] == 0

@pytest.mark.limit_leaks("1 MB")
def test_leaves():
    kept.append(bytearray(2 << 20))

@pytest.mark.limit_leaks("1 MB")
def test_leaves_a_cycle():
    ring = [bytearray(2 << 20)]
    ring.append(ring)

@pytest.mark.limit_memory("1 KB")
def test_fails_by_itself():
    kept.append(bytearray(1 << 20))
    raise AssertionError("its own reason")

@pytest.mark.parametrize("size", ["a/b", "a-b"])
@pytest.mark.limit_memory("1 MB")
def test_parameters(size):
    pass

def test_without_a_limit():
    bytearray(30 << 20)

class TestClass:
    pytestmark = pytest.mark.limit_memory("1 MB")

    def test_of_a_class(self):
        bytearray(5 << 20)
"""
BROKEN = {
    "test_two_at_a_time": ("26 MiB were live at the peak, limit 24 MiB",
                           "13 MiB in 1 allocation: test_two_at_a_time  "),
    "test_small_objects": ("were live at the peak, limit 8 MiB",),
    "test_leaves": ("1 line left more than 1 MiB at the end", "2 MiB in 1 allocation: test_leaves  "),
    "test_fails_by_itself": ("its own reason",),
    "test_of_a_class": ("5 MiB were live at the peak, limit 1 MiB", "test_of_a_class  "),
}


@needs("pytest", "xdist")
class Limits(recording.AttachCase):
    def pytest(self, *options, suite=SUITE, status=1, **more):
        """What pytest prints, and the case of each test in its JUnit file."""
        self.write("test_suite.py", suite)
        report = os.path.join(self.folder, "junit.xml")
        outcome = recording.run([sys.executable, "-m", "pytest", "-p", "varve.pytest_plugin", "-p", "no:cacheprovider",
                                 "-p", "no:memray", "--junitxml", report, "-rA", *options, "test_suite.py"],
                                cwd=self.folder, **more)
        self.assertEqual(outcome.returncode, status, outcome)
        cases = xml.etree.ElementTree.parse(report).iter("testcase")
        return outcome.out, {case.get("name"): case for case in cases}

    def check_broken(self, cases):
        failed = {name: "".join(case.find("failure").itertext()) for name, case in cases.items()
                  if case.find("failure") is not None}
        self.assertEqual(set(failed), set(BROKEN), failed)
        for name, words in BROKEN.items():
            for word in words:
                self.assertIn(word, failed[name])

    def properties(self, case):
        return {one.get("name"): int(one.get("value")) for one in case.iter("property")}

    def test_limits(self):
        """Only tests that have one are recorded."""
        out, cases = self.pytest()
        self.check_broken(cases)
        self.assertEqual(self.properties(cases["test_without_a_limit"]), {})
        figures = self.properties(cases["test_holds"])
        self.assertEqual(figures["varve_peak_bytes"] >> 20, 20)
        self.assertEqual(figures["varve_allocated_bytes"] >> 20, 40)
        self.assertIn("memory of 10 tests", out)

    def table(self, out):
        """(test, peak) in the order of the table."""
        return [(name, peak) for peak, name in re.findall(r"^ +(\S+ \S+) +\S+ \S+ +[\d,]+  \S*::(\S+)$", out,
                                                          re.MULTILINE)]

    def check_all_tests(self, *options):
        folder = os.path.join(self.folder, "databases")
        out, cases = self.pytest("--varve", "--varve-top", "4", "--varve-dir", folder, "--varve-native", *options)
        self.check_broken(cases)
        table = self.table(out)
        self.assertEqual(table[0], ("test_without_a_limit", "30 MiB"))
        self.assertEqual([name for name, _ in table[1:]], ["test_two_at_a_time", "test_holds", "test_small_objects"])
        self.assertIn("memory of 11 tests", out)
        names = os.listdir(folder)
        self.assertEqual(len([name for name in names if "::" in name]), 10, names)
        shared = [name for name in names if name.startswith("tests-")]
        self.open(os.path.join(folder, shared[0]))
        self.assertEqual(self.sql("SELECT name FROM mark"), [("varve test 0",)])
        self.assertEqual(self.one("SELECT max(peak_bytes) FROM total") >> 20, 30)

    def test_all_tests(self):
        """The table has the most expensive first."""
        self.check_all_tests()

    def test_all_tests_in_workers(self):
        self.check_all_tests("-n", "2")

    def test_tests_that_share_a_recording(self):
        """What one has left is not the next one's, nor is what was made between them; their sums are those of a
        recording of one test each."""
        suite = """
import pytest
kept = []

@pytest.fixture(autouse=True)
def between():
    kept.append(bytearray(7 << 20))
    yield
    kept.append(bytearray(9 << 20))

@pytest.mark.parametrize("size", range(1, 40))
def test_of_size(size):
    kept.append(bytearray(size << 20))
    del kept[:]
    for _ in range(3):
        bytearray(size << 19)

@LIMIT
def test_fails():
    kept.append(bytearray(50 << 20))
    raise AssertionError("its own")
"""
        out, _ = self.pytest("--varve", "--varve-top", "100", suite=suite.replace("@LIMIT\n", ""))
        table = self.table(out)
        self.assertEqual([name for name, _ in table],
                         ["test_fails", *(f"test_of_size[{size}]" for size in reversed(range(1, 40)))])
        self.assertEqual([round(float(peak.split()[0])) for _, peak in table if peak.endswith("MiB")],
                         [50, *reversed(range(1, 40))])
        self.assertIn("memory of 40 tests", out)
        limited, _ = self.pytest("--varve", "--varve-top", "100", suite=suite.replace(
            "@LIMIT", "@pytest.mark.limit_memory('90 MB')"))
        self.assertEqual(self.table(limited), table)

    def test_expected_to_fail(self):
        """A limit that breaks is as good a failure as any."""
        suite = "import pytest\n" + "".join(f"""
@pytest.mark.limit_memory("1 MB")
@pytest.mark.xfail(strict={is_strict})
def test_{name}_{is_strict}():
    bytearray({size})
""" for is_strict in (False, True) for name, size in (("breaks", 5 << 20), ("holds", 5)))
        out, cases = self.pytest(suite=suite, status=1)
        self.assertIn("1 failed, 2 xfailed, 1 xpassed", out)
        self.assertIsNotNone(cases["test_holds_True"].find("failure"))

    def test_that_is_recorded_already(self):
        """Then there is no table, and the reason."""
        self.write("test_suite.py", "def test_plain(): pass\n")
        outcome = recording.run([recording.VARVE, "record", "-q", "-o", self.path, "--", sys.executable, "-m", "pytest",
                                 "-p", "varve.pytest_plugin", "-p", "no:cacheprovider", "--varve", "test_suite.py"],
                                cwd=self.folder)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertRegex(outcome.out,
                         "tests without a limit were not recorded: .* is recorded already, by varve record")

    def test_nothing_asked_for(self):
        out, cases = self.pytest(suite="def test_plain(): pass\n", status=0)
        self.assertNotIn("varve: ", out)
        self.assertEqual(self.properties(cases["test_plain"]), {})

    def test_limits_that_cannot_be_read(self):
        marks = {"'24 elephants'": "'24 elephants' is no size, such as '24 MB'", "5": "5 is no size",
                 "": "takes one size", "'1 MB', '2 MB'": "takes one size"}
        suite = "import pytest\n" + "".join(f"@pytest.mark.limit_memory({mark})\ndef test_{number}(): pass\n"
                                            for number, mark in enumerate(marks))
        _, cases = self.pytest(suite=suite)
        for number, words in enumerate(marks.values()):
            text = "".join(cases[f"test_{number}"].find("error").itertext())
            self.assertEqual(len(text.splitlines()), 1, text)
            self.assertIn(f"limit_memory: {words}", text)

    def test_that_cannot_be_recorded(self):
        """A limit that was not looked at does not hold."""
        _, cases = self.pytest("-k", "test_holds", env={**os.environ, "VARVE": "/nowhere/varve"})
        self.assertIn("not recorded: /nowhere/varve: No such file", "".join(
            cases["test_holds"].find("failure").itertext()))


if __name__ == "__main__":
    recording.main()
