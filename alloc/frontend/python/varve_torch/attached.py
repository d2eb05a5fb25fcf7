# SPDX-License-Identifier: Apache-2.0
"""`varve attach --torch`: PyTorch's own history from now on, in a process that runs already. The recorder's thread runs
this, with the interpreter's lock, and waits here for the end, without it. Then all is as it was.

The collector writes into the FIFO torch.ask of the recording directory, and its end ends this, too; answers are the
file torch.answer there. A history of some 100,000 events takes Python a second to make and to write, in which nobody
else runs: PyTorch writes it itself, and what is missing in it another process adds."""

import atexit
import os
import pickle
import subprocess
import sys

from .backward_stack import start as publish_stacks
from .messages import say, unrecorded_environment
from .native_library import Library
from .observe import Observer, keeps_history

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPLETE = "import sys; sys.path.insert(0, sys.argv[1]); from varve_torch.backward_passes import complete_file; " \
           "complete_file(*sys.argv[2:])"


class Attached(Observer):
    def __init__(self, torch, variables):
        super().__init__(torch)
        self.variables = variables
        self.is_theirs = False  # the program keeps a history itself, which stays as it is

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

    def answer(self, text):
        try:
            with open(self.answer_path + ".tmp", "w", encoding="utf-8") as stream:
                stream.write(text)
            os.rename(self.answer_path + ".tmp", self.answer_path)
        except OSError:  # nobody is there to read it
            pass

    def wait_for_end(self):
        """Or for the end of the collector, which may have come already."""
        descriptor = os.open(self.ask, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.set_blocking(descriptor, True)
            os.read(descriptor, 1)
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
            collector.wait_for_end()
        finally:
            state = attached.state()
            attached.end()
        collector.answer(f"ended {state}")
    except Exception as error:
        collector.answer(f"failed: {type(error).__name__}: {error}")
