# SPDX-License-Identifier: Apache-2.0
"""The Python line of what backward() allocates, in the history that PyTorch keeps itself: an entry of the threads that
run a backward pass has the frames of Python that the pass calls, or none. When each pass was, and who waited for it, is
noted, and entries of that time that have no beginning of their own get the frames of who waited."""

import bisect
import os
import pickle
import sys
import threading
import time

from .backward_stack import THREAD_CODE, surround
from .snapshot_tables import PICKLE_PROTOCOL

SKIPPED_FRAMES = 2  # begin() below and its caller, innermost
SLACK_US = 50  # between PyTorch's clock, which it derives from the processor's, and the system's


def frames_of(frame):
    """Innermost first, as a snapshot has them."""
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append({"filename": code.co_filename, "name": code.co_name, "line": frame.f_lineno or 0})
        frame = frame.f_back
    return frames


class BackwardPasses:
    def __init__(self):
        self.passes = []  # (began, ended, in microseconds; frames)
        self.thread = threading.local()
        self.stacks = {}
        self.is_live = lambda: True

    def start(self, torch, replace=setattr):
        surround(torch, self.begin, self.end, replace)

    def begin(self):
        if not self.is_live():
            return
        depth = self.thread.depth = getattr(self.thread, "depth", 0) + 1
        if depth == 1:  # a pass within a pass is the outer one's
            self.thread.began_us = time.time_ns() // 1000
            frames = frames_of(sys._getframe(SKIPPED_FRAMES))
            key = tuple((frame["filename"], frame["line"]) for frame in frames)
            self.thread.frames = self.stacks.setdefault(key, frames)

    def end(self):
        if not self.is_live():
            return
        self.thread.depth -= 1
        if self.thread.depth == 0:
            self.passes.append((self.thread.began_us, time.time_ns() // 1000, self.thread.frames))

    def who_waited(self):
        """Frames by moment, None where nobody waited or several did."""
        passes, until = sorted(self.passes, key=lambda one: one[0]), float("-inf")
        begins, ends = [], []  # of each pass: from when on, and until when it is the only one
        for began, ended, _ in passes:
            slack = min(SLACK_US, max(0, (began - until) / 2))
            if ends:
                ends[-1] = min(ends[-1], began - slack)
            begins.append(max(began - slack, until))
            ends.append(ended + SLACK_US)
            until = max(until, ended)

        def frames_at(moment):
            at = bisect.bisect_right(begins, moment) - 1
            return passes[at][2] if at >= 0 and moment <= ends[at] else None

        return frames_at

    def complete(self, snapshot):
        """Appends frames to entries of the traces."""
        if not self.passes:
            return
        frames_at, longer = self.who_waited(), {}
        for entry in (entry for trace in snapshot.get("device_traces", ()) for entry in trace):
            frames = entry.get("frames")
            outside = frames_at(entry["time_us"]) if "time_us" in entry and frames is not None else None
            if outside and not has_beginning(frames, outside):
                key = id(frames), id(outside)  # many entries share one list
                entry["frames"] = longer.setdefault(key, (frames, frames + outside))[1]


def has_beginning(frames, outside):
    """Is it of a thread that Python has started, or of the one that waits?"""
    if not frames:
        return False
    name, file = frames[-1].get("name"), frames[-1].get("filename")
    return (name, file) in ((THREAD_CODE.co_name, THREAD_CODE.co_filename),
                            (outside[-1]["name"], outside[-1]["filename"]))


def complete_file(path, passes):
    """The same of a snapshot that is a file, and of passes that are another."""
    backward = BackwardPasses()
    with open(passes, "rb") as stream:
        backward.passes = pickle.load(stream)
    with open(path, "rb") as stream:
        snapshot = pickle.load(stream)
    backward.complete(snapshot)
    with open(path + ".new", "wb") as stream:
        pickle.dump(snapshot, stream, protocol=PICKLE_PROTOCOL)
    os.rename(path + ".new", path)
