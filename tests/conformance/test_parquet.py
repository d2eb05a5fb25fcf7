#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s, full 15 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""`varve export --to parquet` and `arrow`: pandas, DuckDB and Dask read back the rows of the views, whatever the
number of threads; partitions are those of the ranks and devices; a run is written as a whole or not at all; and bad
input."""

import os
import shutil
import sqlite3
import subprocess
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import ROOT, needs  # noqa: E402
import recording  # noqa: E402
import varve  # noqa: E402

HISTORY = os.path.join(ROOT, "tests", "conformance", "pytorch",
                       "multistream_record.pickle.xz" if recording.IS_FULL else "cudagraph_private_pool.pickle.xz")
VIEWS = ("events", "allocations", "total_process", "timeline_process", "segment", "callsite_total_process", "oom",
         "mark")


@needs("pandas", "pyarrow")
class Parquet(recording.Case):
    def setUp(self):
        super().setUp()
        self.varve("replay", HISTORY, "-o", self.path)
        self.out = os.path.join(self.folder, "runs")
        os.environ["VARVE_PYTHON3"] = sys.executable

    def expected(self, view, path=None):
        """Rows in their order, by SQLite alone."""
        connection = sqlite3.connect(path or self.path)
        try:
            cursor = connection.execute(f"SELECT * FROM {view}")
            names = [column[0] for column in cursor.description]
            return names, sorted(cursor.fetchall(), key=repr)
        finally:
            connection.close()

    def assert_rows(self, frame, view, path=None):
        names, rows = self.expected(view, path)
        if "device" in names:  # the name of a folder; -1: none
            frame = frame.assign(device=frame.device.astype("Int64").replace(-1, __import__("pandas").NA))
        plain = frame[names].astype(object).where(frame[names].notna(), None)
        found = sorted((tuple(value.item() if hasattr(value, "item") else value for value in row)
                        for row in plain.itertuples(index=False, name=None)), key=repr)
        self.assertEqual(found, rows, view)

    def test_read_back(self):
        import pandas
        self.varve("export", self.path, "--to", "parquet", "-o", self.out)
        types = {}
        for view in VIEWS:
            folder = os.path.join(self.out, f"view={view}")
            self.assert_rows(pandas.read_parquet(folder, dtype_backend="numpy_nullable"), view)
            types[view] = [name for _, names, _ in os.walk(folder) for name in names if name.startswith("device=")]
        self.assertEqual(set(types["events"]), {"device=0"})
        self.assertEqual(types["mark"], [])

    @needs("duckdb")
    def test_duckdb(self):
        self.varve("export", self.path, "--to", "parquet", "-o", self.out)
        data = varve.dataset(self.out)
        for view in VIEWS:
            self.assert_rows(data.sql(f"SELECT * EXCLUDE (run, rank) FROM {view}"), view)
        runs = data.sql("SELECT DISTINCT run, rank FROM events")
        self.assertEqual(list(runs.itertuples(index=False, name=None))[0][0], "trace")

    @needs("dask", "distributed")
    def test_dask(self):
        import dask.dataframe
        self.varve("export", self.path, "--to", "parquet", "-o", self.out)
        for view in ("events", "total_process"):
            frame = dask.dataframe.read_parquet(os.path.join(self.out, f"view={view}")).compute()
            self.assert_rows(frame, view)

    def test_arrow(self):
        import pyarrow.dataset
        self.varve("export", self.path, "--to", "arrow", "-o", self.out)
        for view in ("events", "allocations"):
            folder = os.path.join(self.out, f"view={view}")
            found = pyarrow.dataset.dataset(folder, format="arrow", partitioning="hive").to_table()
            frame = found.to_pandas(types_mapper={pyarrow.int64(): __import__("pandas").Int64Dtype()}.get)
            for name in ("kind", "cause", "domain", "source"):
                if name in frame:
                    frame[name] = frame[name].astype(object)
            self.assert_rows(frame, view)

    def test_parts(self):
        """Several threads write the same rows as one, with gaps between the keys."""
        import pandas
        path = os.path.join(self.folder, "gaps.db")
        shutil.copy(self.path, path)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE allocation_row SET id = id + 10000000 WHERE id > 50")
            connection.execute("DELETE FROM allocation_row WHERE id % 7 = 0")
        connection.close()
        for jobs in (1, 3):
            out = os.path.join(self.folder, f"jobs{jobs}")
            varve.to_parquet(path, out, ["allocations"], jobs=jobs)
            self.assert_rows(pandas.read_parquet(os.path.join(out, "view=allocations"),
                                                 dtype_backend="numpy_nullable"), "allocations", path)
        names = [name for _, _, names in os.walk(out) for name in names]
        self.assertGreater(len(names), 1)

    def test_ranks(self):
        """A database with processes of two ranks, and one of none: each row is below its process's."""
        import pandas
        program = recording.program("churn")
        script = f"RANK=1 {program} --ops 200; RANK=0 {program} --ops 100"
        os.remove(self.path)
        self.record("/bin/sh", "-c", script, options=["-q"])
        varve.to_parquet(self.path, self.out, ["events", "total_process", "allocations"])
        for view in ("events", "total_process", "allocations"):
            folder = os.path.join(self.out, f"view={view}", "run=trace")
            self.assertTrue({"rank=0", "rank=1"} <= set(os.listdir(folder)), os.listdir(folder))
            folder = os.path.join(self.out, f"view={view}")
            self.assert_rows(pandas.read_parquet(folder, dtype_backend="numpy_nullable"), view)
        connection = sqlite3.connect(self.path)
        wanted = connection.execute("SELECT p.rank, count(*) FROM event e JOIN thread t ON t.id = e.thread_id JOIN"
                                    " process p "
                                    "ON p.id = t.process_id WHERE p.rank IS NOT NULL GROUP BY 1 ORDER BY 1").fetchall()
        connection.close()
        self.assertEqual(wanted, [(rank, len(pandas.read_parquet(os.path.join(self.out, "view=events", "run=trace",
                                                                              f"rank={rank}"))))
                                  for rank in (0, 1)])

    # ---- whole or not at all ----

    def test_views_and_jobs(self):
        self.assertEqual(varve.to_parquet(self.path, self.out, ["mark", "mark"]).files, 1)
        deep = os.path.join(self.folder, "a", "b", "runs")
        for views, jobs, word in ((["events"], -1, "threads"), (["events"], 0, "threads"), ("events", None, "a list"),
                                  (["nothing"], None, "no view")):
            with self.assertRaisesRegex(varve.TraceError, word):
                varve.to_parquet(self.path, deep, views, jobs=jobs)
        self.assertEqual(sorted(os.listdir(self.folder)), ["runs", "trace.db"])

    def test_nothing_is_left_of_a_failure(self):
        deep = os.path.join(self.folder, "a", "b", "runs")
        with unittest.mock.patch.object(os, "rename", side_effect=OSError(28, "No space left on device", self.out)):
            for out in (self.out, deep):
                with self.assertRaisesRegex(varve.TraceError, "No space"):
                    varve.to_parquet(self.path, out, ["mark", "oom"])
        self.assertEqual(os.listdir(self.folder), ["trace.db"])

    def test_a_run_is_there_once(self):
        self.varve("export", self.path, "--to", "parquet", "-o", self.out)
        before = sorted(os.walk(self.out))
        self.assert_refused(recording.varve("export", self.path, "--to", "parquet", "-o", self.out), "is there already")
        self.assertEqual(sorted(os.walk(self.out)), before)
        self.varve("export", self.path, "--to", "parquet", "-f", "-o", self.out)
        self.assertEqual(sorted(os.walk(self.out)), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["runs", "trace.db"])

    def test_bad_input(self):
        other = os.path.join(self.folder, "other")
        with open(other, "wb") as stream:
            stream.write(b"no database" * 100)
        damaged = os.path.join(self.folder, "damaged.db")
        with open(self.path, "rb") as source, open(damaged, "wb") as target:
            data = bytearray(source.read())
            for at in range(len(data) // 3, len(data), 4096):
                data[at:at + 64] = b"\xff" * 64
            target.write(data)
        # SQLite's reason names what it can't read, with its lines.
        lines = os.path.join(self.folder, "lines.db")
        shutil.copy(self.path, lines)
        connection = sqlite3.connect(lines)
        connection.executescript("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET name = 'a' || char(10) || ')',"
                                 " sql = 'CREATE VIEW a AS (' WHERE name = 'events'")
        connection.close()
        for arguments, words in (((other, "--to", "parquet", "-o", self.out), ["not a trace"]),
                                 ((other + ".db", "--to", "arrow", "-o", self.out), ["No such file"]),
                                 ((self.path, "--to", "parquet"), ["-o FILE"]),
                                 ((damaged, "--to", "parquet", "-o", self.out), ["damaged.db"]),
                                 ((lines, "--to", "parquet", "-o", self.out), ["lines.db", "malformed"]),
                                 ((self.path, "--to", "parquet", "-o", os.path.join(other, "x")), ["other"])):
            self.assert_refused(recording.varve("export", *arguments), *words)
            self.assertFalse(os.path.exists(self.out), arguments)
        self.assertEqual([name for name in os.listdir(self.folder) if "partial" in name], [])

    def test_command_line(self):
        done = subprocess.run([sys.executable, "-m", "varve", "export", self.path, "-o", self.out, "--views",
                               "nothing"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no view 'nothing'", done.stderr)
        done = subprocess.run([sys.executable, "-m", "varve", "export", self.path, "-o", self.out, "--views", "mark",
                               "--run", "a/b=c"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.listdir(os.path.join(self.out, "view=mark")), ["run=a%2Fb%3Dc"])


class WithoutPython(recording.Case):
    def test_missing(self):
        self.varve("replay", HISTORY, "-o", self.path)
        out = os.path.join(self.folder, "runs")
        for python, words in (("/no/python3", ["/no/python3 can't be run", "pandas and pyarrow"]),
                              ("/bin/false", ["Python was ended"])):
            outcome = recording.varve("export", self.path, "--to", "parquet", "-o", out,
                                      env={**os.environ, "VARVE_PYTHON3": python})
            self.assert_refused(outcome, *words)
            self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    recording.main()
