#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s, full 30 s
# Runs threads: files are read ahead and databases written by one each.
# Reads damaged input: snapshots.
"""Recorded histories of PyTorch's allocator, replayed: decision for decision, block for block, figure for figure.

For every recording in tests/conformance/pytorch:
  verify   every address, size, release and its order, every statistic equal those of PyTorch
  store    the replay as a database has each event of the recording, and the segments that it ends with
  at       blocks at any event are those that a plain reading of the events before it gives
  export   written as a snapshot again it loads in Python's pickle and equals the recording
  spoil    another decision is reported by the number of its event; events that contradict each other are refused
"""

import json
import lzma
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording as runs  # noqa: E402

VARVE = os.environ.get("VARVE", "build/varve")
RECORDINGS = sorted((pathlib.Path(__file__).parent / "pytorch").glob("*.pickle.xz"))
FEW = runs.sample(RECORDINGS, "cudagraph_private_pool", "multistream_record", "gpt2_train_expandable", "resnet50_train_stacks")

# Empty caches that had nothing to release leave no event, so a replay can't know of them.
UNKNOWABLE = {"num_sync_all_streams"}


def expected_of(recording):
    path = recording.with_name(recording.name.replace(".pickle.xz", ".expected.json"))
    return json.loads(path.read_text()) if path.exists() else None


def options_of(expected):
    options = []
    if expected:
        options += ["--capacity", str(expected["total_memory"])]
        if expected["alloc_conf"]:
            options += ["--conf", expected["alloc_conf"]]
        if expected["memory_limit"]:
            options += ["--memory-limit", str(expected["memory_limit"])]
    return options


