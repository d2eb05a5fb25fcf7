#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Operator logs (varve.oplog) of training steps on a GPU: `varve dtr` without a budget has the peak that PyTorch's
allocator counts in the same step, unrecorded, within 1 %. Wants PyTorch, transformers and torchvision.

  test_oplog_gpu.py [--step gpt2|resnet50 LOG]     the part that runs under PyTorch's Python"""

import gc
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import PYTHON, GpuCase, recording  # noqa: E402

NOTEBOOKS = os.path.join(recording.ROOT, "notebooks")
MISSING = 77
TOLERANCE = 0.01
MIB = 1 << 20


# ---- what runs under PyTorch ----

def gpt2(torch):
    """GPT-2 small, of random weights: batch 4, length 256."""
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(use_cache=False)
    model = GPT2LMHeadModel(config).cuda().train()
    words = torch.randint(config.vocab_size, (4, 256), device="cuda")
    return model, lambda: model(input_ids=words, labels=words).loss


def resnet50(torch):
    """ResNet-50, of random weights: batch 16."""
    from torchvision.models import resnet50 as build
    torch.backends.cudnn.benchmark = False
    model = build(weights=None).cuda().train()
    images, labels = torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(1000, (16,), device="cuda")
    return model, lambda: torch.nn.functional.cross_entropy(model(images), labels)


def run_step(name, path):
    """The figures of a step as PyTorch has them, and of the same step recorded."""
    try:
        import torch
        torch.manual_seed(1)
        model, loss_of = {"gpt2": gpt2, "resnet50": resnet50}[name](torch)
    except ImportError as error:
        print(error)
        return MISSING
    sys.path.insert(0, NOTEBOOKS)
    import varve.oplog

    def measured(step):
        gc.collect()
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        time_ns = time.perf_counter_ns() - start
        statistics = torch.cuda.memory_stats()
        return {"requested": statistics["requested_bytes.all.peak"],
                "allocated": statistics["allocated_bytes.all.peak"], "time_ns": time_ns}

    def plain():
        loss_of().backward()

    def recorded():
        with varve.oplog.record(path) as log:
            loss = loss_of()
            log.backward()
            loss.backward()
        figures.update(log_peak=log.peak_bytes, other=log.other_bytes, lent_peak=log.lent_peak_bytes)

    figures = {}
    for _ in range(2):
        measured(plain)
    figures.update(plain=measured(plain), recorded=measured(recorded), torch=torch.__version__,
                   gpu=torch.cuda.get_device_name())
    print(json.dumps(figures))
    return 0


# ---- the tests ----

class Logs(GpuCase):
    def play(self, log, *options):
        """What `varve dtr --json` says, of runs that failed for want of memory as well."""
        outcome = recording.varve("dtr", log, "--json", *options)
        self.assertEqual(len(recording.json_lines(outcome.out)), 1, outcome)
        return recording.json_lines(outcome.out)[0]

    def smallest_budget(self, log, peak):
        """By bisection to 1 % of the peak; a budget below one that fails may serve again, so it need not be the
        smallest of all."""
        low, best = 0, self.play(log, "--heuristic", "dtr-eq", "--budget", str(peak))
        high = peak
        while high - low > peak // 100:
            budget = (low + high) // 2
            played = self.play(log, "--heuristic", "dtr-eq", "--budget", str(budget))
            if played["status"] == "ok":
                high, best = budget, played
            else:
                low = budget
        return high, best

    def compare(self, name):
        log = self.file(f"{name}.log.xz")
        outcome = subprocess.run([PYTHON, os.path.abspath(__file__), "--step", name, log], stdout=subprocess.PIPE,
                                 text=True, check=False, env=self.environment)
        if outcome.returncode == MISSING:
            self.skipTest(outcome.stdout.strip())
        self.assertEqual(outcome.returncode, 0, outcome)
        figures = json.loads(outcome.stdout.splitlines()[-1])
        played = self.play(log, "--budget", "none")
        self.assertEqual(played["status"], "ok")
        requested, log_peak, player = figures["plain"]["requested"], figures["log_peak"], int(played["max_memory"])
        budget, least = self.smallest_budget(log, player)
        cost = int(least["clock"]) / int(least["model_compute"])
        print(f"\n{name}: {figures['gpu']}, PyTorch {figures['torch']}; MiB\n"
              f"  PyTorch's peak, unrecorded   {requested / MIB:10.1f}   requested; "
              f"{figures['plain']['allocated'] / MIB:.1f} in blocks\n"
              f"  the same, recorded           {figures['lent_peak'] / MIB:10.1f}\n"
              f"  of the storages in the log   {log_peak / MIB:10.1f}   {(log_peak - requested) / requested:+.3%};"
              f" {figures['other'] / MIB:.1f} held by no tensor\n"
              f"  of the player, no budget     {player / MIB:10.1f}   {(player - requested) / requested:+.3%}: and "
              f"copies of what was"
              " written in place\n"
              f"  least budget that serves     {budget / MIB:10.1f}   {budget / player:.3f} of the peak, {cost:.3f} "
              f"of the time\n"
              f"  time: a step {figures['plain']['time_ns'] / 1e6:.1f} ms, recorded "
              f"{figures['recorded']['time_ns'] / 1e6:.1f} ms,"
              f" operators {int(played['model_compute']) / 1e6:.1f} ms", flush=True)
        self.assertLessEqual(abs(figures["lent_peak"] - requested), TOLERANCE * requested, "recording changes the step")
        self.assertLessEqual(abs(log_peak - requested), TOLERANCE * requested)
        self.assertLessEqual(abs(player - requested), TOLERANCE * requested)
        self.assertLess(budget, player)

    def test_gpt2(self):
        self.compare("gpt2")

    def test_resnet50(self):
        self.compare("resnet50")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        sys.exit(run_step(*sys.argv[2:]))
    recording.main()
