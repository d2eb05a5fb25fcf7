#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 45 s
"""The fragmentation ladder against a plain model of recorded histories of PyTorch's allocator.

The model knows what is mapped, which blocks lie there and which bytes were ever handed out, from the fields of the
events alone; the rounded sizes are PyTorch's rule applied to the request under the settings that the history was
recorded with. Each history is looked at twice: replayed, with exact blocks, and imported, with blocks as large as
their requests. """

import bisect

from pytorch_recordings import Case, RECORDINGS, SMALL, expected_of, name_of, path_of, recording

ALLOC, FREE_REQUESTED, FREE_COMPLETED, OOM = 1, 2, 3, 12
SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = 6, 7, 8, 9
RUNGS = ("rounding", "unsplit_remainder", "segment_quantum", "pool_segregation", "stream_pending", "cached_segments",
         "external_holes")


def rounded_size(size, divisions):
    """round_size of c10/cuda/CUDACachingAllocator.cpp."""
    if size < 512:
        return 512
    if divisions > 1 and size > 512 * divisions:
        floor = 1 << (size.bit_length() - 1)
        step = floor // divisions
        return size if size == floor else -(-size // step) * step if step else 2 * floor
    return -(-size // 512) * 512


class Island:
    """Memory of one segment without a gap."""

    def __init__(self, start, end, key, expandable):
        self.start, self.end, self.key, self.expandable = start, end, key, expandable
        self.blocks = {}   # address → [extent, live, rounded, is pending]
        self.touched = []  # [start, end) that blocks have had, in order, none touches another

    def touch(self, start, end):
        for first, last in self.touched:
            if first <= start and end <= last:
                return
        merged = []
        for first, last in sorted([*self.touched, (start, end)]):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self.touched = merged

    def part(self, start, end):
        """What is left of it if only [start, end) stays mapped."""
        part = Island(start, end, self.key, self.expandable)
        part.blocks = {addr: block for addr, block in self.blocks.items() if start <= addr < end}
        part.touched = [(max(a, start), min(b, end)) for a, b in self.touched if a < end and b > start]
        return part

    def count(self):
        """reserved, live, rounding, unsplit, quantum, pending, cached, open"""
        size = self.end - self.start
        active = live = rounding = unsplit = pending = 0
        for extent, requested, rounded, is_pending in self.blocks.values():
            active += extent
            if is_pending:
                pending += extent
            else:
                live += requested
                rounding += rounded - requested
                unsplit += extent - rounded
        if not self.blocks:
            return (size, 0, 0, 0, 0, 0, size, 0)
        fresh = size - sum(b - a for a, b in self.touched)
        return (size, live, rounding, unsplit, fresh, pending, 0, size - active - fresh)


class Device:
    def __init__(self, divisions):
        self.divisions = divisions
        self.islands, self.starts = [], []
        self.wanted = None

    def at(self, addr):
        i = bisect.bisect_right(self.starts, addr) - 1
        return self.islands[i] if i >= 0 and addr < self.islands[i].end else None

    def add(self, island):
        i = bisect.bisect_right(self.starts, island.start)
        self.islands.insert(i, island)
        self.starts.insert(i, island.start)

    def take(self, island):
        i = self.starts.index(island.start)
        del self.islands[i], self.starts[i]

    def grow(self, addr, size, key):
        new = Island(addr, addr + size, key, True)
        for island in (self.at(addr - 1), self.at(addr + size)):
            if island is not None and island.expandable and island.key == key:
                self.take(island)
                new.start, new.end = min(new.start, island.start), max(new.end, island.end)
                new.blocks |= island.blocks
                for span in island.touched:
                    new.touch(*span)
        self.add(new)

    def shrink(self, addr, size):
        island = self.at(addr)
        self.take(island)
        for start, end in ((island.start, addr), (addr + size, island.end)):
            if start < end:
                self.add(island.part(start, end))

    def apply(self, kind, stream, pool, addr, size, requested):
        if kind in (SEGMENT_ALLOC, SEGMENT_MAP, OOM):
            self.wanted = (pool, stream)
        if kind == SEGMENT_ALLOC:
            self.add(Island(addr, addr + size, (pool, stream), False))
        elif kind == SEGMENT_MAP:
            self.grow(addr, size, (pool, stream))
        elif kind in (SEGMENT_FREE, SEGMENT_UNMAP):
            self.shrink(addr, size)
        elif kind in (ALLOC, FREE_REQUESTED, FREE_COMPLETED):
            island = self.at(addr)
            if kind == ALLOC:
                island.blocks[addr] = [size, requested, min(rounded_size(requested, self.divisions), size), False]
                island.touch(addr, addr + size)
            elif kind == FREE_REQUESTED:
                island.blocks[addr][3] = True
            else:
                del island.blocks[addr]

    def ladder(self):
        counts = [(island.key, island.count()) for island in self.islands]
        reserved, live, rounding, unsplit, quantum, pending, cached, free = \
            map(sum, zip((0,) * 8, *(count for _, count in counts)))
        holes = sum(count[7] for key, count in counts if key == self.wanted)
        return reserved, live, rounding, unsplit, quantum, free - holes, pending, cached, holes


def divisions_of(conf):
    for setting in conf.split(","):
        name, _, value = setting.partition(":")
        if name == "roundup_power2_divisions":
            return int(value)
    return 0


class Ladder(Case):
    def compare(self, divisions):
        """The model takes all events, and after some of them tells the rungs, which after each are the difference of
        reserved and live. Returns the most that each rung was."""
        devices, compared, most = {}, 0, [0] * 9
        columns = f"reserved, live_requested, {', '.join(RUNGS)}"
        rows = self.rows(self.path, "SELECT e.seq, e.kind, e.device, e.stream, e.pool, e.addr, e.size, e.requested, "
                         f"l.{columns.replace(', ', ', l.')} FROM event e JOIN ladder l USING (seq) ORDER BY seq")
        step = 13 if recording.IS_FULL else 1 if len(rows) < 2000 else 41
        for seq, kind, device, stream, pool, addr, size, requested, *ladder in rows:
            model = devices.setdefault(device, Device(divisions))
            model.apply(kind, stream, pool, addr, size, requested)
            self.assertEqual(ladder[0] - ladder[1], sum(ladder[2:]), f"event {seq}")
            most = [max(pair) for pair in zip(most, ladder)]
            if seq % step == 0 or kind == OOM:
                self.assertEqual(tuple(ladder), model.ladder(), f"event {seq}")
                compared += 1
        self.assertGreater(compared, 50)
        self.assertEqual(len(rows), self.one("SELECT count(*) FROM event WHERE kind BETWEEN 1 AND 13"))
        self.assertEqual(self.sql(f"SELECT device, seq, ts_ns, {columns} FROM ladder_peak ORDER BY device"), self.sql(
            f"SELECT device, seq, ts_ns, {columns} FROM (SELECT *, row_number() OVER (PARTITION BY process_id, device"
            " ORDER BY"
            " reserved DESC, live_requested + rounding + unsplit_remainder DESC, seq) AS place FROM ladder) WHERE"
            " place = 1 ORDER BY device"))
        return most

    def test_every_event(self):
        most = [0] * 9
        for path in recording.sample(RECORDINGS, *SMALL, "gpt2_train_limit"):
            with self.subTest(recording=path.name):
                expected = expected_of(name_of(path)) or {}
                limit = ["--memory-limit", expected["memory_limit"]] if expected.get("memory_limit") else []
                for command in (["replay", *limit], ["import"]):
                    self.varve(*command, path, "-o", self.path, "--force")
                    most = [max(pair)
                            for pair in zip(most, self.compare(divisions_of(expected.get("alloc_conf") or "")))]
        # over all histories, none of it may be nothing
        self.assertGreater(min(most), 0, dict(zip(("reserved", "live_requested", *RUNGS), most)))

    def test_other_rules(self):
        """What was recorded is requested under other rules, whose blocks and segments are others."""
        for name in ("multistream_record", "cudagraph_private_pool", *(["gpt2_train"] if recording.IS_FULL else [])):
            for divisions, *rules in (
                    (4, "--conf", "roundup_power2_divisions:4,max_split_size_mb:64"),
                    (0, "--conf", "expandable_segments:True"),
                    (0, "--policy", "first-fit"), (0, "--policy", "cuda-async")):
                with self.subTest(recording=name, rules=rules):
                    self.varve("replay", *rules, path_of(name), "-o", self.path, "--force")
                    self.compare(divisions)


if __name__ == "__main__":
    recording.main()
