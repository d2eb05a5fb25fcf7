# SPDX-License-Identifier: Apache-2.0
"""A random program on PyTorch's own allocator, drawn from a seed, whose history is recorded:

    torch_histories.py SEED OUT [--share SHARE] [--observed]

It trains, generates, captures graphs, changes streams and threads, uses pools, runs out of memory and goes on, in an
order and with sizes of the seed's. SHARE sets a memory limit, by what the same takes without one: 0 is what was
allocated at most, 1 what was reserved; below 0 some requests must fail, between 0 and 1 some are served again only
after cached memory was given back. With --observed somebody else switches PyTorch's history on.

Writes OUT.pickle, a snapshot with all events from the first allocation on, and OUT.json: what was done, what failed,
the limit, and torch.cuda.memory_stats(). What no snapshot tells and no replay can know is left out: settings that
change while it runs, pools that serve others' failures or never split. After a capture that failed PyTorch takes it to
be underway for ever, and ends the process when a MemPool goes: pools stay then."""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import random
import threading
import traceback

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"
MIB = 1 << 20
EVENTS_MAX = 1 << 22
HELD_MAX = 40
ERRORS_MAX = 3
PEAKS = ("allocated", "reserved")


class Mlp(nn.Module):
    """For inputs of any number of rows."""

    def __init__(self, draw):
        super().__init__()
        self.width = draw.choice((64, 200, 512, 1000, 2048))
        self.layers = nn.ModuleList(nn.Linear(self.width, self.width) for _ in range(draw.randint(2, 6)))

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x

    def inputs(self, draw):
        return torch.randn(draw.randint(16, 1500), self.width, device=DEVICE)


class Convolutions(nn.Module):
    """For images of any number and size."""

    def __init__(self, draw):
        super().__init__()
        width = draw.choice((16, 24, 48, 96))
        widths = [3, *(width * (1 + number) for number in range(draw.randint(2, 4)))]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(before, after, 3, draw.choice((1, 2)), 1), nn.BatchNorm2d(after), nn.ReLU())
            for before, after in zip(widths, widths[1:]))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.mean((2, 3))

    def inputs(self, draw):
        size = 16 * draw.randint(2, 8)
        return torch.randn(draw.randint(2, 24), 3, size, size, device=DEVICE)


class Transformer(nn.Module):
    """For sequences of any number and length."""

    def __init__(self, draw):
        super().__init__()
        self.tokens, width = draw.randint(500, 20_000), draw.choice((64, 128, 256, 512))
        self.embedding = nn.Embedding(self.tokens, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, draw.choice((2, 4, 8)), 4 * width, dropout=draw.choice((0.0, 0.1)),
                                       batch_first=True) for _ in range(draw.randint(1, 4)))
        self.head = nn.Linear(width, self.tokens)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def inputs(self, draw):
        return torch.randint(self.tokens, (draw.randint(1, 8), draw.randint(8, 300)), device=DEVICE)


MODELS = (Mlp, Convolutions, Transformer)


