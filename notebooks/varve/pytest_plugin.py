# SPDX-License-Identifier: Apache-2.0
"""pytest: limits for what tests allocate, and a table of those that need most. A test with a limit has a recording of
its own (varve.record()), of its body alone, without fixtures. Nothing is recorded of others, but with --varve: these
share recordings, in which each test is a phase.

    @pytest.mark.limit_memory("24 MB")      # of heap and mmap together, at the peak
    @pytest.mark.limit_leaks("1 MB")        # of heap, by a line of the program, live at the end
    def test_import(): ...
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
import tempfile
import urllib.parse
import zlib
from typing import Any, Callable, Generator, Iterator, NamedTuple

import pytest

from . import reading
from .phases import phase
from .plot import bytes_text
from .record_block import Recording, RecordingError, record

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_FIGURES = ("varve_peak_bytes", "varve_allocated_bytes", "varve_allocations")
_LINES = 3  # named for a broken limit
_PHASE = "varve test "  # and the test's number

_PHASES = "SELECT name, begin_seq, end_seq FROM mark WHERE name LIKE ? AND end_seq IS NOT NULL ORDER BY begin_seq"
_ALLOCATIONS = """
    SELECT alloc_seq, free_requested_seq, size FROM allocation
    WHERE domain IN (SELECT code FROM domain WHERE name IN ('heap', 'mmap')) ORDER BY alloc_seq"""
# What was allocated later than event ?1 and is live after event ?2, by line, of the domains whose names ?3 has.
_LIVE = """
    SELECT u.file, u.line, u.function, sum(a.size) AS size, count(*) AS allocations
    FROM allocation a JOIN domain d ON d.code = a.domain LEFT JOIN callsite c ON c.id = a.callsite_id
        LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
    WHERE instr(?3, d.name) AND a.alloc_seq > ?1 AND a.alloc_seq <= ?2 AND coalesce(a.free_requested_seq > ?2, 1)
    GROUP BY u.id ORDER BY size DESC"""


def _size(text: Any) -> int:
    """Bytes. ValueError: it is no size."""
    found = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is no size, such as '24 MB'")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def _file_name(node: str) -> str:
    """Of the database of a test, no other test's."""
    name = urllib.parse.quote(node, safe="[]:=,+@")
    return f"{name}.db" if len(name) <= 200 else f"{name[:200]}-{zlib.crc32(node.encode()):08x}.db"


class _Limits(NamedTuple):
    """What the marks of a test say; None: no such mark."""

    memory: int | None
    leaks: int | None


def _limits(item: pytest.Item) -> _Limits:
    """ValueError: one can't be read."""
    found: dict[str, int | None] = {}
    for name in ("limit_memory", "limit_leaks"):
        mark = item.get_closest_marker(name)
        try:
            if mark is not None and (len(mark.args) != 1 or mark.kwargs):
                raise ValueError("takes one size, such as '24 MB'")
            found[name] = None if mark is None else _size(mark.args[0])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return _Limits(found["limit_memory"], found["limit_leaks"])


def _lines_text(rows: list[tuple]) -> str:
    """Those with most, unless they have next to nothing beside the first."""
    rows = [row for row in rows if 50 * row[3] >= rows[0][3]]
    return "".join(f"\n  {bytes_text(size)} in {count:,} allocation{'s' * (count != 1)}: {function or '(unknown)'}"
                   f"{f'  {file}:{line}' if file else ''}" for file, line, function, size, count in rows[:_LINES])


class _Test(NamedTuple):
    """A test in a recording: its number, its figures in the order of _FIGURES, and the events at which it began, had
    most, and ended."""

    number: int
    figures: tuple[int, int, int]
    begin: int
    peak: int
    end: int


class _Measured(NamedTuple):
    """What the recording of a test says: its figures, and a text for each limit that it broke."""

    figures: tuple[int, int, int]
    broken: list[str]


