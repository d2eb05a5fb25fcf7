#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Programs as people write them with PyTorch (torch_programs.py), plainly and in each way of recording them: the same
results bit for bit, the same exit, the same statistics of the memory. VARVE_TEST_PROGRAMS chooses some of them by their
names, VARVE_TEST_WAYS some of the ways; VARVE_TEST_JOBS (4) is how many run at a time."""

import concurrent.futures
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import HERE, PYTHON, GpuCase, figure, recording  # noqa: E402

JOBS = int(os.environ.get("VARVE_TEST_JOBS", "4"))
LIMIT_S = os.environ.get("VARVE_TEST_LIMIT_S", "600")  # of one run: a program that waits for good is told from others
PROGRAM = os.path.join(HERE, "torch_programs.py")
NAMES = ("compiled", "reduce_overhead_training", "reduce_overhead_inference", "graphs", "mem_pools", "ipc",
         "memory_api", "oom_recovery", "own_history", "profiler", "amp_checkpointing", "linalg_fft", "streams_workers",
         "generate", "threads", "accumulation", "attention", "quantized", "sparse", "channels_last", "scripted",
         "exported", "vmapped", "storages", "fsdp2", "ddp")
TUNED = ("compiled", "reduce_overhead_training", "reduce_overhead_inference", "exported")
CHOSEN = os.environ.get("VARVE_TEST_PROGRAMS", "").split() or NAMES
EXPANDABLE = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# name: (options of record, environment, the plain runs that it equals)
WAYS = {"plain": (None, {}, ()), "plain again": (None, {}, ()),
        "expandable": (None, EXPANDABLE, ()), "expandable again": (None, EXPANDABLE, ()),
        "torch": (["--torch"], {}, ("plain", "plain again")),
        "torch expandable": (["--torch"], EXPANDABLE, ("expandable", "expandable again")),
        "observe": (["--torch=observe"], {}, ("plain", "plain again")),
        "default": ([], {}, ("plain", "plain again")),
        # Before all others: what torch.compile measures to choose its kernels allocates, as often as there is time.
        "tuning": (None, {}, ())}
ASKED = os.environ["VARVE_TEST_WAYS"].split(",") if "VARVE_TEST_WAYS" in os.environ else list(WAYS)
NEEDED = {*ASKED, *(plain for asked in ASKED for plain in WAYS[asked][2])} - {"tuning"}
CHOSEN_WAYS = [way for way in WAYS if way in NEEDED]
# Programs whose own threads ask at a time: what is there at once, and how blocks are cut, is the order's. The sums are
# the same.
RACING = ("threads",)
RACING_FIGURES = re.compile(r"\.(peak|reserved|inactive_split|segment|num_)")


def leaves(value, path=""):
    """(path, value) of what lists and dictionaries have in the end."""
    if not isinstance(value, (dict, list)) or not value:
        return {path: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return {deeper: leaf for key, inner in pairs for deeper, leaf in leaves(inner, f"{path}.{key}").items()}


def group_of(path):
    """The figures of one statistic go together."""
    return re.sub(r"\.(all|small_pool|large_pool)\..*", "", path)


class Programs(GpuCase):
    def run_way(self, name, way):
        options, environment, _ = WAYS[way]
        folder = self.file(f"{name} {way}".replace(" ", "_"))
        os.mkdir(folder)
        command = [PYTHON, PROGRAM, name]
        if options is not None:
            command = [recording.VARVE, "record", "-q", *options, "-o", os.path.join(folder, "trace.db"), "--",
                       *command]
        began = time.monotonic()
        outcome = recording.run(["timeout", "-k", "9", LIMIT_S, *command], cwd=folder,
                                env={**self.environment, **environment, "TORCHINDUCTOR_CACHE_DIR": self.file(name)})
        said = recording.json_lines(outcome.out)
        figure("run", program=name, way=way, status=outcome.returncode, seconds=round(time.monotonic() - began, 1))
        return outcome, said[-1] if said else {}

    def racing_groups(self, results, name):
        """Of what differs between two plain runs, with the same settings whichever: where threads race, or where the
        order of additions is the device's."""
        racing = set()
        for first, second in (("plain", "plain again"), ("expandable", "expandable again")):
            if first in CHOSEN_WAYS and second in CHOSEN_WAYS:
                one, other = (leaves(results[name, way][1]) for way in (first, second))
                racing |= {group_of(path) for path in one.keys() | other.keys()
                           if one.get(path, self) != other.get(path, self)}
        return racing

    def differences(self, name, outcome, said, plain, racing):
        """What differs from a plain run and did not differ between plain runs."""
        ours, theirs = leaves(said), leaves(plain)
        found = [] if outcome.returncode == 0 else [f"exit status {outcome.returncode}: {outcome.err[-1500:]}"]
        found += [f"{path}: {str(ours.get(path))[:200]} beside {str(theirs.get(path))[:200]}"
                  for path in sorted(ours.keys() | theirs.keys())
                  if group_of(path) not in racing and not (name in RACING and RACING_FIGURES.search(path))
                  and ours.get(path, self) != theirs.get(path, self)]
        return found

    def test_programs(self):
        wrong, count = [], 0
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for tuning in [pool.submit(self.run_way, name, "tuning") for name in CHOSEN if name in TUNED]:
                tuning.result()
            runs = {(name, way): pool.submit(self.run_way, name, way) for name in CHOSEN for way in CHOSEN_WAYS}
            results = {key: run.result() for key, run in runs.items()}
        for name in CHOSEN:
            racing = self.racing_groups(results, name)
            for way in CHOSEN_WAYS:
                outcome, said = results[name, way]
                plain = results[name, WAYS[way][2][0]][1] if WAYS[way][2] else said
                found = self.differences(name, outcome, said, plain, racing)
                lines = [line for line in outcome.err.splitlines() if line.startswith("varve: ")]
                count += not found
                figure("program", program=name, way=way, differences=found[:20], racing=sorted(racing), said=lines)
                wrong += [f"{name}, {way}: {text}" for text in found]
        figure("programs", equal=count, of=len(CHOSEN) * len(CHOSEN_WAYS))
        self.assertEqual(wrong, [])

    def test_all_are_here(self):
        """NAMES has every program."""
        listed = recording.run([PYTHON, "-c", "import torch_programs as it; print(*it.PROGRAMS)"], cwd=HERE)
        self.assertEqual(listed.out.split(), list(NAMES))


if __name__ == "__main__":
    recording.main()
