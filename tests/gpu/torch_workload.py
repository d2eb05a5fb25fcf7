#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program as users have them, for the tests beside it: it knows nothing of varve.

  torch_workload.py --model gpt2|llama|resnet50|vit|unet|generate|conv --steps N [--json FILE]

Weights and data are random, from the seed; nothing is fetched. The answer, one JSON object: losses as hexadecimal
floats (or the tokens generated), the time of each step after the warm-up, and what torch.cuda.memory_stats() says.
--deterministic makes two runs equal bit for bit, if the memory that they get does not matter. Prints "step N
ALLOCATIONS" as it goes.

--paced: after the warm-up each line N on stdin means N steps, and is answered by their seconds and allocations; ends
with stdin. So two programs can take turns on one GPU."""

import argparse
import atexit
import glob
import json
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch  # noqa: E402

STATS = ("num_device_alloc", "num_device_free", "num_alloc_retries", "num_ooms", "allocation.all.allocated",
         "reserved_bytes.all.peak", "allocated_bytes.all.peak", "active_bytes.all.peak", "segment.all.allocated",
         "reserved_bytes.all.allocated")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=tuple(MODELS), required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3, help="steps before the clock runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="where the answer goes (default: stdout)")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="toy sizes")
    parser.add_argument("--benchmark", action="store_true", help="cuDNN's search for the fastest algorithm")
    parser.add_argument("--history", help="record PyTorch's own memory history and dump it here")
    parser.add_argument("--link", nargs=2, metavar=("PATTERN", "FOLDER"),
                        help="files of that name get a second one in FOLDER when the process ends, after what was "
                             "registered later")
    parser.add_argument("--paced", action="store_true", help="steps on demand")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


class Training:
    """Forward, backward, AdamW; the same batch each step."""

    def __init__(self, model, loss_of):
        self.model, self.loss_of, self.losses = model.train(), loss_of, []
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.model)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def answer(self):
        return {"losses": [loss.hex() for loss in self.losses]}


def gpt2(arguments):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 2} if arguments.tiny else {}
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="eager", **sizes)).to(arguments.device)
    batch, length = (2, 32) if arguments.tiny else (8, 512)
    tokens = torch.randint(0, 50257, (batch, length), generator=torch.Generator().manual_seed(arguments.seed))
    tokens = tokens.to(arguments.device)
    return Training(model, lambda called: called(input_ids=tokens, labels=tokens).loss)


def resnet50(arguments):
    from torchvision.models import resnet50 as make

    model = make(weights=None).to(arguments.device)
    batch, size = (2, 64) if arguments.tiny else (32, 224)
    generator = torch.Generator().manual_seed(arguments.seed)
    images = torch.randn(batch, 3, size, size, generator=generator).to(arguments.device)
    labels = torch.randint(0, 1000, (batch,), generator=generator).to(arguments.device)
    return Training(model, lambda called: torch.nn.functional.cross_entropy(called(images), labels))


def bfloat16(arguments, model, inputs):
    """With operators in half the width, as trainings have them."""
    def loss_of(called):
        with torch.autocast(arguments.device, torch.bfloat16):
            return called(inputs).float().square().mean()

    return Training(model, loss_of)


def llama(arguments):
    from transformers import LlamaConfig, LlamaForCausalLM

    layers, hidden, batch, length = (2, 64, 2, 32) if arguments.tiny else (12, 1024, 8, 1024)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=hidden, intermediate_size=hidden * 11 // 4,
                                         num_hidden_layers=layers, num_attention_heads=hidden // 32,
                                         num_key_value_heads=hidden // 64, attn_implementation="eager"))
    model = model.to(arguments.device)
    tokens = torch.randint(0, 32000, (batch, length), generator=torch.Generator().manual_seed(arguments.seed))
    tokens = tokens.to(arguments.device)

    def loss_of(called):
        with torch.autocast(arguments.device, torch.bfloat16):
            return called(input_ids=tokens, labels=tokens).loss

    return Training(model, loss_of)


def vit(arguments):
    import timm

    model = timm.create_model("vit_tiny_patch16_224" if arguments.tiny else "vit_small_patch16_224")
    generator = torch.Generator().manual_seed(arguments.seed)
    images = torch.randn(2 if arguments.tiny else 256, 3, 224, 224, generator=generator).to(arguments.device)
    return bfloat16(arguments, model.to(arguments.device), images)


def unet_level(before, after):
    """Two convolutions."""
    return torch.nn.Sequential(*(layer for channels in (before, after) for layer in (
        torch.nn.Conv2d(channels, after, 3, padding=1), torch.nn.GroupNorm(8, after), torch.nn.SiLU())))


class UNet(torch.nn.Module):
    """Convolutions down to small images and up again, each level with what the way down had there."""

    def __init__(self, width, levels):
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.down = torch.nn.ModuleList(unet_level(before, after) for before, after in zip([3, *widths], widths))
        self.up = torch.nn.ModuleList(unet_level(before + after, after)
                                      for before, after in zip(widths[:0:-1], widths[-2::-1]))
        self.last = torch.nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for level in self.down:
            x = level(torch.nn.functional.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for level, beside in zip(self.up, kept[-2::-1]):
            x = level(torch.cat((torch.nn.functional.interpolate(x, scale_factor=2), beside), 1))
        return self.last(x)


def unet(arguments):
    model = UNet(*((8, 2) if arguments.tiny else (48, 4))).to(arguments.device)
    batch, size = (2, 32) if arguments.tiny else (8, 192)
    generator = torch.Generator().manual_seed(arguments.seed)
    return bfloat16(arguments, model, torch.randn(batch, 3, size, size, generator=generator).to(arguments.device))


def conv(arguments):
    """A few layers: what the other tests need a GPU program for."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    model = model.to(arguments.device)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(arguments.seed)).to(arguments.device)
    model(images)
    return Training(model, lambda called: called(images).square().mean())


