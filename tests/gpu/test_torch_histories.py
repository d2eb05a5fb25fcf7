#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Fresh histories: random programs under random settings (torch_histories.py) on PyTorch's own allocator, each replayed
decision for decision. A snapshot comes out as it was recorded, or its private pools, which its events do not name,
can't be distinguished, and that is said. Some of the programs run under `varve record --torch=observe`, whose database
names the pools: it comes out as recorded, also where the snapshot of the same run is ambiguous.

The settings are in the snapshot, but for a memory limit, which the replay finds, and a large_segment_size_mb, which is
given. What does not come out is replayed once more with all that was set, as its message advises.

VARVE_TEST_SEED (the clock) is the seed of the first history, the next has the next; VARVE_TEST_HISTORIES (4) is how
many, VARVE_TEST_JOBS (4) how many at a time. Snapshots and databases of those that are not exact stay in
VARVE_TEST_KEEP, a folder."""

import collections
import concurrent.futures
import glob
import json
import os
import random
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import HERE, PYTHON, GpuCase, figure, recording  # noqa: E402

PROGRAM = os.path.join(HERE, "torch_histories.py")
SEED = int(os.environ.get("VARVE_TEST_SEED") or time.time())
COUNT = int(os.environ.get("VARVE_TEST_HISTORIES") or 4)
JOBS = int(os.environ.get("VARVE_TEST_JOBS") or 4)
LIMIT_S = os.environ.get("VARVE_TEST_LIMIT_S", "600")  # of one run: a program that waits for good is told from others
KEEP = os.environ.get("VARVE_TEST_KEEP")
EXACT, AMBIGUOUS, WRONG, FAILED = "exact", "ambiguous", "wrong", "failed"
IS_SAID = "can't be distinguished in this snapshot"
UNKNOWABLE = "num_sync_all_streams"  # of empty_cache that finds nothing, and leaves no event


def settings_of(draw):
    """(PYTORCH_ALLOC_CONF, share of the memory limit or None)"""
    settings, large_segment = [], 20
    if draw.random() < 0.1:
        large_segment = draw.choice((12, 32, 64))
        settings.append(f"large_segment_size_mb:{large_segment}")
    if draw.random() < 0.35:
        settings.append(f"max_split_size_mb:{large_segment + draw.choice((0, 1, 12, 44, 180))}")
        if draw.random() < 0.5:
            settings.append(f"max_non_split_rounding_mb:{large_segment + draw.choice((0, 10, 100))}")
    if draw.random() < 0.35:
        settings.append(f"roundup_power2_divisions:{divisions_of(draw)}")
    collects = draw.random() < 0.3
    if collects:
        settings.append(f"garbage_collection_threshold:{draw.uniform(0.2, 0.95):.2f}")
    if draw.random() < 0.35:
        settings.append("expandable_segments:True")
    draw.shuffle(settings)
    is_limited = draw.random() < (0.9 if collects else 0.5)
    return ",".join(settings), round(draw.uniform(-0.3, 1), 3) if is_limited else None


def divisions_of(draw):
    """For all sizes, or for some of them."""
    if draw.random() < 0.5:
        return draw.choice((1, 2, 4, 8, 16))
    sizes = sorted(draw.sample((1, 2, 4, 16, 64, 256, 1024), draw.randint(1, 4)))
    pairs = [f"{size}:{draw.choice((0, 1, 2, 4, 8))}" for size in sizes]
    return f"[{','.join(pairs + [f'>:{draw.choice((1, 4, 8))}'] * draw.randint(0, 1))}]"


def read(outcome):
    """(verdict, the JSON) of a replay."""
    try:
        answer = json.loads(outcome.out)
    except ValueError:
        return WRONG, {}
    if outcome.returncode == 0 and answer["mismatches"] == 0 and answer["segments_equal"]:
        return EXACT, answer
    is_ambiguous = answer["mismatches"] > 0 and answer["pools_undecided"] > 0 and IS_SAID in outcome.err
    return AMBIGUOUS if is_ambiguous else WRONG, answer


class History:
    """One seed's: what is drawn, run and found."""

    def __init__(self, seed, folder):
        draw = random.Random(f"settings {seed}")
        self.seed, self.folder = seed, folder
        self.conf, self.share = settings_of(draw)
        self.is_observed = draw.random() < 0.5
        self.said, self.answer = [], {}

    def command(self):
        command = [PYTHON, PROGRAM, str(self.seed), os.path.join(self.folder, "out")]
        if self.share is not None:
            command += ["--share", str(self.share)]
        if self.is_observed:
            command = [recording.VARVE, "record", "-q", "--torch=observe", "-o", os.path.join(self.folder, "trace.db"),
                       "--", *command, "--observed"]
        return ["timeout", "-k", "9", LIMIT_S, *command]

    def record(self, environment):
        """Whether there is a history."""
        outcome = recording.run(self.command(), cwd=self.folder,
                                env={**environment, "PYTORCH_ALLOC_CONF": self.conf})
        if outcome.returncode != 0:
            self.said.append(repr(outcome))
            return False
        with open(os.path.join(self.folder, "out.json"), encoding="utf-8") as stream:
            self.answer = json.load(stream)
        return True

    def replay(self, path):
        """(verdict, the JSON, whether it was with all that was set)"""
        needed = ["--conf", self.conf] if "large_segment_size_mb" in self.conf else []
        total = self.answer["total_memory"]
        given = ["--conf", self.conf, "--capacity", total, "--memory-limit", self.answer["memory_limit"] or total]
        for options in (needed, given):
            outcome = recording.run(["timeout", "-k", "9", LIMIT_S, recording.VARVE, "replay", "--verify", "--json",
                                     *map(str, options), path])
            verdict, answer = read(outcome)
            if verdict == EXACT:
                break
            self.said.append(outcome.err[-1000:] or f"status {outcome.returncode}")
        return verdict, answer, options is given

    def run(self, environment):
        """Its figure."""
        began, found = time.monotonic(), {"verdict": FAILED}
        if self.record(environment):
            verdict, replayed, is_given = self.replay(os.path.join(self.folder, "out.pickle"))
            found = {"verdict": verdict, "settings_given": is_given, **self.described(replayed, verdict)}
            if self.is_observed:
                found.update(self.replay_database(verdict))
        if KEEP and (found["verdict"] != EXACT or found.get("snapshot", EXACT) != EXACT):
            self.keep()
        return {"seed": self.seed, "conf": self.conf, "share": self.share, "observed": self.is_observed, **found,
                "said": self.said, "seconds": round(time.monotonic() - began, 1)}

    def described(self, replayed, verdict):
        ours, theirs = replayed.get("stats", {}), self.answer["memory_stats"]
        return {"events": replayed.get("events"), "acts": self.answer["acts"], "errors": self.answer["errors"],
                "failures": self.answer["failures"], "ooms": theirs["num_ooms"],
                "retries": theirs["num_alloc_retries"], "memory_limit": self.answer["memory_limit"],
                "limits_found": replayed.get("memory_limits"), "replay_seconds": replayed.get("seconds"),
                "statistics_differ": [key for key, value in theirs.items() if key != UNKNOWABLE
                                      and ours.get(key) != value] if verdict == EXACT else None}

    def replay_database(self, snapshot):
        """The database names the pools, so it must come out; the snapshot may be ambiguous all the same."""
        path = os.path.join(self.folder, f"trace.torch.{self.answer['pid']}.db")
        verdict, answer, is_given = self.replay(path)
        fits = verdict == EXACT and snapshot in (EXACT, AMBIGUOUS)
        return {"verdict": EXACT if fits else WRONG, "snapshot": snapshot, "database": verdict,
                "database_events": answer.get("events"), "database_settings_given": is_given}

    def keep(self):
        os.makedirs(KEEP, exist_ok=True)
        for path in glob.glob(os.path.join(self.folder, "out.*")) + glob.glob(os.path.join(self.folder, "*.torch.*")):
            shutil.copy(path, os.path.join(KEEP, f"{self.seed}.{os.path.basename(path)}"))


