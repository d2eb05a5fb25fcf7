#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them with PyTorch, each of them deterministic:

    torch_programs.py NAME    run one; its last line on stdout is JSON: result, and statistics of the memory at the end

test_torch_programs.py runs all of them plainly and in each way of recording them, and compares."""

import hashlib
import json
import os
import sys
import tempfile
import threading

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

GPU = "cuda"
MIB = 1 << 20


def digest(*values):
    """Of the bytes of tensors."""
    seen = hashlib.sha256()
    for value in values:
        seen.update(value.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
    return seen.hexdigest()[:16]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.grow, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.shrink(F.gelu(self.grow(self.norm(x))))


def mlp(width=256, blocks=4):
    return nn.Sequential(*(Block(width) for _ in range(blocks)), nn.Linear(width, 16)).to(GPU)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
                                    nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.layers(x).flatten(1))


def train(model, make, steps=6, run=None, scaler=None):
    """The losses of some steps, and a digest of the parameters behind them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        loss = (run or model)(make(step)).square().mean()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item().hex())
    return {"losses": losses, "parameters": digest(*model.parameters())}


def rows(count=64, width=256):
    return lambda step: torch.randn(count + 8 * (step % 3), width, device=GPU)


# ---- compiled ----


def compiled():
    model = mlp()
    return train(model, lambda step: torch.randn(64, 256, device=GPU), run=torch.compile(model))


def reduce_overhead_training():
    model = mlp()
    return train(model, lambda step: torch.randn(64, 256, device=GPU), 10,
                 run=torch.compile(model, mode="reduce-overhead"))


def reduce_overhead_inference():
    """Several graphs of one tree, some of them recorded behind others that were replayed."""
    first, second = (torch.compile(mlp(), mode="reduce-overhead") for _ in range(2))
    kept = []
    with torch.no_grad():
        for step in range(12):
            x = torch.randn(32 if step % 4 else 48, 256, device=GPU)
            torch.compiler.cudagraph_mark_step_begin()
            y = first(x)
            z = second(F.pad(y, (0, 240))) if step % 3 else y * 2
            kept.append(z.clone())
    return {"outputs": digest(*kept), "pools": len({segment["segment_pool_id"]
                                                    for segment in torch.cuda.memory_snapshot()})}


