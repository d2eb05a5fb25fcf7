#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 25 s
# Runs threads: files are read ahead and databases written by one each.
# Reads damaged input: snapshots.
"""Recorded histories of PyTorch's allocator, replayed: decision for decision, block for block, figure for figure.

  verify   every address, size, release and its order, every statistic equal those of PyTorch
  limits   where none is given that was recorded under is found, of each device
  store    the replay as a database has each event of the recording, and the segments that it ends with
  at       blocks at any event are those that a plain reading of the events before it gives
  export   written as a snapshot again it loads in Python's pickle and equals the recording
  spoil    another decision is reported by the number of its event; events that contradict each other are refused
"""

import json
import os
import pickle
import random

from pytorch_recordings import (Case, NAMES, RECORDINGS, SMALL, expected_of, load, name_of, options_of, path_of,
                                recording)

FEW = recording.sample(RECORDINGS, *SMALL[:2], "gpt2_train_expandable", "resnet50_train_stacks")
# Empty caches that had nothing to release leave no event, so a replay can't know of them.
UNKNOWABLE = {"num_sync_all_streams"}


def segments_of(snapshot):
    return {segment["address"]: [*(segment[key] for key in ("total_size", "stream", "segment_type", "is_expandable",
                                                            "allocated_size", "active_size", "requested_size")),
                                 tuple(segment["segment_pool_id"]),
                                 [(block["address"], block["size"], block["requested_size"], block["state"])
                                  for block in segment["blocks"]]]
            for segment in snapshot["segments"]}


def blocks_of(segments):
    return {block["address"]: (block["size"], block["state"]) for segment in segments for block in segment["blocks"]}


def traces_of(snapshot):
    """Without the marks that snapshots leave, and without what an out-of-memory event says of the device."""
    return [[(event["action"], event.get("addr"), event["size"], event["stream"]) for event in trace
             if event["action"] != "snapshot"] for trace in snapshot["device_traces"]]


def blocks_after(events, last):
    """Address → (size, state), by the meaning of each event alone."""
    blocks = {}
    for seq, kind, addr, size, requested, arg, cause in events:
        if seq > last:
            break
        match kind:
            case "segment_alloc" | "segment_map":
                blocks[addr] = (size, "inactive")
            case "segment_free":
                del blocks[addr]
            case "segment_unmap":
                begin = max(base for base in blocks if base <= addr)
                end = begin + blocks.pop(begin)[0]
                if begin < addr:
                    blocks[begin] = (addr - begin, "inactive")
                if addr + size < end:
                    blocks[addr + size] = (end - addr - size, "inactive")
            case "split":
                blocks[addr] = (size, "inactive")
                blocks[addr + size] = (requested, "inactive")
            case "merge":
                del blocks[arg if cause == "next" else arg + requested]
                blocks[addr] = (size, "inactive")
            case "alloc":
                blocks[addr] = (size, "active_allocated")
            case "free_requested":
                blocks[addr] = (blocks[addr][0], "active_pending_free")
            case "free_completed":
                blocks[addr] = (blocks[addr][0], "inactive")
    return blocks


