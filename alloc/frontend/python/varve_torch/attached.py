# SPDX-License-Identifier: Apache-2.0
"""`varve attach --torch`: PyTorch's own history from now on, in a process that runs already. The recorder's thread runs
this, with the interpreter's lock, and waits here for the end, without it. Then all is as it was.

All files are those of the recording directory (format/attach_format.h). Its FIFO torch.ask is the collector's, whose
end ends this, too; answers are the file torch.answer. While somebody watches, each byte in the FIFO asks for the memory
as it is, torch.now.pickle. A history of some 100,000 events takes Python a second to make and to write, in which nobody
else runs: so PyTorch writes it itself, and what is missing in it, the lines of backward passes, the collector adds."""

import atexit
import collections
import os
import pickle
import sys
import threading
import time

from .backward_stack import start as publish_stacks
from .native_library import Library
from .observe import Observer, keeps_history
from .snapshot_tables import PICKLE_PROTOCOL
from .versions import snapshot_alone

ENTRIES_MAX = 1_000_000  # of the history, then the first ones go: some 500 MB of the program's memory
PASSES_MAX = 100_000  # backward passes: more than a history of so many entries has
LOCK_SHARE = 50  # times what a snapshot takes of the interpreter's lock pass before the next one
UNWRITTEN = 1  # the library's answer: this PyTorch can't write its history


class Attached(Observer):
    entries_max = ENTRIES_MAX

    def __init__(self, torch, session, variables):
        super().__init__(torch)
        self.session, self.variables, self.pid = session, variables, os.getpid()
        self.changing, self.writing = threading.Lock(), threading.Lock()
        self.is_over = self.is_written = False
        self.is_on = self.is_theirs = False  # theirs: the program keeps a history itself, which stays as it is
        self.passes.is_live = self.is_live
        self.passes.passes = collections.deque(maxlen=PASSES_MAX)
        self.next_show = 0

    def file(self, name):
        return os.path.join(self.session, name)

    def is_live(self):
        """Fork children inherit what is replaced, and others may have replaced it since."""
        return not self.is_over and os.getpid() == self.pid

    def watch(self):
        super().watch()
        publish_stacks(self.torch, self.replaced.set, self.variables.get("VARVE_RECORDER"))

    def cuda_has_started(self):
        if not self.is_live():
            return
        with self.changing:
            if not self.is_over and not self.is_on:
                is_kept = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
                self.is_theirs = is_kept is not None and is_kept()
                if not self.is_theirs:
                    self.record("all")
                self.is_on = True
                atexit.register(self.write)

    def program_changes(self):
        self.is_theirs = True

    def state(self):
        return "waits" if not self.is_on else "theirs" if self.is_theirs else "on"

    def show(self):
        """Nobody waits for it, and what can't be shown is left out."""
        began, path = time.thread_time(), self.file("torch.now.pickle")
        if not self.is_on or time.monotonic() < self.next_show:
            return
        try:
            snapshot = snapshot_alone(self.torch)
            with open(path + ".tmp", "wb") as stream:
                stream.write(b"" if snapshot is None else pickle.dumps(snapshot, PICKLE_PROTOCOL))
            os.rename(path + ".tmp", path)
        except Exception:
            pass
        self.next_show = time.monotonic() + LOCK_SHARE * (time.thread_time() - began)

    def end(self):
        with self.changing:
            self.is_over = True
        try:
            self.write()
        finally:
            atexit.unregister(self.write)
            try:
                if self.is_on and not self.is_theirs:
                    self.record(None)
            finally:
                self.replaced.undo()

    def write(self):
        """Once: by the end of the recording, or by that of the process, which waits for the other. A fork child may
        have inherited a lock that nobody lets go of."""
        if os.getpid() != self.pid:
            return
        with self.writing:
            if self.is_on and not self.is_written:
                self.is_written = True
                path = self.file("torch.pickle")
                self.store(path + ".tmp")
                os.rename(path + ".tmp", path)

    def store(self, path):
        try:
            result = Library(self.variables["VARVE_TORCH_LIBRARY"]).write_history(os.fsencode(path))
        except (OSError, RuntimeError, AttributeError):  # it can't be loaded here
            result = UNWRITTEN
        if result == UNWRITTEN:
            super().store(path)
        elif result != 0:
            raise OSError("it could not be written")
        elif self.passes.passes:
            with open(self.file("torch.passes"), "wb") as stream:
                pickle.dump(list(self.passes.passes), stream)


class Collector:
    def __init__(self, session):
        self.answer_path = os.path.join(session, "torch.answer")
        self.descriptor = os.open(os.path.join(session, "torch.ask"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def answer(self, text):
        try:
            with open(self.answer_path + ".tmp", "w", encoding="utf-8") as stream:
                stream.write(text)
            os.rename(self.answer_path + ".tmp", self.answer_path)
        except OSError:  # nobody is there to read it
            pass

    def requests(self):
        """To the end, or that of the collector, which may have come already."""
        os.set_blocking(self.descriptor, True)
        yield from iter(lambda: os.read(self.descriptor, 1), b"")


def keep_history(torch, collector, session, variables):
    attached = Attached(torch, session, variables)
    try:
        attached.watch()
        collector.answer("begun")
        for _ in collector.requests():
            attached.show()
    finally:
        collector.answer("writing")
        attached.end()
    collector.answer(f"ended {attached.state()}")


def run(session, variables):
    try:
        collector = Collector(session)
    except OSError:  # its recording is over
        return
    try:
        torch = sys.modules.get("torch")
        if hasattr(torch, "_C") and hasattr(torch, "cuda") and keeps_history(torch):
            keep_history(torch, collector, session, variables)
        else:
            collector.answer("absent")
    except Exception as error:
        collector.answer(f"failed: {type(error).__name__}: {error}")
    finally:
        os.close(collector.descriptor)
