# SPDX-License-Identifier: Apache-2.0
"""pytest: limits for what tests allocate, and a table of those that need most. Each test has a recording of its own
(varve.record()), of its body alone, without fixtures. Nothing is recorded of tests without a limit, but with --varve.

    @pytest.mark.limit_memory("24 MB")      # of heap and mmap together, at the peak
    @pytest.mark.limit_leaks("1 MB")        # of heap, by a line of the program, live at the end
    def test_import(): ...
"""

from __future__ import annotations

import gc
import os
import re
import tempfile
import urllib.parse
import zlib
from typing import Any, Generator, Iterator, NamedTuple

import pytest

from . import reading
from .plot import bytes_text
from .record_block import RecordingError, record

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_PEAK = "varve_peak_bytes"
_FIGURES = {_PEAK: "peak", "varve_allocated_bytes": "allocated", "varve_allocations": "allocations"}
_LINES = 3  # named for a broken limit

# host_peak has a row where there are both heap and mmap.
_WITH_PEAK = """
    WITH peak_of_both(bytes, seq) AS (
        SELECT bytes, seq FROM host_peak
        UNION ALL SELECT peak_bytes, peak_seq FROM total WHERE domain IN ('heap', 'mmap') ORDER BY 1 DESC LIMIT 1)"""
_TOTALS = _WITH_PEAK + """
    SELECT (SELECT bytes FROM peak_of_both), sum(bytes), sum(allocations) FROM total
    WHERE domain IN ('heap', 'mmap')"""
_AT_PEAK = _WITH_PEAK + """
    SELECT u.file, u.line, u.function, sum(a.size) AS size, count(*) AS allocations
    FROM allocation a JOIN peak_of_both p JOIN domain d ON d.code = a.domain
        LEFT JOIN callsite c ON c.id = a.callsite_id
        LEFT JOIN symbol u ON u.id = coalesce(c.user_symbol_id, c.symbol_id)
    WHERE d.name IN ('heap', 'mmap') AND a.alloc_seq <= p.seq AND coalesce(a.free_requested_seq > p.seq, 1)
    GROUP BY u.id ORDER BY size DESC"""
_LIVE = """
    SELECT user_file, user_line, user_function, live_bytes, live_allocations FROM line_total
    WHERE domain = 'heap' AND live_bytes > ? ORDER BY live_bytes DESC"""


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


class _Measured(NamedTuple):
    """What the recording of a test says: its figures, and a text for each limit that it broke."""

    figures: tuple[int, int, int]
    broken: list[str]


def _measure(path: str, limits: _Limits) -> _Measured:
    peak, allocated, allocations = (value or 0 for value in reading.rows(path, _TOTALS)[1][0])
    broken = []
    if limits.memory is not None and peak > limits.memory:
        broken.append(f"{bytes_text(peak)} were live at the peak, limit {bytes_text(limits.memory)}; of these"
                      + _lines_text(reading.rows(path, _AT_PEAK)[1]))
    lines = [] if limits.leaks is None else reading.rows(path, _LIVE, (limits.leaks,))[1]
    if lines:
        broken.append(f"{len(lines)} line{'s' * (len(lines) != 1)} left more than {bytes_text(limits.leaks or 0)} at "
                      "the end" + _lines_text(lines))
    return _Measured((peak, allocated, allocations), broken)


class MemoryLimits:
    """The plugin. Of tests that ran under pytest-xdist the workers say the figures as properties of their reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.records_all = config.getoption("varve")
        self.folder = config.getoption("varve_dir")
        self.stacks_native = config.getoption("varve_native")
        self.measured: dict[str, _Measured] = {}

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
        if not self.records_all and limits == (None, None):
            yield
            return
        with tempfile.TemporaryDirectory(prefix="varve-pytest-") as own:
            path = os.path.join(self.folder or own, _file_name(item.nodeid))
            recording = record(path, native=self.stacks_native, force=True)
            try:
                recording.__enter__()
            except RecordingError as error:
                self.measured[item.nodeid] = _Measured((0, 0, 0), [f"not recorded: {error}"])
                yield
                return
            yield
            if limits.leaks is not None:
                gc.collect()
            try:
                recording.__exit__(None, None, None)
                self.measured[item.nodeid] = _measure(recording.path, limits)
            except (RecordingError, reading.TraceError) as error:
                self.measured[item.nodeid] = _Measured((0, 0, 0), [f"not recorded: {error}"])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        outcome = yield
        measured = self.measured.pop(item.nodeid, None) if call.when == "call" else None
        if measured is None:
            return
        report = outcome.get_result()
        item.user_properties.extend(zip(_FIGURES, measured.figures))
        report.user_properties = list(item.user_properties)
        if report.outcome == "passed" and measured.broken:
            report.outcome = "failed"
            report.longrepr = "\n".join(f"varve: {text}" for text in measured.broken)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        count = config.getoption("varve_top")
        found = {report.nodeid: dict(report.user_properties) for reports in terminalreporter.stats.values()
                 for report in reports if any(name == _PEAK for name, _ in getattr(report, "user_properties", ()))}
        rows = sorted(((figures[_PEAK], node, figures) for node, figures in found.items()),
                      key=lambda row: (-row[0], row[1]))
        if not rows:
            return
        terminalreporter.section(f"varve: memory of {len(rows)} test{'s' * (len(rows) != 1)}, of heap and mmap")
        terminalreporter.write_line(f"{'peak':>10} {'allocated':>10} {'allocations':>12}  test")
        for _, node, figures in rows[:count]:
            peak, allocated, allocations = (figures[name] for name in _FIGURES)
            terminalreporter.write_line(f"{bytes_text(peak):>10} {bytes_text(allocated):>10} {allocations:>12,}  "
                                        f"{node}")
        if self.folder:
            terminalreporter.write_line(f"databases, for varve report: {self.folder}")


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
    if config.getoption("varve_dir"):
        os.makedirs(config.getoption("varve_dir"), exist_ok=True)
    config.pluginmanager.register(MemoryLimits(config), "varve-memory-limits")
