#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training that runs until a file "quit" lies in the folder given, or for the number of steps given. Each step begins
with a tensor of a size that no other has, by which the step is found in a history, and notes the allocator's figures.
The answer is answer.json of the folder."""

import json
import os
import sys
import time

import torch
from torch import nn

FOLDER, STEPS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
MARK = 100_000  # bytes of the first step's


def state():
    return {"is_recording": torch._C._cuda_isHistoryEnabled(), "threads": len(os.listdir("/proc/self/task")),
            "init": torch._C._cuda_init.__module__, "backward": torch.autograd.graph._engine_run_backward.__module__,
            "kept": sum(map(len, torch.cuda.memory._snapshot()["device_traces"]))}


def main():
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True, warn_only=True)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps, number, before = [], 0, None
    while number < STEPS if STEPS is not None else not os.path.exists(os.path.join(FOLDER, "quit")):
        began = time.perf_counter()
        mark = torch.empty(MARK + number, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        figures = [stats[name] for name in ("allocation.all.allocated", "requested_bytes.all.current",
                                            "reserved_bytes.all.current")]
        del mark
        batch = torch.randn(8 + number % 5, 64, 256, device="cuda")
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append([loss.item().hex(), *figures, time.perf_counter() - began])
        number += 1
        if number == 20:
            before = state()
            print("ready", flush=True)
    with open(os.path.join(FOLDER, "answer.json"), "w", encoding="utf-8") as stream:
        json.dump({"steps": steps, "before": before, "after": state()}, stream)


main()