class Generation:
    """Greedy decoding with a cache of keys and values: many small allocations, little work for the GPU."""

    def __init__(self, arguments):
        from transformers import LlamaConfig, LlamaForCausalLM

        layers, hidden, self.count = (2, 64, 8) if arguments.tiny else (8, 1024, 128)
        config = LlamaConfig(vocab_size=32000, hidden_size=hidden, intermediate_size=hidden * 11 // 4,
                             num_hidden_layers=layers, num_attention_heads=hidden // 64,
                             max_position_embeddings=1024, attn_implementation="eager")
        self.model = LlamaForCausalLM(config).to(arguments.device).eval()
        self.prompt = torch.randint(0, 32000, (1, 64), generator=torch.Generator().manual_seed(arguments.seed))
        self.prompt = self.prompt.to(arguments.device)
        self.tokens = []

    def step(self):
        with torch.no_grad():
            out = self.model.generate(self.prompt, attention_mask=torch.ones_like(self.prompt), do_sample=False,
                                      min_new_tokens=self.count, max_new_tokens=self.count, pad_token_id=0)
        self.tokens.append(out[0, self.prompt.shape[1]:].tolist())

    def answer(self):
        return {"tokens": self.tokens}


MODELS = {"gpt2": gpt2, "llama": llama, "resnet50": resnet50, "vit": vit, "unet": unet, "generate": Generation,
          "conv": conv}


def allocations(is_cuda):
    return torch.cuda.memory_stats()["allocation.all.allocated"] if is_cuda else 0


def step(work, number, is_cuda):
    """One step by the clock, the GPU's work included."""
    if is_cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work.step()
    if is_cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print("step", number, allocations(is_cuda), flush=True)
    return seconds


def all_steps(arguments, work, is_cuda):
    times = [step(work, number, is_cuda) for number in range(arguments.warmup if arguments.paced else arguments.steps)]
    if not arguments.paced:
        return times[arguments.warmup:]
    print("ready", flush=True)
    for line in sys.stdin:
        before = allocations(is_cuda)
        block = [step(work, len(times) + number, is_cuda) for number in range(int(line))]
        print("block", sum(block), allocations(is_cuda) - before, flush=True)
        times += block
    return times[arguments.warmup:]


def run(arguments, kept):
    is_cuda = arguments.device == "cuda"
    if arguments.deterministic:
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = arguments.benchmark
    torch.manual_seed(arguments.seed)
    if arguments.history:
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python")
    work = MODELS[arguments.model](arguments)
    kept.append(work)
    times = all_steps(arguments, work, is_cuda)
    answer = {"model": arguments.model, "steps": len(times) + arguments.warmup, "torch": torch.__version__,
              "pid": os.getpid(), "step_seconds": times, "benchmark": torch.backends.cudnn.benchmark, **work.answer()}
    if is_cuda:
        stats = torch.cuda.memory_stats()
        answer.update({key: stats[key] for key in STATS}, backend=torch.cuda.get_allocator_backend(),
                      device_name=torch.cuda.get_device_name())
    if arguments.history:
        torch.cuda.memory._dump_snapshot(arguments.history)
    return answer


def link(pattern, folder):
    for path in glob.glob(pattern):
        os.link(path, os.path.join(folder, os.path.basename(path)))


def main():
    arguments = parse()
    if arguments.link:
        atexit.register(link, *arguments.link)
    kept = []  # until the process ends: what it frees before is in the answer
    answer = json.dumps(run(arguments, kept))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            stream.write(answer)
    else:
        print(answer)
    sys.exit(0)


if __name__ == "__main__":
    main()