class Replay(Case):
    def setUp(self):
        super().setUp()
        self.copy = os.path.join(self.folder, "copy.pickle")

    def test_verify(self):
        for path in RECORDINGS:
            with self.subTest(path.name):
                expected = expected_of(name_of(path))
                answer = self.answer("replay", path, "--verify", *options_of(expected))
                self.assertEqual((answer["mismatches"], answer["first_mismatch"], answer["segments_equal"]),
                                 (0, None, True))
                if expected:
                    self.assertEqual(answer["events"], expected["events"])
                    wanted = {key: value for key, value in expected["memory_stats"].items() if key not in UNKNOWABLE}
                    self.assertEqual({key: answer["stats"][key] for key in wanted}, wanted)

    def test_limits_are_found(self):
        """What no snapshot has, the memory limit: in between of what is found, and of each device."""
        for name in recording.sample([name for name in NAMES if (expected_of(name) or {}).get("memory_limit")],
                                     "synthetic_oom_gc", "gpt2_train_limit"):
            with self.subTest(name):
                expected = expected_of(name)
                answer = self.answer("replay", "--verify", path_of(name))
                [found] = answer["memory_limits"]
                self.assertTrue(found["least_bytes"] <= expected["memory_limit"] <= found["most_bytes"], found)
                self.assertEqual(answer["stats"]["num_alloc_retries"], expected["memory_stats"]["num_alloc_retries"])
                given = self.answer("replay", "--verify", "--memory-limit", found["least_bytes"], path_of(name))
                self.assertEqual((given["memory_limits"], given["stats"]), ([], answer["stats"]))
                self.varve("import", "--force", "-o", self.path, path_of(name))
                self.assertEqual(self.answer("replay", "--verify", self.path)["memory_limits"], answer["memory_limits"])

    def test_limits_of_several_devices(self):
        """Two recordings under different limits, as those of two devices."""
        names = ("synthetic_oom", "gpt2_train_limit")
        snapshot, second = map(load, map(path_of, names))
        snapshot["device_traces"].append(second["device_traces"][0])
        snapshot["segments"] += [dict(segment, device=1) for segment in second["segments"]]
        with open(self.copy, "wb") as file:
            pickle.dump(snapshot, file)
        found = self.answer("replay", "--verify", self.copy)["memory_limits"]
        self.assertEqual([one["device"] for one in found], [0, 1])
        for name, one in zip(names, found):
            self.assertTrue(one["least_bytes"] <= expected_of(name)["memory_limit"] <= one["most_bytes"], one)
        said = self.varve("replay", self.copy).out
        for one in found:
            self.assertRegex(said, f"limit found of device {one['device']}: [^ ]+ GiB \\({one['least_bytes']:,}\\)")

    def test_no_limit_comes_out(self):
        """The first difference is that under the nearest limit, which is said."""
        snapshot = load(path_of("synthetic_oom_gc"))
        trace = snapshot["device_traces"][0]
        last = max(number for number, event in enumerate(trace) if event["action"] == "segment_alloc")
        trace[last]["size"] += 2 << 20
        for segment in snapshot["segments"]:
            if segment["address"] == trace[last]["addr"]:
                segment["total_size"] += 2 << 20
                segment["blocks"][-1]["size"] += 2 << 20
        with open(self.copy, "wb") as file:
            pickle.dump(snapshot, file)
        outcome = self.varve("replay", "--verify", "--json", self.copy, status=2)
        first = json.loads(outcome.out)["first_mismatch"]
        self.assertEqual(first["event"], last)
        self.assertIn(f"event {last}, under a limit of {first['memory_limit']} bytes", outcome.err)

    def check_export(self, snapshot):
        self.varve("export", self.path, "--to", "pytorch", "--force", "-o", self.copy)
        exported = load(self.copy)
        self.assertEqual(segments_of(exported), segments_of(snapshot))
        self.assertEqual(traces_of(exported), traces_of(snapshot))

    def test_store_and_export(self):
        for path in FEW:
            with self.subTest(path.name):
                self.varve("replay", path, "--verify", "--force", "-o", self.path,
                           *options_of(expected_of(name_of(path))))
                snapshot = load(path)
                self.check_counts(snapshot)
                self.check_segments(snapshot)
                self.check_export(snapshot)

    def check_counts(self, snapshot):
        """Every event is there, and as many splits as the blocks ask for: each adds one, each merge takes one away."""
        counts = dict(self.rows(self.path, "SELECT kind, count(*) FROM events GROUP BY kind"))
        events = [event["action"] for trace in snapshot["device_traces"] for event in trace]
        for action in set(events) - {"snapshot"}:
            self.assertEqual(counts.get(action), events.count(action), action)
        if "segment_map" not in counts:
            more, less = (sum(counts.get(kind, 0) for kind in kinds)
                          for kinds in (("segment_alloc", "split"), ("segment_free", "merge")))
            self.assertEqual(more - less, len(blocks_of(snapshot["segments"])))

    def check_segments(self, snapshot):
        """At the end and in between."""
        self.assertEqual(blocks_of(self.answer("segments", self.path)["segments"]), blocks_of(snapshot["segments"]))
        events = self.sql("SELECT seq, kind, addr, size, requested, arg, cause FROM events ORDER BY seq")
        chosen = random.Random(11)
        for seq in sorted(chosen.randrange(1, events[-1][0] + 1) for _ in range(8)):
            ours = self.answer("segments", "--at", seq, self.path)["segments"]
            self.assertEqual(blocks_of(ours), blocks_after(events, seq), f"after event {seq}")

    def spoil(self, change):
        """The answer to a recording after `change` of its trace, and the number of the allocation changed."""
        snapshot = load(path_of("multistream_record"))
        trace = snapshot["device_traces"][0]
        at = next(i for i, event in enumerate(trace) if i > 1000 and event["action"] == "alloc")
        change(trace, at)
        with open(self.copy, "wb") as file:
            pickle.dump(snapshot, file)
        options = options_of(expected_of("multistream_record"))
        return self.varve("replay", self.copy, "--verify", "--json", *options, status=2), at

    def test_other_decision(self):
        """An allocator that puts one block 512 bytes further, and frees it there."""
        def change(trace, at):
            addr = trace[at]["addr"]
            frees = [event for event in trace[at + 1:]
                     if event.get("addr") == addr and event["action"].startswith("free_")][:2]
            self.assertEqual([event["action"] for event in frees], ["free_requested", "free_completed"])
            for event in (trace[at], *frees):
                event["addr"] += 512

        outcome, at = self.spoil(change)
        answer = json.loads(outcome.out)
        self.assertEqual((answer["mismatches"], answer["first_mismatch"]["event"]), (1, at))

    def test_contradiction(self):
        """A block that comes to be at one address and is freed at another."""
        def change(trace, at):
            trace[at]["addr"] += 512

        outcome, _ = self.spoil(change)
        self.assertEqual(outcome.out, "")
        self.assertRegex(outcome.err, r"^varve replay: .*: event \d+ cannot be: free_requested at 0x[^\n]*\n$")


if __name__ == "__main__":
    recording.main()
