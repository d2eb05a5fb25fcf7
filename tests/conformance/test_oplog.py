#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Operator logs of PyTorch programs (varve.oplog): each is read by a strict reader of the format, and its peak is
compared with that of PyTorch's own allocations in the same step, unrecorded, as its profiler reports them."""

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

NOTEBOOKS = os.path.join(recording.ROOT, "notebooks")
sys.path.insert(0, NOTEBOOKS)
from varve import oplog  # noqa: E402

try:
    import torch
except ImportError:
    PYTHON = os.environ.get("VARVE_TEST_PYTHON")
    if PYTHON and os.path.realpath(PYTHON) != os.path.realpath(sys.executable):
        os.execv(PYTHON, [PYTHON, *sys.argv])
    torch = None

OPENERS = {".xz": lzma.open, ".gz": gzip.open}


class Log:
    """A log, read line by line; ValueError for what a player would refuse. live_peak: of the storages that have a
    handle; player_peak: where mutations copy and constants stay, as a player has it without a budget."""

    def __init__(self, path, must_be_whole=True):
        with OPENERS.get(os.path.splitext(path)[1], open)(path, "rt", encoding="ascii") as stream:
            text = stream.read()
        self.check(not must_be_whole or text.endswith("\n"), "the last line is cut")
        self.lines = [self.parse(line) for line in text.splitlines()]
        # bytes of live handles; of what a player holds; all names ever
        self.handles, self.values, self.names = {}, {}, set()
        self.constants, self.calls, self.mutates, self.marks = [], [], [], []
        self.live_peak = self.player_peak = self.first_bytes = 0
        self.position = 0
        self.check(self.next("ANNOTATE")["ANNOTATION"] == "START", "no START")
        while self.position < len(self.lines):
            self.play()

    @staticmethod
    def check(is_right, *reason):
        if not is_right:
            raise ValueError(*reason)

    def parse(self, text):
        line = json.loads(text)
        self.check(text == json.dumps(line, sort_keys=True, separators=(",", ":")), "keys are not sorted", text)
        return line

    def next(self, instruction, **expected):
        line = self.lines[self.position]
        self.check(line["INSTRUCTION"] == instruction, f"not {instruction}", line)
        self.check(all(line[key] == value for key, value in expected.items()), expected, line)
        self.position += 1
        return line

    def number(self, text):
        self.check(isinstance(text, str) and text.isdigit(), "no number", text)
        return int(text)

    def define(self, name, size):
        self.check(name not in self.names, "a name again", name)
        self.names.add(name)
        self.handles[name] = self.values[name] = size

    def measure(self, transient=0):
        self.live_peak = max(self.live_peak, sum(self.handles.values()))
        self.player_peak = max(self.player_peak, sum(self.values.values()) + transient)

    def play(self):
        instruction = self.lines[self.position]["INSTRUCTION"]
        getattr(self, "play_" + instruction.lower())(self.next(instruction))

    def play_annotate(self, line):
        self.marks.append((line["ANNOTATION"], len(self.calls)))

    def play_constant(self, line):
        self.define(line["NAME"], self.number(self.next("MEMORY", NAME=line["NAME"])["MEMORY"]))
        self.constants.append(line["NAME"])
        self.measure()
        if not self.calls and not self.mutates:
            self.first_bytes = sum(self.handles.values())

    def play_call(self, line):
        self.check(set(line["ARGS"]) <= set(self.handles), "arguments that are not there", line)
        self.check(line["RESULT"] and self.number(line["TIME"]) >= 0, line)
        for name in line["RESULT"]:
            self.define(name, self.number(self.next("MEMORY", NAME=name)["MEMORY"]))
            self.next("ALIAS", NAME=name, ALIAS="-1")
        self.calls.append(line)
        self.measure()

    def play_mutate(self, line):
        self.check(set(line["ARGS"]) <= set(self.handles), "arguments that are not there", line)
        self.check(line["MUTATE"] and self.number(line["TIME"]) >= 0, line)
        written = [line["ARGS"][index] for index in line["MUTATE"]]
        self.check(len(set(written)) == len(written), "a storage written twice", line)
        self.mutates.append(line)
        self.measure(transient=sum(self.handles[name] for name in written))
        for name in written:
            if name in self.constants and f"{name}$" not in self.values:
                self.values[f"{name}$"] = self.handles[name]
        self.measure()

    def play_release(self, line):
        self.check(line["NAME"] in self.handles, "released, but not there", line)
        del self.handles[line["NAME"]]
        if line["NAME"] not in self.constants:
            del self.values[line["NAME"]]
        self.values.pop(f"{line['NAME']}$", None)

    def operators(self):
        return [line["NAME"] for line in self.calls]

    def mutated(self, operator):
        """For each mutation by the operator the names that it wrote."""
        return [[line["ARGS"][index] for index in line["MUTATE"]] for line in self.mutates if line["NAME"] == operator]

    def time_ns(self):
        return sum(int(line["TIME"]) for line in self.calls + self.mutates)