class Histories(GpuCase):
    def run_one(self, seed):
        folder = self.file(f"history{seed}")
        os.mkdir(folder)
        found = History(seed, folder).run(self.environment)
        figure("history", **found)
        shutil.rmtree(folder)
        return found

    def test_each_comes_out(self):
        print(f"seed {SEED} (VARVE_TEST_SEED)", flush=True)
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            found = list(pool.map(self.run_one, range(SEED, SEED + COUNT)))
        verdicts = collections.Counter(one["verdict"] for one in found)
        figure("histories", **{verdict: verdicts[verdict] for verdict in (EXACT, AMBIGUOUS, WRONG, FAILED)},
               observed=sum(one["observed"] for one in found),
               ambiguous_but_for_names=sum(one.get("snapshot") == AMBIGUOUS and one["verdict"] == EXACT
                                           for one in found),
               events=sum(one.get("events") or 0 for one in found),
               settings_given=sum(one.get("settings_given", False) for one in found),
               with_failures=sum(one.get("failures", 0) > 0 for one in found),
               with_retries=sum(one.get("retries", 0) > 0 for one in found),
               stopped_by_an_error=sum(bool(one.get("errors")) for one in found))
        self.assertEqual([one for one in found if one["verdict"] in (WRONG, FAILED)], [])


if __name__ == "__main__":
    recording.main()
