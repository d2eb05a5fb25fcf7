# SPDX-License-Identifier: Apache-2.0
"""Trainings whose history PyTorch records: gpt2, resnet50 and vit, with inputs of varying sizes.

    torch_trainings.py MODEL OUT [--limit BYTES]

writes OUT.pickle, a snapshot with all events from the first allocation on, and OUT.json with the figures of
torch.cuda.memory_stats(). Settings come from PYTORCH_ALLOC_CONF. What is asked of the allocator is the same in each
run: seeds are fixed, and no library measures which of its algorithms is fastest. """
import argparse
import json
import os
import sys

import torch

STEPS = 12


def gpt2(device):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=8, attn_implementation="eager")).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        length = 256 + 64 * (step * 7 % 11)
        tokens = torch.randint(0, 50257, (4 + step % 3, length), generator=generator).to(device)
        yield lambda: model(input_ids=tokens, labels=tokens).loss, optimizer


def resnet50(device):
    import torchvision

    model = torchvision.models.resnet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(2)
    for step in range(STEPS):
        size = 160 + 32 * (step * 5 % 4)
        images = torch.randn(16 + 8 * (step % 3), 3, size, size, generator=generator).to(device)
        yield lambda: model(images).square().mean(), optimizer


def vit(device):
    import timm

    model = timm.create_model("vit_small_patch16_224", dynamic_img_size=True).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        size = 128 + 32 * (step * 5 % 6)
        images = torch.randn(24 + 8 * (step % 4), 3, size, size, generator=generator).to(device)

        def forward():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return model(images).square().mean()

        yield forward, optimizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["gpt2", "resnet50", "vit"])
    parser.add_argument("out")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=1 << 22)
    total = torch.cuda.get_device_properties(0).total_memory
    if options.limit:
        torch.cuda.set_per_process_memory_fraction((options.limit + 0.5) / total)
    failed = None
    try:
        for forward, optimizer in globals()[options.model](torch.device("cuda")):
            forward().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError as error:
        failed = str(error)
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(options.out + ".pickle")
    with open(options.out + ".json", "w") as file:
        json.dump({"failed": failed, "total_memory": total, "memory_limit": options.limit,
                   "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF", ""), "memory_stats": stats}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
