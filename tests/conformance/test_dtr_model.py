#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 45 s
"""`varve dtr` on random logs: whatever the heuristic, the budget and the policy, the figures are those of the published
simulator of DTR (simrd), also where a run ends for want of memory or in thrashing. They are in dtr_figures.txt, three
letters a run, as they were recorded when a model of the simulator played the same logs and came to the same. And the
figures of linear networks, which were measured with the simulator.

A failure tells the log's seed and leaves the log. VARVE_TEST_SEED=N begins with that log, VARVE_DTR_LOGS=N is the
number of them."""

import base64
import concurrent.futures
import hashlib
import json
import os
import random
import shlex
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import dtr_logs  # noqa: E402
import recording  # noqa: E402

SEED = int(os.environ.get("VARVE_TEST_SEED") or 1)
LOGS = int(os.environ.get("VARVE_DTR_LOGS") or (50 if recording.IS_FULL else 7))
RUNS_OF_HEURISTIC = 2  # in each log
FAILURES_MAX = 5
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dtr_figures.txt")
NEAR_TIES = 12  # whose figures are in the file's line 0
FIGURES = ("status", "clock", "remat_compute", "model_compute", "max_memory", "evictions", "op_executions",
           "heuristic_evals", "heuristic_accesses")
HEURISTICS = ("dtr", "dtr-eq", "dtr-local", "dtr-union", "msps", "size", "lru", "random", "ab-e", "ab-e-size",
              "ab-e-stale", "ab-eq", "ab-eq-size", "ab-eq-stale", "ab-local", "ab-local-size", "ab-local-stale",
              "ab-size-stale", "ab-stale")
# What runtime V1 has nothing for; where the accesses of a search depend on the order in which classes were joined.
WITHOUT_BANISHING = ("dtr", "dtr-eq", "msps", "ab-e", "ab-e-size", "ab-e-stale", "ab-eq", "ab-eq-size", "ab-eq-stale")
CLASSES = ("dtr-eq", "ab-eq", "ab-eq-size", "ab-eq-stale")

# (N, budget): extra operations, evictions and scores, measured with the simulator. None: more than 40 N extra
# operations.
COLUMNS = ("dtr", "dtr-eq", "dtr-local", "lru", "ab-e", "ab-e-size", "msps", "size")


def row(dtr, local, ab_e, msps, size):
    return dict(zip(COLUMNS, (dtr, dtr, local, local, ab_e, ab_e, msps, size)))


LINEAR = {
    (64, 16): row((49, 176, 734), (161, 288, 2302), (74, 201, 1084), (60, 187, 888), (1224, 1351, 17184)),
    (64, 8): row((102, 229, 668), (598, 725, 3644), (205, 332, 1286), (104, 231, 680), (1652, 1779, 9968)),
    (64, 18): row((46, 173, 782), (142, 269, 2318), (49, 176, 830), (56, 183, 942), (1127, 1254, 18078)),
    (64, 7): row((129, 256, 702), (731, 858, 3712), (169, 296, 902), (128, 255, 697), (1710, 1837, 8607)),
    (256, 32): row((230, 741, 7124), (1982, 2493, 59684), (373, 884, 11414), (304, 815, 9344), None),
    (256, 16): row((400, 911, 5840), (6984, 7495, 98016), (996, 1507, 14184), (428, 939, 6232), None),
    (256, 24): row((295, 806, 6722), (3832, 4343, 84536), (507, 1018, 11386), (348, 859, 7888), None),
    (256, 9): row((770, 1281, 5637), None, (1646, 2157, 11769), (963, 1474, 6988), None),
    (1024, 64): row((988, 3035, 62216), (26604, 28651, 1650408), (1716, 3763, 107352), (1469, 3516, 92038), None),
    (1024, 32): row((1628, 3675, 49832), None, (4478, 6525, 135332), (1816, 3863, 55472), None),
    (1024, 30): row((1696, 3743, 48482), None, (6041, 8088, 170142), (1830, 3877, 52234), None),
    (1024, 11): row((4138, 6185, 38255), None, (14305, 16352, 129758), (5866, 7913, 53807), None),
}
LINEAR_LIMIT = 20  # times the costs of both passes, 2 N


def linear_figures(figures):
    return None if figures["status"] == "thrash" else tuple(
        figures[key] for key in ("remat_compute", "evictions", "heuristic_evals"))


