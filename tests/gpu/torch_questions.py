#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs ask of torch.cuda's memory, each question by itself, for a run under `varve record --torch`. Prints
one JSON object: a name and "ok", or what was wrong. The only argument is where a snapshot is dumped."""

import json
import sys
import traceback

import torch

MIB = 1 << 20
memory = torch.cuda.memory
dump = sys.argv[1]


def backend():
    assert torch.cuda.get_allocator_backend() == "native"


def statistics():
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
    before = torch.cuda.memory_allocated()
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == kept.nbytes
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated() > 0
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert len(torch.cuda.memory_stats()) == 122, len(torch.cuda.memory_stats())
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    del kept
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == before
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() == before
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def summary():
    assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary()
    torch.cuda.memory_summary(abbreviated=True)
    torch.cuda.list_gpu_processes()


def empty_cache():
    kept = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    reserved = torch.cuda.memory_reserved()
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved - 200 * MIB
    torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    torch.accelerator.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved - 200 * MIB


def snapshot():
    memory._record_memory_history(max_entries=100000)
    kept = [torch.empty(size, device="cuda") for size in (1000, MIB, 8 * MIB)]
    del kept[1]
    memory._dump_snapshot(dump)
    found = memory._snapshot()
    segments = found["segments"]
    assert sum(segment["total_size"] for segment in segments) == torch.cuda.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == torch.cuda.memory_allocated()
    assert all(sum(block["size"] for block in segment["blocks"]) == segment["total_size"] for segment in segments)
    assert len(torch.cuda.memory_snapshot()) == len(segments)
    actions = [entry["action"] for entry in found["device_traces"][0]]
    assert actions.count("alloc") == 3 and actions.count("free_completed") == 1, actions
    memory._record_memory_history(None)


def viewers():
    from torch.cuda import _memory_viz

    memory._record_memory_history(max_entries=100000)
    kept = [torch.empty(size, device="cuda") for size in (1000, MIB, 40 * MIB)]
    del kept[1]
    found = memory._snapshot()
    memory._record_memory_history(None)
    texts = {view.__name__: view(found) for view in (_memory_viz.segsum, _memory_viz.trace, _memory_viz.trace_plot,
                                                     _memory_viz.segment_plot)}
    texts.update({view.__name__: view(found, format_flamegraph=str)  # PyTorch's own would be fetched from the network
                  for view in (_memory_viz.segments, _memory_viz.memory)})
    assert all(texts.values()), {name: len(text) for name, text in texts.items()}
    assert f"segments: {len(found['segments'])}\n" in texts["segsum"], texts["segsum"][-500:]
    assert "cudaMalloc(" in texts["trace"] and "# free completed for" in texts["trace"], texts["trace"][-500:]
    lines = texts["memory"].splitlines()
    active = sum(int(line.split()[-1]) for line in lines if ";active_allocated;" in line)
    assert active == torch.cuda.memory_allocated(), lines


def out_of_memory():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.05)
    assert torch.cuda.get_per_process_memory_fraction() == 0.05
    try:
        torch.empty(total // 10, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "CUDA out of memory" in str(error), str(error)
    else:
        raise AssertionError("no error")
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(seen) == 1 and seen[0][0] == 0 and seen[0][1] >= total // 10, seen
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    assert torch.ones(5, device="cuda").sum().item() == 5


def streams():
    side = torch.cuda.Stream()
    for number in range(50):
        made = torch.full((MIB,), number, device="cuda", dtype=torch.int32)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200000)
            total = made.sum()
        made.record_stream(side)
        del made
        torch.full((MIB,), -1, device="cuda", dtype=torch.int32)
        side.synchronize()
        assert total.item() == number * MIB, number


def graphs():
    fixed = torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fixed * 2 + 1
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = fixed * 2 + 1
        again = result.clone() * result
    others = [torch.full((1000,), 7.0, device="cuda") for _ in range(20)]
    for value in (3.0, 5.0):
        fixed.fill_(value)
        graph.replay()
        assert again[0].item() == (2 * value + 1) ** 2
    assert all(other.eq(7).all() for other in others)


def pools():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.full((5 * MIB,), 3.0, device="cuda")
    outside = torch.full((5 * MIB,), 4.0, device="cuda")
    segments = pool.snapshot()
    assert any(segment["address"] <= inside.data_ptr() < segment["address"] + segment["total_size"]
               for segment in segments)
    assert not any(segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"]
                   for segment in segments)
    reserved = torch.cuda.memory_reserved()
    del inside, pool
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < reserved


def benchmark():
    torch.backends.cudnn.benchmark = True
    assert torch.backends.cudnn.benchmark
    layer = torch.nn.Conv2d(16, 32, 3).cuda()
    layer(torch.randn(8, 16, 64, 64, device="cuda")).sum().backward()
    torch.backends.cudnn.benchmark = False


def profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        torch.randn(512, 512, device="cuda") @ torch.randn(512, 512, device="cuda")
        torch.cuda.synchronize()
    assert any(event.device_time_total > 0 for event in found.key_averages()), "no kernels seen"


def raw():
    address = torch.cuda.caching_allocator_alloc(12345)
    torch.cuda.caching_allocator_delete(address)


def settings():
    memory._set_allocator_settings("max_split_size_mb:512")
    assert memory._snapshot()["allocator_settings"]["max_split_size"] == 512 * MIB
    memory._set_allocator_settings("")


def main():
    said = {}
    for question in (backend, statistics, summary, empty_cache, snapshot, viewers, out_of_memory, streams, graphs,
                     pools, benchmark, profiler, raw, settings):
        try:
            question()
            said[question.__name__] = "ok"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            said[question.__name__] = (f"{type(error).__name__} at line {where.lineno} ({where.line}): "
                                       f"{str(error)[:300]}")
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
