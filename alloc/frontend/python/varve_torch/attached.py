# SPDX-License-Identifier: Apache-2.0
"""`varve attach --torch`: PyTorch's own history from now on, in a process that runs already. The recorder's thread runs
this, with the interpreter's lock, and waits here for the end, without it. Then all is as it was.

The collector has the FIFO torch.ask of the recording directory, and its end ends this, too; answers are the file
torch.answer there. While somebody watches, each byte in the FIFO asks for the memory as it is, torch.now.pickle. A
history of some 100,000 events takes Python a second to make and to write, in which nobody else runs: PyTorch writes it
itself, and what is missing in it another process adds."""

import atexit
import os
import pickle
import subprocess
import sys
import time

from .backward_stack import start as publish_stacks
from .messages import say, unrecorded_environment
from .native_library import Library
from .observe import Observer, keeps_history
from .snapshot_tables import PICKLE_PROTOCOL
from .versions import snapshot_alone

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPLETE = "import sys; sys.path.insert(0, sys.argv[1]); from varve_torch.backward_passes import complete_file; " \
           "complete_file(*sys.argv[2:])"


LOCK_SHARE = 50  # times what a snapshot takes of the interpreter's lock pass before the next one


class Attached(Observer):
    def __init__(self, torch, variables):
        super().__init__(torch)
        self.variables = variables
        self.is_theirs = False  # the program keeps a history itself, which stays as it is
        self.next_show = 0

    def prefix(self):
        return self.variables["VARVE_TORCH_HISTORY"]

    def watch(self):
        super().watch()
        publish_stacks(self.torch, self.replaced.set)

    def record(self, what):
        is_on = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        self.is_theirs = self.is_theirs or (what is not None and is_on is not None and is_on())
        if not self.is_theirs:
            super().record(what)

    def program_changes(self):
        self.is_theirs = True

    def state(self):
        return "waits" if self.owner is None else "theirs" if self.is_theirs else "on"

    def show(self, path):
        """Nobody waits for it, and what can't be shown is left out."""
        began = time.thread_time()
        if self.owner != os.getpid() or time.monotonic() < self.next_show:
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
        is_on = self.owner == os.getpid()
        atexit.unregister(self.write)
        self.write()
        if is_on:
            self.record(None)
        self.replaced.undo()

    def store(self, path):
        if Library(self.variables["VARVE_TORCH_LIBRARY"]).write_history(os.fsencode(path)) != 0:
            super().store(path)
        elif self.passes.passes:
            self.complete_elsewhere(path)

    def complete_elsewhere(self, path):
        """By the same Python. A program that brings its interpreter has none."""
        passes = path + ".passes"
        with open(passes, "wb") as stream:
            pickle.dump(self.passes.passes, stream)
        try:
            subprocess.run([sys.executable or "python3", "-I", "-c", COMPLETE, PACKAGES, path, passes],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
                           env=unrecorded_environment())
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"what backward() allocates has no Python line: {error}")
        finally:
            os.unlink(passes)


class Collector:
    def __init__(self, session):
        self.ask, self.answer_path = os.path.join(session, "torch.ask"), os.path.join(session, "torch.answer")
        self.now_path = os.path.join(session, "torch.now.pickle")

    def answer(self, text):
        try:
            with open(self.answer_path + ".tmp", "w", encoding="utf-8") as stream:
                stream.write(text)
            os.rename(self.answer_path + ".tmp", self.answer_path)
        except OSError:  # nobody is there to read it
            pass

    def requests(self):
        """To the end, or that of the collector, which may have come already."""
        descriptor = os.open(self.ask, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.set_blocking(descriptor, True)
            yield from iter(lambda: os.read(descriptor, 1), b"")
        finally:
            os.close(descriptor)


def run(session, variables):
    collector = Collector(session)
    try:
        torch = sys.modules.get("torch")
        if not hasattr(torch, "_C") or not hasattr(torch, "cuda") or not keeps_history(torch):
            collector.answer("absent")
            return
        attached = Attached(torch, variables)
        try:
            attached.watch()
            collector.answer("begun")
            for _ in collector.requests():
                attached.show(collector.now_path)
        finally:
            state = attached.state()
            attached.end()
        collector.answer(f"ended {state}")
    except Exception as error:
        collector.answer(f"failed: {type(error).__name__}: {error}")