def _tests_of(path: str) -> Iterator[_Test]:
    """What each test of a recording allocated, and what of that was live at a time."""
    reading.check(path)
    phases = reading.rows(path, _PHASES, (f"{_PHASE}%",))[1]
    with contextlib.closing(reading.connect(path, None)) as connection:
        rows = connection.execute(_ALLOCATIONS)
        row = rows.fetchone()
        for name, begin, end in phases:
            changes, allocated, count = [], 0, 0
            while row is not None and row[0] < end:
                made, freed, size = row
                if made > begin:
                    allocated, count = allocated + size, count + 1
                    changes.append((made, size))
                    if freed is not None and freed < end:
                        changes.append((freed, -size))
                row = rows.fetchone()
            changes.sort()
            live = itertools.accumulate(change for _, change in changes)
            peak, at = max(zip(live, (-seq for seq, _ in changes)), default=(0, -begin))
            yield _Test(int(name[len(_PHASE):]), (peak, allocated, count), begin, -at, end)


def _measure(path: str, limits: _Limits) -> _Measured:
    test = next(_tests_of(path), None)
    if test is None:
        return _Measured((0, 0, 0), ["not recorded: its phase is not in the recording"])
    peak, broken = test.figures[0], []
    if limits.memory is not None and peak > limits.memory:
        lines = reading.rows(path, _LIVE, (test.begin, test.peak, "heap mmap"))[1]
        broken.append(f"{bytes_text(peak)} were live at the peak, limit {bytes_text(limits.memory)}; of these"
                      + _lines_text(lines))
    if limits.leaks is not None:
        lines = [line for line in reading.rows(path, _LIVE, (test.begin, test.end, "heap"))[1]
                 if line[3] > limits.leaks]
        if lines:
            broken.append(f"{len(lines)} line{'s' * (len(lines) != 1)} left more than {bytes_text(limits.leaks)} at "
                          "the end" + _lines_text(lines))
    return _Measured(test.figures, broken)


