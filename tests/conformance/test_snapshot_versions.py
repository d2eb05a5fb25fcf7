#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
# Runs threads: files are read ahead and databases written by one each.
"""One history of PyTorch's caching allocator, as each version from 2.0 on writes it, from Python and from C++
(history_generator.py, whose table has what a version says). The import says the same of all: totals, lines, blocks,
events; and of pools, times and settings what that version says."""

import itertools
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import recording  # noqa: E402
from history_generator import SAID, VERSIONS, History  # noqa: E402

NEWEST = VERSIONS[-1]
WITH_TRACES = VERSIONS[VERSIONS.index(SAID["device_traces"][0]):]


def is_rich(history):
    """All of it is there, and it has what versions say differently."""
    actions = {event[0] for trace in history.traces for event in trace}
    return (history.kept == "all" and history.has_stacks and history.has_pools and history.skipped is None
            and not history.odd and not history.settings.text() and {"alloc", "free_completed", "snapshot"} <= actions
            and any(event[5] != (0, 0) for trace in history.traces for event in trace)
            and any(block.state == "active_pending_free" for device in history.devices
                    for segment in device.segments for block in segment.blocks))


def lines_of(history):
    """By file and line of the innermost frame: allocations, bytes, bytes that are live at the end."""
    lines = {}
    for trace in history.traces:
        live = {}
        for action, addr, size, _, frames, _ in trace:
            if action == "alloc":
                live[addr] = frames[0]["filename"], frames[0]["line"]
                count, total, left = lines.get(live[addr], (0, 0, 0))
                lines[live[addr]] = count + 1, total + size, left + size
            elif action == "free_requested":
                count, total, left = lines[live[addr]]
                lines[live[addr]] = count, total, left - size
    return lines


class SnapshotVersions(recording.Case):
    def check(self, history, truths, lines):
        self.varve("import", "--force", "-o", self.path, self.write("history.pickle", history.pickled()))
        report = json.loads(self.varve("report", "--json", self.path).out)
        rows = {row["device"]: row for row in report["totals"] if row["domain"] == "block"}
        for number, truth in enumerate(truths):
            self.assertEqual({key: rows[number][key] for key in truth}, truth, f"device {number}")
        self.open()
        found = self.sql("SELECT user_file, user_line, sum(allocations), sum(bytes), sum(live_bytes)"
                         " FROM callsite_total WHERE domain = 'block' GROUP BY 1, 2")
        self.assertEqual({tuple(row[:2]): tuple(row[2:]) for row in found}, lines)
        for number, trace in enumerate(history.traces):
            self.check_events(history, number, trace)
        settings = self.sql("SELECT value FROM meta WHERE key = 'allocator.max_split_size'")
        self.assertEqual(len(settings), history.says("allocator_settings"))

    def check_events(self, history, number, trace):
        """In their order, with what the version says of each."""
        events = [event for event in trace if event[0] != "snapshot"]
        found = self.sql("SELECT e.kind, e.addr, e.requested, e.ts_ns / 1000, p.capture_id, p.user_id FROM events e"
                         " LEFT JOIN pool p ON p.device = e.device AND p.number = e.pool WHERE e.device = ?"
                         " AND e.kind <> 'config' ORDER BY e.dev_seq", number)
        self.assertEqual([row[0] for row in found], [event[0] for event in events])
        self.assertEqual([tuple(row[1:3]) for row in found if row[0] == "alloc"],
                         [event[1:3] for event in events if event[0] == "alloc"])
        if history.says("pool_id"):
            self.assertEqual([tuple(row[4:]) for row in found], [event[5] for event in events])
        if history.says("time_us"):
            begin = min(itertools.chain.from_iterable(history.times))
            told = [time for event, time in zip(trace, history.times[number]) if event[0] != "snapshot"]
            self.assertEqual([row[3] for row in found], [time - begin for time in told])

    def test_versions(self):
        newest = next(filter(is_rich, (History(seed, NEWEST) for seed in itertools.count())))
        truths = [newest.truth(number) for number in range(len(newest.devices))]
        for version in WITH_TRACES:
            for pickler in (4, "C++"):
                with self.subTest(version, pickler=pickler):
                    history = History(newest.seed, version)
                    self.assertEqual(history.traces, newest.traces)
                    history.pickler = pickler
                    self.check(history, truths, lines_of(newest))


if __name__ == "__main__":
    recording.main()
