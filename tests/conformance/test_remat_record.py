#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
"""What rematerialization does, under `varve record`: sums are those of the program, however much is kept, and of one
that is killed."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STEPS = 100_000
TOTALS = ("runs", "run_ns", "remats", "collateral", "remat_ns", "evictions", "evicted_bytes", "wasted")


class Rematerialization(recording.Case):
    def run_program(self, *options, kill=False):
        """What the program says it did."""
        outcome = self.record(recording.program("storage_remats"), str(STEPS), *(["kill"] if kill else []),
                              options=["--stacks", "native", "--force", *options], status=-9 if kill else 0)
        self.open()
        return json.loads(outcome.out)

    def assert_totals(self, said):
        self.assertEqual(dict(zip(TOTALS, self.sql(f"SELECT {', '.join(TOTALS)} FROM remat_total")[0])),
                         {name: said[name] for name in TOTALS})
        self.assertEqual(self.one("SELECT sum(evictions) FROM eviction_total WHERE cause <> ''"), said["evictions"])
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
        self.assertEqual(self.sql("SELECT count(*), sum(size), CAST(1024 * sum(score) AS INTEGER) FROM eviction"),
                         [(said["evictions"], said["evicted_bytes"], said["score_sum"])])
        self.assertEqual(self.sql("SELECT sum(cause = 'direct'), sum(cause = 'collateral'), sum(cost_ns),"
                                  " sum(is_wasted), count(operator) FROM rematerialization"),
                         [(said["remats"], said["collateral"], said["remat_ns"], said["wasted"],
                           said["remats"] + said["collateral"])])
        self.assertEqual(self.sql("SELECT count(*), sum(cost_ns), count(DISTINCT name) FROM op"),
                         [(said["runs"], said["run_ns"], 4)])
        self.assertEqual(self.sql("SELECT DISTINCT y.function FROM eviction e JOIN callsite c ON c.id = e.callsite_id"
                                  " JOIN symbol y ON y.id = c.symbol_id"), [("emit",)])

    def test_all_is_kept(self):
        said = self.run_program()
        self.assert_finished()
        self.assert_totals(said)
        self.assert_events(said)
        answer = json.loads(self.varve("report", "--json", self.path).out)["rematerialization"]
        self.assertEqual({name: answer["totals"][0][name] for name in TOTALS}, {name: said[name] for name in TOTALS})
        self.assertIn("\nRematerialization\n", self.varve("report", self.path).out)

    def test_less_is_kept(self):
        for kept in ("allocations", "totals"):
            said = self.run_program("--keep", kept)
            self.assert_finished()
            self.assert_totals(said)
            self.assertEqual(self.one("SELECT (SELECT count(*) FROM event) + (SELECT count(*) FROM remat_event)"), 0)
            self.assertIn("\nRematerialization\n", self.varve("report", self.path).out)

    def test_killed(self):
        said = self.run_program(kill=True)
        self.assert_totals(said)
        self.assert_events(said)


if __name__ == "__main__":
    recording.main()
