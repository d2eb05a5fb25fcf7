# SPDX-License-Identifier: Apache-2.0
"""Recordings of many ranks, one of which differs, as databases and as Parquet. 6 of them, 64 with VARVE_FULL=1."""

import os
import shutil
import tempfile
import unittest

import recording
import varve
import varve.export

RANKS = 64 if recording.IS_FULL else 6
STRAGGLER = 5
QUESTIONS = ("callsites", "peaks", "leaks", "timeline", "stragglers")
VIEWS = varve.export.VIEWS if recording.IS_FULL else (
    "callsite_total_process", "total_process", "leak_line", "timeline_process", "process")


class RankCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="varve-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.paths = []
        for rank in range(RANKS):
            path = os.path.join(cls.folder, f"rank{rank:03}.db")
            operations = 2000 if rank == STRAGGLER else 400 + 10 * (rank % 7)
            more = ["--leak", "--threads", "16"] if rank == STRAGGLER else []
            done = recording.varve("record", "-q", "-o", path, "--", recording.program("churn"), "--ops",
                                   str(operations), "--seed",
                                   str(rank + 1), *more, env={**os.environ, "RANK": str(rank)})
            assert done.returncode == 0, done
            cls.paths.append(path)
        cls.parquet = os.path.join(cls.folder, "runs")
        for path in cls.paths:
            varve.to_parquet(path, cls.parquet, VIEWS, jobs=1)

    def assert_equal_answers(self, *datasets):
        import pandas
        for question in QUESTIONS:
            answers = [getattr(data, question)() for data in datasets]
            self.assertGreater(len(answers[0]), 0, question)
            for data, answer in zip(datasets[1:], answers[1:]):
                pandas.testing.assert_frame_equal(answers[0], answer, check_exact=True, obj=f"{question} by {data}")