class Files(unittest.TestCase):
    """A folder for each test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="varve-test-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "step.log")


class Writer(Files):
    """What needs no PyTorch."""

    def test_importing_loads_nothing(self):
        """Neither PyTorch nor the library."""
        program = ("import sys, varve.oplog; maps = open('/proc/self/maps').read();"
                   " print('torch' in sys.modules, 'libvarve' in maps)")
        outcome = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": NOTEBOOKS},
                                 text=True, stdout=subprocess.PIPE, check=True)
        self.assertEqual(outcome.stdout.split(), ["False", "False"])

    def test_lines(self):
        for suffix in ("", ".xz", ".gz"):
            path = self.path + suffix
            writer = oplog.LogWriter(path)
            writer.annotate("START")
            writer.constant(writer.new_name(), 40)
            writer.call("add.Tensor", ["x1", "x1"], [(writer.new_name(), 8), (writer.new_name(), 0)], 17)
            writer.mutate("add_.Tensor", ["x2", "x1"], [0], 5)
            writer.release("x2")
            with open(path + ".part" if suffix else path, encoding="ascii") as stream:  # all of it, before the end
                lines = stream.read().splitlines()
            writer.close()
            self.assertEqual(os.listdir(os.path.dirname(path)).count(os.path.basename(path) + ".part"), 0)
            self.assertEqual(len(lines), len(Log(path).lines))
            self.assertEqual(lines[3:6],
                             ['{"ARGS":["x1","x1"],"INSTRUCTION":"CALL","NAME":"add.Tensor","RESULT":["x2",'
                              '"x3"],"TIME":"17"}',
                                          '{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"x2"}',
                                          '{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x2"}'])
            self.assertEqual((Log(path).live_peak, Log(path).player_peak), (48, 56))


class Torch(Files):
    def setUp(self):
        super().setUp()
        if torch is None:
            self.skipTest("PyTorch is not installed")
        warnings.simplefilter("ignore")
        torch.manual_seed(5)

    def record(self, step, **options):
        """The log of one step, whole and with the peak that the recording says."""
        with oplog.record(self.path, **options) as log:
            result = step()
        del result
        return self.read(log)

    def read(self, log):
        read = Log(self.path)
        self.assertEqual(read.live_peak, log.peak_bytes)
        return read

    def needs_of_modes(self, step):
        """Skips the test where this PyTorch fails at the step under any mode."""
        from torch.utils._python_dispatch import TorchDispatchMode

        class Plain(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        try:
            with Plain():
                step()
        except RuntimeError as error:
            self.skipTest(f"PyTorch {torch.__version__} fails at it under any dispatch mode:"
                          f" {str(error).splitlines()[0]}")

    def parameters(self, *shapes):
        return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


class Operators(Torch):
    """How single operators come out."""

    def check(self, step, operators, **expected):
        """The log of a step: its operators, and what else is expected of it."""
        log = self.record(step, all_live=False)
        self.assertEqual((log.operators(), {name: getattr(log, name) for name in expected}), (operators, expected))
        return log

    def test_single_steps(self):
        """A name for each storage; views are none, and one that is exchanged is the other; outputs in one line; what
        reads makes a storage of no bytes, and what asks for a size is not there; composite operators come apart, in
        inference mode too; other devices are ignored."""
        x, small, ones = torch.randn(10, 10), torch.randn(8, 6), torch.ones(10)
        log = self.check(lambda: x.t().reshape(100).view(4, 25)[1:].unsqueeze(0).sum(),
                         ["clone.default", "sum.default"], constants=["x1"], mutates=[], live_peak=804)
        self.assertEqual([line["ARGS"] for line in log.calls], [["x1"], ["x2"]])
        self.assertEqual([line["NAME"] for line in log.lines if line["INSTRUCTION"] == "RELEASE"][0], "x2")
        log = self.check(lambda: (small.max(dim=1), small.split(3), torch.unbind(small), small.topk(2)),
                         ["max.dim", "topk.default"])
        self.assertEqual([len(line["RESULT"]) for line in log.calls], [2, 2])
        self.check(lambda: (ones.sum().item(), bool(torch.equal(ones, ones)), ones.size(), ones.is_contiguous(),
                            len(ones)), ["sum.default", "_local_scalar_dense.default", "equal.default"], live_peak=44)
        self.check(lambda: (torch.empty(1000, device="meta") + 1, ones + 1), ["add.Tensor"], live_peak=80)
        with torch.inference_mode():
            y, linear = torch.randn(4, 8), torch.nn.Linear(8, 8)
            self.check(lambda: torch.matmul(linear(y), y.t()), ["addmm.default", "mm.default"])
        exchanged, other = torch.zeros(10), torch.ones(20)
        log = self.check(lambda: exchanged.set_(other) + 1, ["add.Tensor"], mutates=[])
        self.assertEqual(log.calls[0]["ARGS"], ["x2"])

    def test_what_is_written(self):
        x, rows = torch.zeros(10, 10), torch.ones(5, 10)

        def step():
            y = x + 1
            y[:5].mul_(rows)                        # a view of y
            y.t()[0].copy_(rows[0])
            torch._foreach_add_([y[0], rows, y[1]], 1.0)  # y once
            torch.add(y, y, out=y)
            return y

        log = self.record(step, all_live=False)
        self.assertEqual(log.operators(), ["add.Tensor"])
        (y,) = log.calls[0]["RESULT"]
        self.assertEqual(log.mutated("mul_.Tensor"), [[y]])
        self.assertEqual(log.mutated("copy_.default"), [[y]])
        self.assertEqual(log.mutated("_foreach_add_.Scalar"), [[y, "x3"]])
        self.assertEqual(log.mutated("add.out"), [[y]])

    def test_made_and_written(self):
        """Statistics of a batch normalization, whose schema may not say so; both lines have some of the time."""
        norm, x = torch.nn.BatchNorm2d(4), torch.randn(3, 4, 5, 5)
        for is_training in (True, False):
            norm.train(is_training)
            log = self.record(lambda: norm(x), all_live=False)
            written = [line for line in log.mutates if "batch_norm" in line["NAME"]]
            self.assertEqual([len(line["MUTATE"]) for line in written], [2] if is_training else [])
            if is_training:
                (call,) = [line for line in log.calls if line["NAME"] == written[0]["NAME"]]
                self.assertEqual(call["ARGS"], written[0]["ARGS"])
                self.assertGreater(int(call["TIME"]), int(written[0]["TIME"]))
                self.assertGreater(int(written[0]["TIME"]), 0)
        before = norm.running_mean.clone()
        norm.train()
        schema_of_old = self.record(lambda: torch.native_batch_norm(x, norm.weight, norm.bias, norm.running_mean,
                                                                    norm.running_var, True, 0.1, 1e-5), all_live=False)
        self.assertFalse(torch.equal(before, norm.running_mean))
        self.assertEqual(len(schema_of_old.mutated("native_batch_norm.default")[0]), 2)

    def test_sizes_change(self):
        """A storage that is resized is another one."""
        x = torch.randn(100)

        def step():
            out = torch.empty(0)
            torch.add(x, 1, out=out)
            out.resize_(1000)
            return out

        log = self.record(step, all_live=False)
        self.assertEqual([(line["NAME"], len(line["RESULT"])) for line in log.calls],
                         [("empty.memory_format", 1), ("add.out", 1), ("resize_.default", 1)])
        self.assertEqual((log.mutates, log.live_peak), ([], 400 + 400 + 4000))
        outside = torch.zeros(10)
        with oplog.record(self.path, all_live=False) as recorded:
            y = outside + 1
            outside.untyped_storage().resize_(800)
            z = outside + 1
        del y, z
        log = self.read(recorded)
        self.assertEqual((log.operators(), len(log.constants)), (["add.Tensor", "add.Tensor"], 2))

    def test_released_in_the_middle(self):
        def step():
            x = torch.ones(1000)
            y = x * 2
            del x
            z = y.sum()
            del y
            return z + torch.ones(500).sum()

        log = self.record(step, all_live=False)
        order = [line["NAME"] for line in log.lines if line["INSTRUCTION"] in ("CALL", "RELEASE")]
        self.assertEqual(order[:5], ["ones.default", "mul.Tensor", "x1", "sum.default", "x2"])
        self.assertEqual(log.live_peak, 8000)

    def test_sparse(self):
        table = torch.nn.Embedding(50, 8, sparse=True)
        log = self.record(lambda: table(torch.tensor([1, 4, 1])).sum().backward(), all_live=False)
        self.assertEqual(log.player_peak, log.live_peak)
        self.assertEqual({name for line in log.calls for name in line["ARGS"]} - set(log.names), set())
        self.assertIsNotNone(table.weight.grad)

    def test_room_of_kernels(self):
        """What an operator takes for itself is one more storage, for as long as it runs. CUDA's allocator says so;
        here a made-up one, with 256 bytes more in use than there are storages, as each operator takes 64 for
        itself."""
        class Lending(oplog.Recording):
            def _lent_bytes(self):
                return self._live_bytes + 256, self._live_bytes + 256 + 64

        x = torch.ones(10)
        with Lending(self.path, all_live=False) as log:
            log._reset_lent_peak = lambda: log._live_bytes + 256
            y = x * 2
            y.add_(x)
            y.sum().item()
        del y
        read = self.read(log)
        self.assertEqual(read.operators(), ["mul.Tensor", "add_.Tensor", "sum.default", "_local_scalar_dense.default"])
        sizes = {line["NAME"]: line["MEMORY"] for line in read.lines if line["INSTRUCTION"] == "MEMORY"}
        self.assertEqual([[sizes[name] for name in line["RESULT"]] for line in read.calls],
                         [["40", "64"], ["64"], ["4", "64"], ["64"]])
        self.assertEqual((log.peak_bytes, log.lent_peak_bytes), (40 + 40 + 4 + 64, 84 + 256 + 64))
        self.assertEqual(len(read.mutates), 1)

    def test_custom_operator(self):
        library = torch.library.Library("varve_test", "DEF")
        library.define("shift(Tensor(a!) self, Tensor other) -> Tensor")
        library.impl("shift", lambda self, other: self.add_(other) * 2, "CompositeExplicitAutograd")
        x = torch.ones(10)
        log = self.record(lambda: torch.ops.varve_test.shift(x, x.clone()), all_live=False)
        self.assertIn("varve_test.shift.default", log.operators())
        self.assertEqual(log.mutated("varve_test.shift.default"), [["x1"]])


class Subclass(Torch):
    def test_what_underlies(self):
        class Twice(torch.Tensor):
            """Two tensors behind one."""

            @staticmethod
            def __new__(cls, first, second):
                return torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype, device=first.device)

            def __init__(self, first, second):
                self.first, self.second = first, second

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                def run(half):
                    return func(*[getattr(value, half) if isinstance(value, cls) else value for value in args],
                                **(kwargs or {}))
                return cls(run("first"), run("second"))

        pair = Twice(torch.randn(100), torch.randn(100))
        log = self.record(lambda: pair * 2 + 1, all_live=False)
        self.assertEqual(log.operators(), ["mul.Tensor"] * 2 + ["add.Tensor"] * 2)
        self.assertEqual(log.live_peak, 6 * 400)

    def test_functions_are_not_asked(self):
        """The recording itself calls no __torch_function__."""
        calls = []

        class Counted(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                calls.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = torch.randn(10).as_subclass(Counted)
        self.needs_of_modes(lambda: x + 1)
        calls.clear()
        (x + 1).sum()
        plain = len(calls)
        calls.clear()
        log = self.record(lambda: (x + 1).sum(), all_live=False)
        self.assertEqual((len(calls), log.operators()), (plain, ["add.Tensor", "sum.default"]))


class Recordings(Torch):
    def test_exception(self):
        x = torch.ones(10)
        for suffix in ("", ".xz"):
            path = self.path + suffix
            with self.assertRaisesRegex(RuntimeError, "must match"):
                with oplog.record(path, all_live=False):
                    y = x * 2
                    y + torch.ones(3)
            self.assertEqual(Log(path).operators(), ["mul.Tensor", "ones.default"])
        count = len(Log(self.path).lines)
        torch.ones(2) + 1
        self.assertEqual(len(Log(self.path).lines), count)

    def test_backward_is_marked(self):
        (weight,) = self.parameters((5, 5))
        with oplog.record(self.path) as log:
            loss = (weight * 2).sum()
            log.backward()
            loss.backward()
        self.assertEqual(self.read(log).marks, [("BACKWARD", 2)])

    def test_what_was_there_before(self):
        parameters = self.parameters((100, 10), (50,))
        parameters[0].grad = torch.ones(100, 10)
        before = [torch.zeros(1000), torch.zeros(10).view(2, 5)]
        with oplog.record(self.path) as log:
            parameters[0].grad = None  # before the first operator: not there any more
            y = parameters[1] + 1
        del y
        read = self.read(log)
        constants = [int(line["MEMORY"]) for line in read.lines if line["INSTRUCTION"] == "MEMORY"]
        self.assertEqual(sorted(constants)[-2:], [4000, 4000])
        self.assertLessEqual({200, 40}, set(constants))
        self.assertEqual(log.device, torch.device("cpu"))
        self.assertEqual(log.other_bytes, 0)
        parameters[0].grad = torch.ones(100, 10)
        del before
        after = self.record(lambda: parameters[1] + 1)
        self.assertEqual(after.first_bytes, read.first_bytes - 40)

    def test_fork_child_writes_nothing(self):
        with oplog.record(self.path, all_live=False) as log:
            x = torch.ones(10)
            child = os.fork()
            if child == 0:
                torch.ones(3) + torch.ones(3)
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            x = x + 1
        del x
        self.assertEqual(self.read(log).operators(), ["ones.default", "add.Tensor"])

    def test_killed(self):
        program = ("import os, signal, sys, torch, varve.oplog\n"
                   "with varve.oplog.record(sys.argv[1], all_live=False):\n"
                   "    x = torch.ones(10)\n"
                   "    for _ in range(100):\n"
                   "        x = x * 2\n"
                   "    os.kill(os.getpid(), signal.SIGKILL)\n")
        for suffix, left in (("", ""), (".gz", ".part")):
            outcome = subprocess.run([sys.executable, "-c", program, self.path + suffix], check=False,
                                     env={**os.environ, "PYTHONPATH": NOTEBOOKS})
            self.assertEqual(outcome.returncode, -signal.SIGKILL)
            self.assertEqual(len(Log(self.path + suffix + left).calls), 101)

    def test_refused(self):
        with self.assertRaises(OSError):
            with oplog.record(os.path.join(self.path, "no", "folder")):
                pass

    def test_command(self):
        script = os.path.join(os.path.dirname(self.path), "train.py")
        with open(script, "w", encoding="utf-8") as stream:
            stream.write("import sys, torch\n"
                         "model = torch.nn.Linear(100, 100)\n"
                         "optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]), momentum=0.9)\n"
                         "for step in range(int(sys.argv[2])):\n"
                         "    optimizer.zero_grad()\n"
                         "    model(torch.randn(8, 100)).square().sum().backward()\n"
                         "    optimizer.step()\n"
                         "print('done', sys.argv[0] == __file__, __name__)\n")

        def run(*arguments):
            return subprocess.run([sys.executable, "-m", "varve.oplog", *arguments], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, env={**os.environ, "PYTHONPATH": NOTEBOOKS})

        outcome = run("-o", self.path, "--step", "3", script, "0.1", "4")
        self.assertEqual((outcome.returncode, outcome.stdout), (0, "done True __main__\n"), outcome)
        self.assertIn("before optimizer step 3", outcome.stderr)
        log = Log(self.path)
        self.assertEqual(log.operators()[0], "randn.default")
        # parameters and momentum; zero_grad came before the first operator
        self.assertEqual(log.first_bytes, 2 * 40400)
        self.assertEqual(log.mutates, [])
        outcome = run("-o", self.path, "--step", "9", script, "0.1", "2")
        self.assertIn("2 optimizer steps ran, none was recorded", outcome.stderr)
        self.assertEqual(run("-o", self.path, "--step", "1", script, "0.1", "2").returncode, 2)


def peak_of_profiler(step):
    """The most bytes that a step had allocated at one time beyond those before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    used = peak = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        used += event.nbytes()
        peak = max(peak, used)
    return peak


