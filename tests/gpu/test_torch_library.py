#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""libvarve-torch.so as PyTorch's allocator on a GPU, without the Python shim: tensors, streams, record_stream,
graphs, out of memory, pools, threads, forks and the end of the process. Scenarios run in processes of their own,
since PyTorch takes another allocator only before CUDA starts; some of them once more with expandable segments.

  test_torch_library.py [--scenario NAME]"""

import ctypes
import os
import subprocess
import sys
import threading

BUILD = os.environ.get("VARVE_BUILD_DIR", "build")
LIBRARY = os.path.join(os.path.abspath(BUILD), "libvarve-torch.so")
MIB = 1 << 20
HOOKS = {"set_init_fn": "init", "set_reset_fn": "reset", "set_memory_fraction_fn": "memory_fraction",
         "set_base_alloc_fn": "base_alloc", "set_record_stream_fn": "record_stream",
         "set_begin_allocate_to_pool": "begin_allocate_to_pool", "set_end_allocate_to_pool_fn": "end_allocate_to_pool",
         "set_release_pool": "release_pool"}


def address(library, name):
    return ctypes.cast(getattr(library, "varve_torch_" + name), ctypes.c_void_p).value


def plugged():
    """(torch, PyTorch's object for the library, the library)"""
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, "varve_torch_alloc", "varve_torch_free")
    library = ctypes.CDLL(LIBRARY)
    library.varve_torch_message.restype = ctypes.c_char_p
    for setter, name in HOOKS.items():
        getattr(allocator.allocator(), setter)(address(library, name))
    return torch, allocator, library


def switched(made=[]):
    if not made:
        torch, allocator, library = plugged()
        torch.cuda.memory.change_current_allocator(allocator)
        made += torch, library
    return made


def memory(library):
    """Bytes allocated, its peak, reserved, its peak."""
    figures = (ctypes.c_int64 * 4)()
    assert library.varve_torch_memory(0, figures) == 0
    return list(figures)


# ---- scenarios ----


def tensors():
    torch, library = switched()
    source = torch.Generator().manual_seed(1)
    held = {}
    for step in range(2000):
        slot = int(torch.randint(64, (1,), generator=source))
        if slot in held:
            value, tensor = held.pop(slot)
            assert bool((tensor == value).all()), f"step {step}: a block was given out twice"
        size = int(torch.randint(1, 3 << 20, (1,), generator=source))
        held[slot] = step, torch.full((size,), step, dtype=torch.int32, device="cuda")
    assert memory(library)[0] >= sum(tensor.numel() * 4 for _, tensor in held.values())
    assert torch.empty(0, device="cuda").data_ptr() == 0
    tensor = None  # noqa: F841  the last one that was looked at
    held.clear()
    assert memory(library)[0] == 0, memory(library)
    torch.cuda.empty_cache()
    assert memory(library)[2] == 0, memory(library)


def streams():
    """What another stream still reads must not be given out again, if PyTorch knows of that stream."""
    torch, library = switched()
    other = torch.cuda.Stream()
    count = 4 * MIB
    for value in range(1, 12):
        block = torch.full((count,), value, dtype=torch.int32, device="cuda")
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            torch.cuda._sleep(50_000_000)
            copy = block.clone()
        block.record_stream(other)
        first = block.data_ptr()
        del block
        later = torch.zeros((count,), dtype=torch.int32, device="cuda")
        if value > 1:  # the first round loads kernels, for longer than the other stream sleeps
            assert later.data_ptr() != first, "handed out while another stream reads it"
        torch.cuda.current_stream().wait_stream(other)
        assert bool((copy == value).all()), f"round {value}: overwritten"
        copy.record_stream(torch.cuda.current_stream())
        del later, copy
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    again = torch.zeros((count,), dtype=torch.int32, device="cuda")
    assert memory(library)[0] == 4 * count
    del again


def graph():
    torch, library = switched()
    given = torch.zeros(1000, device="cuda")
    made = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        (given * 2 + 1).sum()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(made):
        between = given * 2
        result = between + 1
        del between
        total = result.sum()
    pool = made.pool()
    library.varve_torch_pool_use_count.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)
    assert library.varve_torch_pool_use_count(0, *pool) == 1, pool
    noise = [torch.full((1000,), 7.0, device="cuda") for _ in range(200)]  # must not land in the graph's memory
    for value in range(5):
        given.fill_(value)
        made.replay()
        assert bool((result == 2 * value + 1).all()) and float(total) == 1000 * (2 * value + 1)
    assert all(bool((tensor == 7).all()) for tensor in noise)
    del result, total, made, noise
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert library.varve_torch_pool_use_count(0, *pool) == 0


def out_of_memory():
    torch, library = switched()
    heard = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    observer = kind(lambda context, device, wanted, total, free: heard.append((device, wanted, total, free)))
    assert library.varve_torch_add_oom_observer(observer, None) == 0
    total = torch.cuda.get_device_properties(0).total_memory
    for wanted in (total, 4 * total):
        try:
            torch.empty(wanted, dtype=torch.int8, device="cuda")
            raise AssertionError("there is no such memory")
        except torch.OutOfMemoryError as error:
            assert "CUDA out of memory. Tried to allocate" in str(error), error
    assert len(heard) == 2 and heard[0][0] == 0 and heard[0][1] >= total and heard[0][2] > 0, heard
    torch.cuda.set_per_process_memory_fraction(0.05)
    held = []
    try:
        while True:
            held.append(torch.ones(64 * MIB, device="cuda"))
    except torch.OutOfMemoryError as error:
        assert "raise the fraction" in str(error), error
    assert held and memory(library)[2] <= 0.05 * total
    assert heard[-1][2] <= 0.05 * total, heard[-1]
    assert all(bool((tensor == 1).all()) for tensor in held)
    held.clear()
    tensor = torch.ones(64 * MIB, device="cuda")
    assert bool((tensor == 1).all())


