#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of five models under `varve record --torch`, beside the same without: how many times as long.

Both processes of a model live at a time and take turns on the GPU (tests/gpu/torch_support.py): blocks of
VARVE_BENCH_STEP_STEPS steps, VARVE_BENCH_STEP_ROUNDS of them, after steps that do not count. Of each block the
median step counts, the GPU's work included, and of each process its best block. The models are those of
tests/gpu/torch_workload.py, with random weights and AdamW; VARVE_BENCH_STEP_MODELS chooses some. Wants a GPU, and
PyTorch, transformers, torchvision and timm for VARVE_TEST_PYTHON (this interpreter).
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gpu"))
import common as bench  # noqa: E402
import torch_support  # noqa: E402

BENCH = "torch_step"
RATIO = 1.02  # the budget of the median model
MODELS = ("gpt2", "llama", "resnet50", "vit", "unet")
CHOSEN = os.environ.get("VARVE_BENCH_STEP_MODELS", "").split() or MODELS
ROUNDS = bench.number("VARVE_BENCH_STEP_ROUNDS", 3)
STEPS = bench.number("VARVE_BENCH_STEP_STEPS", 30)
WARMUP_STEPS = 10  # when it has started, and once more in turn


class Paced:
    """The workload in a process of its own."""

    def __init__(self, folder, model, name, prefix=()):
        self.name, self.answer_path = name, os.path.join(folder, name + ".json")
        self.err_path = os.path.join(folder, name + ".err")
        with open(self.err_path, "w", encoding="utf-8") as err:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                [*prefix, torch_support.PYTHON, torch_support.WORKLOAD, "--paced", "--model", model, "--warmup",
                 str(WARMUP_STEPS), "--json", self.answer_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=err, text=True, env=torch_support.environment(), start_new_session=True)
        self.stdin = self.process.stdin

    def broken(self, what):
        with open(self.err_path, encoding="utf-8", errors="replace") as stream:
            return bench.Broken(f"{self.name}: {what}\n{stream.read()[-2000:]}")

    def line(self, word):
        for line in self.process.stdout:
            if line.split()[:1] == [word]:
                return line.split()[1:]
        raise self.broken(f"ended before it said '{word}'")

    def finish(self):
        """Its answer."""
        self.stdin.close()
        self.process.stdout.read()
        if self.process.wait() != 0:
            raise self.broken(f"status {self.process.returncode}")
        with open(self.answer_path, encoding="utf-8") as stream:
            return json.load(stream)

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def medians(answer):
    """Of each round's block, in seconds."""
    times = answer["step_seconds"][-ROUNDS * STEPS:]
    return [statistics.median(times[at:at + STEPS]) for at in range(0, ROUNDS * STEPS, STEPS)]


def run_both(folder, model):
    """The answers without and with --torch, of which the database has every allocation."""
    database = os.path.join(folder, "recorded.db")
    both = []
    try:
        both.append(Paced(folder, model, "plain"))
        both.append(Paced(folder, model, "torch", bench.record_command(database, "--torch")))
        for one in both:
            one.line("ready")
        torch_support.in_turns(both, Paced.line, 1, WARMUP_STEPS)
        torch_support.in_turns(both, Paced.line, ROUNDS, STEPS)
        answers = [one.finish() for one in both]
    finally:
        for one in both:
            one.end()
    bench.conservation(database, answers[1]["allocation.all.allocated"])
    os.remove(database)
    return answers


def measure_model(folder, model):
    """How many times as long a step is."""
    began = time.perf_counter()
    plain, recorded = run_both(folder, model)
    rounds = [[round(seconds * 1e3, 3) for seconds in medians(answer)] for answer in (plain, recorded)]
    ratio = min(medians(recorded)) / min(medians(plain))
    bench.figure(BENCH, f"step of {model}", ratio, "times", plain_ms=rounds[0], torch_ms=rounds[1],
                 allocations=recorded["allocation.all.allocated"], device=recorded["device_name"],
                 same_losses=plain["losses"] == recorded["losses"], whole_s=round(time.perf_counter() - began, 1))
    return ratio


def measure(folder):
    count = torch_support.gpu_count()
    if isinstance(count, str):
        bench.skip(BENCH, count)
        return
    ratios = [measure_model(folder, model) for model in CHOSEN]
    bench.figure(BENCH, f"step, median of {len(ratios)} models", statistics.median(ratios), "times", RATIO,
                 ratios=[round(ratio, 4) for ratio in ratios])


if __name__ == "__main__":
    bench.main(measure)
