# SPDX-License-Identifier: Apache-2.0
"""What the tests of PyTorch on a GPU share: whether there is one, programs run natively and under varve, two of them
taking turns, and figures as JSON lines. VARVE names the command; python3 is the one that has PyTorch, or
VARVE_TEST_PYTHON."""

import functools
import glob
import json
import os
import signal
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("VARVE_TEST_PYTHON") or sys.executable
WORKLOAD = os.path.join(HERE, "torch_workload.py")
FAILED, DUPLICATE = 1, 8  # event.flags


@functools.lru_cache(None)
def gpu_count():
    """GPUs that PyTorch can use, or why it is none."""
    if not glob.glob("/dev/nvidia[0-9]*") and not os.path.exists("/dev/dxg"):
        return "no NVIDIA GPU here"
    code = "import torch; print(torch.cuda.device_count(), torch.version.cuda)"
    asked = subprocess.run([PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    words = asked.stdout.split()
    if asked.returncode != 0 or len(words) != 2:
        return f"{PYTHON} has no PyTorch"
    return int(words[0]) or "PyTorch finds no GPU"


def figure(name, **values):
    print(json.dumps({"figure": name, **values}), flush=True)


def environment():
    """Without PyTorch's settings, and with what makes a Python import varve's part of it."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    shim = os.path.join(recording.ROOT, "alloc", "frontend", "python", "sitecustomize.py")
    variables.setdefault("VARVE_PYTHON", shim)
    return variables


def in_turns(both, line, blocks, steps):
    """Two paced workloads, each waiting while the other runs: `blocks` times a block of `steps` steps each. Returns of
    each block what both answered, (seconds, allocations); `line` reads a line of a process."""
    answers = []
    for number in range(blocks):
        block = {}
        for process in both if number % 2 == 0 else both[::-1]:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
            seconds, allocations = line(process, "block")
            block[process] = (float(seconds), int(allocations))
        answers.append(tuple(block[process] for process in both))
    return answers


class GpuCase(recording.Case):
    GPUS = 1
    started = 0

    def setUp(self):
        super().setUp()
        count = gpu_count()
        if isinstance(count, str) or count < self.GPUS:
            reason = count if isinstance(count, str) else f"{self.GPUS} GPUs are needed, here is {count}"
            if os.environ.get("VARVE_TESTS_STRICT") == "1" and self.GPUS == 1 and "PyTorch" not in reason:
                self.fail(reason)
            self.skipTest(reason)
        self.environment = environment()

    def file(self, name):
        return os.path.join(self.folder, name)

    def answer(self, name):
        with open(self.file(name), encoding="utf-8") as stream:
            return json.load(stream)

    def command(self, name, arguments, varve=None):
        """Of the workload; `varve`: options of record, whose database is self.path."""
        program = [PYTHON, WORKLOAD, "--json", self.file(name), *arguments]
        return program if varve is None else self.record_command(*program, options=["-q", *varve])

    def workload(self, name, *arguments, varve=None, **environment):
        """Run to the end; the answer, and what it said on stderr."""
        outcome = recording.run(self.command(name, arguments, varve), cwd=self.folder,
                                env={**self.environment, **environment})
        self.assertEqual(outcome.returncode, 0, outcome)
        return self.answer(name), outcome.err

    def start(self, command):
        self.started += 1
        with open(self.file(f"err{self.started}"), "w", encoding="utf-8") as err:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                                       cwd=self.folder, env=self.environment, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        for stream in (process.stdin, process.stdout):
            stream.close()

    def errors(self):
        texts = []
        for path in sorted(glob.glob(self.file("err*"))):
            with open(path, encoding="utf-8", errors="replace") as stream:
                texts.append(stream.read()[-3000:])
        return "\n".join(texts)

    def line(self, process, word):
        """The rest of the next line of stdout that begins with `word`."""
        for line in process.stdout:
            if line.split()[:1] == [word]:
                return line.split()[1:]
        self.fail(f"the program ended before it said '{word}'\n" + self.errors())
        return None

    def take_turns(self, arguments, varve, pairs, steps, warmup=0):
        """The workload natively and under varve in two processes that live together (in_turns), after `warmup` blocks
        that do not count. Returns both answers, and of each pair (seconds, allocations) of the native block and of
        ours."""
        both = [self.start(self.command("native.json", ["--paced", *arguments])),
                self.start(self.command("varve.json", ["--paced", *arguments], varve))]
        for process in both:
            self.line(process, "ready")
        blocks = in_turns(both, self.line, warmup + pairs, steps)
        for process in both:
            process.stdin.close()
            process.stdout.read()
            self.assertEqual(process.wait(), 0, self.errors())
        return self.answer("native.json"), self.answer("varve.json"), blocks[warmup:]


def median(values):
    return round(statistics.median(values), 5)
