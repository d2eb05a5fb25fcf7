# SPDX-License-Identifier: Apache-2.0
"""The private pool of each entry of the history that PyTorch keeps itself, which says it only from 2.12 on. With each
entry goes a text of the thread's (from 2.10 on): while a thread allocates to a pool, the pool stands there behind the
program's own text. A segment's pool is that of its request, as is that of a request that fails, and a block's that of
its segment. What other threads request meanwhile on a stream that is captured is the capture's."""

import bisect
import functools
import itertools
import re
import threading
import time

from .messages import say
from .versions import has

MARK = "\x1fvarve pool "
CAPTURE = "capture"  # and a number, in place of the pool, which a graph tells only when its capture has ended
MARKED = re.compile(f"(?s)(.*){MARK}({CAPTURE}|[0-9]+) ([0-9]+)")
SET, GET = "_cuda_setMemoryMetadata", "_cuda_getMemoryMetadata"
BEGIN = ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_beginAllocateToPool")
END = "_cuda_endAllocateToPool"
SLACK_US = 50  # between PyTorch's clock and the system's
MADE, GONE, FAILED = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap"), ("oom",)


def harmlessly(act, *arguments, **options):
    try:
        act(*arguments, **options)
    except Exception as error:
        say(f"PyTorch's history does not have all pools: {type(error).__name__}: {error}")


def followed_by(original, act):
    """The function, and `act` with the same arguments when it has succeeded."""
    @functools.wraps(original)
    def call(*arguments, **options):
        result = original(*arguments, **options)
        harmlessly(act, *arguments, **options)
        return result

    return call


class PoolContexts:
    def __init__(self):
        self.thread = threading.local()
        self.captures = []  # (began and ended in microseconds, stream, number)
        self.pool_of = {}  # by number of the capture
        self.numbers = itertools.count(1)
        self.is_used = False
        self.write = self.take = self.current_stream = None

    def start(self, torch):
        if not hasattr(torch._C, SET) or not hasattr(torch._C, GET) or has(torch, "pools of history entries"):
            return
        self.take = torch._C._cuda_memorySnapshot
        torch._C._cuda_memorySnapshot = self.snapshot_of_program
        self.write = getattr(torch._C, SET)
        setattr(torch._C, SET, self.set_text)
        setattr(torch._C, GET, self.get_text)
        for name in (*BEGIN, END):
            original = getattr(torch._C, name, None)
            if original is not None:
                replacement = followed_by(original, self.pool_ended if name == END else self.pool_begun)
                for module in (torch._C, torch.cuda.memory):
                    if hasattr(module, name):
                        setattr(module, name, replacement)
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is not None:
            self.current_stream = torch.cuda.current_stream
            graph.capture_begin = followed_by(graph.capture_begin, self.capture_began)
            graph.capture_end = followed_by(graph.capture_end, self.capture_ended)

    # ---- while the program runs ----

    def pools(self):
        if not hasattr(self.thread, "pools"):
            self.thread.pools, self.thread.text = [], ""
        return self.thread.pools

    def show(self):
        pools = self.pools()
        self.write(self.thread.text + (MARK + "%s %d" % pools[-1] if pools else ""))

    def set_text(self, text):
        self.pools()
        self.thread.text = text
        self.show()

    def get_text(self):
        self.pools()
        return self.thread.text

    def enter(self, pool):
        self.is_used = True
        self.pools().append(tuple(pool))
        self.show()

    def leave(self, pool):
        pools = self.pools()
        if tuple(pool) in pools:
            del pools[len(pools) - 1 - pools[::-1].index(tuple(pool))]
            self.show()

    def pool_begun(self, _device, pool):
        self.enter(pool)

    def pool_ended(self, _device, pool):
        self.leave(pool)

    def capture_began(self, _graph, *_arguments, **_options):
        self.thread.capture = time.time_ns() // 1000, self.current_stream().cuda_stream, next(self.numbers)
        self.enter((CAPTURE, self.thread.capture[-1]))

    def capture_ended(self, graph):
        began, stream, number = self.thread.capture
        self.thread.capture = None
        self.leave((CAPTURE, number))
        self.captures.append((began, time.time_ns() // 1000, stream, number))
        self.pool_of[number] = tuple(graph.pool())

    def snapshot_of_program(self, *arguments):
        """Which has its own texts, and nothing of ours."""
        snapshot = self.take(*arguments)
        for entry in (entry for trace in snapshot.get("device_traces", ()) for entry in trace):
            text = entry.get("user_metadata")
            if text and MARK in text:
                entry["user_metadata"] = text.partition(MARK)[0]
        return snapshot

    # ---- afterwards ----

    def own_snapshot(self, torch):
        """As torch.cuda.memory._snapshot(), with the pools of allocations and segments."""
        if self.take is None:
            return torch.cuda.memory._snapshot()
        snapshot = self.take(None)
        if self.is_used:
            harmlessly(self.complete, snapshot)
        return snapshot

    def requested_from(self, entry):
        """The pool that the entry's request went to, None: the default one. The program's text is its own again."""
        marked = MARKED.fullmatch(entry.get("user_metadata") or "")
        if marked:
            entry["user_metadata"] = marked[1]
            number = int(marked[3])
            return self.pool_of.get(number) if marked[2] == CAPTURE else (int(marked[2]), number)
        if entry["action"] in MADE + FAILED:
            for began, ended, stream, number in self.captures:
                if entry.get("stream") == stream and began - SLACK_US <= entry.get("time_us", 0) <= ended + SLACK_US:
                    return self.pool_of.get(number)
        return None

    def complete(self, snapshot):
        for trace in snapshot.get("device_traces", ()):
            mapped = Mapped()
            for entry in trace:
                pool, action = self.requested_from(entry), entry["action"]
                if action in MADE:
                    mapped.add(entry["addr"], entry["size"], pool)
                elif action == "alloc":
                    pool = mapped.pool_at(entry["addr"])
                elif action in GONE:
                    pool = mapped.remove(entry["addr"], entry["size"])
                elif action not in FAILED:
                    continue
                if pool is not None:
                    entry["pool_id"] = pool


class Mapped:
    """Pools by range of addresses."""

    def __init__(self):
        self.starts, self.ranges = [], []  # (end, pool)

    def add(self, addr, size, pool):
        at = bisect.bisect_left(self.starts, addr)
        self.starts.insert(at, addr)
        self.ranges.insert(at, (addr + size, pool))

    def pool_at(self, addr):
        at = bisect.bisect_right(self.starts, addr) - 1
        return self.ranges[at][1] if at >= 0 and addr < self.ranges[at][0] else None

    def remove(self, addr, size):
        """What of a range lies outside stays."""
        pool, end = self.pool_at(addr), addr + size
        at = max(bisect.bisect_right(self.starts, addr) - 1, 0)
        while at < len(self.starts) and self.starts[at] < end:
            start, (its_end, its_pool) = self.starts[at], self.ranges[at]
            if its_end <= addr:
                at += 1
                continue
            del self.starts[at], self.ranges[at]
            for begin, stop in ((start, min(its_end, addr)), (max(start, end), its_end)):
                if begin < stop:
                    self.add(begin, stop - begin, its_pool)
                    at += begin < addr
        return pool