def graphs():
    model = mlp()
    given = torch.zeros(64, 256, device=GPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(given).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(given).square().mean()
        loss.backward()
        optimizer.step()
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        doubled = loss * 2
    losses = []
    for _ in range(8):
        given.copy_(torch.randn(64, 256, device=GPU))
        graph.replay()
        second.replay()
        losses.append(doubled.item().hex())
    called = torch.cuda.make_graphed_callables(mlp(), (torch.randn(32, 256, device=GPU),))
    outputs = [called(torch.randn(32, 256, device=GPU)) for _ in range(3)]
    return {"losses": losses, "parameters": digest(*model.parameters()), "outputs": digest(*outputs)}


# ---- memory ----


def mem_pools():
    pools = [torch.cuda.MemPool() for _ in range(3)]
    kept = []
    for step in range(30):
        with torch.cuda.use_mem_pool(pools[step % 3]):
            kept.append(torch.full((step + 1, 10_000), float(step), device=GPU))
        if step % 4 == 3:
            kept.pop(0)
    sizes = [sorted(segment["total_size"] for segment in pool.snapshot()) for pool in pools]
    counts = [pool.use_count() for pool in pools]
    result = digest(*kept)
    kept.clear()
    del pools
    torch.cuda.synchronize()
    return {"sizes": sizes, "counts": counts, "kept": result, "left": torch.cuda.memory_reserved()}


def receive(queue, answers, number):
    total = 0.0
    while True:
        got = queue.get()
        if got is None:
            break
        total += float(got.double().sum())
        if number == 0:
            got += 1  # which the sender sees
        del got
        answers.put((number, total))
    answers.put((number, "end"))


def ipc():
    """Three processes: tensors of one, views of one storage among them, are read by two others and written by one."""
    context = torch.multiprocessing.get_context("spawn")
    queues, answers = [context.Queue() for _ in range(2)], context.Queue()
    others = [context.Process(target=receive, args=(queue, answers, number)) for number, queue in enumerate(queues)]
    for other in others:
        other.start()
    said, kept = [], []
    for step in range(6):
        tensor = torch.full((1000 << step,), float(step), device=GPU)
        view = tensor[: 500 << step]
        for queue, sent in zip(queues, (tensor, view)):
            queue.put(sent)
            said.append(answers.get())
        kept.append(tensor)
    for queue in queues:
        queue.put(None)
        said.append(answers.get())
    for other in others:
        other.join()
    result = digest(*kept)
    kept.clear()
    del tensor, view
    torch.cuda.ipc_collect()
    return {"said": said, "kept": result, "exits": [other.exitcode for other in others],
            "left": torch.cuda.memory_allocated()}


def memory_api():
    memory, said = torch.cuda.memory, {"backend": torch.cuda.get_allocator_backend()}
    kept = [torch.ones(size * 1000, device=GPU) for size in (1, 30, 500, 7000)]
    said["summary"] = torch.cuda.memory_summary()
    del kept[1::2]
    said["stats"] = torch.cuda.memory_stats()
    said["snapshot"] = [[segment["total_size"], segment["allocated_size"], segment["segment_type"],
                         [[block["size"], block["requested_size"], block["state"]] for block in segment["blocks"]]]
                        for segment in memory.memory_snapshot()]
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    said["reset"] = torch.cuda.memory_stats()
    torch.cuda.empty_cache()
    said["emptied"] = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(0.5)
    said["fraction"] = torch.cuda.get_per_process_memory_fraction()
    said["accelerator"] = torch.accelerator.memory_stats()
    raw = memory.caching_allocator_alloc(12345)
    said["raw"] = torch.cuda.memory_allocated()
    memory.caching_allocator_delete(raw)
    said["settings"] = memory._snapshot()["allocator_settings"]
    return said


def oom_recovery():
    torch.cuda.set_per_process_memory_fraction(0.02)
    heard, kept, failures = [], [], []
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: heard.append(figures[:2]))
    for size in (64, 300, 900, 5000, 200):
        for _ in range(6):
            try:
                kept.append(torch.ones(size * MIB // 4, device=GPU))
            except torch.OutOfMemoryError as error:
                failures.append([size, "Tried to allocate" in str(error)])
                del kept[::2]
                torch.cuda.empty_cache()
    return {"heard": heard, "failures": failures, "kept": [tensor.numel() for tensor in kept],
            "is_whole": all(bool((tensor == 1).all()) for tensor in kept)}


def own_history():
    memory = torch.cuda.memory
    memory._record_memory_history(max_entries=10_000)
    model = mlp(128, 2)
    train(model, rows(32, 128), 2)
    with tempfile.NamedTemporaryFile(suffix=".pickle") as stream:
        memory._dump_snapshot(stream.name)
        size = os.path.getsize(stream.name)
    trace = memory._snapshot()["device_traces"][0]
    memory._record_memory_history(enabled=None)
    counts = {}
    for entry in trace:
        counts[entry["action"]] = counts.get(entry["action"], 0) + 1
    return {"actions": counts, "sizes": [entry["size"] for entry in trace], "is_written": size > 1000,
            "is_on": torch._C._cuda_isHistoryEnabled()}


def profiler():
    from torch.profiler import ProfilerActivity, profile

    model = mlp()
    train(model, rows(), 2)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as prof:
        train(model, rows(), 2)
        try:
            torch.empty(1 << 46, dtype=torch.int8, device=GPU)
        except torch.OutOfMemoryError:
            pass
    moved = {event.key: [event.device_memory_usage, event.self_device_memory_usage] for event in prof.key_averages()
             if event.device_memory_usage or event.self_device_memory_usage}
    return {"moved": moved}


# ---- trainings and inference ----


def amp_checkpointing():
    from torch.utils.checkpoint import checkpoint

    model = mlp()

    def run(x):
        with torch.autocast(GPU, torch.float16):
            for layer in model:
                x = checkpoint(layer, x, use_reentrant=False)
        return x.float()

    return train(model, rows(), run=run, scaler=torch.amp.GradScaler(GPU))


def linalg_fft():
    a = torch.randn(300, 300, device=GPU, dtype=torch.float64)
    symmetric = a @ a.mT + torch.eye(300, device=GPU, dtype=torch.float64)
    values, _ = torch.linalg.eigh(symmetric)
    return {"cholesky": digest(torch.linalg.cholesky(symmetric)), "eigenvalues": digest(values.round(decimals=6)),
            "solve": digest(torch.linalg.solve(symmetric, a)), "svd": digest(torch.linalg.svdvals(a).round(decimals=8)),
            "fft": digest(torch.fft.fft2(a).abs(), torch.fft.irfft(torch.fft.rfft(a, dim=0), dim=0))}


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((3, 32, 32), float(index)) / 64


def streams_workers():
    loader = torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=2, pin_memory=True)
    model, side, losses = Convolutions().to(GPU), torch.cuda.Stream(), []
    for batch in loader:
        with torch.cuda.stream(side):
            moved = batch.to(GPU, non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        moved.record_stream(torch.cuda.current_stream())
        loss = model(moved).square().mean()
        loss.backward()
        losses.append(loss.item().hex())
        torch.cuda.synchronize()
    return {"losses": losses, "gradients": digest(*(parameter.grad for parameter in model.parameters()))}


def generate():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
    model = LlamaForCausalLM(config).to(GPU).eval()
    tokens = torch.randint(512, (2, 12), device=GPU)
    made = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=40, do_sample=False,
                          pad_token_id=0)
    return {"tokens": made.tolist()}


def threads():
    results, models = [None] * 4, [mlp(64 + 32 * number, 2) for number in range(4)]
    inputs = [torch.randn(40, 64 + 32 * number, device=GPU) for number in range(4)]

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(50):
                y = models[number](inputs[number])
            results[number] = digest(y)

    torch.cuda.synchronize()
    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return {"results": results}


def accumulation():
    model, losses = mlp(), []
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    other = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    for step in range(12):
        loss = model(torch.randn(32, 256, device=GPU)).square().mean()
        (loss / 3).backward()
        losses.append(loss.item().hex())
        if step % 3 == 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            other.step()
            model.zero_grad()
    return {"losses": losses, "parameters": digest(*model.parameters())}


def attention():
    query, key, value = (torch.randn(2, 8, 256, 64, device=GPU, dtype=torch.bfloat16, requires_grad=True)
                         for _ in range(3))
    outputs = []
    for backend in (torch.nn.attention.SDPBackend.MATH, torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        with torch.nn.attention.sdpa_kernel(backend):
            outputs.append(F.scaled_dot_product_attention(query, key, value, is_causal=True))
    return {"outputs": digest(*outputs)}


def quantized():
    a = torch.randint(-100, 100, (64, 128), dtype=torch.int8, device=GPU)
    b = torch.randint(-100, 100, (128, 64), dtype=torch.int8, device=GPU)
    x, y = (torch.randn(64, 128, device=GPU).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=GPU)
    return {"int8": digest(torch._int_mm(a, b)),
            "float8": digest(torch._scaled_mm(x, y.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16))}


def sparse():
    dense = torch.randn(500, 500, device=GPU)
    dense[dense.abs() < 1] = 0
    rows_, coordinates = dense.to_sparse_csr(), dense.to_sparse_coo()
    x = torch.randn(500, 64, device=GPU)
    embedding = nn.EmbeddingBag(1000, 32, sparse=True, mode="sum").to(GPU)
    looked = embedding(torch.arange(200, device=GPU).view(20, 10))
    looked.sum().backward()
    return {"csr": digest(rows_ @ x), "coo": digest(torch.sparse.mm(coordinates, x).round(decimals=3)),
            "gradient": digest(embedding.weight.grad.coalesce().values())}


def channels_last():
    model = Convolutions().to(GPU, memory_format=torch.channels_last)
    make = lambda step: torch.randn(16, 3, 64 + 16 * (step % 2), 64, device=GPU).to(  # noqa: E731
        memory_format=torch.channels_last)
    return train(model, make)


def scripted():
    model = torch.jit.script(Convolutions().to(GPU).eval())
    traced = torch.jit.trace(mlp().eval(), torch.randn(8, 256, device=GPU))
    with torch.no_grad():
        return {"scripted": digest(*(model(torch.randn(8, 3, 64, 64, device=GPU)) for _ in range(4))),
                "traced": digest(*(traced(torch.randn(8, 256, device=GPU)) for _ in range(4)))}


def exported():
    model = mlp().eval()
    program = torch.export.export(model, (torch.randn(8, 256, device=GPU),))
    with tempfile.NamedTemporaryFile(suffix=".pt2") as stream:
        torch.export.save(program, stream.name)
        again = torch.export.load(stream.name).module()
    with torch.no_grad():
        return {"outputs": digest(*(again(torch.randn(8, 256, device=GPU)) for _ in range(3)))}


def vmapped():
    from torch.func import functional_call, grad, vmap

    model = mlp(64, 2)
    parameters = dict(model.named_parameters())

    def loss(values, x):
        return functional_call(model, values, (x.unsqueeze(0),)).square().mean()

    gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, torch.randn(24, 64, device=GPU))
    return {"gradients": digest(*gradients.values())}


def storages():
    """Resized, swapped, offloaded, and hooks that keep saved tensors elsewhere."""
    tensor = torch.arange(1000, device=GPU, dtype=torch.float32)
    tensor.untyped_storage().resize_(0)
    tensor.untyped_storage().resize_(8000)
    tensor.set_(tensor.untyped_storage(), 0, (2000,), (1,)).fill_(3)
    model = mlp()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(torch.randn(64, 256, device=GPU)).square().mean()
    loss.backward()
    held = [parameter.grad for parameter in model.parameters()]
    model.to("cpu")
    return {"tensor": digest(tensor), "gradients": digest(*held), "loss": loss.item().hex(),
            "allocated": torch.cuda.memory_allocated()}


# ---- several processes ----


def rank_of(rank, world, port, work, folder):
    import torch.distributed as distributed

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", rank=rank, world_size=world)
    torch.manual_seed(3)
    result = work(rank)
    with open(os.path.join(folder, f"{rank}.json"), "w", encoding="utf-8") as stream:
        json.dump({**result, "stats": torch.cuda.memory_stats()}, stream)
    distributed.barrier()
    distributed.destroy_process_group()


def with_ranks(work):
    import socket

    world = min(torch.cuda.device_count(), 2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of, (world, port, work, folder), nprocs=world)
        results = []
        for rank in range(world):
            with open(os.path.join(folder, f"{rank}.json"), encoding="utf-8") as stream:
                results.append(json.load(stream))
    return {"ranks": results}


def fsdp2_rank(_):
    from torch.distributed.fsdp import fully_shard

    model = mlp()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(64, 256, device=GPU)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return {"losses": losses}


def fsdp2():
    return with_ranks(fsdp2_rank)


def ddp_rank(rank):
    model = nn.parallel.DistributedDataParallel(mlp(), device_ids=[rank])
    return train(model, rows(64 + rank), 4)


def ddp():
    return with_ranks(ddp_rank)


PROGRAMS = {program.__name__: program for program in (
    compiled, reduce_overhead_training, reduce_overhead_inference, graphs, mem_pools, ipc, memory_api, oom_recovery,
    own_history, profiler, amp_checkpointing, linalg_fft, streams_workers, generate, threads, accumulation, attention,
    quantized, sparse, channels_last, scripted, exported, vmapped, storages, fsdp2, ddp)}


def main():
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    result = PROGRAMS[sys.argv[1]]()
    torch.cuda.synchronize()
    print(json.dumps({"result": result, "stats": torch.cuda.memory_stats()}))


if __name__ == "__main__":
    main()
