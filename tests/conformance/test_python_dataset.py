#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 100 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""Many ranks: SQLite, DuckDB and Dask, on threads and on workers, give equal answers, and what plain SQL says of each
database; the rank that was made to differ is found."""

import os
import sqlite3
import shutil
import statistics
import sys
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import needs  # noqa: E402
from python_ranks import STRAGGLER, RankCase  # noqa: E402
import recording  # noqa: E402
import varve  # noqa: E402


@needs("pandas", "pyarrow", "duckdb", "dask", "distributed")
class Ranks(RankCase):
    def test_engines(self):
        self.assert_equal_answers(varve.dataset(os.path.join(self.folder, "*.db")), varve.dataset(self.parquet),
                                  varve.dataset(self.parquet, engine="dask"))
        self.assert_equal_answers(*(varve.dataset(self.paths[:3], engine=engine)
                                    for engine in ("sqlite", "duckdb", "dask")))

    def test_workers(self):
        import distributed
        import logging
        logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
        with distributed.LocalCluster(n_workers=4, processes=recording.IS_FULL, threads_per_worker=1,
                                      dashboard_address=None, local_directory=self.folder) as cluster:
            self.assert_equal_answers(varve.dataset(self.paths),
                                      varve.dataset(self.parquet, engine="dask", scheduler=cluster.scheduler_address))

    def test_plain_sql(self):
        bytes_by_line, peaks = {}, {}
        for rank, path in enumerate(self.paths):
            connection = sqlite3.connect(path)
            for *line, size in connection.execute("SELECT domain, user_function, user_file, user_line, bytes FROM"
                                                  " callsite_total"):
                bytes_by_line[tuple(line)] = bytes_by_line.get(tuple(line), 0) + size
            peaks[rank], = connection.execute(
                "SELECT max(peak_bytes) FROM total_process WHERE domain = 'heap'").fetchone()
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

    def test_spans_without_events(self):
        """What is live stays live while nothing happens: beside a walk through each process' rows, span by span."""
        width, expected, idle, paths = 50_000, {}, 0, self.paths[:3]
        for path in paths:
            live, spans, connection = {}, {}, sqlite3.connect(path)
            for ts_ns, *row in connection.execute("SELECT ts_ns, process_id, domain, device, allocated, allocated_max"
                                                  " FROM timeline_process ORDER BY seq"):
                spans.setdefault(ts_ns // width, []).append(row)
            connection.close()
            for span in range(min(spans), max(spans) + 1):
                most = dict(live)
                for *series, allocated, allocated_max in spans.get(span, ()):
                    most[tuple(series)] = max(most.get(tuple(series), 0), allocated_max)
                    live[tuple(series)] = allocated
                idle += most == live
                for domain in {series[1] for series in most}:
                    expected.setdefault((domain, span * width), []).append(
                        max(value for series, value in most.items() if series[1] == domain))
        self.assertGreater(idle, 0)
        found = varve.dataset(paths).timeline(width)
        figures = found[["traces", "allocated_min", "allocated_median", "allocated_max"]]
        self.assertEqual(dict(zip(zip(found.domain, found.begin_ns), figures.values.tolist())),
                         {key: [len(of), min(of), statistics.median(of), max(of)] for key, of in expected.items()})
        with unittest.mock.patch("varve.datasets.SPANS_MAX", 1000), \
                self.assertRaisesRegex(varve.TraceError, "ask for longer ones"):
            varve.dataset(paths).timeline(1000)

    def test_one_database_of_several_ranks(self):
        path = os.path.join(self.folder, "job")
        script = "".join(f"RANK={rank} {recording.program('churn')} --ops {100 * (rank + 1)} --seed {rank + 1}; "
                         for rank in range(4))
        done = recording.varve("record", "-q", "-o", path, "--", "/bin/sh", "-c", script)
        self.assertEqual(done.returncode, 0, done)
        parquet = os.path.join(self.folder, "job.parquet")
        varve.to_parquet(path, parquet)
        one = varve.dataset(path)
        self.assert_equal_answers(one, varve.dataset(parquet), varve.dataset(parquet, engine="dask"))
        self.assertEqual(set(one.peaks()["rank"].dropna()), {0, 1, 2, 3})

    def test_columns_of_one_name(self):
        join = "FROM total_process a JOIN total_process b USING (domain)" \
               " WHERE a.rank = 0 AND b.rank = 5 AND domain = 'heap'"
        for data in (varve.dataset(self.parquet), varve.dataset([self.paths[0], self.paths[STRAGGLER]])):
            apart = data.sql(f"SELECT a.bytes AS x, b.bytes AS y {join}").values.tolist()
            together = data.sql(f"SELECT a.bytes, b.bytes, sum(1) AS \"a\"\"b\" {join} GROUP BY ALL")
            self.assertEqual(list(together.columns), ["bytes", "bytes", 'a"b'])
            self.assertNotEqual(apart[0][0], apart[0][1])
            self.assertEqual(together.values.tolist(), [[*apart[0], 1]])

    def test_most_are_equal(self):
        """The median deviation is 0: who differs at all is infinitely far."""
        paths = [os.path.join(self.folder, "equal", f"{name}.db") for name in range(4)]
        os.makedirs(os.path.dirname(paths[0]))
        for path in paths:
            shutil.copy(self.paths[STRAGGLER if path == paths[-1] else 0], path)
        late = varve.dataset(paths).stragglers(within="all")
        late = late[late.domain == "heap"]
        self.assertEqual(list(zip(late.run, late.deviations)), [("3", float("inf")), ("0", 0), ("1", 0), ("2", 0)])


if __name__ == "__main__":
    recording.main()
