#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""A runtime that computes under a budget, under `varve record`: what the tables say is what its own counters say."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

# column of remat_total: counter
TOTALS = {"runs": "operators", "run_ns": "model_compute_ns", "remats": "remats_direct",
          "collateral": "remats_collateral",
          "remat_ns": "remat_compute_ns", "evictions": "evictions", "evicted_bytes": "evicted_bytes",
          "wasted": "wasted_evictions", "failures": "failures"}
CAUSES = ("released", "budget", "allocator", "requested", "banished")


class Runtime(recording.Case):
    def run_program(self, *options):
        """The runtime's counters, as it says them."""
        outcome = self.record(recording.program("storage_runtime"), "20",
                              options=["--stacks", "native", "--force", *options])
        self.assert_finished()
        said = json.loads(outcome.out)
        for name in ("evictions_budget", "evictions_requested", "remats_direct", "remats_collateral"):
            self.assertGreater(said[name], 0, name)
        return said

    def assert_totals(self, said):
        self.assertEqual(dict(zip(TOTALS, self.sql(f"SELECT {', '.join(TOTALS)} FROM remat_total")[0])),
                         {column: said[counter] for column, counter in TOTALS.items()})
        causes = dict(self.sql("SELECT cause, evictions FROM eviction_total"))
        self.assertEqual(sum(causes.values()), said["evictions"])
        self.assertEqual(sorted(causes.values()),
                         sorted(said[f"evictions_{cause}"] for cause in CAUSES if said[f"evictions_{cause}"]))
        self.assertEqual(dict(self.sql("SELECT name, runs FROM operator_total WHERE name IS NOT NULL")),
                         {"add": 20 * (11 + 26), "mul": 20 * 12, "split": 20, "fill": 1, "uniform": 0})
        # How the pinned vector was made is forgotten when it goes.
        self.assertEqual(self.sql("SELECT evictions, released FROM operator_total WHERE name IS NULL"), [(1, 1)])
        self.assertEqual(self.sql("SELECT operator, needed, budget, blocked FROM remat_failure"),
                         [("uniform", said["budget"], said["budget"], 4096)])
        self.assertEqual(self.sql("SELECT cause, storages, bytes FROM remat_blocked"), [("pinned", 1, 4096)])

    def test_all_is_kept(self):
        said = self.run_program()
        self.assert_totals(said)
        self.assertEqual(self.sql("SELECT count(*), sum(size) FROM eviction"),
                         [(said["evictions"], said["evicted_bytes"])])
        self.assertEqual(self.sql("SELECT sum(cause = 'direct'), sum(cause = 'collateral'), sum(cost_ns),"
                                  " sum(is_wasted) FROM rematerialization"),
                         [(said["remats_direct"], said["remats_collateral"], said["remat_compute_ns"],
                           said["wasted_evictions"])])
        self.assertEqual(self.sql("SELECT DISTINCT operator FROM rematerialization ORDER BY operator"),
                         [("add",), ("mul",), ("split",)])
        self.assertEqual(self.one("SELECT count(*) FROM eviction WHERE addr IS NULL"), 0)
        self.assertEqual(self.sql("SELECT count(*), sum(cost_ns) FROM op"),
                         [(said["operators"], said["model_compute_ns"])])
        answer = json.loads(self.varve("report", "--json", self.path).out)["rematerialization"]
        self.assertEqual(answer["totals"][0]["evictions"], said["evictions"])
        self.assertIn("\nRematerialization\n", self.varve("report", self.path).out)

    def test_less_is_kept(self):
        for kept in ("allocations", "totals"):
            self.assert_totals(self.run_program("--keep", kept))
            self.assertIn("\nRematerialization\n", self.varve("report", self.path).out)


if __name__ == "__main__":
    recording.main()
