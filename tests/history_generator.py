# SPDX-License-Identifier: Apache-2.0
"""Histories of PyTorch's caching allocator, made: random requests to a small model of that allocator, written as its
versions from 1.12 to 2.15 write snapshots, with the truth of each beside it. The model is independent of varve's
allocator, after c10/cuda/CUDACachingAllocator.cpp: it knows small and large pools, streams, private pools, deferred
frees, a memory limit, a device that others fill, and the settings that change decisions. `History(seed)` is one of
them."""

import bisect
import itertools
import pickle
import random
import struct

KIB, MIB = 1 << 10, 1 << 20
BASE = 0x7F0000000000
UNLIMITED = 1 << 62
VERSIONS = ("1.12", "1.13", *(f"2.{minor}" for minor in range(16)))
# What a snapshot says: from which version on, and the first version that says it no longer.
SAID = {
    "history of blocks": ("1.13", "2.1"),  # who was given it, or what became free of it: {addr, real_size, frames}
    "C++ frames apart": ("1.13", "2.1"),  # as a text, if they were asked for
    "device_traces": ("2.0", None),  # before: a list of segments is all
    "requested_size": ("2.0", None),  # of blocks and segments
    "frames of blocks": ("2.1", None),  # and of segments; and where a block is, and what kind of segment
    "time_us": ("2.2", None),
    "allocator_settings": ("2.3", None),
    "external_annotations": ("2.5", None),
    "compile_context": ("2.8", None),
    "graph_capture_record_stream_reuse": ("2.9", None),
    "user_metadata": ("2.10", None),
    "forward_frames": ("2.11", None),  # texts, where autograd has them
    "pool_id": ("2.12", None),  # of entries
    "max_cached_size": ("2.13", None),
    "annotate": ("2.14", None),  # an action, of what is allocated
    "host_traces": ("2.14", None),  # and host_segments: pinned memory, if it was asked for
    "internal_metadata": ("2.15", None),  # where the allocator has some
}


class CxxPickler:
    """As PyTorch pickles in C++ (_memory_snapshot_pickled): what several may hold is remembered when it is full, a list
    is appended to once, and an integer of more than 32 bits has 8 bytes."""

    def __init__(self, value):
        self.out, self.numbers = bytearray(b"\x80\x02"), {}
        self.put(value)
        self.out += b"."

    def remember(self, key):
        number = self.numbers[key] = len(self.numbers)
        self.out += b"q" + bytes((number,)) if number < 256 else b"r" + struct.pack("<I", number)

    def put_integer(self, value):
        for low, high, code in ((0, 1 << 8, b"KB"), (0, 1 << 16, b"MH"), (-(1 << 31), 1 << 31, b"Ji")):
            if low <= value < high:
                self.out += code[:1] + struct.pack("<" + chr(code[1]), value)
                return
        self.out += b"\x8a\x08" + struct.pack("<q", value)

    def put_items(self, begin, items, end):
        self.out += begin
        for item in items:
            self.put(item)
        self.out += end

    def put(self, value):
        key = value if isinstance(value, str) else id(value)
        if value is None or isinstance(value, (bool, int, float)):
            if isinstance(value, float):
                self.out += b"G" + struct.pack(">d", value)
            elif isinstance(value, bool) or value is None:
                self.out += {None: b"N", False: b"\x89", True: b"\x88"}[value]
            else:
                self.put_integer(value)
        elif key in self.numbers:
            number = self.numbers[key]
            self.out += b"h" + bytes((number,)) if number < 256 else b"j" + struct.pack("<I", number)
        else:
            if isinstance(value, str):
                self.out += b"X" + struct.pack("<I", len(value.encode())) + value.encode()
            elif isinstance(value, dict):
                self.put_items(b"}(", itertools.chain.from_iterable(value.items()), b"u")
            elif isinstance(value, list):
                self.put_items(b"](", value, b"e")
            else:
                self.put_items(b"", value, b"\x86")  # a pool
            self.remember(key)


