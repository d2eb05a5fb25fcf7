#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""What rematerialization does, under `varve record`: sums are those that the program counts itself, however much is
kept, and of one that is killed. One program plays the storage layer's events, the other is a runtime that computes
under a budget."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STEPS, ROUNDS = 100_000, 20
# column of remat_total: counter of the runtime; the other program has the names of the columns
COUNTERS = {"runs": "operators", "run_ns": "model_compute_ns", "remats": "remats_direct",
            "collateral": "remats_collateral", "remat_ns": "remat_compute_ns", "evictions": "evictions",
            "evicted_bytes": "evicted_bytes", "wasted": "wasted_evictions"}
CAUSES = ("released", "budget", "allocator", "requested", "banished")


class Case(recording.Case):
    def run_program(self, *command, options=(), status=0):
        """What the program says it did, by the columns of remat_total."""
        outcome = self.record(*command, options=["--stacks", "native", "--force", *options], status=status)
        self.open()
        if status == 0:
            self.assert_finished()
        said = json.loads(outcome.out)
        return {**said, **{column: said[counter] for column, counter in COUNTERS.items() if counter in said}}

    def assert_totals(self, said):
        self.assertEqual(dict(zip(COUNTERS, self.sql(f"SELECT {', '.join(COUNTERS)} FROM remat_total")[0])),
                         {name: said[name] for name in COUNTERS})
        self.assertEqual(self.one("SELECT sum(evictions) FROM eviction_total WHERE cause <> ''"), said["evictions"])

    def assert_events(self, said):
        self.assertEqual(self.sql("SELECT count(*), sum(size) FROM eviction"),
                         [(said["evictions"], said["evicted_bytes"])])
        self.assertEqual(self.sql("SELECT sum(cause = 'direct'), sum(cause = 'collateral'), sum(cost_ns),"
                                  " sum(is_wasted), count(operator) FROM rematerialization"),
                         [(said["remats"], said["collateral"], said["remat_ns"], said["wasted"],
                           said["remats"] + said["collateral"])])
        self.assertEqual(self.sql("SELECT count(*), sum(cost_ns) FROM op"), [(said["runs"], said["run_ns"])])

    def assert_report(self, said):
        answer = json.loads(self.varve("report", "--json", self.path).out)["rematerialization"]
        self.assertEqual({name: answer["totals"][0][name] for name in COUNTERS},
                         {name: said[name] for name in COUNTERS})
        self.assertIn("\nRematerialization\n", self.varve("report", self.path).out)

    def check(self, *command):
        """All is kept, then less and less."""
        for kept in ("events", "allocations", "totals"):
            said = self.run_program(*command, options=["--keep", kept])
            self.assert_totals(said)
            self.assert_report(said)
            if kept == "events":
                self.assert_events(said)
            else:
                self.assertEqual(self.sql("SELECT 1 FROM event UNION ALL SELECT 1 FROM remat_event"), [])


class Storages(Case):
    def assert_totals(self, said):
        super().assert_totals(said)
        self.assertEqual(self.sql("SELECT count(*), sum(evictions), sum(remats), sum(collateral), sum(wasted) FROM"
                                  " remat_storage"),
                         [(200, said["evictions"], said["remats"], said["collateral"], said["wasted"])])
        self.assertEqual(self.sql("SELECT op_id, operator, needed, budget, blocked FROM remat_failure"),
                         [(7, "matmul", 1 << 20, 1 << 20, 200 * 4096)])
        self.assertEqual(self.sql("SELECT cause, sum(storages), sum(bytes) FROM remat_blocked GROUP BY cause ORDER BY"
                                  " cause"),
                         [("input", 20, 20 * 4096), ("pinned", 180, 180 * 4096)])
        self.assertEqual(self.sql("SELECT name FROM operator_total ORDER BY name"),
                         [(name,) for name in ("a name that is as long as may be", "layer_norm", "matmul", "relu")])

    def assert_events(self, said):
        super().assert_events(said)
        self.assertEqual(self.one("SELECT CAST(1024 * sum(score) AS INTEGER) FROM eviction"), said["score_sum"])
        self.assertEqual(self.one("SELECT count(DISTINCT name) FROM op"), 4)
        self.assertEqual(self.sql("SELECT DISTINCT y.function FROM eviction e JOIN callsite c ON c.id = e.callsite_id"
                                  " JOIN symbol y ON y.id = c.symbol_id"), [("emit",)])

    def test_each_kept(self):
        self.check(recording.program("storage_remats"), str(STEPS))

    def test_killed(self):
        said = self.run_program(recording.program("storage_remats"), str(STEPS), "kill", status=-9)
        self.assert_totals(said)
        self.assert_events(said)


class Runtime(Case):
    def assert_totals(self, said):
        for name in ("evictions_budget", "evictions_requested", "remats_direct", "remats_collateral"):
            self.assertGreater(said[name], 0, name)
        super().assert_totals(said)
        self.assertEqual(self.one("SELECT failures FROM remat_total"), said["failures"])
        self.assertEqual(sorted(evictions for evictions, in self.sql("SELECT evictions FROM eviction_total")),
                         sorted(said[f"evictions_{cause}"] for cause in CAUSES if said[f"evictions_{cause}"]))
        self.assertEqual(dict(self.sql("SELECT name, runs FROM operator_total WHERE name IS NOT NULL")),
                         {"add": ROUNDS * (11 + 26), "mul": ROUNDS * 12, "split": ROUNDS, "fill": 1, "uniform": 0})
        # How the pinned vector was made is forgotten when it goes.
        self.assertEqual(self.sql("SELECT evictions, released FROM operator_total WHERE name IS NULL"), [(1, 1)])
        self.assertEqual(self.sql("SELECT operator, needed, budget, blocked FROM remat_failure"),
                         [("uniform", said["budget"], said["budget"], 4096)])
        self.assertEqual(self.sql("SELECT cause, storages, bytes FROM remat_blocked"), [("pinned", 1, 4096)])

    def assert_events(self, said):
        super().assert_events(said)
        self.assertEqual(self.sql("SELECT DISTINCT operator FROM rematerialization ORDER BY operator"),
                         [("add",), ("mul",), ("split",)])
        self.assertEqual(self.one("SELECT count(*) FROM eviction WHERE addr IS NULL"), 0)

    def test_each_kept(self):
        self.check(recording.program("storage_runtime"), str(ROUNDS))


if __name__ == "__main__":
    recording.main()
