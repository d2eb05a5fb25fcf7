#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""PyTorch on varve's allocator against PyTorch on its own, with recording: the same numbers bit for bit, the same
memory, every block with its Python line, and the time of a step. Two processes take turns on the GPU
(torch_support.py), so a model costs one start of each. VARVE_TEST_PAIRS and VARVE_TEST_STEPS change the five pairs
and the steps of each, VARVE_TEST_WARMUP the pairs before them that do not count."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import GpuCase, figure, median, recording  # noqa: E402

PAIRS = int(os.environ.get("VARVE_TEST_PAIRS", "5"))
WARMUP = int(os.environ.get("VARVE_TEST_WARMUP", "2"))
SAME = ("losses", "tokens", "num_device_alloc", "num_device_free", "num_alloc_retries", "num_ooms",
        "segment.all.allocated", "allocation.all.allocated", "reserved_bytes.all.peak",
        "reserved_bytes.all.allocated", "allocated_bytes.all.peak", "active_bytes.all.peak")
WITHOUT_PYTHON = ("FROM allocation a JOIN domain d ON d.code = a.domain WHERE d.name = 'block' AND NOT EXISTS"
                  " (SELECT 1 FROM frame f WHERE f.callsite_id = a.callsite_id AND f.is_python)")


class Models(GpuCase):
    def check(self, model, steps, *arguments):
        steps = int(os.environ.get("VARVE_TEST_STEPS", steps))
        native, varve, blocks = self.take_turns(["--model", model, "--deterministic", *arguments],
                                                ["--torch", "--stacks", "python"], PAIRS, steps, WARMUP)
        self.emit_times(model, native, varve, blocks, steps)
        figure("memory", model=model, **{key: [native[key], varve[key]] for key in SAME if "." in key})
        self.assertEqual((native["backend"], varve["backend"]), ("native", "native"))
        for key in SAME:
            self.assertEqual(varve.get(key), native.get(key), key)
        self.check_database(model, varve)

    def emit_times(self, model, native, varve, blocks, steps):
        """The figure is the median of the pairs; the shortest steps of both show what others on the machine have no
        part in."""
        ratios = [ours / its for (its, _), (ours, _) in blocks]
        shortest = [min(answer["step_seconds"][-PAIRS * steps:]) for answer in (native, varve)]
        rates = [[round(allocations / seconds) for seconds, allocations in pair] for pair in blocks]
        figure("step_time", model=model, median_ratio=median(ratios), ratios=[round(ratio, 5) for ratio in ratios],
               ratio_of_minima=round(shortest[1] / shortest[0], 5),
               shortest_step_s=[round(time, 6) for time in shortest],
               native_step_s=median(its / steps for (its, _), _ in blocks),
               varve_step_s=median(ours / steps for _, (ours, _) in blocks),
               allocations_per_s=rates, steps_per_block=steps, device=native["device_name"])

    def check_database(self, model, varve):
        self.assert_finished()
        self.assert_no_loss()
        blocks = self.one("SELECT count(*) FROM allocations WHERE domain = 'block'")
        without = self.one("SELECT count(*) " + WITHOUT_PYTHON)
        threads = self.sql("SELECT t.name, count(*) FROM allocation a JOIN domain d ON d.code = a.domain"
                           " LEFT JOIN event e ON e.seq = a.alloc_seq LEFT JOIN thread t ON t.id = e.thread_id"
                           " WHERE d.name = 'block' GROUP BY 1")
        lines = self.one("SELECT count(DISTINCT f.file || ':' || f.line) FROM callsite_stat c JOIN domain d ON "
                         "d.code = c.domain"
                         " JOIN frame f USING(callsite_id) WHERE d.name = 'block' AND f.is_python")
        figure("attribution", model=model, blocks=blocks, without_python=without, threads=threads, lines=lines,
               bytes_of_database=os.path.getsize(self.path))
        self.assertGreaterEqual(blocks, varve["allocation.all.allocated"])
        examples = self.sql("SELECT a.size, a.tid, a.callsite_id, count(*) " + WITHOUT_PYTHON
                            + " GROUP BY 1, 2, 3 LIMIT 5")
        self.assertEqual(without, 0, f"blocks without a Python line, such as {examples}")

    def test_gpt2(self):
        self.check("gpt2", 15)

    def test_resnet50(self):
        self.check("resnet50", 60)

    def test_generate(self):
        self.check("generate", 3, "--warmup", "1")


class Expandable(GpuCase):
    def test_same_memory(self):
        """The same with PyTorch's settings of expandable segments."""
        self.environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
        native, varve, _ = self.take_turns(["--model", "resnet50", "--deterministic"], ["--torch", "--stacks", "none"],
                                           1, 2)
        for key in SAME:
            self.assertEqual(varve.get(key), native.get(key), key)


class Questions(GpuCase):
    def test_all(self):
        """What programs ask torch.cuda.memory, and what needs hooks: torch_questions.py says of each whether it went
        well."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_questions.py")
        outcome = self.record(os.environ.get("VARVE_TEST_PYTHON") or sys.executable, script, self.file("dump.pickle"),
                              options=["-q", "--torch"], env=self.environment, cwd=self.folder)
        said = recording.json_lines(outcome.out)[-1]
        figure("questions", **said, stderr=outcome.err.splitlines()[-8:])
        self.assertEqual({name: text for name, text in said.items() if text != "ok"}, {}, outcome)
        self.assert_finished()
        self.assertGreaterEqual(self.one("SELECT count(*) FROM oom"), 1)
        imported = recording.varve("import", self.file("dump.pickle"), "-o", self.file("dump.db"))
        self.assertEqual(imported.returncode, 0, imported)


if __name__ == "__main__":
    recording.main()