def varve(*arguments):
    return subprocess.run([VARVE, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def segments_of(snapshot):
    return {segment["address"]: [*(segment[key] for key in ("total_size", "stream", "segment_type", "is_expandable",
                                                            "allocated_size", "active_size", "requested_size")),
                                 tuple(segment["segment_pool_id"]),
                                 [(block["address"], block["size"], block["requested_size"], block["state"])
                                  for block in segment["blocks"]]]
            for segment in snapshot["segments"]}


def traces_of(snapshot):
    """Without the marks that snapshots leave, and without what an out-of-memory event says of the device."""
    return [[(event["action"], event.get("addr"), event["size"], event["stream"]) for event in trace
             if event["action"] != "snapshot"] for trace in snapshot["device_traces"]]


def blocks_after(events, last):
    """Address → [size, state], by the meaning of each event alone."""
    blocks = {}
    for event in events:
        if event["seq"] > last:
            break
        addr, size = event["addr"], event["size"]
        match event["kind"]:
            case "segment_alloc" | "segment_map":
                blocks[addr] = [size, "inactive"]
            case "segment_free":
                del blocks[addr]
            case "segment_unmap":
                begin = max(base for base in blocks if base <= addr)
                end = begin + blocks.pop(begin)[0]
                if begin < addr:
                    blocks[begin] = [addr - begin, "inactive"]
                if addr + size < end:
                    blocks[addr + size] = [end - addr - size, "inactive"]
            case "split":
                blocks[addr] = [size, "inactive"]
                blocks[addr + size] = [event["requested"], "inactive"]
            case "merge":
                if event["cause"] == "next":
                    del blocks[event["arg"]]
                else:
                    del blocks[event["arg"] + event["requested"]]
                blocks[addr] = [size, "inactive"]
            case "alloc":
                blocks[addr] = [size, "active_allocated"]
            case "free_requested":
                blocks[addr][1] = "active_pending_free"
            case "free_completed":
                blocks[addr][1] = "inactive"
    return {addr: tuple(block) for addr, block in blocks.items()}


class Replay(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def each(self, recordings=RECORDINGS):
        self.assertGreaterEqual(len(RECORDINGS), 9)
        for recording in recordings:
            with self.subTest(recording.name):
                yield recording, expected_of(recording)

    def test_verify(self):
        for recording, expected in self.each():
            result = varve("replay", recording, "--verify", "--json", *options_of(expected))
            self.assertEqual(result.returncode, 0, result.stderr)
            answer = json.loads(result.stdout)
            self.assertEqual((answer["mismatches"], answer["first_mismatch"], answer["segments_equal"]), (0, None, True))
            if expected:
                self.assertEqual(answer["events"], expected["events"])
                wanted = {key: value for key, value in expected["memory_stats"].items() if key not in UNKNOWABLE}
                self.assertEqual({key: answer["stats"][key] for key in wanted}, wanted)

    def test_store_and_export(self):
        for recording, expected in self.each(FEW):
            database, copy = self.path("replay.db"), self.path("copy.pickle")
            result = varve("replay", recording, "--verify", "-o", database, *options_of(expected))
            self.assertEqual(result.returncode, 0, result.stderr)
            with lzma.open(recording) as file:
                snapshot = pickle.load(file)
            self.check_counts(database, snapshot)
            self.check_segments(database, snapshot)
            self.check_segments_at(database)
            result = varve("export", database, "--to", "pytorch", "-o", copy)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(copy, "rb") as file:
                exported = pickle.load(file)
            self.assertEqual(segments_of(exported), segments_of(snapshot))
            self.assertEqual(traces_of(exported), traces_of(snapshot))
            os.remove(database)
            os.remove(copy)

    def check_counts(self, database, snapshot):
        """Every event is there, and as many splits as the blocks ask for: each adds one, each merge takes one away."""
        rows = varve("query", "--json", database, "SELECT kind, count(*) AS n FROM events GROUP BY kind")
        counts = {row["kind"]: row["n"] for row in json.loads(rows.stdout)}
        events = [event["action"] for trace in snapshot["device_traces"] for event in trace]
        for action in set(events) - {"snapshot"}:
            self.assertEqual(counts.get(action), events.count(action), action)
        if "segment_map" not in counts:
            blocks = sum(len(segment["blocks"]) for segment in snapshot["segments"])
            self.assertEqual(counts.get("segment_alloc", 0) - counts.get("segment_free", 0) + counts.get("split", 0)
                             - counts.get("merge", 0), blocks)

    def check_segments(self, database, snapshot):
        result = varve("segments", "--json", database)
        self.assertEqual(result.returncode, 0, result.stderr)
        ours = {segment["address"]: [(block["address"], block["size"], block["state"]) for block in segment["blocks"]]
                for segment in json.loads(result.stdout)["segments"]}
        theirs = {segment["address"]: [(block["address"], block["size"], block["state"])
                                       for block in segment["blocks"]] for segment in snapshot["segments"]}
        self.assertEqual(ours, theirs)

    def check_segments_at(self, database):
        rows = varve("query", "--json", database,
                     "SELECT seq, kind, addr, size, requested, arg, cause FROM events ORDER BY seq")
        events = json.loads(rows.stdout)
        chosen = random.Random(11)
        for seq in sorted(chosen.randrange(1, events[-1]["seq"] + 1) for _ in range(8)):
            result = varve("segments", "--json", "--at", seq, database)
            self.assertEqual(result.returncode, 0, result.stderr)
            ours = {block["address"]: (block["size"], block["state"])
                    for segment in json.loads(result.stdout)["segments"] for block in segment["blocks"]}
            self.assertEqual(ours, blocks_after(events, seq), f"after event {seq}")

    def test_import_and_export(self):
        for recording, _ in self.each(FEW):
            database, copy = self.path("import.db"), self.path("copy.pickle")
            self.assertEqual(varve("import", recording, "-o", database).returncode, 0)
            self.assertEqual(varve("export", database, "--to", "pytorch", "-o", copy).returncode, 0)
            with lzma.open(recording) as file, open(copy, "rb") as other:
                snapshot, exported = pickle.load(file), pickle.load(other)
            self.assertEqual(traces_of(exported), traces_of(snapshot))
            self.assertEqual(segments_of(exported), segments_of(snapshot))
            os.remove(database)
            os.remove(copy)

    def spoil(self, change):
        """The answer to the recording after `change` of its trace, and the number of the allocation changed."""
        recording = next(path for path in RECORDINGS if path.name.startswith("multistream"))
        with lzma.open(recording) as file:
            snapshot = pickle.load(file)
        trace = snapshot["device_traces"][0]
        at = next(i for i, event in enumerate(trace) if i > 1000 and event["action"] == "alloc")
        change(trace, at)
        with open(self.path("spoilt.pickle"), "wb") as file:
            pickle.dump(snapshot, file)
        result = varve("replay", self.path("spoilt.pickle"), "--verify", "--json", *options_of(expected_of(recording)))
        self.assertEqual(result.returncode, 2)
        return result, at

    def test_other_decision(self):
        """An allocator that puts one block 512 bytes further, and frees it there."""
        def change(trace, at):
            addr = trace[at]["addr"]
            frees = [event for event in trace[at + 1:]
                     if event.get("addr") == addr and event["action"].startswith("free_")][:2]
            self.assertEqual([event["action"] for event in frees], ["free_requested", "free_completed"])
            for event in (trace[at], *frees):
                event["addr"] += 512

        result, at = self.spoil(change)
        answer = json.loads(result.stdout)
        self.assertEqual((answer["mismatches"], answer["first_mismatch"]["event"]), (1, at))

    def test_contradiction(self):
        """A block that comes to be at one address and is freed at another."""
        def change(trace, at):
            trace[at]["addr"] += 512

        result, _ = self.spoil(change)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"^varve replay: .*: event \d+ cannot be: free_requested at 0x[^\n]*\n$")


if __name__ == "__main__":
    unittest.main(verbosity=2)
