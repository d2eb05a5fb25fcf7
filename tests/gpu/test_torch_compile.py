#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""A training under torch.compile, on varve's allocator and on PyTorch's own: the report's first lines are the model's,
though what allocates is code that PyTorch generated, and the loss is the one of a plain run."""

import glob
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import HERE, PYTHON, GpuCase, figure, recording  # noqa: E402

PROGRAM = os.path.join(HERE, "torch_compiled.py")


class Compiled(GpuCase):
    def check(self, option):
        self.environment["TORCHINDUCTOR_CACHE_DIR"] = self.file("torchinductor_cache")
        plain = recording.run([PYTHON, PROGRAM], cwd=self.folder, env=self.environment)
        self.assertEqual(plain.returncode, 0, plain)
        outcome = self.record(PYTHON, PROGRAM, options=["-q", option], env=self.environment, cwd=self.folder)
        self.assertAlmostEqual(float(outcome.out), float(plain.out), 3)
        histories = glob.glob(self.file("*.torch.*.db"))
        report = json.loads(self.varve("report", "--json", "--frames", "0", *(histories or [self.path])).out)
        block, = [domain for domain in report["domains"] if domain["domain"] == "block"]
        for name, rows in (("peak", block["peak"]["callsites"]), ("by_bytes", block["by_bytes"]["callsites"])):
            lines = [(row["user_function"], os.path.basename(row["user_file"] or ""), row["user_line"], row["bytes"],
                      row["peak_bytes"]) for row in rows[:5]]
            figure("compiled", option=option, list=name, lines=lines)
            self.assertEqual([line[1] for line in lines], [os.path.basename(PROGRAM)] * len(lines))
            self.assertGreater(len(lines), 3)

    def test_on_varve(self):
        self.check("--torch")

    def test_observed(self):
        self.check("--torch=observe")


if __name__ == "__main__":
    recording.main()
