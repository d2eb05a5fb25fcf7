#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 30 s
# Runs threads: plays.
"""varve compare and varve frontier beside varve replay, on recordings of PyTorch's allocator.

compare   says of each policy what a replay with that policy says; under the settings and the limit of the recording
it is what
          PyTorch counted, though nothing is followed: requests alone, on addresses of the simulated device's choice
frontier  gives a capacity that serves every request as --memory-limit of a replay, and 2 MiB less does not; what
fails above it
          fails, and what is called safe is
"""

from pytorch_recordings import Case, SMALL, expected_of, options_of, path_of, recording

NAMES = ("gpt2_train", "gpt2_train_expandable", "gpt2_train_limit", *SMALL, "synthetic_oom_gc", "resnet50_train_stacks")
COMPARED = recording.sample(("gpt2_train", *SMALL[:2], "synthetic_oom_gc"), *SMALL)
if recording.IS_SANITIZED:
    NAMES, COMPARED = SMALL[:2], SMALL[:2]
STEP = 2 << 20
CONFS = {"multistream_record": ["", "expandable_segments:True", "garbage_collection_threshold:0.6"],
         "synthetic_oom_gc": ["", "max_split_size_mb:64"]}


def setting_of(row):
    options = ["--policy", row["policy"] + (":" + row["options"] if "options" in row else "")]
    for key in ("conf", "memory_limit", "capacity"):
        if key in row:
            options += ["--" + key.replace("_", "-"), row[key]]
    return options


class Compare(Case):
    def test_is_a_replay_each(self):
        for name in COMPARED:
            confs = [word for conf in CONFS.get(name, []) for word in ("--conf", conf)]
            rows = self.answer("compare", *confs, path_of(name))
            self.assertEqual(rows[0]["policy"], "pytorch")
            for row in rows:
                with self.subTest(name, setting=setting_of(row)):
                    self.assertNotIn("error", row)
                    alone = self.answer("replay", *setting_of(row), path_of(name))
                    keys = ("peak_reserved", "peak_allocated", "device_calls", "retries", "segments", "ooms",
                            "frees_skipped")
                    self.assertEqual({key: row[key] for key in keys}, {key: alone[key] for key in keys})

    def test_own_rules_cost_the_same(self):
        for name in ("gpt2_train", "gpt2_train_expandable", "gpt2_train_roundup", "gpt2_train_limit",
                     "gpt2_train_maxsplit", "multistream_record", "cudagraph_private_pool", "pools_free"):
            with self.subTest(name):
                expected = expected_of(name)
                row = self.answer("compare", "--policies", "pytorch", *options_of(expected), path_of(name))
                stats = expected["memory_stats"]
                self.assertEqual([row["peak_reserved"], row["peak_allocated"], row["device_calls"], row["retries"],
                                  row["ooms"]],
                                 [stats["reserved_bytes.all.peak"], stats["allocated_bytes.all.peak"],
                                  stats["num_device_alloc"] + stats["num_device_free"], stats["num_alloc_retries"],
                                  stats["num_ooms"]])

    def test_limits_and_traces(self):
        rows = self.answer("compare", "--policies", "pytorch,first-fit", "--memory-limit", "17G", "--memory-limit",
                     "18G", path_of("gpt2_train"), path_of("gpt2_train_limit"))
        self.assertEqual(len(rows), 8)
        self.assertEqual({(row["trace"], row["policy"], row["memory_limit"]) for row in rows},
                         {(str(path_of(name)), policy, limit << 30) for name in ("gpt2_train", "gpt2_train_limit")
                          for policy in ("pytorch", "first-fit") for limit in (17, 18)})
        for row in rows:
            self.assertLessEqual(row["peak_reserved"], row["memory_limit"])


class Frontier(Case):
    def is_enough(self, row, name, limit):
        return self.answer("replay", *setting_of(row), "--memory-limit", limit, path_of(name))["ooms"] == 0

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
            self.check(self.answer("frontier", path_of(name)), name)

    def test_all_policies(self):
        for name in ("multistream_record", "cudagraph_private_pool")[1 if recording.IS_SANITIZED else 0:]:
            confs = [word for conf in CONFS.get(name, []) for word in ("--conf", conf)]
            for row in self.answer("frontier", "--policies", "all", *confs, path_of(name)):
                self.check(row, name)

    def test_exhaustive_is_the_smallest(self):
        name = "multistream_record"
        quick = self.answer("frontier", path_of(name))
        whole = self.answer("frontier", "--exhaustive", path_of(name))
        self.assertLessEqual(whole["frontier_bytes"], quick["frontier_bytes"])
        self.assertGreater(whole["probes"], quick["probes"])
        self.check(whole, name)


if __name__ == "__main__":
    recording.main()
