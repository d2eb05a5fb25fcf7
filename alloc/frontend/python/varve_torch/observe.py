# SPDX-License-Identifier: Apache-2.0
"""VARVE_TORCH=observe: PyTorch's own history of its own allocator, switched on in the moment in which CUDA has started
(before that PyTorch has no allocators whose history could be kept, and asking would start CUDA), and written to
$VARVE_TORCH_HISTORY.PID.pickle when the process ends. `varve record` makes tables of it afterwards."""

import atexit
import os
import pickle
import sys
import threading

from .backward_passes import BackwardPasses
from .messages import say
from .pool_contexts import PoolContexts
from .replacements import Replacements
from .snapshot_tables import PICKLE_PROTOCOL

RECORD, RECORD_LEGACY = "_cuda_record_memory_history", "_cuda_record_memory_history_legacy"


def keeps_history(torch):
    return hasattr(torch._C, "_cuda_init") and hasattr(torch._C, RECORD)


class Observer:
    entries_max = sys.maxsize

    def __init__(self, torch):
        self.torch = torch
        self.owner = None  # pid of the process whose history is on
        self.mine = None  # the thread that changes the history for us
        self.replaced = Replacements()
        self.passes = BackwardPasses()
        self.pools = PoolContexts()

    def prefix(self):
        return os.environ.get("VARVE_TORCH_HISTORY") or os.path.join(os.environ["VARVE_SESSION"], "torch")

    def replace(self, name, make):
        original = getattr(self.torch._C, name, None)
        if original is not None:
            self.replaced.set(self.torch._C, name, make(original))

    def begin(self):
        self.pools.start(self.torch)
        if self.torch.cuda.is_initialized():
            say("CUDA had started before varve saw it: PyTorch's history lacks its first events")
        self.watch()

    def watch(self):
        self.passes.start(self.torch, self.replaced.set)
        self.replace("_cuda_init", self.started_by)
        self.replace(RECORD, self.changed_by)
        self.replace(RECORD_LEGACY, self.changed_by)
        if self.torch.cuda.is_initialized():
            self.cuda_has_started()

    def started_by(self, original):
        def init(*arguments):
            result = original(*arguments)
            try:
                self.cuda_has_started()
            except Exception as error:
                say(f"PyTorch's history can't be recorded: {type(error).__name__}: {error}")
            return result

        return init

    def changed_by(self, original):
        """The program records, too, or stops it: its word counts."""

        def record(*arguments, **options):
            if self.mine != threading.get_ident():
                self.program_changes()
            return original(*arguments, **options)

        return record

    def program_changes(self):
        say("the program changes PyTorch's memory history: from there on the trace has what the program asked for")

    def record(self, what):
        self.mine = threading.get_ident()
        try:
            self.torch.cuda.memory._record_memory_history(what, context="alloc", stacks="python",
                                                          max_entries=self.entries_max)
        finally:
            self.mine = None

    def cuda_has_started(self):
        if self.owner == os.getpid():
            return
        self.record("all")
        self.owner = os.getpid()
        atexit.register(self.write)
        # A child that multiprocessing has forked ends without atexit, but runs these.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.write, exitpriority=0)

    def write(self):
        if self.owner != os.getpid():
            return
        self.owner = None
        temporary = None
        try:
            path = f"{self.prefix()}.{os.getpid()}.pickle"
            temporary = path + ".tmp"
            self.store(temporary)
            os.rename(temporary, path)
        except Exception as error:
            say(f"PyTorch's history of process {os.getpid()} is lost: {type(error).__name__}: {error}")
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)

    def store(self, path):
        snapshot = self.pools.own_snapshot(self.torch)
        self.passes.complete(snapshot)
        with open(path, "wb") as stream:
            pickle.dump(snapshot, stream, protocol=PICKLE_PROTOCOL)


observer = None


def start(torch):
    global observer
    if not keeps_history(torch):
        say("this PyTorch is built without CUDA, or keeps no history of its allocator; --torch=observe has nothing "
            "to do")
        return
    observer = Observer(torch)
    observer.begin()
