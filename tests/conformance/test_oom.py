#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 7 s, full 30 s
"""varve oom beside varve replay, on a recording of PyTorch's allocator in which requests failed.

What is said to serve a request serves it in a replay with that setting under the same limit; under the smallest limit
it is served, 2 MiB below it is not; and the snapshot, a database imported from it and one written by a replay get the
same explanation. """

import os
import shutil
import tempfile

from pytorch_recordings import Case, path_of, recording

TRACE = path_of("synthetic_oom")
STEP = 2 << 20


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
        cls.failed = case.ordinals(cls.imported)
        case.connection.close()
        cls.limit = cls.answers["memory_limit"]
        cls.replayed = len(cls.failed) if recording.IS_FULL else 1  # of the requests that failed

    def ordinals(self, path):
        """Of each request that failed: how many requests came before it."""
        kinds = self.rows(path, "SELECT kind FROM event WHERE kind IN (1, 12) ORDER BY seq")
        return [i for i, kind in enumerate(kinds) if kind == (12,)]

    def replay(self, limit, *setting):
        """The requests that fail."""
        self.varve("replay", "--memory-limit", limit, *setting, "-f", "-o", self.path, TRACE)
        return self.ordinals(self.path)

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

    def test_settings_serve(self):
        for row, request in zip(self.answers["ooms"], self.failed[:self.replayed]):
            settings = [answer for answer in row["served"]["by"] if answer["kind"] in ("setting", "rule")]
            self.assertGreater(len(settings), 0)
            for answer in settings[:3 if request == self.failed[0] else 1]:
                with self.subTest(request=request, conf=answer["conf"]):
                    failed = self.replay(self.limit, "--conf", answer["conf"])
                    self.assertNotIn(request, failed)
                    self.assertFalse([number for number in failed if number < request and number not in self.failed])
                    self.assertEqual(len(failed), answer["ooms"])

    def test_smallest_limit(self):
        for row, request in zip(self.answers["ooms"], self.failed[:self.replayed]):
            limit = row["served"]["smallest_limit"]
            with self.subTest(request=request, limit=limit):
                self.assertGreater(limit, self.limit)
                self.assertNotIn(request, self.replay(limit))
                self.assertIn(request, self.replay(limit - STEP))
        limit = self.answers["ooms"][0]["served"]["smallest_limit_of_all"]
        self.assertEqual(self.replay(limit), [])
        self.assertNotEqual(self.replay(limit - STEP), [])

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

    def test_without_failures(self):
        trace = path_of("multistream_record")
        self.assertEqual(self.varve("oom", "--timeout", 0, trace).out, "no request of a caching allocator failed\n")
        self.assertEqual(self.answer("oom", "--timeout", 0, trace)["ooms"], [])


if __name__ == "__main__":
    recording.main()
