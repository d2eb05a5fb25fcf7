#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 30 s
# Runs threads: plays.
"""varve compare and varve frontier beside varve replay, on recordings of PyTorch's allocator.

compare   says of each policy what a replay with that policy says; under the settings and the limit of the recording it is what
          PyTorch counted, though nothing is followed: requests alone, on addresses of the simulated device's choice
frontier  gives a capacity that serves every request as --memory-limit of a replay, and 2 MiB less does not; what fails above it
          fails, and what is called safe is
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import recording  # noqa: E402

VARVE = os.environ.get("VARVE", "build/varve")
FOLDER = pathlib.Path(__file__).parent / "pytorch"
NAMES = ("gpt2_train", "gpt2_train_expandable", "gpt2_train_limit", "multistream_record", "cudagraph_private_pool",
         "pools_free", "synthetic_oom_gc", "resnet50_train_stacks")
COMPARED = recording.sample(("gpt2_train", "multistream_record", "cudagraph_private_pool", "synthetic_oom_gc"),
                            "multistream_record", "cudagraph_private_pool")
if recording.IS_SANITIZED:
    NAMES, COMPARED = NAMES[:4], ("multistream_record", "cudagraph_private_pool")
STEP = 2 << 20
CONFS = {"multistream_record": ["", "expandable_segments:True", "garbage_collection_threshold:0.6"],
         "synthetic_oom_gc": ["", "max_split_size_mb:64"]}


def trace(name):
    return FOLDER / f"{name}.pickle.xz"


def varve(*arguments):
    result = subprocess.run([VARVE, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def setting_of(row):
    options = ["--policy", row["policy"] + (":" + row["options"] if "options" in row else "")]
    for key in ("conf", "memory_limit", "capacity"):
        if key in row:
            options += ["--" + key.replace("_", "-"), row[key]]
    return options


class Compare(unittest.TestCase):
    def test_is_a_replay_each(self):
        for name in COMPARED:
            confs = [word for conf in CONFS.get(name, []) for word in ("--conf", conf)]
            rows = varve("compare", "--json", *confs, trace(name))
            self.assertEqual(rows[0]["policy"], "pytorch")
            for row in rows:
                with self.subTest(name, setting=setting_of(row)):
                    self.assertNotIn("error", row)
                    alone = varve("replay", "--json", *setting_of(row), trace(name))
                    keys = ("peak_reserved", "peak_allocated", "device_calls", "retries", "segments", "ooms", "frees_skipped")
                    self.assertEqual({key: row[key] for key in keys}, {key: alone[key] for key in keys})

    def test_own_rules_cost_the_same(self):
        for name in ("gpt2_train", "gpt2_train_expandable", "gpt2_train_roundup", "gpt2_train_limit",
                     "gpt2_train_maxsplit", "multistream_record", "cudagraph_private_pool", "pools_free"):
            with self.subTest(name):
                expected = json.loads((FOLDER / f"{name}.expected.json").read_text())
                options = ["--conf", expected["alloc_conf"] or "", "--capacity", expected["total_memory"]]
                if expected["memory_limit"]:
                    options += ["--memory-limit", expected["memory_limit"]]
                row = varve("compare", "--json", "--policies", "pytorch", *options, trace(name))
                stats = expected["memory_stats"]
                self.assertEqual([row["peak_reserved"], row["peak_allocated"], row["device_calls"], row["retries"],
                                  row["ooms"]],
                                 [stats["reserved_bytes.all.peak"], stats["allocated_bytes.all.peak"],
                                  stats["num_device_alloc"] + stats["num_device_free"], stats["num_alloc_retries"],
                                  stats["num_ooms"]])

    def test_limits_and_traces(self):
        rows = varve("compare", "--json", "--policies", "pytorch,first-fit", "--memory-limit", "17G", "--memory-limit",
                     "18G", trace("gpt2_train"), trace("gpt2_train_limit"))
        self.assertEqual(len(rows), 8)
        self.assertEqual({(row["trace"], row["policy"], row["memory_limit"]) for row in rows},
                         {(str(trace(name)), policy, limit << 30) for name in ("gpt2_train", "gpt2_train_limit")
                          for policy in ("pytorch", "first-fit") for limit in (17, 18)})
        for row in rows:
            self.assertLessEqual(row["peak_reserved"], row["memory_limit"])


class Frontier(unittest.TestCase):
    def is_enough(self, row, name, limit):
        return varve("replay", "--json", *setting_of(row), "--memory-limit", limit, trace(name))["ooms"] == 0

    def check(self, row, name):
        with self.subTest(name, setting=setting_of(row)):
            self.assertNotIn("error", row)
            capacity = row["frontier_bytes"]
            self.assertEqual(capacity % STEP, 0)
            self.assertGreaterEqual(capacity, row["load_bytes"])
            self.assertTrue(self.is_enough(row, name, capacity))
            self.assertFalse(self.is_enough(row, name, capacity - STEP))
            self.assertTrue(self.is_enough(row, name, row["safe_bytes"]))
            self.assertEqual(row["monotone"], "fails_above" not in row)
            if not row["monotone"]:
                self.assertGreater(row["fails_above"], capacity)
                self.assertFalse(self.is_enough(row, name, row["fails_above"]))

    def test_default_policy(self):
        for name in NAMES:
            self.check(varve("frontier", "--json", trace(name)), name)

    def test_all_policies(self):
        for name in ("cudagraph_private_pool",) if recording.IS_SANITIZED else ("multistream_record", "cudagraph_private_pool"):
            confs = [word for conf in CONFS.get(name, []) for word in ("--conf", conf)]
            for row in varve("frontier", "--json", "--policies", "all", *confs, trace(name)):
                self.check(row, name)

    def test_exhaustive_is_the_smallest(self):
        name = "multistream_record"
        quick = varve("frontier", "--json", trace(name))
        whole = varve("frontier", "--json", "--exhaustive", trace(name))
        self.assertLessEqual(whole["frontier_bytes"], quick["frontier_bytes"])
        self.assertGreater(whole["probes"], quick["probes"])
        self.check(whole, name)


if __name__ == "__main__":
    sys.exit(unittest.main())
