# SPDX-License-Identifier: Apache-2.0
"""VARVE_TORCH_ON_OOM: a request for GPU memory has failed. The memory as it is at that moment goes into
oom.PID.N.pickle of that folder, a snapshot with the failed request as its only event; what `varve oom` says of it into
oom.PID.N.txt beside it, by a process that nobody waits for. Nothing happens before. A program that goes on, and fails
again and again, leaves the first few."""

import itertools
import os
import pickle
import subprocess
import sys
import time

from .backward_passes import frames_of
from .messages import say
from .snapshot_tables import PICKLE_PROTOCOL
from .versions import snapshot_alone

FILES_MAX = 8
OURS = ("LD_PRELOAD", "VARVE_", "CUDA_INJECTION64_PATH", "PYTHONPATH")  # of the environment
UNRECORDED = "VARVE_UNRECORDED"  # trace/format/session_format.h: a program that is not missed in the recording


class OnOom:
    def __init__(self, torch, folder, command):
        self.torch, self.folder, self.command = torch, folder, command
        self.numbers = itertools.count(1)

    def begin(self):
        if self.torch.cuda.is_initialized():
            self.attach()
            return
        original = self.torch._C._cuda_init

        def init(*arguments):
            result = original(*arguments)
            self.attach()
            return result

        self.torch._C._cuda_init = init

    def attach(self):
        try:
            self.torch._C._cuda_attach_out_of_memory_observer(self.failed)
        except Exception as error:
            say(f"nothing will be written when memory is out: {type(error).__name__}: {error}")

    def failed(self, device, requested, _limit, free):
        number = next(self.numbers)
        if number > FILES_MAX:
            return
        try:
            self.write(number, device, requested, free, sys._getframe().f_back)
        except Exception as error:
            say(f"the state of the memory is not written: {type(error).__name__}: {error}")

    def write(self, number, device, requested, free, frame):
        """`frame`: of who asked; a thread of PyTorch's own has none."""
        path = os.path.join(self.folder, f"oom.{os.getpid()}.{number}")
        snapshot = snapshot_alone(self.torch) or self.torch.cuda.memory._snapshot()
        traces = [[] for _ in range(max(device + 1, len(snapshot["device_traces"])))]
        traces[device] = [{"action": "oom", "device_free": free, "size": requested, "stream": 0,
                           "time_us": time.time_ns() // 1000, "frames": frames_of(frame)}]
        with open(path + ".tmp", "wb") as stream:
            pickle.dump({**snapshot, "device_traces": traces}, stream, protocol=PICKLE_PROTOCOL)
        os.rename(path + ".tmp", path + ".pickle")
        say(f"out of GPU memory: {path}.pickle has its state; varve oom {path}.pickle")
        self.explain(path)

    def explain(self, path):
        """The shell is gone at once, and what it has started is nobody's child here."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        subprocess.run(["/bin/sh", "-c", '"$1" oom "$2.pickle" >"$2.txt" 2>&1 &', "sh", self.command, path],
                       stdin=subprocess.DEVNULL, env={**environment, UNRECORDED: "1"}, close_fds=True, check=False)


def start(torch):
    folder, command = os.environ.get("VARVE_TORCH_ON_OOM"), os.environ.get("VARVE_TORCH_COMMAND")
    if folder and command and hasattr(torch._C, "_cuda_attach_out_of_memory_observer"):
        OnOom(torch, folder, command).begin()
