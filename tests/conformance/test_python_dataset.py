#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Only with an unsanitized command: a sanitized library does not load into a plain Python
# Slow: records a program for each rank, and starts four workers
"""Many ranks: SQLite, DuckDB and Dask, on threads and on four workers, give equal answers, which plain SQL over each database gives too;
the rank that was made to differ is found; sweeps of replays, with failures as rows. 12 ranks, 64 with VARVE_LONG=1."""

import os
import sqlite3
import shutil
import statistics
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import ROOT, needs  # noqa: E402
import recording  # noqa: E402
import varve  # noqa: E402

RANKS = 64 if recording.IS_LONG else 12
STRAGGLER = 5
HISTORIES = os.path.join(ROOT, "tests", "conformance", "pytorch")
QUESTIONS = ("callsites", "peaks", "leaks", "timeline", "stragglers")


@needs("pandas", "pyarrow", "duckdb", "dask", "distributed")
class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="varve-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.paths = []
        for rank in range(RANKS):
            path = os.path.join(cls.folder, f"rank{rank:03}.db")
            operations = 4000 if rank == STRAGGLER else 400 + 10 * (rank % 7)
            more = ["--leak", "--threads", "16"] if rank == STRAGGLER else []
            done = recording.varve("record", "-q", "-o", path, "--", recording.program("churn"), "--ops", str(operations), "--seed",
                                   str(rank + 1), *more, env={**os.environ, "RANK": str(rank)})
            assert done.returncode == 0, done
            cls.paths.append(path)
        cls.parquet = os.path.join(cls.folder, "runs")
        for path in cls.paths:
            varve.to_parquet(path, cls.parquet, jobs=1)

    def assert_equal_answers(self, *datasets):
        import pandas
        for question in QUESTIONS:
            answers = [getattr(data, question)() for data in datasets]
            self.assertGreater(len(answers[0]), 0, question)
            for data, answer in zip(datasets[1:], answers[1:]):
                pandas.testing.assert_frame_equal(answers[0], answer, check_exact=True, obj=f"{question} by {data}")

    def test_engines(self):
        self.assert_equal_answers(varve.dataset(os.path.join(self.folder, "*.db")), varve.dataset(self.parquet),
                                  varve.dataset(self.parquet, engine="dask"))
        self.assert_equal_answers(*(varve.dataset(self.paths[:3], engine=engine) for engine in ("sqlite", "duckdb", "dask")))

    def test_four_workers(self):
        import distributed
        import logging
        logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
        with distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, local_directory=self.folder) as cluster:
            self.assert_equal_answers(varve.dataset(self.paths), varve.dataset(self.parquet, engine="dask", scheduler=cluster.scheduler_address))

    def test_plain_sql(self):
        bytes_by_line, peaks = {}, {}
        for rank, path in enumerate(self.paths):
            connection = sqlite3.connect(path)
            for *line, size in connection.execute("SELECT domain, user_function, user_file, user_line, bytes FROM callsite_total"):
                bytes_by_line[tuple(line)] = bytes_by_line.get(tuple(line), 0) + size
            peaks[rank] = connection.execute("SELECT max(peak_bytes) FROM total_process WHERE domain = 'heap'").fetchone()[0]
            connection.close()
        data = varve.dataset(self.parquet)
        found = data.callsites()
        keys = found[["domain", "user_function", "user_file", "user_line"]].astype(object)
        keys = keys.where(keys.notna(), None)
        self.assertEqual(dict(zip(keys.itertuples(index=False, name=None), found["bytes"])), bytes_by_line)
        heap = data.peaks()
        heap = heap[heap.domain == "heap"]
        self.assertEqual(dict(zip(heap["rank"], heap.peak_bytes)), peaks)
        by_sql = data.sql("SELECT rank, max(peak_bytes) AS peak FROM total_process WHERE domain = 'heap' GROUP BY rank")
        self.assertEqual(dict(zip(by_sql["rank"], by_sql.peak)), peaks)
        # a view that has a rank of its own, of either source
        for source in (data, varve.dataset(self.paths)):
            own = source.sql("SELECT rank, count(*) AS n FROM process GROUP BY rank ORDER BY rank")
            self.assertEqual(list(own["rank"]), sorted(peaks))
        late = data.stragglers(within="all")
        first = late[late.domain == "heap"].iloc[0]
        self.assertEqual(first["rank"], STRAGGLER)
        self.assertAlmostEqual(first.peak_ratio, peaks[STRAGGLER] / statistics.median(peaks.values()))

    def test_one_database_of_several_ranks(self):
        path = os.path.join(self.folder, "job")
        script = "".join(f"RANK={rank} {recording.program('churn')} --ops {100 * (rank + 1)} --seed {rank + 1}; " for rank in range(4))
        done = recording.varve("record", "-q", "-o", path, "--", "/bin/sh", "-c", script)
        self.assertEqual(done.returncode, 0, done)
        parquet = os.path.join(self.folder, "job.parquet")
        varve.to_parquet(path, parquet)
        one = varve.dataset(path)
        self.assert_equal_answers(one, varve.dataset(parquet), varve.dataset(parquet, engine="dask"))
        self.assertEqual(set(one.peaks()["rank"].dropna()), {0, 1, 2, 3})

    def test_bad_input(self):
        other = os.path.join(self.folder, "other.txt")
        with open(other, "w", encoding="utf-8") as stream:
            stream.write("nothing")
        for make, word in ((lambda: varve.dataset(other), "not a trace"), (lambda: varve.dataset(os.path.join(self.folder, "*.none")), "no such"),
                           (lambda: varve.dataset([]), "no traces"), (lambda: varve.dataset(self.folder), "view="),
                           (lambda: varve.dataset(self.paths, engine="spark"), "dask"),
                           (lambda: varve.dataset(self.parquet, engine="sqlite"), "databases"),
                           (lambda: varve.dataset(self.parquet).sql("SELECT nothing"), "nothing"),
                           (lambda: varve.dataset(self.parquet).timeline(0), "1 ns"),
                           (lambda: varve.dataset(self.parquet).stragglers("week"), "within")):
            with self.assertRaisesRegex(varve.TraceError, word):
                make()

    def test_sweep(self):
        import pandas
        histories = [os.path.join(HISTORIES, f"{name}.pickle.xz") for name in ("synthetic_oom", "multistream_record")]
        table = varve.sweep([*histories, self.paths[0]], ["pytorch", "first-fit", "nothing"], [None, "max_split_size_mb:32"],
                            varve=recording.VARVE)
        self.assertEqual(len(table), 3 * 3 * 2)
        failed = table[table.error.notna()]
        self.assertEqual(set(failed.policy[failed.trace.isin(histories)]), {"nothing"})
        self.assertEqual(len(failed), 2 * 2 + 3 * 2)  # a heap has no caching allocator
        self.assertTrue(failed.error.str.contains("nothing|no ").all(), list(failed.error))
        for _, row in table[table.error.isna()].iterrows():
            options = ["--conf", row.conf] if isinstance(row.conf, str) else []
            told = recording.json_lines(recording.varve("compare", "--json", "--policies", row.policy, *options, row.trace).out.strip("[]\n"))[0]
            self.assertEqual((row.peak_reserved, row.load_bytes, row.ooms), (told["peak_reserved"], told["load_bytes"], told["ooms"]))
        again = varve.sweep(histories, ["pytorch"], varve=recording.VARVE)
        pandas.testing.assert_series_equal(again.peak_reserved, table[(table.policy == "pytorch") & table.conf.isna()].peak_reserved[:2],
                                           check_index=False)
        bound = varve.sweep(histories, command="bound", varve=recording.VARVE)
        self.assertTrue((bound.placement_bytes >= bound.bound_bytes).all())
        lost = varve.sweep(histories[:1], varve="/no/varve")
        self.assertIn("/no/varve", lost.error[0])


if __name__ == "__main__":
    recording.main()
