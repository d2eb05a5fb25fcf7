#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""varve oom beside varve replay, on a recording of PyTorch's allocator in which requests failed.

What is said to serve a request serves it in a replay with that setting under the same limit; under the smallest limit it is served, 2 MiB
below it is not; and the snapshot, a database imported from it and one written by a replay get the same explanation.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import recording  # noqa: E402

VARVE = os.environ.get("VARVE", "build/varve")
FOLDER = pathlib.Path(__file__).parent / "pytorch"
TRACE = FOLDER / "synthetic_oom.pickle.xz"
STEP = 2 << 20


def varve(*arguments):
    result = subprocess.run([VARVE, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


def query(database, sql):
    return json.loads(varve("query", "--json", database, sql))


def ordinals(database):
    """Of each request that failed: how many requests came before it."""
    rows = query(database, "SELECT kind FROM event WHERE kind IN (1, 12) ORDER BY seq")
    rows = rows[0] if rows and isinstance(rows[0], list) else rows
    return [i for i, row in enumerate(rows) if row["kind"] == 12]


class Oom(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.imported = pathlib.Path(cls.folder.name) / "imported.db"
        varve("import", TRACE, "-o", cls.imported)
        cls.failed = ordinals(cls.imported)
        cls.answer = json.loads(varve("oom", "--timeout", 0, "--json", "--all", TRACE))
        cls.limit = cls.answer["memory_limit"]
        cls.replayed = 2 if recording.IS_SANITIZED else len(cls.failed)  # of the requests that failed

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def replay(self, limit, *setting):
        """The requests that fail."""
        path = pathlib.Path(self.folder.name) / "replay.db"
        varve("replay", "--memory-limit", limit, *setting, "-f", "-o", path, TRACE)
        return ordinals(path)

    def test_each_is_explained(self):
        self.assertEqual(len(self.answer["ooms"]), len(self.failed))
        for row in self.answer["ooms"]:
            memory = row["memory"]
            self.assertEqual(row["cause"], "fragmentation")
            self.assertTrue(row["served"]["fails_again"])
            self.assertEqual(memory["allocated"] + memory["pending"] + memory["free"], memory["reserved"])
            self.assertGreater(memory["reserved"] + memory["segment_needed"], self.limit)
            self.assertGreaterEqual(memory["free"] + self.limit - memory["reserved"], memory["block_needed"])
            self.assertLess(memory["own_largest_free"], memory["block_needed"])
            self.assertEqual(row["stages"][-1]["stage"], "release_cached")

    def test_settings_serve(self):
        for row, request in zip(self.answer["ooms"], self.failed[:self.replayed]):
            settings = [answer for answer in row["served"]["by"] if answer["kind"] in ("setting", "rule")]
            self.assertGreater(len(settings), 0)
            for answer in settings[:3 if request == self.failed[0] else 1]:
                with self.subTest(request=request, conf=answer["conf"]):
                    failed = self.replay(self.limit, "--conf", answer["conf"])
                    self.assertNotIn(request, failed)
                    self.assertFalse([number for number in failed if number < request and number not in self.failed])
                    self.assertEqual(len(failed), answer["ooms"])

    def test_smallest_limit(self):
        for row, request in zip(self.answer["ooms"], self.failed[:self.replayed]):
            limit = row["served"]["smallest_limit"]
            with self.subTest(request=request, limit=limit):
                self.assertGreater(limit, self.limit)
                self.assertNotIn(request, self.replay(limit))
                self.assertIn(request, self.replay(limit - STEP))
        limit = self.answer["ooms"][0]["served"]["smallest_limit_of_all"]
        self.assertEqual(self.replay(limit), [])
        self.assertNotEqual(self.replay(limit - STEP), [])

    def test_sources_agree(self):
        replayed = pathlib.Path(self.folder.name) / "replayed.db"
        varve("replay", "--verify", "--memory-limit", self.limit, "-o", replayed, TRACE)
        for path in (self.imported, replayed):
            other = json.loads(varve("oom", "--timeout", 0, "--json", path))
            self.assertEqual([row["served"] is None for row in other["ooms"]], [False] + [True] * (len(self.failed) - 1))
            for row, expected in zip(other["ooms"], self.answer["ooms"]):
                for key in ("requested", "cause", "because"):
                    self.assertEqual(row[key], expected[key])
                for key in set(row["memory"]) - {"device_free"}: # only a snapshot has it, and what was imported from one
                    self.assertEqual(row["memory"][key], expected["memory"][key])
            self.assertEqual(other["ooms"][0]["served"], self.answer["ooms"][0]["served"])

    def test_without_failures(self):
        trace = FOLDER / "gpt2_train.pickle.xz"
        self.assertEqual(varve("oom", "--timeout", 0, trace), "no request of a caching allocator failed\n")
        self.assertEqual(json.loads(varve("oom", "--timeout", 0, "--json", trace))["ooms"], [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