class Program:
    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.held, self.pools, self.graphs, self.models = [], [], [], []
        self.acts, self.errors, self.failures = [], [], 0
        self.lock = threading.Lock()

    # ---- what the acts share ----

    def has(self, probability):
        return self.draw.random() < probability

    @staticmethod
    def bytes_of(draw):
        """From a few bytes to some 100 MiB, small ones more often."""
        return int(2 ** draw.uniform(4, 27.5))

    def tensor(self):
        return torch.empty(self.bytes_of(self.draw), dtype=torch.uint8, device=DEVICE)

    def hold(self, *tensors):
        self.held += tensors
        while len(self.held) > HELD_MAX:
            self.drop(1)

    def drop(self, count):
        for _ in range(min(count, len(self.held))):
            del self.held[self.draw.randrange(len(self.held))]

    def failed(self):
        with self.lock:
            self.failures += 1

    def model(self):
        """One that is there, or another one."""
        if self.models and self.has(0.3):
            return self.draw.choice(self.models)
        model = self.draw.choice(MODELS)(self.draw).to(DEVICE)
        if self.has(0.4):
            self.models.append(model)
            del self.models[:-3]
        return model

    def optimizer(self, model):
        make = self.draw.choice((lambda some: torch.optim.AdamW(some, lr=1e-4),
                                 lambda some: torch.optim.AdamW(some, lr=1e-4, foreach=False),
                                 lambda some: torch.optim.SGD(some, lr=1e-3, momentum=0.9)))
        return make(model.parameters())

    # ---- acts ----

    def train(self):
        """A step that runs out of memory is made again with half of its inputs."""
        model, saves = self.model(), self.has(0.3)
        optimizer, casts = self.optimizer(model), self.has(0.4)
        for _ in range(self.draw.randint(3, 9)):
            inputs = model.inputs(self.draw)
            while inputs is not None:
                inputs = self.train_step(model, inputs, saves, casts)
            optimizer.step()
            optimizer.zero_grad(set_to_none=not self.has(0.1))
        model.zero_grad(set_to_none=True)

    def train_step(self, model, inputs, saves, casts):
        """What is left to do."""
        try:
            with torch.autocast(DEVICE, torch.bfloat16, enabled=casts):
                output = checkpoint(model, inputs, use_reentrant=False) if saves else model(inputs)
                loss = output.float().square().mean()
            loss.backward()
            return None
        except torch.OutOfMemoryError:
            self.failed()
        model.zero_grad(set_to_none=True)
        return inputs[: len(inputs) // 2] if len(inputs) > 1 else None

    def infer(self):
        """With keys and values that grow by a row each step."""
        heads, width = self.draw.choice((2, 4, 8)), self.draw.choice((32, 64))
        batch, keys, values, model = self.draw.randint(1, 8), None, None, self.model()
        with torch.inference_mode():
            for _ in range(self.draw.randint(20, 120)):
                query, key, value = torch.randn(3, batch, heads, 1, width, device=DEVICE).unbind()
                keys = key if keys is None else torch.cat((keys, key), 2)
                values = value if values is None else torch.cat((values, value), 2)
                F.scaled_dot_product_attention(query, keys, values)
            for _ in range(self.draw.randint(1, 8)):
                self.hold(model(model.inputs(self.draw)))

    def churn(self):
        for _ in range(self.draw.randint(50, 400)):
            self.hold(self.tensor())
            if self.has(0.6):
                self.drop(self.draw.randint(1, 3))

    def streams(self):
        """Tensors of one stream that others use, freed while these are still busy."""
        main = torch.cuda.current_stream()
        sides = [torch.cuda.Stream(priority=self.draw.choice((0, -1))) for _ in range(self.draw.randint(1, 4))]
        for _ in range(self.draw.randint(20, 150)):
            side, given = self.draw.choice(sides), self.tensor()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                if self.has(0.2):
                    torch.cuda._sleep(self.draw.randint(10_000, 10_000_000))
                made = given + 1
            for stream in self.draw.sample([side, *sides], self.draw.randint(1, 2)):
                given.record_stream(stream)
            if self.has(0.4):
                main.wait_stream(side)
                made.record_stream(main)
            if self.has(0.3):
                self.hold(made)
            if self.has(0.1):
                self.drop(5)
        if self.has(0.5):
            torch.cuda.synchronize()

    def pools_in_turn(self):
        """Several, some of them there before, some gone before what was made in them."""
        while len(self.pools) < self.draw.randint(1, 4):
            self.pools.append(torch.cuda.MemPool())
        for _ in range(self.draw.randint(10, 60)):
            with torch.cuda.use_mem_pool(self.draw.choice(self.pools)):
                made = [self.tensor() for _ in range(self.draw.randint(1, 4))]
            self.hold(self.tensor(), *made[:1])
            if self.has(0.3):
                self.drop(4)
        made = None
        if self.has(0.3):
            with torch.cuda.use_mem_pool(self.draw.choice(self.pools)):
                self.train()
        if self.has(0.4):
            del self.pools[self.draw.randrange(len(self.pools))]

    def capture(self):
        """One to three graphs, of one pool or of several, which are kept or not."""
        model, main, side = self.model(), torch.cuda.current_stream(), torch.cuda.Stream()
        given, trains = model.inputs(self.draw), self.has(0.5)

        def run():
            loss = model(given).float().square().mean()
            if trains:
                loss.backward()
            return loss.detach()

        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(2):
                run()
                model.zero_grad(set_to_none=True)
        main.wait_stream(side)
        pool = self.pool_of_graphs()
        for _ in range(self.draw.randint(1, 3)):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                loss = run()
            pool = graph.pool() if self.has(0.6) else None
            self.graphs.append((graph, loss))
            for _ in range(self.draw.randint(0, 4)):
                graph.replay()
                self.hold(self.tensor())
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        del self.graphs[: -self.draw.randint(1, 4)]

    def pool_of_graphs(self):
        """None is one of its own."""
        if self.graphs and self.has(0.3):
            return self.draw.choice(self.graphs)[0].pool()
        if self.pools and self.has(0.3):
            return self.draw.choice(self.pools).id
        return torch.cuda.graph_pool_handle() if self.has(0.3) else None

    def threads(self):
        running = [threading.Thread(target=self.thread, args=(self.draw.getrandbits(64),))
                   for _ in range(self.draw.randint(2, 4))]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def thread(self, seed):
        draw, held = random.Random(seed), []
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                model = draw.choice(MODELS)(draw).to(DEVICE)
                for _ in range(draw.randint(3, 30)):
                    held.append(torch.empty(self.bytes_of(draw), dtype=torch.uint8, device=DEVICE))
                    model(model.inputs(draw)).float().square().mean().backward()
                    if draw.random() < 0.5:
                        held.clear()
        except torch.OutOfMemoryError:
            self.failed()
        except Exception as error:
            self.errors.append(f"thread: {type(error).__name__}: {str(error)[:300]}")

    def ask_too_much(self):
        """More than there is, between requests that are served."""
        for _ in range(self.draw.randint(1, 3)):
            self.hold(self.tensor())
            try:
                torch.empty(torch.cuda.get_device_properties(0).total_memory * 2, dtype=torch.uint8, device=DEVICE)
            except torch.OutOfMemoryError:
                self.failed()

    def fill(self):
        """Until nothing is left of a memory limit, if there is one; then some of it again."""
        size = self.draw.randint(1, 200) * MIB
        held = []
        with contextlib.suppress(torch.OutOfMemoryError):
            while len(held) < 12:
                held.append(torch.empty(size // self.draw.randint(1, 3), dtype=torch.uint8, device=DEVICE))
        self.failures += len(held) < 12
        del held[:: self.draw.randint(1, 3)]
        self.hold(self.tensor())

    def offload(self):
        model = self.model()
        model.to("cpu")
        if self.has(0.5):
            torch.cuda.empty_cache()
        model.to(DEVICE)

    def empty(self):
        if self.has(0.5):
            gc.collect()
        if self.has(0.5):
            self.drop(20)
        if self.has(0.2):
            self.graphs.clear()
        torch.cuda.empty_cache()

    # ---- the whole ----

    def act(self, name):
        """Out of memory is what programs live with: they drop something and go on."""
        self.acts.append(name)
        try:
            getattr(self, name)()
            return
        except torch.OutOfMemoryError:
            self.failed()
        for model in self.models:
            model.zero_grad(set_to_none=True)
        self.drop(self.draw.randint(0, 20))
        if self.has(0.4):
            self.pools.clear()
        if self.has(0.6):
            torch.cuda.empty_cache()

    def run(self):
        weights = {"train": 4, "infer": 2, "churn": 2, "streams": 2, "pools_in_turn": 2, "capture": 2, "threads": 1,
                   "ask_too_much": 1, "fill": 1, "offload": 1, "empty": 2}
        allowed = self.draw.sample(list(weights), self.draw.randint(4, len(weights)))
        torch.manual_seed(self.draw.getrandbits(32))
        torch.backends.cudnn.benchmark = self.has(0.2)
        torch.backends.cuda.matmul.allow_tf32 = self.has(0.5)
        for name in self.draw.choices(allowed, [weights[name] for name in allowed], k=self.draw.randint(5, 12)):
            try:
                self.act(name)
            except Exception as error:  # the history is whole: it is no use to go on where a capture did not end
                self.errors.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
                if name == "capture":
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.pools))  # see above: the pools stay
                if name == "capture" or len(self.errors) >= ERRORS_MAX:
                    break
        with contextlib.suppress(RuntimeError):
            torch.cuda.synchronize()


def peaks_without_limit(seed):
    """(allocated, reserved) of the same in a process of its own, before CUDA has started in this one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            Program(seed).run()
            stats = torch.cuda.memory_stats()
            os.write(writing, json.dumps([stats[f"{kind}_bytes.all.peak"] for kind in PEAKS]).encode())
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return json.loads(said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("out")
    parser.add_argument("--share", type=float)
    parser.add_argument("--observed", action="store_true")
    options = parser.parse_args()
    limit = None
    if options.share is not None:
        allocated, reserved = peaks_without_limit(options.seed)
        limit = int(allocated + options.share * (reserved - allocated if options.share > 0 else allocated))
    draw = random.Random(f"history {options.seed}")
    if not options.observed:
        torch.cuda.memory._record_memory_history(context=draw.choice((None, "alloc", "all")), stacks="python",
                                                 max_entries=EVENTS_MAX)
    total = torch.cuda.get_device_properties(0).total_memory
    if limit is not None:
        torch.cuda.set_per_process_memory_fraction((limit + 0.5) / total)
    program = Program(options.seed)
    program.run()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(options.out + ".pickle")
    with open(options.out + ".json", "w", encoding="utf-8") as stream:
        json.dump({"pid": os.getpid(), "acts": program.acts, "failures": program.failures, "errors": program.errors,
                   "memory_limit": limit, "total_memory": total, "memory_stats": stats}, stream)


if __name__ == "__main__":
    main()
