#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 25 s
"""varve oom on a recording of PyTorch's allocator in which requests failed: each is explained by figures that add up,
and the snapshot, a database imported from it and one written by a replay get the same explanation. That what is said
to serve a request serves it in a replay, and the smallest limit: tests/unit/analysis/whatif/test_explain.c."""

import os
import pickle
import shutil
import tempfile
import unittest.mock

from pytorch_recordings import Case, load, path_of, recording

TRACE = path_of("synthetic_oom")


class Oom(Case):
    @classmethod
    def setUpClass(cls):
        """What all cases look at."""
        cls.folder, cls.connection = tempfile.mkdtemp(), None
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.imported = os.path.join(cls.folder, "imported.db")
        case = cls()
        case.varve("import", TRACE, "-o", cls.imported)
        cls.answers = case.answer("oom", "--timeout", 0, "--all", TRACE)
        cls.failed = case.rows(cls.imported, "SELECT seq FROM event WHERE kind = 12")
        case.connection.close()
        cls.limit = cls.answers["memory_limit"]

    def test_each_is_explained(self):
        self.assertEqual(len(self.answers["ooms"]), len(self.failed))
        for row in self.answers["ooms"]:
            memory = row["memory"]
            self.assertEqual(row["cause"], "fragmentation")
            self.assertTrue(row["served"]["fails_again"])
            self.assertEqual(memory["allocated"] + memory["pending"] + memory["free"], memory["reserved"])
            self.assertGreater(memory["reserved"] + memory["segment_needed"], self.limit)
            self.assertGreaterEqual(memory["free"] + self.limit - memory["reserved"], memory["block_needed"])
            self.assertLess(memory["own_largest_free"], memory["block_needed"])
            self.assertEqual(row["stages"][-1]["stage"], "release_cached")

    def test_sources_agree(self):
        self.varve("replay", "--verify", "--memory-limit", self.limit, "-o", self.path, TRACE)
        for path in (self.path, self.imported) if recording.IS_FULL else (self.path,):
            other = self.answer("oom", "--timeout", 0, path)
            self.assertEqual([row["served"] is None for row in other["ooms"]],
                             [False] + [True] * (len(self.failed) - 1))
            for row, expected in zip(other["ooms"], self.answers["ooms"]):
                for key in ("requested", "cause", "because"):
                    self.assertEqual(row[key], expected[key])
                # device_free: only a snapshot has it, and what was imported from one
                for key in set(row["memory"]) - {"device_free"}:
                    self.assertEqual(row["memory"][key], expected["memory"][key])
            self.assertEqual(other["ooms"][0]["served"], self.answers["ooms"][0]["served"])

    def test_full_device(self):
        """What the device had free counts: the allocator could have had as much more."""
        capacity = self.limit + (64 << 20)
        snapshot = load(TRACE)
        refusals = [event for event in snapshot["device_traces"][0] if event["action"] == "oom"]
        for event, row in zip(refusals, self.answers["ooms"]):
            event["device_free"] = capacity - row["memory"]["reserved"]
        path = os.path.join(self.folder, "full.pickle")
        with open(path, "wb") as out:
            pickle.dump(snapshot, out, protocol=4)
        answer = self.answer("oom", "--timeout", 0, path)
        self.assertEqual(answer["memory_limit"], capacity)
        self.assertEqual(len(answer["ooms"]), len(self.failed))
        self.assertTrue(answer["ooms"][0]["served"]["fails_again"])

    def test_makes_no_database(self):
        """A snapshot is answered from memory: nothing is written, so there need be no place for it."""
        with unittest.mock.patch.dict(os.environ, TMPDIR=os.path.join(self.folder, "none")):
            answer = self.answer("oom", "--timeout", 0, "--all", "--no-replay", TRACE)
        self.assertEqual([row["seq"] for row in answer["ooms"]], [row["seq"] for row in self.answers["ooms"]])

    def test_without_failures(self):
        trace = path_of("multistream_record")
        self.assertEqual(self.varve("oom", "--timeout", 0, trace).out, "no request of a caching allocator failed\n")
        self.assertEqual(self.answer("oom", "--timeout", 0, trace)["ooms"], [])


if __name__ == "__main__":
    recording.main()