class Models(Torch):
    """Training steps: the log is whole, the losses are those without it, and the peak is that of PyTorch's
    allocations."""

    def compare(self, model, inputs, loss_of=lambda result: result.square().mean(), optimizer=None, tolerance=0.01):
        def step():
            loss = loss_of(model(*inputs))
            loss.backward()
            if optimizer:
                optimizer.step()
            return loss.detach()

        def fresh():
            for tensor in model.parameters():
                tensor.grad = None

        states = []
        for _ in range(2):
            step()
            fresh()
        saved = [tensor.clone() for tensor in model.state_dict().values()]
        for run in (self.record, peak_of_profiler, lambda step: step()):
            torch.manual_seed(9)
            states.append(run(step))
            states.append([tensor.clone() for tensor in model.parameters()] +
                          [tensor.grad.clone() for tensor in model.parameters()])
            fresh()
            if optimizer is None:
                with torch.no_grad():
                    for tensor, old in zip(model.state_dict().values(), saved):
                        tensor.copy_(old)
        log, recorded, peak, plain, *_ = states
        if optimizer is None:
            for one, other in zip(recorded, plain):
                self.assertTrue(torch.equal(one, other))
        ours = log.live_peak - log.first_bytes
        print(f"    {self.id().split('.')[-1]}: {len(log.calls)} calls, {len(log.mutates)} mutations, peak {ours} in"
              f" the log, {peak} by the profiler ({(ours - peak) / peak:+.3%})", flush=True)
        self.assertLessEqual(abs(ours - peak), tolerance * peak)
        self.assertGreater(log.time_ns(), 0)
        return log

    def test_mlp(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Linear(512, 512),
                                    torch.nn.Tanh(), torch.nn.Linear(512, 8))
        log = self.compare(model, [torch.randn(256, 64)])
        self.assertEqual(log.mutates, [])
        self.assertEqual(log.player_peak, log.live_peak)

    def test_transformer(self):
        layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True)
        log = self.compare(layer, [torch.randn(8, 64, 64)])
        self.assertIn("native_layer_norm.default", log.operators())

    def test_convolutions(self):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True),
                                    torch.nn.Conv2d(16, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True),
                                    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10))
        log = self.compare(model, [torch.randn(8, 3, 32, 32)], tolerance=0.1)  # the kernels have room of their own
        self.assertEqual(len(log.mutated("relu_.default")), 2)
        self.assertEqual([len(names) for names in log.mutated("_native_batch_norm_legit.default")]
                         or [len(names) for names in log.mutated("native_batch_norm.default")], [2, 2])

    def test_adam(self):
        """The same step as many operators, as some on lists, as one; mutations are seen in each form."""
        lists = ["_foreach_addcdiv_.ScalarList", "_foreach_addcdiv_.Tensor"]  # as older and newer versions have it
        for how, names, written in (({"foreach": False}, ["addcdiv_.default"], [1] * 4),
                                    ({"foreach": True}, lists, [4]),
                                    ({"fused": True}, ["_fused_adam_.default"], [4 * 4])):  # with gradients, averages
            with self.subTest(**how):
                model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
                optimizer = torch.optim.Adam(model.parameters(), **how)
                log = self.compare(model, [torch.randn(16, 64)], optimizer=optimizer)
                self.assertEqual([len(one) for name in names for one in log.mutated(name)], written)

    def test_checkpoint(self):
        class Blocks(torch.nn.Module):
            def __init__(self, reentrant):
                super().__init__()
                self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(),
                                                                      torch.nn.Linear(512, 128))
                                                  for _ in range(3))
                self.reentrant = reentrant

            def forward(self, x):
                for block in self.blocks:
                    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
                return x

        for reentrant in (False, True):
            log = self.compare(Blocks(reentrant), [torch.randn(64, 128, requires_grad=True)])
            self.assertEqual(log.operators().count("gelu.default"), 6)

    def test_views_and_indices(self):
        def forward(model, x):
            q, k, v = (x @ model.weight).reshape(8, 16, 3, 32).permute(2, 0, 1, 3).unbind(0)
            y = torch.einsum("bik,bjk->bij", q, k).tril().softmax(-1) @ v
            z = y.clone()
            z[:, ::2] += 1
            z[:, 1::2].mul_(2)
            return torch.cat([z, y.flip(1)], dim=-1)[:, [3, 1, 5]]

        self.compare(self.weighted(forward, 64, 96), [torch.randn(8, 16, 64)])

    def test_complex(self):
        model = self.weighted(lambda model, x: torch.fft.ifft(torch.fft.fft(x @ model.weight) * 1j).imag, 32, 32)
        x = torch.randn(4, 16, 32)
        self.needs_of_modes(lambda: model(x).sum().backward())
        self.compare(model, [x])

    @staticmethod
    def weighted(forward, *shape):
        """A model of one parameter."""
        model = type("Model", (torch.nn.Module,), {"forward": forward})()
        model.weight = torch.nn.Parameter(torch.randn(*shape))
        return model


if __name__ == "__main__":
    recording.main()
