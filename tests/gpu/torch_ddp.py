#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small training on several GPUs, one process each, as torchrun starts them: RANK and LOCAL_RANK say which. The
argument is a folder; rank N leaves N.json there."""

import json
import os
import sys

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.distributed.init_process_group("nccl")
torch.manual_seed(1)
size = 512 << rank  # ranks differ, so that their tables can be kept apart
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                                    torch.nn.Linear(512, 8)).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(5):
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.randn(size, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
with open(os.path.join(sys.argv[1], f"{rank}.json"), "w", encoding="utf-8") as stream:
    json.dump({"rank": rank, "pid": os.getpid(), "device": local, "loss": loss.item().hex(),
               "backend": torch.cuda.get_allocator_backend(), "allocations": stats["allocation.all.allocated"],
               "reserved": stats["reserved_bytes.all.peak"], "num_device_alloc": stats["num_device_alloc"]}, stream)
torch.distributed.destroy_process_group()