class Block:  # pylint: disable=too-many-instance-attributes
    def __init__(self, segment, addr, size):
        self.segment, self.addr, self.size = segment, addr, size
        self.requested, self.state, self.frames, self.uses = 0, "inactive", None, 0
        self.past = []  # of a free one: (address, requested, frames) of what it was, by address
        self.freed_at = 0  # searches of its pool before

    def key(self):
        return self.segment.stream, self.size, self.addr


    def is_used(self):
        return self.state.startswith("active")

    def beside(self, step):
        """Its neighbour in the segment."""
        place = self.segment.blocks.index(self) + step
        return self.segment.blocks[place] if 0 <= place < len(self.segment.blocks) else None

    def room(self):
        """What a free block of an expandable segment can grow to."""
        behind = self.beside(1)
        return self.size + (behind.size if behind is not None and behind.state == "unmapped" else 0)


class Segment:  # pylint: disable=too-many-instance-attributes
    """Of an expandable one the blocks without memory are "unmapped"."""

    def __init__(self, addr, size, stream, pool, is_small, frames, is_expandable=False):  # pylint: disable=R0913,R0917
        self.addr, self.size, self.stream, self.pool, self.is_small, self.frames = \
            addr, size, stream, pool, is_small, frames
        self.is_expandable, self.unit = is_expandable, 2 * MIB if is_small else 20 * MIB
        self.blocks = [Block(self, addr, size)]
        self.blocks[0].state = "unmapped" if is_expandable else "inactive"

    def ranges(self):
        """Contiguous blocks with memory."""
        return [list(blocks) for is_mapped, blocks in
                itertools.groupby(self.blocks, lambda block: block.state != "unmapped") if is_mapped]


