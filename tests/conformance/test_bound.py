#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s, full 18 s
# Runs threads: placements are searched for by several.
"""`varve bound` on recorded histories of PyTorch's allocator.

The placement that it writes has the blocks of the recording, no two of which overlap; it ends at the height that is
printed, which is within 1 % of the load in blocks, and is as high with one thread as with several. The loads:
tests/unit/analysis/cli/test_command_bound.c.
"""

import csv

from pytorch_recordings import Case, RECORDINGS, SMALL, load, path_of, recording

BLOCK = 512


def round_up(size, unit):
    return -(-size // unit) * unit


def lifetimes_of(events):
    """[lower, upper, size] of each block; all of these recordings begin with the first allocation."""
    live, lifetimes = {}, []
    for index, event in enumerate(events):
        if event["action"] == "alloc":
            live[event["addr"]] = len(lifetimes)
            lifetimes.append([index, len(events), event["size"]])
        elif event["action"] == "free_completed":
            lifetimes[live.pop(event["addr"])][1] = index
    return lifetimes


def overlap(placed):
    """Two buffers that live at the same time and share a byte, or None. Of those that are live, none overlaps
    another."""
    edges = sorted([(b["upper"], 0, i) for i, b in enumerate(placed)] +
                   [(b["lower"], 1, i) for i, b in enumerate(placed)])
    live = {}
    for _, is_begin, index in edges:
        if not is_begin:
            del live[index]
            continue
        begin, end = placed[index]["offset"], placed[index]["offset"] + placed[index]["size"]
        for other, (other_begin, other_end) in live.items():
            if begin < other_end and other_begin < end:
                return index, other
        live[index] = begin, end
    return None


class Bound(Case):
    def check(self, path):
        events = next(events for events in load(path)["device_traces"] if events)
        lifetimes = lifetimes_of(events)
        answer = self.answer("bound", "-f", "-o", self.path, path)
        with open(self.path, encoding="ascii") as file:
            placed = [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]

        self.assertEqual(answer["events"], len(events))
        self.assertEqual(sorted((b["lower"], b["upper"], b["size"]) for b in placed), sorted(map(tuple, lifetimes)))
        self.assertIsNone(overlap(placed))
        self.assertEqual({b["offset"] % BLOCK for b in placed}, {0})
        self.assertEqual(answer["placement_bytes"], max(b["offset"] + round_up(b["size"], BLOCK) for b in placed))
        self.assertGreaterEqual(answer["placement_bytes"], answer["bound_bytes"])
        self.assertLessEqual(answer["placement_bytes"], 1.01 * answer["block_load_bytes"])
        self.assertEqual(answer["optimal"], answer["placement_bytes"] == answer["bound_bytes"])

    def test_recordings(self):
        for path in recording.sample(RECORDINGS, *SMALL, "resnet50_train_stacks", "gpt2_train_limit"):
            with self.subTest(path.name):
                self.check(path)

    def test_jobs(self):
        answers = [self.answer("bound", "-j", jobs, path_of("resnet50_train_stacks")) for jobs in (1, 2, 5)]
        self.assertFalse(answers[0]["optimal"])  # then it would be the same anyway
        self.assertEqual(len({answer["placement_bytes"] for answer in answers}), 1)


if __name__ == "__main__":
    recording.main()
