#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 25 s
# Runs threads: files are read ahead and databases written by one each.
# Reads damaged input: snapshots.
"""A snapshot of PyTorch, exported as one again, is equal to itself, key by key: read directly, and out of the database that it was
imported into. Of the recordings in tests/conformance/pytorch, and of one made here with what they lack: entries and keys that mean
nothing to the allocator, entries without a time or frames, times that go back, two devices. And the views `hole` and
`empty_segment` of that database hold what `varve segments` rebuilds."""

import contextlib
import json
import lzma
import os
import pathlib
import pickle
import sqlite3
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording as runs  # noqa: E402

from test_replay_pytorch import RECORDINGS, varve

MIB = 1 << 20
BASE = 0x7F0000000000


def load(path):
    with (lzma.open(path) if str(path).endswith(".xz") else open(path, "rb")) as file:
        return pickle.load(file)


def plain(value):
    """Tuples are lists: picklers of PyTorch differ in that."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def entry(action, addr, size, time_us, **others):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, **others}


def odd_snapshot():
    frames = [{"name": "f", "filename": "a.py", "line": 3}, {"name": "g", "filename": "b.cpp", "line": 0}]
    first = [
        entry("segment_alloc", BASE, 2 * MIB, 5000, frames=[], pool_id=(0, 0)),
        entry("alloc", BASE, 1000, 5001, frames=frames, compile_context="N/A", user_metadata="step 1", pool_id=(0, 0)),
        {"action": "annotate", "message": "epoch \u00e9", "values": [1, -2, 2.5, None, True, 1 << 40, (1, 2)], "frames": frames},
        entry("alloc", BASE + 1024, 512, 4990, frames=frames[:1]),
        entry("snapshot", 0, 1512, 5003),
        {"action": "alloc", "addr": BASE + 1536, "size": 512, "stream": 0, "frames": frames},
        entry("free_requested", BASE + 1024, 512, 5004, frames=[]),
        entry("free_completed", BASE + 1024, 512, 5004),
        {"action": "oom", "device_free": 12345, "size": 1 << 40, "stream": 0, "time_us": 5005, "frames": frames},
        entry("snapshot", 0, 1512, 5006, frames=frames),
    ]
    second = [entry("segment_alloc", BASE, 2 * MIB, 4000, frames=[]), entry("alloc", BASE, 2048, 5002, frames=[])]

    def block(offset, size, requested, state, stack=()):
        return {"address": BASE + offset, "size": size, "requested_size": requested, "state": state, "frames": list(stack)}

    def segment(device, blocks, used, requested):
        return {"device": device, "address": BASE, "total_size": 2 * MIB, "allocated_size": used, "active_size": used,
                "requested_size": requested, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
                "is_expandable": False, "blocks": blocks, "frames": []}

    return {
        "segments": [
            segment(0, [block(0, 1024, 1000, "active_allocated", frames), block(1024, 512, 512, "inactive"),
                        block(1536, 512, 512, "active_allocated", frames), block(2048, 2 * MIB - 2048, 0, "inactive")],
                    1536, 1512),
            segment(1, [block(0, 2048, 2048, "active_allocated"), block(2048, 2 * MIB - 2048, 0, "inactive")], 2048, 2048)],
        "device_traces": [first, second],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
            "expandable_segments": False, "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)},
            "pinned_num_register_threads": 4, "something_new": {"a": [1.5, "b"]}},
        "external_annotations": [{"name": "## forward", "stage": "START", "device": 0, "time_us": 5001},
                                 {"name": "## forward", "stage": "END", "device": 0, "time_us": 5002}],
        "host_traces": [[{"action": "alloc", "addr": BASE + (1 << 62), "size": 1}], []],
        "version": 3,
    }


class RoundTrip(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.database = self.folder / "imported.db"

    def run_varve(self, *arguments):
        outcome = varve(*arguments)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return outcome.stdout

    def exported(self, source):
        path = self.folder / "exported.pickle"
        self.run_varve("export", source, "--to", "pytorch", "--force", "-o", path)
        return load(path)

    def assert_same(self, expected, found):
        expected, found = plain(expected), plain(found)
        self.assertEqual(set(expected), set(found))
        for traces in zip(expected["device_traces"], found["device_traces"]):
            self.assertEqual(len(traces[0]), len(traces[1]))
            for number, (entry_before, entry_after) in enumerate(zip(*traces)):
                self.assertEqual(entry_before, entry_after, f"entry {number}")
        self.assertEqual(expected, found)

    def round_trip(self, source):
        snapshot = load(source)
        self.assert_same(snapshot, self.exported(source))
        self.run_varve("import", source, "-o", self.database, "--force")
        self.assert_same(snapshot, self.exported(self.database))

    def check_views(self):
        state = json.loads(self.run_varve("segments", "--json", self.database))
        rows = json.loads(self.run_varve("query", "--json", self.database, """
            SELECT (SELECT count(*) FROM hole) AS holes, (SELECT coalesce(sum(size), 0) FROM hole) AS in_holes,
                (SELECT count(*) FROM empty_segment) AS empty_segments,
                (SELECT coalesce(sum(size), 0) FROM empty_segment) AS in_empty_segments"""))
        row = (rows["rows"] if isinstance(rows, dict) else rows)[0]
        for key, value in row.items():
            self.assertEqual(value, sum(total[key] for total in state["totals"]), key)

    def test_recordings(self):
        self.assertGreater(len(RECORDINGS), 5)
        for recording in runs.sample(RECORDINGS, "cudagraph_private_pool", "multistream_record", "pools_free", "synthetic_oom_gc"):
            with self.subTest(recording.name):
                self.round_trip(recording)
                self.check_views()

    def test_odd(self):
        source = self.folder / "odd.pickle"
        source.write_bytes(pickle.dumps(odd_snapshot(), protocol=4))
        self.round_trip(source)
        self.check_views()

    def test_hostile_database(self):
        """What is kept goes into a pickle that others load: only plain values may."""
        source = self.folder / "odd.pickle"
        source.write_bytes(pickle.dumps(odd_snapshot(), protocol=4))
        for value in (b"cos\nsystem\n", b"X\x01\x00\x00\x00a", b"X\x01\x00\x00\x00a](N", b"X\xff\xff\xff\xffa", b"N" * 2, b"(" * 99):
            self.run_varve("import", source, "-o", self.database, "--force")
            with contextlib.closing(sqlite3.connect(self.database)) as database:
                database.execute("UPDATE meta SET value = ? WHERE key = 'history.rest'", (f"root {value.hex()}",))
                database.commit()
            outcome = varve("export", self.database, "--to", "pytorch", "-o", self.folder / "bad.pickle")
            self.assertEqual(outcome.returncode, 2, value)
            self.assertIn("history.rest is damaged", outcome.stderr)
            self.assertFalse(os.path.exists(self.folder / "bad.pickle"))


if __name__ == "__main__":
    unittest.main()