class Settings:  # pylint: disable=too-few-public-methods
    """What PYTORCH_CUDA_ALLOC_CONF changes of the decisions."""

    def __init__(self, rng=None, is_limited=False):
        self.max_split, self.divisions, self.threshold, self.expandable = UNLIMITED, 0, 0.0, False
        for _ in range(rng.choice((0, 0, 1, 1, 2)) if rng is not None else 0):
            name = rng.choice(("max_split", "divisions", "expandable") + ("threshold",) * 3 * is_limited)
            value = {"max_split": rng.choice((21, 32, 48)) * MIB, "divisions": rng.choice((2, 4, 8)),
                     "expandable": True, "threshold": rng.choice((0.3, 0.5, 0.7, 0.9))}[name]
            setattr(self, name, value)

    def text(self):
        words = ((self.max_split < UNLIMITED, f"max_split_size_mb:{self.max_split // MIB}"),
                 (self.divisions, f"roundup_power2_divisions:{self.divisions}"),
                 (self.threshold, f"garbage_collection_threshold:{self.threshold}"),
                 (self.expandable, "expandable_segments:True"))
        return ",".join(word for is_set, word in words if is_set)

    def written(self):
        return {"PYTORCH_CUDA_ALLOC_CONF": self.text(),
                "max_split_size": self.max_split if self.max_split < UNLIMITED else -1,
                "garbage_collection_threshold": self.threshold, "expandable_segments": self.expandable,
                "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
                "pinned_use_cuda_host_register": False,
                "roundup_power2_divisions": {str(1 << i): self.divisions for i in range(16)}}

    def round(self, size):
        if self.divisions < 2 or size <= 512 * self.divisions or size & (size - 1) == 0:
            return max(512, (size + 511) // 512 * 512)
        step = (1 << (size.bit_length() - 1)) // self.divisions
        return (size + step - 1) // step * step


class OutOfMemory(Exception):
    pass


class Allocator:  # pylint: disable=too-many-instance-attributes
    """One device. Events are tuples (action, addr, size, stream, frames, pool)."""

    def __init__(self, rng, settings, limit=None, others=0):
        self.rng, self.settings, self.limit, self.total, self.others = rng, settings, limit, 80 << 30, others
        self.searches = {}  # of a pool, while garbage is collected
        self.allocated, self.profile = 0, []  # what a profiler sees: (bytes, address or None, allocated, reserved)
        self.segments, self.free, self.events, self.pending = [], {}, [], []
        self.reserved, self.next_addr, self.gone, self.retries = 0, BASE, [], 0
        self.freeable = []

    def record(self, action, addr, size, stream, frames, pool):  # pylint: disable=too-many-arguments
        self.events.append((action, addr, size, stream, frames, pool))

    def report(self, change, addr):
        self.allocated += change if addr is not None else 0
        self.profile.append((change, addr, self.allocated, self.reserved))

    # ---- free blocks, in the order that PyTorch looks for them ----

    def insert(self, block):
        block.freed_at = self.searches.get((block.segment.pool, block.segment.is_small), 0)
        bisect.insort(self.free.setdefault((block.segment.pool, block.segment.is_small), []), block, key=Block.key)

    def remove(self, block):
        blocks = self.free[block.segment.pool, block.segment.is_small]
        del blocks[bisect.bisect_left(blocks, block.key(), key=Block.key)]

    def find(self, size, stream, pool, is_small):
        if self.limit is not None and self.settings.threshold > 0:
            self.searches[pool, is_small] = self.searches.get((pool, is_small), 0) + 1
        blocks = self.free.get((pool, is_small), [])
        place = bisect.bisect_left(blocks, (stream, size, 0), key=Block.key)
        if place == len(blocks) or blocks[place].segment.stream != stream:
            return None
        while blocks[place].segment.is_expandable and place + 1 < len(blocks) \
                and blocks[place + 1].segment.stream == stream and blocks[place + 1].room() < blocks[place].room():
            place += 1
        found, most = blocks[place].size, self.settings.max_split
        is_refused = found >= most if size < most else found >= size + 20 * MIB
        return None if is_refused else blocks[place]

    # ---- expandable segments ----

    def merge(self, block):
        """With neighbours that are as it is: free, or without memory."""
        for step in (-1, 1):
            other = block.beside(step)
            if other is not None and other.state == block.state:
                if other.state == "inactive":
                    self.remove(other)
                block.past = other.past + block.past if step < 0 else block.past + other.past
                block.addr, block.size = min(block.addr, other.addr), block.size + other.size
                block.segment.blocks.remove(other)

    def cut_off(self, block, size):
        """The front of the block; the rest, behind it, has its state."""
        rest = Block(block.segment, block.addr + size, block.size - size)
        rest.state, block.size = block.state, size
        block.segment.blocks.insert(block.segment.blocks.index(block) + 1, rest)
        return rest

    def find_space(self, size, stream, pool, is_small):
        """The lowest address where that much is free or without memory; else of a new segment, though nothing may come
        to be there."""
        for segment in self.segments:
            if (segment.stream, segment.pool, segment.is_small) != (stream, pool, is_small):
                continue
            for block in segment.blocks:
                if block.state == "unmapped":
                    before = block.beside(-1)
                    first = before if before is not None and before.state == "inactive" else block
                    rest = segment.blocks[segment.blocks.index(first):]
                    if sum(one.size for one in itertools.takewhile(lambda one: not one.is_used(), rest)) >= size:
                        return first
        room = self.total * 9 // 8 // (20 * MIB) * 20 * MIB + 20 * MIB
        segment = Segment(self.next_addr, room, stream, pool, is_small, None, True)
        self.next_addr += segment.size + self.rng.choice((0, 2, 64)) * MIB
        bisect.insort(self.segments, segment, key=lambda one: one.addr)
        return segment.blocks[0]

    def map(self, block, size, frames):
        mapped = (size + block.segment.unit - 1) // block.segment.unit * block.segment.unit
        if self.reserved + mapped > self.total - self.others:
            return False
        addr = block.addr
        if mapped < block.size:
            self.cut_off(block, mapped)
        block.state, block.segment.frames = "inactive", block.segment.frames or frames
        self.merge(block)
        self.insert(block)
        self.reserved += mapped
        self.record("segment_map", addr, mapped, block.segment.stream, frames, block.segment.pool)
        return True

    def grow(self, size, stream, pool, is_small, frames):  # pylint: disable=too-many-arguments
        """A block without its free list, or None."""
        block = self.find_space(size, stream, pool, is_small)
        if block.state == "unmapped" and not self.map(block, min(block.size, size), frames):
            return None
        while block.size < size:
            behind = block.beside(1)
            if not self.map(behind, min(size - block.size, behind.size), frames):
                return None
            block = behind
        self.remove(block)
        return block

    def unmap(self, block, frames):
        """Whole units of it."""
        segment = block.segment
        begin = segment.addr + (block.addr - segment.addr + segment.unit - 1) // segment.unit * segment.unit
        end = segment.addr + (block.addr + block.size - segment.addr) // segment.unit * segment.unit
        if begin >= end:
            return
        self.remove(block)
        if begin > block.addr:
            front, block = block, self.cut_off(block, begin - block.addr)
            front.requested, block.requested = 0, front.requested  # the front is the new one
            self.insert(front)
        if end < block.addr + block.size:
            self.insert(self.cut_off(block, end - block.addr))
        block.state = "unmapped"
        self.merge(block)
        self.reserved -= end - begin
        self.record("segment_unmap", begin, end - begin, segment.stream, frames, segment.pool)
        if len(segment.blocks) == 1:
            self.segments.remove(segment)

    # ---- the device ----

    def place(self, size):
        """Where the device puts a segment: often where one was given back."""
        for number, (addr, room) in enumerate(self.gone):
            if room >= size and self.rng.random() < 0.7:
                del self.gone[number]
                if room > size:
                    self.gone.append((addr + size, room - size))
                return addr
        addr = self.next_addr
        self.next_addr += (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB * self.rng.choice((1, 1, 2))
        return addr

    def room(self):
        """What can be reserved."""
        return self.total - self.others if self.limit is None else min(self.limit, self.total - self.others)

    def device_free(self):
        return max(0, min(self.total - self.others, self.total) - self.reserved)

    def make_block(self, rounded, stream, pool, is_small, frames):  # pylint: disable=too-many-arguments
        size = 2 * MIB if is_small else 20 * MIB
        if rounded >= 10 * MIB:
            size = (rounded + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        if self.limit is not None and self.reserved + size > self.limit:
            return None
        if self.settings.expandable:
            return self.grow(rounded, stream, pool, is_small, frames)
        if self.reserved + size > self.total - self.others:
            return None
        self.reserved += size
        segment = Segment(self.place(size), size, stream, pool, is_small, frames)
        bisect.insort(self.segments, segment, key=lambda one: one.addr)
        self.record("segment_alloc", segment.addr, size, stream, frames, pool)
        return segment.blocks[0]

    def drop(self, block, frames):
        """Give a segment back."""
        segment = block.segment
        self.remove(block)
        self.segments.remove(segment)
        self.reserved -= block.size
        self.gone.append((block.addr, block.size))
        self.record("segment_free", block.addr, block.size, segment.stream, frames, segment.pool)

    def collect(self, frames):
        """Garbage: blocks of more than the mean age, in passes, until enough has gone."""
        target = self.reserved - int(self.settings.threshold * (self.limit or 0))
        if self.limit is None or self.settings.threshold == 0 or target <= 0:
            return

        def ages():
            return [(self.searches[(0, 0), False] - block.freed_at, block)
                    for block in self.free.get(((0, 0), False), []) if len(block.segment.blocks) == 1]

        found = ages()
        while target > 0 and found:
            mean = sum(age for age, _ in found) / len(found)
            old = [block for age, block in found if age >= mean and not block.segment.is_expandable]
            for block in old:
                target -= block.size
                self.drop(block, frames)
            found = ages() if old else []

    def release_available(self, size, stream, pool, is_small, frames):  # pylint: disable=too-many-arguments
        """The smallest oversize block that is large enough, or else enough of the largest ones."""
        key = max(size, self.settings.max_split)
        blocks = self.free.get((pool, is_small), [])
        if self.settings.max_split == UNLIMITED:
            return False
        place = bisect.bisect_left(blocks, (stream, key, 0), key=Block.key)
        if place < len(blocks) and blocks[place].segment.stream == stream and not blocks[place].segment.is_expandable:
            self.drop(blocks[place], frames)
            return True
        released = 0
        for block in reversed(blocks[:place]):
            if released >= key or block.size < self.settings.max_split or block.segment.stream != stream:
                break
            if not block.segment.is_expandable:
                released += block.size
                self.drop(block, frames)
        return released >= key

    def release(self, frames):
        """All events first, then what is free in whole: the default pool's large ones first."""
        self.complete(self.pending[:], frames)
        pools = [((0, 0), False), ((0, 0), True)]
        pools += [(pool, is_small) for pool in self.freeable for is_small in (False, True)]
        for pool in pools:
            blocks = self.free.get(pool, [])[:]
            for block in blocks:
                if len(block.segment.blocks) == 1 and not block.segment.is_expandable:
                    self.drop(block, frames)
            for block in blocks:
                if block.segment.is_expandable:
                    self.unmap(block, frames)
        return True

    # ---- requests ----

    def malloc(self, requested, stream, frames, pool=(0, 0)):
        size = self.settings.round(requested)
        is_small = size <= MIB
        if pool == (0, 0):
            self.complete([one for one in self.pending if one.uses == 0], frames)
        block = self.find(size, stream, pool, is_small)
        if block is not None:
            self.remove(block)
        else:
            wanted = (size, stream, pool, is_small, frames)
            self.collect(frames)
            block = self.make_block(*wanted)
            if block is None and self.release_available(*wanted):
                block = self.make_block(*wanted)
            if block is None and pool == (0, 0):
                self.retries += 1
                self.release(frames)
                block = self.make_block(*wanted)
            if block is None:
                self.record("oom", self.device_free(), size, stream, frames, pool)
                self.report(size, None)
                raise OutOfMemory
        rest = block.size - size
        is_cut = rest > MIB and size < self.settings.max_split
        # what remains is the block, with what it was last asked for
        if rest >= 512 if is_small or self.settings.expandable else is_cut:
            front = Block(block.segment, block.addr, size)
            block.segment.blocks.insert(block.segment.blocks.index(block), front)
            block.addr, block.size = block.addr + size, rest
            block.past = [one for one in block.past if one[0] >= block.addr]
            self.insert(block)
            block = front
        block.requested, block.state, block.frames = requested, "active_allocated", frames
        self.record("alloc", block.addr, requested, stream, frames, pool)
        self.report(block.size, block.addr)
        return block

    def free_block(self, block, frames):
        self.record("free_requested", block.addr, block.requested, block.segment.stream, frames, block.segment.pool)
        self.report(-block.size, block.addr)
        if block.uses > 0:
            block.state = "active_pending_free"
            self.pending.append(block)
        else:
            self.complete_one(block, frames)

    def complete(self, blocks, frames):
        for block in blocks:
            self.pending.remove(block)
            self.complete_one(block, frames)

    def complete_one(self, block, frames):
        self.record("free_completed", block.addr, block.requested, block.segment.stream, frames, block.segment.pool)
        block.past = [(block.addr, block.requested, block.frames)]
        block.state, block.frames, block.uses = "inactive", None, 0
        self.merge(block)
        self.insert(block)


class History:  # pylint: disable=too-many-instance-attributes
    """What was drawn, the snapshot, and what is true of it."""

    def __init__(self, seed, version=None):
        self.rng = rng = random.Random(seed)
        self.seed = seed
        drawn = rng.choice(VERSIONS)
        self.version = version or drawn
        self.pickler = rng.choice((2, 3, 4, 5, "C++"))
        self.has_lists = rng.random() < 0.3  # as JSON has tuples
        self.has_stacks = rng.random() < 0.6
        self.has_cxx = rng.random() < 0.2
        self.has_pools = rng.random() < 0.3
        self.is_limited = rng.random() < 0.25
        self.is_full = self.is_limited and rng.random() < 0.5
        self.streams = [0] + [0x55550000 + 64 * number for number in range(rng.choice((0, 0, 1, 3)))]
        drawn = Settings(rng, self.is_limited)
        self.settings = drawn if self.says("allocator_settings") else Settings()
        self.has_pools &= not self.settings.expandable
        self.kept = rng.choice(("all", "all", "all", "late", "late", "none", "one"))
        self.odd = rng.random() < 0.3 and self.says("device_traces")
        self.skipped = rng.choice(("free_requested", "free_completed")) if rng.random() < 0.1 else None
        self.unknown_entries = self.unknown_fields = 0
        self.stacks = [[{"name": f"f{depth}", "filename": f"/u/{letter}.py", "line": 10 * depth + ord(letter)}
                        for depth in range(rng.randint(1, 4))] for letter in "abcdef"]
        self.devices = [self.run() for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        self.traces = [self.cut(device) for device in self.devices]
        self.times = self.draw_times()
        self.snapshot = self.write()

    def says(self, what):
        since, until = SAID[what]
        number = VERSIONS.index(self.version)
        return VERSIONS.index(since) <= number and (until is None or number < VERSIONS.index(until))

    def pickled(self):
        """C++ has not been asked before there were traces, and has no integers that are larger than its own."""
        if self.pickler != "C++":
            return pickle.dumps(self.snapshot, protocol=self.pickler)
        if self.odd or not self.says("device_traces"):
            return pickle.dumps(self.snapshot, protocol=2)
        return bytes(CxxPickler(self.snapshot).out)

    # ---- what happens ----

    def stack(self):
        return self.rng.choice(self.stacks) if self.has_stacks else None

    def size(self):
        rng = self.rng
        return rng.choice((rng.randint(1, 2000), rng.randint(1, MIB), rng.randint(MIB, 9 * MIB),
                           rng.randint(9 * MIB, 60 * MIB), 4 * MIB, 512 * rng.randint(1, 64)))

    def run(self):
        rng = self.rng
        limit = rng.randint(60, 300) * MIB if self.is_limited else None
        device = Allocator(rng, self.settings, None if self.is_full else limit,
                           (80 << 30) - limit if self.is_full else 0)
        live, pool, pool_stream, numbers = [], (0, 0), 0, itertools.count(1)
        is_graph = len(self.streams) > 1  # captures are on streams of their own; else MemPools
        for _ in range(rng.choice((0, 3, 40, 120, 250))):
            choice = rng.random()
            if self.has_pools and rng.random() < 0.04:
                pool = (0, 0) if pool != (0, 0) else (next(numbers), 0) if is_graph else (0, next(numbers))
                pool_stream = rng.choice(self.streams[1:] if is_graph else self.streams)
            if choice < 0.5 or not live:
                stream = pool_stream if pool != (0, 0) else rng.choice(self.streams)
                try:
                    live.append(device.malloc(self.size(), stream, self.stack(), pool))
                except OutOfMemory:
                    pass
            elif choice < 0.94:
                block = live.pop(rng.randrange(len(live)))
                if len(self.streams) > 1 and rng.random() < 0.3 and block.segment.pool == (0, 0):
                    block.uses = 1
                device.free_block(block, self.stack())
            elif choice < 0.97:
                for block in device.pending:
                    block.uses = 0 if rng.random() < 0.5 else block.uses
            elif choice < 0.98:
                active = sum(block.size for block in live)
                device.record("snapshot", 0, active, 0, self.stack(), (0, 0))
            elif pool == (0, 0):
                device.release(self.stack())
        return device

    # ---- what a snapshot has of it ----

    def cut(self, device):
        count = len(device.events)
        first = {"all": 0, "late": self.rng.randint(0, count), "none": count, "one": max(0, count - 1)}[self.kept]
        if not self.says("device_traces"):
            first = count
        return [event for event in device.events[first:] if event[0] != self.skipped]

    def draw_times(self):
        """One clock for all devices."""
        if not self.says("time_us"):
            return None
        now = 1_700_000_000_000_000
        times = [[0] * len(trace) for trace in self.traces]
        left = [iter(range(len(trace))) for trace in self.traces]
        turns = [number for number, trace in enumerate(self.traces) for _ in trace]
        self.rng.shuffle(turns)
        for number in turns:
            now += self.rng.choice((0, 1, 7, 1000))
            times[number][next(left[number])] = now
        return times

    def with_frames(self, written, frames):
        """Of an entry, or of what is in a block's history."""
        if frames is not None:
            written["frames"] = frames
            if self.has_cxx and self.says("C++ frames apart"):
                written["cpp_frames"] = "frame #0: c10::Error::Error (0x7f in libc10.so)"
        return written

    def write_block(self, block):
        written = {"size": block.size, "state": block.state}
        if self.says("requested_size"):
            written["requested_size"] = block.requested
        past = [(block.addr, block.requested, block.frames)] if block.is_used() else block.past
        if self.says("history of blocks") and self.has_stacks and past:
            written["history"] = [self.with_frames({"addr": addr, "real_size": size}, frames)
                                  for addr, size, frames in past]
        if self.says("frames of blocks"):
            written |= {"address": block.addr, "frames": block.frames or []}
        return written

    def write_pool(self, pool):
        return list(pool) if self.has_lists else pool

    def write_segment(self, number, segment, blocks):
        used = [block for block in blocks if block.state == "active_allocated"]
        active = [block for block in blocks if block.is_used()]
        written = {"device": number, "address": blocks[0].addr, "total_size": sum(block.size for block in blocks),
                   "allocated_size": sum(block.size for block in used),
                   "active_size": sum(block.size for block in active), "stream": segment.stream,
                   "segment_type": "small" if segment.is_small else "large",
                   "blocks": [self.write_block(block) for block in blocks]}
        if self.says("requested_size"):
            written["requested_size"] = sum(block.requested for block in active)
        if self.says("frames of blocks"):
            written |= {"segment_pool_id": self.write_pool(segment.pool), "is_expandable": segment.is_expandable,
                        "frames": segment.frames or []}
        return written

    def write_event(self, event, time_us):
        action, addr, size, stream, frames, pool = event
        written = self.with_frames({"action": action, "device_free" if action == "oom" else "addr": addr, "size": size,
                                    "stream": stream}, frames)
        if time_us is not None:
            written["time_us"] = time_us
        written |= {key: value for key, value in (("compile_context", "N/A"), ("user_metadata", ""),
                                                  ("pool_id", self.write_pool(pool))) if self.says(key)}
        if action == "alloc" and self.rng.random() < 0.1:
            if self.says("forward_frames"):
                written["forward_frames"] = ['  File "/u/model.py", line 3, in forward\n    return x\n']
            if self.says("internal_metadata"):
                written["internal_metadata"] = "mallocWithAddress"
        return written

    def annotations(self, entries):
        """Behind some of the allocations."""
        for entry in entries:
            yield entry
            if self.says("annotate") and entry["action"] == "alloc" and self.rng.random() < 0.05:
                yield entry | {"action": "annotate", "size": 0, "user_metadata": "a weight"}

    def write_settings(self):
        written = self.settings.written()
        if self.says("graph_capture_record_stream_reuse"):
            written["graph_capture_record_stream_reuse"] = False
        if self.says("max_cached_size"):
            written |= {"max_round_threshold": 0, "max_cached_size": 0}
        return written

    def write_host(self):
        """Pinned memory: nothing that the device's allocator has to do with."""
        frames = self.stack() or []
        return {"host_segments": [{"address": BASE, "size": 4096, "allocated": True, "active": True,
                                   "segment_pool_id": self.write_pool((0, 0)), "frames": frames}],
                "host_traces": [{"action": action, "addr": BASE + 4096 * number, "size": 4096, "stream": 0,
                                 "time_us": 1, "frames": frames}
                                for number in range(3) for action in ("segment_alloc", "alloc")]}

    def write_trace(self, number):
        times = self.times[number] if self.times is not None else itertools.repeat(None)
        entries = [self.write_event(event, time_us) for event, time_us in zip(self.traces[number], times)]
        entries = list(self.annotations(entries))
        for _ in range(self.rng.randint(1, 3) if self.odd else 0):
            self.make_odd(entries)
        return entries

    def make_odd(self, entries):
        """What a version that is yet to come may write."""
        rng = self.rng
        place = rng.randint(0, len(entries))
        kind = rng.choice(("action", "key", "field", "annotate", "none"))
        if kind == "action":
            self.unknown_entries += 1
            entries.insert(place, {"action": "segment_trim", "addr": BASE, "size": 512, "stream": 0})
        elif kind == "annotate":
            entries.insert(place, {"action": "annotate", "message": "step"})
        elif kind == "none":
            self.unknown_entries += 1
            entries.insert(place, {"action": "alloc", "addr": None, "size": 512, "stream": 0})
        elif place < len(entries) and entries[place]["action"] not in ("segment_trim", "annotate") \
                and entries[place].get("addr", 0) is not None:
            if kind == "key":
                entries[place]["confidence"] = rng.choice((1.5, None, [1, {"a": (2, -3)}], "high", 1 << 63))
            elif "colour" not in entries[place]:
                entries[place] |= {"colour": 1, "frames": 7}
                self.unknown_fields += 1

    def write(self):
        segments = [self.write_segment(number, segment, blocks) for number, device in enumerate(self.devices)
                    for segment in device.segments for blocks in segment.ranges()]
        traces = [self.write_trace(number) for number in range(len(self.devices))]
        if not self.says("device_traces"):
            return segments
        if self.kept == "none" and self.rng.random() < 0.5 and not any(traces):
            traces = []
        written = {"segments": segments, "device_traces": traces}
        if self.says("allocator_settings"):
            written["allocator_settings"] = self.write_settings()
        if self.says("external_annotations"):
            written["external_annotations"] = [{"name": "forward", "stage": stage, "device": 0, "time_us": 1}
                                               for stage in ("START", "END")] if self.rng.random() < 0.3 else []
        if self.says("host_traces"):
            written |= self.write_host()
        return written

    def profiler_trace(self, skipped):
        """As PyTorch's profiler writes it that began when so many of each device's reports were over."""
        events = []
        for number, device in enumerate(self.devices):
            for place, (change, addr, allocated, reserved) in enumerate(device.profile[skipped:]):
                args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": change,
                        "Device Id": number, "Device Type": 1, "Ev Idx": place}
                events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "pid": 7, "tid": 7, "ts": place + 0.5,
                               "name": "[OutOfMemory]" if addr is None else "[memory]",
                               "args": args | ({} if addr is None else {"Addr": addr})})
        self.rng.shuffle(events)
        return {"schemaVersion": 1, "traceEvents": events}

    # ---- what is true ----

    def truth(self, number):
        """Of a device's trace: allocations, and the most that was allocated at a time, in requested bytes as far as the
        snapshot has them; what was there before the first entry counts, too."""
        device, trace = self.devices[number], self.traces[number]
        known = {block.addr: block.requested if self.knows_requests() else block.size
                 for segment in device.segments for block in segment.blocks if block.is_used()}
        waiting = {block.addr for segment in device.segments for block in segment.blocks
                   if block.state == "active_pending_free"}
        # backwards: what is live before each entry
        live = dict(known)
        for action, addr, size, *_ in reversed(trace):
            if action == "alloc":
                del live[addr]
            elif action == ("free_completed" if self.skipped != "free_completed" else "free_requested"):
                live[addr] = size
            elif action == "free_requested":
                live[addr] = size  # what the block itself did not say
        allocations, now = len(live), sum(live.values())
        peak = now
        asked = set()
        for action, addr, size, *_ in trace:
            if action == "alloc":
                live[addr] = size
                now += size
                allocations += 1
            elif action == "free_requested" or (action == "free_completed" and addr not in asked):
                now -= live[addr]
                asked.add(addr)
            if action == "free_completed":
                asked.discard(addr)
            peak = max(peak, now)
        if self.skipped == "free_requested":  # of which nobody knows when: at the end
            begun = {event[1] for event in trace if event[0] == "alloc"}
            now -= sum(live[addr] for addr in waiting & begun)
        return {"allocations": allocations, "peak_bytes": peak, "live_bytes": now}

    def is_decided(self):
        """All that the allocator decided follows from the snapshot: private pools do only where entries name them; ages
        of blocks that were free before do not."""
        is_deferred = self.skipped is not None and len(self.streams) > 1  # nobody knows from when, or until when
        has_ages = self.settings.threshold > 0 and self.kept != "all"  # of blocks that were free before
        return not is_deferred and not has_ages and (not self.has_pools or self.says("pool_id"))

    def knows_requests(self):
        return self.says("requested_size") or (self.says("history of blocks") and self.has_stacks)
