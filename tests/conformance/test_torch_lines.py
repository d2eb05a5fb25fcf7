#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
"""Which line is the user's in stacks of PyTorch's snapshots, as its versions write them: with Python frames, with those
of C++ too (stacks="all"), and with the frames that PyTorch puts behind one of code of torch.compile. And in recorded
programs that run such code: the model's, if the file is there and says it. And whose a private pool is."""

import pathlib
import pickle
import sys

from pytorch_recordings import Case, recording

PACKAGES = "/opt/me/venv/lib/python3.12/site-packages"
INDUCTOR = "/x/inductor_cache/tf/ctfgguofzkybjebaggwcdnky2gqegtimfieqlfs7rmjkcyhjdyui.py"

# innermost first: what takes the stack, the allocator, operators, the dispatcher
TAKEN = [("torch::unwind::unwind()", "??", 0), ("torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0),
         ("torch::cuda::(anonymous namespace)::gather_with_cpp()", "??", 0)]
ALLOCATOR = [("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, unsigned long, "
              "CUstream_st*)", "??", 0),
             ("at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType)", "??", 0)]
OPERATOR = [("at::(anonymous namespace)::wrapper_CUDA_mm(at::Tensor const&, at::Tensor const&)", "RegisterCUDA.cpp", 0),
            ("at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)", "??", 0),
            ("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "??", 0)]
CXX = TAKEN + ALLOCATOR + OPERATOR
FROM_PYTHON = [("torch::autograd::THPVariable_mm(_object*, _object*, _object*)", "python_variable_methods.cpp", 0),
               ("method_vectorcall_VARARGS_KEYWORDS", "./Objects/descrobject.c", 364),
               ("_PyEval_EvalFrameDefault", "./Python/ceval.c", 5181)]
MODULE = [("forward", f"{PACKAGES}/torch/nn/modules/linear.py", 125),
          ("_call_impl", f"{PACKAGES}/torch/nn/modules/module.py", 1790)]
MAIN = [("<module>", "/opt/me/train.py", 208)]
THREAD = [("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)", "??", 0),
          ("torch::autograd::python::PythonEngine::thread_init(int, bool)", "??", 0),
          ("execute_native_thread_routine", "??", 0), ("start_thread", "./nptl/pthread_create.c", 442),
          ("clone3", "clone3.S", 83)]
BACKWARD = ("torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)", "Functions.cpp", 0)
MODEL = ("forward", "/opt/me/model.py", 12)
THREAD_PY = [("run", "/usr/lib/python3.12/threading.py", 1010)]

# what it is, its frames, the user's line
STACKS = (
    ("a module of PyTorch's, called by one of the user's", CXX + FROM_PYTHON + MODULE + [MODEL] + MODULE[1:] + MAIN,
     MODEL),
    ("the same where PyTorch is a folder of sources",
     CXX + FROM_PYTHON + [(name, file.replace(PACKAGES, "/opt/me/src/pytorch"), line) for name, file, line in MODULE] +
     [MODEL] + MAIN, MODEL),
    ("an optimizer", [("step", "/workspace/pytorch/torch/optim/adam.py", 236)] + MAIN, MAIN[0]),
    ("a library's model under a library's trainer",
     MODULE + [("forward", f"{PACKAGES}/transformers/models/gpt2/modeling_gpt2.py", 300)] + MODULE[1:] +
     [("run", "<frozen runpy>", 88)], ("forward", f"{PACKAGES}/transformers/models/gpt2/modeling_gpt2.py", 300)),
    ("the backward pass in a thread of its own", CXX + [BACKWARD] + THREAD, BACKWARD),
    ("nothing but PyTorch: its innermost frame that is none of the allocator's", CXX + THREAD, OPERATOR[0]),
    ("nothing but PyTorch and Python's threads",
     CXX + FROM_PYTHON + [("do_one_step", f"{PACKAGES}/torch/utils/data/_utils/pin_memory.py", 40)] + THREAD_PY,
     ("do_one_step", f"{PACKAGES}/torch/utils/data/_utils/pin_memory.py", 40)),
    ("C++ of the user's", CXX + [("me::attention(at::Tensor const&)", "attention.cc", 7)] + FROM_PYTHON[1:2],
     ("me::attention(at::Tensor const&)", "attention.cc", 7)),
    ("code of torch.compile, behind which PyTorch puts the model's line",
     CXX + [("call", INDUCTOR, 60), MODEL, ("__call__", f"{PACKAGES}/torch/_inductor/output_code.py", 404)] + MAIN,
     MODEL),
    ("code of torch.compile without that",
     [("call", "/tmp/torchinductor_me/ab/cabcdef.py", 60), ("__call__", f"{PACKAGES}/torch/_inductor/utils.py", 2404),
      ("step", "/opt/me/train.py", 20)] + MAIN, ("step", "/opt/me/train.py", 20)),
    ("a graph of torch.fx",
     [("forward", "<eval_with_key>.3", 7), ("_fn", f"{PACKAGES}/torch/_dynamo/eval_frame.py", 1)] + MAIN, MAIN[0]),
    ("a graph of torch.fx, called by a library", [("forward", "<eval_with_key>.3", 7)] +
     [("f", f"{PACKAGES}/lightning/core.py", 9)], ("f", f"{PACKAGES}/lightning/core.py", 9)),
    ("a line that was typed", MODULE + [("<module>", "<stdin>", 1)], ("<module>", "<stdin>", 1)),
)


def snapshot():
    """An allocation a stack, the sizes by turns: each in a segment of its own."""
    events = []
    for number, (_, frames, _) in enumerate(STACKS):
        frames = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
        common = {"addr": (number + 1) << 32, "size": 20 << 20, "stream": 0, "time_us": 1000 + number,
                  "frames": frames}
        events += [{"action": "segment_alloc", **common}, {"action": "alloc", **common}]
    segments = [{"device": 0, "address": (number + 1) << 32, "total_size": 20 << 20, "allocated_size": 20 << 20,
                 "active_size": 20 << 20, "requested_size": 20 << 20, "stream": 0, "segment_type": "large",
                 "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                 "blocks": [{"address": (number + 1) << 32, "size": 20 << 20, "requested_size": 20 << 20,
                             "state": "active_allocated", "frames": []}]} for number in range(len(STACKS))]
    return {"segments": segments, "device_traces": [events]}


TREES = [("call", INDUCTOR, 60), MODEL, ("_record", f"{PACKAGES}/torch/_inductor/cudagraph_trees.py", 1000)] + MAIN
# the pool as PyTorch names it, the frames of its first request, whose it is, the line
POOLS = (((0, 3), TREES, "CUDA graph trees", MODEL), ((1, 0), CXX + FROM_PYTHON + MODULE + MAIN, "CUDA graph", MAIN[0]),
         ((0, 4), MAIN, "MemPool or handle", MAIN[0]))


def snapshot_of_pools():
    """That of the stacks, but each segment is of another pool, which entries name, and so is one behind it."""
    whole, later = snapshot(), [{"name": "later", "filename": "/opt/me/later.py", "line": 1}]
    events, segments = whole["device_traces"][0], whole["segments"]
    for number, (pool, frames, _, _) in enumerate(POOLS):
        frames = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
        for place, stack in ((number, frames), (number + len(POOLS), later)):
            segments[place]["segment_pool_id"] = pool
            for entry in events[2 * place:2 * place + 2]:
                entry |= {"pool_id": pool, "frames": stack}
    for entry in events[4 * len(POOLS):]:
        entry["pool_id"] = (0, 0)
    return whole


# runs code as Inductor's cache has it, which its callers see as that file's; arguments: the file, whether to keep it
PROGRAM = '''
import os, sys
path, keep = sys.argv[1:]
with open(path) as file:
    code = compile(file.read(), path, "exec")
if keep == "no":
    os.unlink(path)
module = {}
exec(code, module)
def step():
    return module["call"](1 << 20)
kept = step()
'''
COMPILED = '''# AOT ID: ['0_inference']
def call(size):
    # File: /opt/me/model.py:12 in forward, code: return self.fc(x)
    buf0 = bytearray(size)
    # Topologically Sorted Source Nodes: [y]
    buf1 = bytearray(2 * size)
    # File: /opt/me/model.py:14 in head, code: return self.head(x)
    buf2 = bytearray(4 * size)
    return other(8 * size), buf0, buf1, buf2
def other(size):
    return bytearray(size)
'''


class Lines(Case):
    def lines_of_compiled(self, keep):
        """By MiB, the user's line of what the program made."""
        cache = pathlib.Path(self.folder, "torchinductor_me", "ab")
        cache.mkdir(parents=True, exist_ok=True)
        path, program = cache / "cabcdef.py", pathlib.Path(self.folder, "program.py")
        path.write_text(COMPILED)
        program.write_text(PROGRAM)
        self.record(sys.executable, program, path, keep)
        rows = self.rows(self.path, "SELECT bytes >> 20, user_function, user_file, user_line FROM callsite_total"
                                    " WHERE bytes >= 1 << 20 AND allocations = 1 AND domain = 'heap'")
        return {size: (function, file.removeprefix(f"{self.folder}/"), line) for size, function, file, line in rows}

    def test_recorded(self):
        """A function without a comment is of the line that called it."""
        forward, head = ("forward", "/opt/me/model.py", 12), ("head", "/opt/me/model.py", 14)
        self.assertEqual(self.lines_of_compiled("yes"), {1: forward, 2: forward, 4: head, 8: head})

    def test_recorded_without_file(self):
        step = ("step", "program.py", 11)
        self.assertEqual(self.lines_of_compiled("no"), dict.fromkeys((1, 2, 4, 8), step))

    def test_private_pools(self):
        """Whose they are, by the stack of their first request; not in them: the default one."""
        source = pathlib.Path(self.folder, "pools.pickle")
        source.write_bytes(pickle.dumps(snapshot_of_pools(), protocol=4))
        self.varve("import", source, "-o", self.path)
        found = self.rows(self.path, "SELECT capture_id, user_id, kind, user_function, user_file, user_line, segments"
                                     " FROM private_pool ORDER BY number")
        self.assertEqual({tuple(row[:2]): tuple(row[2:]) for row in found},
                         {pool: (kind, *line, 2) for pool, _, kind, line in POOLS})

    def test_imported(self):
        source = pathlib.Path(self.folder, "stacks.pickle")
        source.write_bytes(pickle.dumps(snapshot(), protocol=4))
        self.varve("import", source, "-o", self.path)
        found = self.rows(self.path, "SELECT s.function, s.file, coalesce(s.line, 0) FROM events e"
                                     " JOIN callsite c ON c.id = e.callsite_id JOIN symbol s ON s.id = c.user_symbol_id"
                                     " WHERE e.kind = 'alloc' ORDER BY e.seq")
        self.assertEqual(len(found), len(STACKS))
        for (what, _, expected), line in zip(STACKS, found):
            with self.subTest(what):
                self.assertEqual(tuple(line), expected)
        # PyTorch's own Python is a library to who looks for leaks, and other people's models are too
        libraries = {file for file, is_library in self.sql(
            "SELECT user_file, is_library FROM leak_line WHERE user_is_python") if is_library}
        self.assertEqual(libraries, {file for _, _, (_, file, _) in STACKS if file.startswith(PACKAGES)})


if __name__ == "__main__":
    recording.main()
