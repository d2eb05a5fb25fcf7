# SPDX-License-Identifier: Apache-2.0
"""A training of the fake torch that runs until a file "quit" lies in the folder given: what of it is asked for of the
allocator, in which state PyTorch is at the end, and how many snapshots without a history there were, as JSON. Whenever
its history is kept it does STEPS steps, and says so. Further arguments may say that CUDA starts with a file "cuda",
that the program keeps the history itself, or that it allocates in backward()."""

import json
import os
import sys
import threading
import time

import torch

FOLDER, MODES = sys.argv[1], sys.argv[2:]
STEPS = 100
log = []


def is_there(name):
    return os.path.exists(os.path.join(FOLDER, name))


def state():
    threads = len(os.listdir("/proc/self/task"))
    return {"names": sorted(vars(torch._C)), "init": torch._C._cuda_init.__module__,
            "backward": hasattr(torch.autograd._engine_run_backward, "__wrapped__"), "threads": threads,
            "is_recording": torch.cuda.is_initialized() and torch._C._cuda_isHistoryEnabled()}


def take(size):
    address = torch.cuda.memory.caching_allocator_alloc(size)
    log.append(("alloc", address, size))
    return address


def step(number, live):
    live.append(take(512 + number % 7))
    if "backward" in MODES:
        torch.autograd.backward(in_backward, live)
    if len(live) > 20:
        address = live.pop(0)
        size = torch._C.blocks[address][0]
        torch.cuda.memory.caching_allocator_delete(address)
        log.extend((action, address, size) for action in ("free_requested", "free_completed"))
    time.sleep(0.0005)


def in_backward(live):
    """In a thread of the engine's, of which Python has no frames."""
    frames, torch._C.frames = torch._C.frames, []
    thread = threading.Thread(target=lambda: live.append(take(4096)))
    thread.start()
    thread.join()
    torch._C.frames = frames


def main():
    before, live, number = state(), [], 0
    if "late" not in MODES:
        take(64)
    if "theirs" in MODES:
        torch.cuda.memory._record_memory_history("all")
    print("ready", flush=True)
    while not is_there("quit"):
        if is_there("cuda"):
            torch.cuda.current_device()
        number *= torch._C.is_recording
        if torch._C.is_recording and number < STEPS:
            step(number, live)
            number += 1
            if number == STEPS:
                print("stepped", flush=True)
        else:
            time.sleep(0.01)
    alone = sum(call[0] == "_cuda_memorySnapshot" and call[1] != (None,) for call in torch._C.calls)
    print(json.dumps({"log": log, "before": before, "after": state(), "alone": alone}))


main()
