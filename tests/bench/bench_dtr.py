#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operator logs played under a budget: events of the schedule a second, and beside the naive model in Python that the
decisions are compared with, on the same log in the same run. Budgets lie between what the log needs at least and its
peak, so that much is evicted. """

import os
import statistics
import sys
import time

import common as bench

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conformance"))
import dtr_logs  # noqa: E402
import dtr_model  # noqa: E402

ROUNDS = bench.number("VARVE_BENCH_DTR_ROUNDS", 5)
OPERATORS = bench.number("VARVE_BENCH_DTR_OPERATORS", 600)
LONG = bench.number("VARVE_BENCH_DTR_LONG", 6000)
RATE = {"dtr-eq": 1_000_000, "dtr": 100_000}  # events/s
SHARE = 0.5  # of the way from the lower bound to the peak


class Network(dtr_logs.Maker):
    """Forward and backward through that many operators, with some noise between them."""

    def __init__(self, operators):
        self.wanted = operators
        super().__init__(1)

    def make(self):
        self.shape, self.operators = "network", self.wanted
        self.size_kind = self.cost_kind = "many"
        self.view_share, self.noise, self.zero_share, self.views_join = 0.1, 0.1, 0, False
        super().make()


def write_log(folder, operators):
    entries = Network(operators).entries
    path = os.path.join(folder, f"network-{operators}.log")
    with open(path, "w", encoding="utf-8") as file:
        file.write(dtr_logs.as_text(entries))
    return path, entries


def play(path, heuristic, budget, *options):
    return bench.run_json([bench.VARVE, "dtr", "--json", "--heuristic", heuristic, "--budget", str(budget),
                           "--remat-limit", "none", *options, path])


def budget_of(path):
    free = play(path, "lru", "none")
    return int(free["lower_bound"] + SHARE * (free["baseline_memory"] - free["lower_bound"]))


def model_seconds(schedule, heuristic, budget, ours):
    begin = time.monotonic()
    theirs = dtr_model.Run(heuristic, budget, "eager").play(schedule)
    seconds = time.monotonic() - begin
    if any(theirs[key] != ours[key] for key in ("status", "clock", "evictions")):
        raise bench.Broken(f"{heuristic}: the model got {theirs}, varve {ours}")
    return seconds


def measure_rate(path, operators, heuristic, target, search):
    budget = budget_of(path)
    runs = [play(path, heuristic, budget, "--search", search) for _ in range(ROUNDS)]
    bench.figure("dtr", f"{heuristic}, {search}, {operators} operators",
                 statistics.median(run["events_per_second"] for run in runs), "events/s", target, more_is_better=True,
                 most=round(max(run["events_per_second"] for run in runs)), events=runs[0]["events"],
                 evictions=runs[0]["evictions"], overhead=round(runs[0]["overhead"], 3))


def measure_model(path, entries, heuristic):
    budget = budget_of(path)
    schedule = dtr_model.Schedule(entries)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        run = play(path, heuristic, budget)
        ours.append(run["seconds"] * 1e3)
        theirs.append(model_seconds(schedule, heuristic, budget, run) * 1e3)
    bench.compare("dtr", f"{heuristic}, {OPERATORS} operators", ours, theirs, "ms", "model in Python",
                  events=run["events"])


def measure(folder):
    path, entries = write_log(folder, OPERATORS)
    for heuristic, target in RATE.items():
        measure_model(path, entries, heuristic)
        measure_rate(path, OPERATORS, heuristic, target, "scan")
    # Where thousands of storages may be evicted, to look at all of them each time is what takes the time.
    path, _ = write_log(folder, LONG)
    for search in ("scan", "kinetic"):
        measure_rate(path, LONG, "dtr-eq", None, search)


if __name__ == "__main__":
    bench.main(measure)
