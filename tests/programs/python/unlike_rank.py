# SPDX-License-Identifier: Apache-2.0
"""Ranks of a made-up training on the GPU, with the torch that is there. Arguments: how many ranks, how many steps, and
which of them keeps a block in each step (-1: none). Without RANK it starts them, and they go through their steps
together."""

import os
import subprocess
import sys

MIB = 1 << 20


def launch(ranks, steps):
    """Their exit statuses."""
    running = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)},
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(ranks)]
    for _ in range(steps):
        for process in running:
            process.stdout.read(1)
        for process in running:
            process.stdin.write(b".")
            process.stdin.flush()
    return [process.wait() for process in running]


def wait_for_others():
    sys.stdout.write(".")
    sys.stdout.flush()
    sys.stdin.read(1)


def weights(memory):
    return [memory.caching_allocator_alloc(4 * MIB) for _ in range(4)]


def forward(memory, rank, step):
    return [memory.caching_allocator_alloc((2 + step % 3) * MIB + 512 * (rank + 1)) for _ in range(6)]


def keep_for_debugging(memory):
    return memory.caching_allocator_alloc(3 * MIB)  # kept: by the rank that is unlike the others


def load_data(memory):
    """In a worker: a process of the same rank."""
    for _ in range(5):
        memory.caching_allocator_delete(memory.caching_allocator_alloc(MIB))


def train(rank, steps, unlike):
    import torch
    memory = torch.cuda.memory
    if "WORKER" in os.environ:
        load_data(memory)
        return
    if rank == 0:
        subprocess.run([sys.executable, *sys.argv], env={**os.environ, "WORKER": "1"}, check=True,
                       stdin=subprocess.DEVNULL)
    kept = weights(memory)
    for step in range(steps):
        wait_for_others()
        activations = forward(memory, rank, step)
        if rank == unlike:
            kept.append(keep_for_debugging(memory))
        for address in activations:
            memory.caching_allocator_delete(address)


if "RANK" in os.environ:
    train(int(os.environ["RANK"]), int(sys.argv[2]), int(sys.argv[3]))
else:
    sys.exit(max(launch(int(sys.argv[1]), int(sys.argv[2]))))