class SharedRecordings:
    """Of tests without a limit, one behind the other: a test is a phase of its number. What it allocated and what of
    that was live at a time is as if it had a recording of its own. They begin when they are needed, and end where a
    test with a limit has its own."""

    def __init__(self, folder: Callable[[], str], native: bool) -> None:
        self.folder, self.native = folder, native
        self.nodes: list[str] = []
        self.paths: list[str] = []
        self.recording: Recording | None = None
        self.error = ""

    def begin(self, node: str) -> phase:
        """The phase of a test, which may be recorded by nobody: then `error` says why."""
        if self.recording is None and not self.error:
            path = os.path.join(self.folder(), f"tests-{os.getpid()}-{len(self.paths) + 1}.db")
            try:
                self.recording = record(path, native=self.native, force=True).__enter__()
                self.paths.append(path)
            except RecordingError as error:
                self.error = str(error)
        self.nodes.append(node)
        return phase(f"{_PHASE}{len(self.nodes) - 1}")

    def end(self) -> None:
        if self.recording is not None:
            recording, self.recording = self.recording, None
            try:
                recording.__exit__(None, None, None)
            except RecordingError as error:
                self.error = str(error)

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Of each test that was recorded, in the order of _FIGURES."""
        found = {}
        for path in self.paths:
            try:
                found.update({self.nodes[test.number]: test.figures for test in _tests_of(path)})
            except reading.TraceError as error:
                self.error = str(error)
        return found


class MemoryLimits:
    """The plugin. Of tests that ran under pytest-xdist the workers say the figures: of tests with a limit as properties
    of their reports, of others at their end."""

    def __init__(self, config: pytest.Config) -> None:
        self.records_all = config.getoption("varve")
        self.kept = os.path.abspath(config.getoption("varve_dir")) if config.getoption("varve_dir") else ""
        self.temporary = ""
        self.stacks_native = config.getoption("varve_native")
        self.measured: dict[str, _Measured] = {}
        self.shared = SharedRecordings(self._folder, self.stacks_native)
        self.figures: dict[str, tuple[int, int, int]] = {}

    def _folder(self) -> str:
        """Where databases go, made when the first one is."""
        if self.kept:
            os.makedirs(self.kept, exist_ok=True)
        elif not self.temporary:
            self.temporary = tempfile.mkdtemp(prefix="varve-pytest-")
        return self.kept or self.temporary

    def pytest_unconfigure(self) -> None:
        if self.temporary:
            shutil.rmtree(self.temporary, ignore_errors=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        try:
            unreadable = ""
            _limits(item)
        except ValueError as error:
            unreadable = str(error)
        if unreadable:
            pytest.fail(unreadable, pytrace=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        limits = _limits(item)
        if limits != (None, None):
            self.shared.end()
            yield from self._record_alone(item.nodeid, limits)
        elif self.records_all:
            with self.shared.begin(item.nodeid):
                yield
        else:
            yield

    def _record_alone(self, node: str, limits: _Limits) -> Iterator[None]:
        path = os.path.join(self._folder(), _file_name(node))
        recording = record(path, native=self.stacks_native, force=True)
        try:
            recording.__enter__()
        except RecordingError as error:
            self.measured[node] = _Measured((0, 0, 0), [f"not recorded: {error}"])
            yield
            return
        with phase(f"{_PHASE}0"):
            yield
            if limits.leaks is not None:
                gc.collect()
        try:
            recording.__exit__(None, None, None)
            self.measured[node] = _measure(path, limits)
        except (RecordingError, reading.TraceError) as error:
            self.measured[node] = _Measured((0, 0, 0), [f"not recorded: {error}"])
        if not self.kept and os.path.exists(path):
            os.unlink(path)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        outcome = yield
        measured = self.measured.pop(item.nodeid, None) if call.when == "call" else None
        if measured is None:
            return
        report = outcome.get_result()
        item.user_properties.extend(zip(_FIGURES, measured.figures))
        report.user_properties = list(item.user_properties)
        is_strict = str(report.longrepr).startswith("[XPASS(strict)]")
        if measured.broken and (report.outcome == "passed" or is_strict):
            if is_strict:
                report.wasxfail = ""
            report.outcome = "skipped" if hasattr(report, "wasxfail") else "failed"  # it was expected to
            report.longrepr = "\n".join(f"varve: {text}" for text in measured.broken)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.shared.end()
        self.figures.update(self.shared.figures())
        if hasattr(session.config, "workeroutput"):  # of pytest-xdist
            session.config.workeroutput["varve"] = {"figures": self.figures, "error": self.shared.error}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        said = getattr(node, "workeroutput", {}).get("varve", {"figures": {}, "error": ""})
        self.figures.update(said["figures"])
        self.shared.error = self.shared.error or said["error"]

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        count = config.getoption("varve_top")
        found = {report.nodeid: tuple(dict(report.user_properties)[name] for name in _FIGURES)
                 for reports in terminalreporter.stats.values() for report in reports
                 if any(name == _FIGURES[0] for name, _ in getattr(report, "user_properties", ()))}
        found.update(self.figures)
        rows = sorted(found.items(), key=lambda row: (-row[1][0], row[0]))
        if self.shared.error:
            terminalreporter.section("varve")
            terminalreporter.write_line(f"tests without a limit were not recorded: {self.shared.error}")
        if not rows:
            return
        terminalreporter.section(f"varve: memory of {len(rows)} test{'s' * (len(rows) != 1)}, of heap and mmap")
        terminalreporter.write_line(f"{'peak':>10} {'allocated':>10} {'allocations':>12}  test")
        for node, (peak, allocated, allocations) in rows[:count]:
            terminalreporter.write_line(f"{bytes_text(peak):>10} {bytes_text(allocated):>10} {allocations:>12,}  "
                                        f"{node}")
        if self.kept:
            terminalreporter.write_line(f"databases, for varve report: {self.kept}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("varve", "memory of tests, by varve")
    group.addoption("--varve", action="store_true", default=False,
                    help="record every test, not only those with a limit, and print which need most")
    group.addoption("--varve-top", type=int, default=10, metavar="N", help="tests in that table (default: 10)")
    group.addoption("--varve-dir", metavar="DIR", help="keep the database of each recorded test there")
    group.addoption("--varve-native", action="store_true", default=False,
                    help="record frames of native code too, not only those of Python")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit_memory(size): fail where more than that, such as '24 MB', is live at the "
                            "peak of heap and mmap together")
    config.addinivalue_line("markers", "limit_leaks(size): fail where a line of the program leaves more than that, of "
                            "the heap, at the end")
    config.pluginmanager.register(MemoryLimits(config), "varve-memory-limits")
