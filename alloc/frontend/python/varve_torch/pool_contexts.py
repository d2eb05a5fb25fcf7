# SPDX-License-Identifier: Apache-2.0
"""The private pool of each entry of the history that PyTorch keeps itself, which says it only from 2.12 on. With each
entry goes a text of the thread's (from 2.10 on): while a thread allocates to a pool, the pool stands there behind the
program's own text. A segment's pool is that of its request, and a block's that of its segment. What other threads
request meanwhile on a stream that is captured is the capture's."""

import bisect
import functools
import itertools
import re
import threading
import time

from .messages import say

MARK = "\x1fvarve pool "
CAPTURE = "capture"  # and a number, in place of the pool, which a graph tells only when its capture has ended
MARKED = re.compile(f"(?s)(.*){MARK}({CAPTURE}|[0-9]+) ([0-9]+)")
SET, GET = "_cuda_setMemoryMetadata", "_cuda_getMemoryMetadata"
BEGIN = ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_beginAllocateToPool")
END = "_cuda_endAllocateToPool"
SLACK_US = 50  # between PyTorch's clock and the system's
MADE, GONE = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


def harmlessly(act, *arguments):
    try:
        act(*arguments)
    except Exception as error:
        say(f"PyTorch's history does not have all pools: {type(error).__name__}: {error}")


class PoolContexts:
    def __init__(self):
        self.thread = threading.local()
        self.captures = []  # (began and ended in microseconds, stream, number)
        self.pool_of = {}  # by number of the capture
        self.numbers = itertools.count(1)
        self.is_used = False
        self.write = None

    def start(self, torch):
        if not hasattr(torch._C, SET) or not hasattr(torch._C, GET):
            return
        self.write = getattr(torch._C, SET)
        setattr(torch._C, SET, self.set_text)
        setattr(torch._C, GET, self.get_text)
        for name in (*BEGIN, END):
            original = getattr(torch._C, name, None)
            if original is not None:
                replacement = self.ending(original) if name == END else self.beginning(original)
                for module in (torch._C, torch.cuda.memory):
                    if hasattr(module, name):
                        setattr(module, name, replacement)
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is not None:
            graph.capture_begin = self.capture_begin(torch, graph.capture_begin)
            graph.capture_end = self.capture_end(graph.capture_end)

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

    def beginning(self, original):
        @functools.wraps(original)
        def begin(device, pool):
            original(device, pool)
            harmlessly(self.enter, pool)

        return begin

    def ending(self, original):
        @functools.wraps(original)
        def end(device, pool):
            original(device, pool)
            harmlessly(self.leave, pool)

        return end

    def capture_begin(self, torch, original):
        @functools.wraps(original)
        def begin(graph, *arguments, **options):
            original(graph, *arguments, **options)
            harmlessly(self.capture_began, torch)

        return begin

    def capture_began(self, torch):
        self.thread.capture = time.time_ns() // 1000, torch.cuda.current_stream().cuda_stream, next(self.numbers)
        self.enter((CAPTURE, self.thread.capture[-1]))

    def capture_end(self, original):
        @functools.wraps(original)
        def end(graph, *arguments, **options):
            original(graph, *arguments, **options)
            harmlessly(self.capture_ended, graph)

        return end

    def capture_ended(self, graph):
        began, stream, number = self.thread.capture
        self.thread.capture = None
        self.leave((CAPTURE, number))
        self.captures.append((began, time.time_ns() // 1000, stream, number))
        self.pool_of[number] = tuple(graph.pool())

    # ---- afterwards ----

    def requested_from(self, entry):
        """The pool that the entry's request went to, None: the default one. The program's text is its own again."""
        marked = MARKED.fullmatch(entry.get("user_metadata") or "")
        if marked:
            entry["user_metadata"] = marked[1]
            number = int(marked[3])
            return self.pool_of.get(number) if marked[2] == CAPTURE else (int(marked[2]), number)
        for began, ended, stream, number in self.captures:
            if entry.get("stream") == stream and began - SLACK_US <= entry.get("time_us", 0) <= ended + SLACK_US:
                return self.pool_of[number]
        return None

    def complete(self, snapshot):
        """Names the pools of allocations and segments."""
        if not self.is_used:
            return
        for trace in snapshot.get("device_traces", ()):
            starts, pools = [], []  # of what is mapped, by address
            for entry in trace:
                pool, action, addr = self.requested_from(entry), entry["action"], entry.get("addr")
                if action in MADE:
                    at = bisect.bisect_left(starts, addr)
                    starts.insert(at, addr)
                    pools.insert(at, pool)
                elif action == "alloc" or action in GONE:
                    at = bisect.bisect_right(starts, addr) - 1
                    pool = pools[at] if at >= 0 else None
                    if action in GONE:
                        first = bisect.bisect_left(starts, addr)
                        last = bisect.bisect_left(starts, addr + entry["size"])
                        del starts[first:last], pools[first:last]
                else:
                    continue
                if pool is not None:
                    entry["pool_id"] = pool