def mem_pool_of_hooks():
    """Routing to a pool, as torch.cuda.use_mem_pool does it, while the current allocator is ours."""
    torch, library = switched()
    torch.zeros(1, device="cuda")
    pool = (0, 77)
    library.varve_torch_pool_use_count.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
    inside = torch.ones(MIB, device="cuda")
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(torch.ones(MIB, device="cuda")))
    thread.start()
    thread.join()
    torch._C._cuda_endAllocateToPool(0, pool)
    assert library.varve_torch_pool_use_count(0, *pool) == 1
    reserved = memory(library)[2]
    outside = torch.ones(MIB, device="cuda")
    assert memory(library)[2] == reserved, "fits beside the other thread's, which was not routed"
    assert bool((inside + outside + elsewhere[0] == 3).all())
    del inside
    torch._C._cuda_releasePool(0, pool)
    torch.cuda.empty_cache()
    assert library.varve_torch_pool_use_count(0, *pool) == 0


def mem_pool_of_native():
    """A pool of PyTorch's own allocator that gets its segments from ours."""
    torch, allocator, library = plugged()
    torch.zeros(1, device="cuda")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        inside = torch.ones(MIB, device="cuda")
    assert memory(library)[0] >= 4 * MIB, memory(library)
    assert bool((inside == 1).all())
    del inside, pool
    torch.cuda.empty_cache()
    assert memory(library)[0] == 0, memory(library)


def threads():
    torch, library = switched()
    before = memory(library)[0]
    wrong = []

    def work(number):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for step in range(300):
                a = torch.full((1 + 997 * step % 300_000,), number, dtype=torch.int32, device="cuda")
                b = a + 1
                if not bool((b == number + 1).all()):
                    wrong.append((number, step))
                if step % 50 == 0:
                    torch.cuda.empty_cache()

    running = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong, wrong
    torch.cuda.synchronize()
    assert memory(library)[0] == before, memory(library)


def training():
    """Backward passes free on threads of PyTorch; the losses are those of its own allocator, and so are the peaks."""
    def run(torch):
        torch.manual_seed(3)
        model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(10):
            loss = model(torch.randn(256, 512, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss).hex())
        return losses

    if "--native" in sys.argv:
        import torch

        print(run(torch), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        return
    torch, library = switched()
    ours = run(torch), *memory(library)[1::2]
    native = subprocess.run([sys.executable, os.path.abspath(__file__), "--scenario", "training", "--native"],
                            stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    assert " ".join(str(part) for part in ours) == native, f"{ours} beside {native}"


kept = []


def ends_with_tensors():
    """They are freed after the exit handlers, when the driver may be gone: not a word about it."""
    import atexit

    torch, _ = switched()
    kept.append(torch.ones(MIB, device="cuda"))
    side = torch.cuda.Stream()
    kept.append(torch.ones(MIB, device="cuda"))
    kept[1].record_stream(side)
    graph_kept = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_kept):
        kept.append(kept[0] + 1)
    kept.append(graph_kept)
    atexit.register(kept.pop)
    sys.modules["kept_by_nobody"] = kept


def forks():
    """A child may drop its parent's tensors; it gets none of its own."""
    torch, library = switched()
    tensor = torch.ones(MIB, device="cuda")
    child = os.fork()
    if child == 0:
        library.varve_torch_reset()
        del tensor
        assert library.varve_torch_open(0) < 0 and b"fork child" in library.varve_torch_message()
        try:
            torch.empty(10, device="cuda")
            os._exit(3)
        except RuntimeError:
            sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
    assert bool((tensor == 1).all())


def together():
    """Those that can share a process, which takes longer to start than they to run."""
    for scenario in (tensors, streams, graph, mem_pool_of_hooks, threads, out_of_memory):
        print(f"  {scenario.__name__}", flush=True)
        scenario()


SCENARIOS = {scenario.__name__: scenario for scenario in (together, mem_pool_of_native, training, ends_with_tensors,
                                                          forks)}
EXPANDABLE = ("together", "ends_with_tensors")
QUIET = ("ends_with_tensors", "forks")  # nothing is written to stderr


def run_scenario(name, settings):
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings, "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                   "PYTHONWARNINGS": "ignore"}  # Python warns of every fork beside threads
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--scenario", name], env=environment,
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0 and (done.stderr == "" or name not in QUIET):
        print(f"ok: {name} {settings}", flush=True)
        return True
    print(f"FAILED: {name} {settings}: status {done.returncode}\n{done.stderr}", flush=True)
    return False


def why_skipped():
    if not os.path.exists(LIBRARY):
        return f"there is no {LIBRARY}"
    script = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 9)"
    status = subprocess.run([sys.executable, "-c", script], stderr=subprocess.DEVNULL, check=False).returncode
    return {0: None, 9: "PyTorch finds no GPU"}.get(status, "there is no PyTorch")


def main():
    if "--scenario" in sys.argv:
        SCENARIOS[sys.argv[sys.argv.index("--scenario") + 1]]()
        return 0
    reason = why_skipped()
    if reason is not None:
        print(f"skipped: {reason}")
        return 1 if os.environ.get("VARVE_TESTS_STRICT") == "1" else 77
    results = [run_scenario(name, "") for name in SCENARIOS]
    results += [run_scenario(name, "expandable_segments:True") for name in EXPANDABLE]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
