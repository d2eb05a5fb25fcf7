#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 25 s
# Runs threads: files are read ahead and databases written by one each.
# Reads damaged input: snapshots.
"""A snapshot of PyTorch, exported as one again, is equal to itself, key by key: read directly, and out of the
database that it was imported into. Of the recordings in tests/conformance/pytorch, and of some made here with what
they lack: entries and keys that mean nothing to the allocator, entries without a time or frames, times that go back,
two devices; a history that begins late; one without times, whose order stands for them; some in which actions were left
out. And the views `hole` and `empty_segment` of that database hold what `varve segments` rebuilds."""

import json
import pathlib
import pickle
import sqlite3

from pytorch_recordings import Case, RECORDINGS, SMALL, load, path_of, recording

MIB = 1 << 20
BASE = 0x7F0000000000


def entry(action, addr, size, time_us, **others):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, **others}


def late_snapshot():
    """A block and a free segment were there before the first entry; few settings are known."""
    frames = [{"name": "load_weights", "filename": "/u/train.py", "line": 7}]

    def segment(address, size, blocks, used, stack):
        return {"device": 0, "address": address, "total_size": size, "allocated_size": used, "active_size": used,
                "requested_size": used, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0],
                "is_expandable": False, "frames": stack, "blocks": blocks}

    def block(address, size, requested, state, stack):
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": stack}

    behind = BASE + 64 * MIB
    return {
        "segments": [
            segment(BASE, 20 * MIB, [block(BASE, 10 * MIB, 10 * MIB, "active_allocated", frames),
                                     block(BASE + 10 * MIB, 10 * MIB, 0, "inactive", [])], 10 * MIB, frames),
            segment(behind, 30 * MIB, [block(behind, 30 * MIB, 0, "inactive", [])], 0, [])],
        "device_traces": [[entry("alloc", behind, 30 * MIB, 1, frames=[]),
                           entry("free_requested", behind, 30 * MIB, 2, frames=[]),
                           entry("free_completed", behind, 30 * MIB, 2, frames=[])]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        "external_annotations": [],
    }


def timeless_snapshot(steps=100):
    """Each step keeps a block, of another line than the one that it needs for a while."""
    kept = [{"name": "keep", "filename": "/u/train.py", "line": 9}]
    needed = [{"name": "work", "filename": "/u/train.py", "line": 4}]
    entries = [entry("segment_alloc", BASE, 2 * MIB, 0, frames=[])]
    for step in range(steps):
        entries += [entry("alloc", BASE + 512 * step, 512, 0, frames=kept),
                    *(entry(action, BASE + MIB, 512, 0, frames=needed)
                      for action in ("alloc", "free_requested", "free_completed"))]
    for one in entries:
        del one["time_us"]
    blocks = [{"address": BASE + 512 * step, "size": 512, "requested_size": 512, "state": "active_allocated",
               "frames": kept} for step in range(steps)]
    blocks.append({"address": BASE + 512 * steps, "size": 2 * MIB - 512 * steps, "requested_size": 0,
                   "state": "inactive", "frames": []})
    return {"segments": [{"device": 0, "address": BASE, "total_size": 2 * MIB, "allocated_size": 512 * steps,
                          "active_size": 512 * steps, "requested_size": 512 * steps, "stream": 0,
                          "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                          "blocks": blocks}],
            "device_traces": [entries]}


def odd_snapshot():
    frames = [{"name": "f", "filename": "a.py", "line": 3}, {"name": "g", "filename": "b.cpp", "line": 0}]
    first = [
        entry("segment_alloc", BASE, 2 * MIB, 5000, frames=[], pool_id=(0, 0)),
        entry("alloc", BASE, 1000, 5001, frames=frames, compile_context="N/A", user_metadata="step 1", pool_id=(0, 0)),
        {"action": "annotate", "message": "epoch \u00e9", "values": [1, -2, 2.5, None, True, 1 << 40, (1, 2)],
         "frames": frames},
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
        return {"address": BASE + offset, "size": size, "requested_size": requested, "state": state,
                "frames": list(stack)}

    def segment(device, blocks, used, requested):
        return {"device": device, "address": BASE, "total_size": 2 * MIB, "allocated_size": used, "active_size": used,
                "requested_size": requested, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
                "is_expandable": False, "blocks": blocks, "frames": []}

    return {
        "segments": [
            segment(0, [block(0, 1024, 1000, "active_allocated", frames), block(1024, 512, 512, "inactive"),
                        block(1536, 512, 512, "active_allocated", frames), block(2048, 2 * MIB - 2048, 0, "inactive")],
                    1536, 1512),
            segment(1, [block(0, 2048, 2048, "active_allocated"), block(2048, 2 * MIB - 2048, 0, "inactive")], 2048,
                    2048)],
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


class RoundTrip(Case):
    def setUp(self):
        super().setUp()
        self.copy = pathlib.Path(self.folder, "exported.pickle")

    def assert_same(self, expected, found):
        self.assertEqual(set(expected), set(found))
        for traces in zip(expected["device_traces"], found["device_traces"]):
            self.assertEqual(len(traces[0]), len(traces[1]))
            for number, (entry_before, entry_after) in enumerate(zip(*traces)):
                self.assertEqual(entry_before, entry_after, f"entry {number}")
        self.assertEqual(expected, found)

    def round_trip(self, source):
        snapshot = load(source)
        self.varve("import", source, "-o", self.path, "--force")
        for one in (source, self.path):
            self.varve("export", one, "--to", "pytorch", "--force", "-o", self.copy)
            self.assert_same(snapshot, load(self.copy))
        totals = self.answer("segments", self.path)["totals"]
        for view, count, size in (("hole", "holes", "in_holes"),
                                  ("empty_segment", "empty_segments", "in_empty_segments")):
            self.assertEqual(self.rows(self.path, f"SELECT count(*), coalesce(sum(size), 0) FROM {view}"),
                             [(sum(total[count] for total in totals), sum(total[size] for total in totals))], view)

    def test_recordings(self):
        for path in recording.sample(RECORDINGS, *SMALL, "resnet50_train_stacks"):
            with self.subTest(path.name):
                self.round_trip(path)

    def odd(self):
        source = pathlib.Path(self.folder, "odd.pickle")
        source.write_bytes(pickle.dumps(odd_snapshot(), protocol=4))
        self.varve("import", source, "-o", self.path)
        return source

    def test_odd(self):
        self.round_trip(self.odd())

    def test_late(self):
        source = pathlib.Path(self.folder, "late.pickle")
        source.write_bytes(pickle.dumps(late_snapshot(), protocol=4))
        self.round_trip(source)
        replayed = pathlib.Path(self.folder, "replayed.db")
        self.varve("replay", source, "-o", replayed)
        for database in (self.path, replayed):
            self.varve("replay", "--verify", database)
            self.assertEqual(self.rows(database, "SELECT user_function, user_line, live_bytes FROM callsite_total WHERE"
                                                 " live_bytes > 0"), [("load_weights", 7, 10 * MIB)])
            self.assertEqual(self.rows(database, "SELECT count(*), sum(a.callsite_id <> 0) FROM events a WHERE kind ="
                                                 " 'segment_alloc'"), [(2, 1)])

    def test_no_times(self):
        source = pathlib.Path(self.folder, "timeless.pickle")
        source.write_bytes(pickle.dumps(timeless_snapshot(), protocol=4))
        self.round_trip(source)
        leaks = self.answer("leaks", "--domain", "block", self.path)
        self.assertEqual(leaks["times"], "order")
        self.assertEqual([line["user_function"] for line in leaks["lines"]], ["keep"])
        self.assertGreater(leaks["lines"][0]["score"], 0.8)
        steps = self.answer("timeline", "--domain", "block", "--points", "10", self.path)
        self.assertEqual(steps["times"], "order")
        self.assertEqual([point["live"] for point in steps["points"]], sorted(
            {point["live"] for point in steps["points"]}))
        for command in ("report", "info", "leaks --domain block", "timeline", "peak --domain block"):
            self.assertIn("the order of its events stands for them",
                          " ".join(self.varve(*command.split(), self.path).out.split()), command)

    def test_skipped_actions(self):
        """PyTorch records no requests or no completions if it is asked to: the others say when they were."""
        whole = load(path_of("cudagraph_private_pool"))
        expected = self.answer("replay", "--verify", path_of("cudagraph_private_pool"))
        for skipped in ("free_requested", "free_completed"):
            snapshot = dict(whole, device_traces=[[event for event in trace if event["action"] != skipped]
                                                  for trace in whole["device_traces"]])
            source = pathlib.Path(self.folder, "skipped.pickle")
            source.write_bytes(pickle.dumps(snapshot, protocol=4))
            self.round_trip(source)
            for one in (source, self.path):
                outcome = recording.varve("replay", "--verify", "--json", one)
                self.assertIn(f"the trace has no {skipped} (skip_actions)", outcome.err)
                found = json.loads(outcome.out)
                for key in ("events", "allocations", "mismatches", "segments_equal", "stats"):
                    self.assertEqual(found[key], expected[key], (skipped, key))
            self.assertIn(f"no {skipped}", self.varve("report", self.path).out)

    def test_private_pools(self):
        """Those of CUDA graphs and MemPools are what a replay finds, event by event; what is free in them is kept."""
        replayed = pathlib.Path(self.folder, "replayed.db")
        for name in ("cudagraph_private_pool", "pools_free"):
            self.varve("import", "--force", path_of(name), "-o", self.path)
            self.varve("replay", "--force", path_of(name), "-o", replayed)
            pools = [self.rows(path, "SELECT e.kind, e.addr, p.capture_id, p.user_id FROM events e JOIN pool p ON"
                                     " p.device = e.device AND p.number = e.pool WHERE e.kind IN ('alloc',"
                                     " 'free_requested', 'free_completed', 'segment_alloc', 'segment_free')"
                                     " ORDER BY e.seq") for path in (self.path, replayed)]
            self.assertEqual(*pools)
            self.assertGreater(len({row[2:] for row in pools[0]}), 3)
        whole = load(path_of("pools_free"))
        unused = [segment for segment in whole["segments"] if segment["active_size"] == 0]
        kept = [segment for segment in unused if tuple(segment["segment_pool_id"]) != (0, 0)]
        total = self.answer("segments", self.path)["totals"][0]
        self.assertEqual((total["kept_segments"], total["in_kept_segments"], total["empty_segments"]),
                         (len(kept), sum(segment["total_size"] for segment in kept), len(unused) - len(kept)))
        self.assertGreater(len(kept), 0)
        self.assertLessEqual(total["ladder"]["cached_segments"], sum(
            segment["total_size"] for segment in unused if segment not in kept))

    def test_lines_that_are_none(self):
        snapshot = late_snapshot()
        for line in ((1 << 64) - 1, -1, None, "7", 1 << 40):
            snapshot["segments"][0]["frames"][0]["line"] = line
            source = pathlib.Path(self.folder, "lines.pickle")
            source.write_bytes(pickle.dumps(snapshot, protocol=4))
            self.varve("import", source, "-o", self.path, "--force")
            self.assertEqual(self.rows(self.path, "SELECT DISTINCT user_function, coalesce(user_line, 0) FROM peak"
                                                  " WHERE callsite_id <> 0"), [("load_weights", 0)], line)

    def test_hostile_database(self):
        """What is kept goes into a pickle that others load: only plain values may."""
        self.odd()
        for value in (b"cos\nsystem\n", b"X\x01\x00\x00\x00a", b"X\x01\x00\x00\x00a](N", b"X\xff\xff\xff\xffa",
                      b"N" * 2, b"(" * 99):
            with sqlite3.connect(self.path) as database:
                database.execute("UPDATE meta SET value = ? WHERE key = 'history.rest'", (f"root {value.hex()}",))
            database.close()
            self.assert_refused(recording.varve("export", self.path, "--to", "pytorch", "-o", self.copy),
                                "history.rest is damaged")
            self.assertFalse(self.copy.exists())


if __name__ == "__main__":
    recording.main()