class Play:
    """One run of a log: what it is asked for, and as arguments of the command."""

    def __init__(self, heuristic, budget, dealloc="eager", remat_limit=1.0, seed=0):
        self.options = {"heuristic": heuristic, "budget": budget, "dealloc": dealloc, "remat_limit": remat_limit,
                        "seed": seed}

    def command(self, path):
        arguments = [recording.VARVE, "dtr", path, "--json"]
        for name, value in self.options.items():
            arguments += ["--" + name.replace("_", "-"), "none" if value is None else str(value)]
        return arguments

    def of_varve(self, path):
        outcome = recording.run(self.command(path))
        try:
            return {"exit status": outcome.returncode, **json.loads(outcome.out)}
        except ValueError:
            return {"exit status": outcome.returncode, "error": repr(outcome)}

    def contradiction(self, got):
        """Something that can be in no run."""
        if got["exit status"] != 0 or got.get("status") not in ("ok", "oom", "thrash"):
            return f"it ended with {got}"
        if got["clock"] != 1 + got["model_compute"] + got["remat_compute"]:
            return f"the clock is not the sum of all costs: {got}"
        if self.options["budget"] is not None and got["max_memory"] > self.options["budget"]:
            return f"more memory than the budget: {got}"
        return None

    def letters(self, got):
        figures = [got[key] for key in FIGURES[:len(FIGURES) - (self.options["heuristic"] in CLASSES)]]
        return base64.b64encode(hashlib.sha256(repr(figures).encode()).digest()).decode()[:3]


def plays_of(seed, path):
    draw = random.Random(seed)
    free = Play("dtr", None, remat_limit=None)
    figures = free.of_varve(path)
    peak, floor = figures["baseline_memory"], min(figures["lower_bound"], figures["baseline_memory"])
    plays = [free]
    for heuristic in HEURISTICS:
        for _ in range(RUNS_OF_HEURISTIC):
            share = draw.choice((0, 0.02, 0.1, 0.3, 0.6, 0.9, 1))
            budget = floor + int((peak - floor) * share) if draw.random() < 0.9 else int(floor * draw.random()) + 1
            dealloc = draw.choice(("eager", "eager", "eager", "ignore",
                                   "eager" if heuristic in WITHOUT_BANISHING else "banish"))
            plays.append(Play(heuristic, budget, dealloc, draw.choice((0.25, 1.0, 4.0)),
                              draw.choice((0, 1, 2**32 - 1))))
    return plays


def write_log(path, entries):
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(dtr_logs.as_text(entries))
    return path


def recorded():
    with open(RECORDED, encoding="ascii") as stream:
        return {int(number): letters for number, letters in (line.split() for line in stream if line[0] != "#")}


class RandomLogs(recording.Case):
    def setUp(self):
        super().setUp()
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
        self.addCleanup(self.pool.shutdown)
        self.recorded = recorded()

    def differences(self, path, plays, letters):
        """What is no run at all, or another than was recorded; "..." is where the simulator itself would fail."""
        self.assertEqual(len(letters), 3 * len(plays))
        for number, (play, got) in enumerate(zip(plays, self.pool.map(lambda play: play.of_varve(path), plays))):
            wanted = letters[3 * number:3 * number + 3]
            wrong = play.contradiction(got)
            if not wrong and wanted not in ("...", play.letters(got)):
                wrong = f"{ {key: got[key] for key in FIGURES} } is not what was recorded"
            if wrong:
                yield f"{wrong}\n  {shlex.join(play.command(path))}"

    def test_random_logs(self):
        failures = []
        for seed in range(SEED, SEED + LOGS):
            path = write_log(os.path.join(tempfile.gettempdir(), f"varve-dtr-{seed}.log"), dtr_logs.Maker(seed).entries)
            plays = plays_of(seed, path)
            # of a log that nobody recorded: runs that can't be
            wrong = list(self.differences(path, plays, self.recorded.get(seed, "..." * len(plays))))
            if wrong:
                failures.append(f"seed {seed}: {len(wrong)} runs differ; {wrong[0]}")
            else:
                os.unlink(path)
            if len(failures) == FAILURES_MAX:
                break
        if failures:
            self.fail("\n".join(["other figures of varve dtr:"] + failures))

    def test_near_ties(self):
        """Scores are quotients of integers, rounded once, however long the divisor. The run ends for want of memory:
        both values are outputs. What was evicted shows in what is recomputed."""
        for seed in range(NEAR_TIES):
            entries, budget = dtr_logs.near_tie(seed)
            path = write_log(os.path.join(self.folder, f"near-tie-{seed}.log"), entries)
            plays = [Play(heuristic, budget, remat_limit=4.0) for heuristic in ("dtr-local", "dtr", "dtr-eq")]
            self.assertEqual(list(self.differences(path, plays, self.recorded[0][9 * seed:9 * seed + 9])), [])

    def test_linear_networks(self):
        for nodes in (64, 256, 1024):
            path = write_log(os.path.join(self.folder, f"linear-{nodes}.log"), dtr_logs.linear_network(nodes))
            plays = [Play(heuristic, budget, remat_limit=LINEAR_LIMIT)
                     for size, budget in LINEAR if size == nodes for heuristic in COLUMNS]
            for play, figures in zip(plays, self.pool.map(lambda play: play.of_varve(path), plays)):
                budget, heuristic = play.options["budget"], play.options["heuristic"]
                with self.subTest(nodes=nodes, budget=budget, heuristic=heuristic):
                    self.assertIn(figures.get("status"), ("ok", "thrash"), figures)
                    self.assertEqual(linear_figures(figures), LINEAR[nodes, budget][heuristic])


if __name__ == "__main__":
    recording.main()
