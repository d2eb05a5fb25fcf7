#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 60 s
"""Recorded histories of PyTorch's allocator under every policy: what it did, event by event, read plainly.

  served    every request of the recording is served, no two blocks share a byte, each lies in one segment, and what
  is reserved at
            most is what the segments add up to
  limit     with less memory than that, requests may fail and then nothing is reserved beyond the limit
  buddy     segments of 2^k bytes never exceed what blocks of up to that size had in use at most, size by size,
  rounded up

In builds with VARVE_ASSERT=2 the allocator's own walkers run after each step as well.
"""

import bisect
import collections

from pytorch_recordings import Case, RECORDINGS, SMALL, path_of, recording

QUERY = """SELECT kind, stream, pool, addr, size, requested FROM events
           WHERE kind IN ('alloc', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map',
                          'segment_unmap', 'oom')
           ORDER BY seq"""


def policies():
    """The names that an unknown one is answered with."""
    return recording.varve("replay", "--policy", "nosuch", RECORDINGS[0]).err.split("there are: ")[1].split()


class Ranges:
    """Disjoint [address, address + size), by address."""

    def __init__(self):
        self.begins, self.sizes = [], {}

    def add(self, addr, size):
        at = bisect.bisect_left(self.begins, addr)
        before = self.begins[at - 1] if at > 0 else None
        assert before is None or before + self.sizes[before] <= addr, "overlaps with what is before it"
        assert at == len(self.begins) or addr + size <= self.begins[at], "overlaps with what is behind it"
        self.begins.insert(at, addr)
        self.sizes[addr] = size

    def remove(self, addr):
        del self.begins[bisect.bisect_left(self.begins, addr)]
        return self.sizes.pop(addr)

    def containing(self, addr, size):
        at = bisect.bisect_right(self.begins, addr) - 1
        return at >= 0 and addr + size <= self.begins[at] + self.sizes[self.begins[at]]


def read_plainly(events):
    """Served requests and the most that was reserved; asserts what must hold at each event."""
    blocks, segments, reserved, peak, served = Ranges(), Ranges(), 0, 0, 0
    has_maps = any(kind.startswith("segment_map") for kind, *_ in events)
    for kind, _, _, addr, size, requested in events:
        if kind == "alloc":
            blocks.add(addr, size)
            assert size >= requested and (has_maps or segments.containing(addr, size)), "a block outside of segments"
            served += 1
        elif kind == "free_completed":
            assert blocks.remove(addr) == size
        elif kind in ("segment_alloc", "segment_map"):
            if not has_maps:
                segments.add(addr, size)
            reserved += size
        elif kind in ("segment_free", "segment_unmap"):
            if not has_maps:
                assert segments.remove(addr) == size
                at = bisect.bisect_left(blocks.begins, addr)
                assert at == len(blocks.begins) or blocks.begins[at] >= addr + size, "a block in what went back"
            reserved -= size
        peak = max(peak, reserved)
    return served, peak


def exceeds_bound(events):
    """The first event after which policy buddy has more segments of a size than is proved; None. Private pools are
    PyTorch's."""
    in_use, most, segments = (collections.Counter() for _ in range(3))
    for at, (kind, stream, pool, _, size, _) in enumerate(events):
        key = (stream, size)
        if pool > 1:
            continue
        if kind == "alloc":
            in_use[key] += size
            most[key] = max(most[key], in_use[key])
        elif kind == "free_completed":
            in_use[key] -= size
        elif kind == "segment_free":
            segments[key] -= 1
        elif kind == "segment_alloc":
            segments[key] += 1
            # the request that it came for is recorded next
            wanted = next(event for event in events[at:] if event[0] in ("alloc", "oom"))
            extra = wanted[4] if wanted[0] == "alloc" and wanted[1] == stream else 0
            used = in_use[(stream, extra)] + extra
            sizes = {other: amount for (owner, other), amount in most.items() if owner == stream and other <= size}
            sizes[extra] = max(sizes.get(extra, 0), used)
            if segments[key] > -(-sum(sizes.values()) // size):
                return at
    return None


class Policies(Case):
    def replay(self, path, policy, *options):
        answer = self.answer("replay", path, "--policy", policy, "-f", "-o", self.path, *options)
        events = self.rows(self.path, QUERY)
        if policy == "buddy":
            self.assertIsNone(exceeds_bound(events))
        return answer, *read_plainly(events)

    def test_policies_are_listed(self):
        self.assertGreaterEqual(set(policies()), {"bfc", "tlsf", "buddy", "arena", "rmm-pool", "cupy-pool", "none",
                                                  "cuda-async"})

    def test_served(self):
        for path in recording.sample(RECORDINGS, *SMALL):
            requests = set()
            for policy in policies():
                with self.subTest(f"{path.name} {policy}"):
                    answer, served, peak = self.replay(path, policy)
                    self.assertEqual((answer["ooms"], answer["allocations"]), (0, served))
                    self.assertEqual(answer["stats"]["reserved_bytes.all.peak"], peak)
                    requests.add(served)
            self.assertEqual(len(requests), 1, "policies were asked for different things")

    def test_limit(self):
        name, limit = ("synthetic_oom_gc", 3 << 30) if recording.IS_FULL else ("multistream_record", 40 << 20)
        for policy in policies():
            with self.subTest(policy):
                answer, _, peak = self.replay(path_of(name), policy, "--memory-limit", limit)
                self.assertLessEqual(peak, limit)
                self.assertGreater(answer["ooms"], 0)


if __name__ == "__main__":
    recording.main()
