#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 40 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
# Slow: all views of many traces
# Reads damaged input: databases with names that are no UTF-8, and what is no trace
"""The Python package on trace databases: each view as SQLite has it, of several kinds of traces, with the library and
without; that the short cuts of the large views leave nothing out; what is no trace; names that are no text."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import PACKAGE, ROOT, missing, needs  # noqa: E402
from python_traces import Case  # noqa: E402
import recording  # noqa: E402
import varve  # noqa: E402
from varve import reading, wide  # noqa: E402


class Alone(Case):
    """Without any package."""

    def test_import_is_light(self):
        code = ("import sys; before = set(sys.modules); import varve; varve.open; "
                "print(sorted({'pandas', 'pyarrow', 'numpy', 'plotly', 'dask', 'duckdb'} & set(sys.modules)))")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "[]"), done.stderr)

    def test_missing_packages_are_named(self):
        code = ("import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None; import varve; trace ="
                " varve.open(sys.argv[1])\nprint(trace.health, len(trace.views) > 50)\n"
                "try: trace.events\nexcept varve.TraceError as error: print(error)")
        done = subprocess.run([sys.executable, "-c", code, self.trace("heap")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing lost", done.stdout)
        self.assertIn("True", done.stdout)
        self.assertIn("pip install pandas pyarrow (", done.stdout)

    def test_what_is_no_trace(self):
        copy = os.path.join(self.folder, "copy.db")

        def doctored(sql):
            shutil.copy(self.trace("heap"), copy)
            with sqlite3.connect(copy) as connection:
                connection.executescript(sql)
            connection.close()
            return copy

        def file(data):
            with open(copy, "wb") as stream:
                stream.write(data)
            return copy

        for make, words in ((lambda: os.path.join(self.folder, "none.db"), ["No such file"]),
                            (lambda: self.folder, ["directory"]),
                            (lambda: file(b""), ["not a trace"]), (lambda: file(b"x" * 5000), ["not an SQLite file"]),
                            (lambda: doctored("PRAGMA application_id = 7"), ["another tool"]),
                            (lambda: doctored("PRAGMA user_version = 1"), ["older", "record again"]),
                            (lambda: doctored("PRAGMA user_version = 99"), ["newer"]),
                            (lambda: doctored("DELETE FROM meta WHERE key = 'complete'"), ["varve recover"]),
                            (lambda: doctored("DROP TABLE meta"), ["meta"])):
            path = make()
            self.assert_one_line(lambda: varve.open(path), *words)

    def test_schema_version(self):
        with open(os.path.join(ROOT, "trace", "writer.h"), encoding="utf-8") as stream:
            text = stream.read()
        self.assertIn(f"VARVE_DATABASE_SCHEMA_VERSION {reading.SCHEMA_VERSION}\n", text)

    def test_health_is_the_report_s(self):
        for name in self.TRACES:
            health = varve.open(self.trace(name)).health
            told = recording.json_lines(recording.varve("report", "--json", self.trace(name)).out)[0]["loss"]
            self.assertEqual(health.nothing_lost, told["nothing_lost"], name)
            for key, value in health.figures.items():
                self.assertEqual(value, told[key], (name, key))
        self.assertEqual(varve.open(self.trace("totals")).health.kept, "totals")

    def test_help(self):
        trace = varve.open(self.trace("heap"))
        for view in ("events", "callsite_total", "leak_line"):
            self.assertEqual(set(trace.help(view)), {"", *trace._columns(view)})
        self.assert_one_line(lambda: trace.help("nothing"), "nothing")


@needs("pandas", "pyarrow")
class Views(Case):
    def rows(self, path, sql):
        connection = reading.connect(path)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def assert_same(self, table, rows, what):
        found = list(zip(*[column.to_pylist() for column in table.columns])) if table.num_rows else []
        self.assertEqual(len(found), len(rows), what)
        for mine, theirs in zip(found, rows):
            if mine != theirs:  # text columns have numbers as text
                self.assertEqual([str(value) if isinstance(one, str) else value for one, value in zip(mine, theirs)],
                                 list(mine), what)

    def test_every_view_is_sqlites(self):
        self.assertIsNotNone(reading.library(), "libvarve_query.so is not built")
        seen, empty = set(), set()
        for name in (*self.TRACES, "resnet", "oom", "streams") if recording.IS_FULL else ("short", "storages", "remat"):
            with varve.open(self.trace(name)) as trace:
                for view in trace.views:
                    order = f" ORDER BY {wide.KEYS.get(wide.BASES[view], 'seq')}" if view in wide.BASES else ""
                    rows = self.rows(trace.path, f'SELECT * FROM "{view}"{order}')
                    if view in (seen if rows else empty) and not recording.IS_FULL:
                        continue
                    (seen if rows else empty).add(view)
                    self.assert_same(trace.arrow(view), rows, (name, view))
        for view in ("peak_hole", "hole", "storage_leak", "eviction", "operator_total", "leak_line", "oom", "segment"):
            self.assertIn(view, seen)  # else the test shows nothing of it

    def test_properties_are_views(self):
        trace = varve.open(self.trace("resnet"))
        for name in dir(varve.Trace):
            view = getattr(varve.Trace, name)
            if type(view).__name__ == "View":
                self.assertEqual(len(getattr(trace, name)), self.rows(trace.path, f'SELECT count(*) FROM'
                                                                                  f' "{view.name}"')[0][0], name)

    def test_short_cuts(self):
        for name in ("heap", "oom") if recording.IS_FULL else ("short",):
            with varve.open(self.trace(name)) as trace:
                for view in wide.BASES:
                    self.assertIsNotNone(wide.plan(trace, view), view)
                    whole = trace.arrow(view)
                    key = wide.KEYS.get(wide.BASES[view], "seq")
                    self.assert_same(whole, self.rows(trace.path, f"SELECT * FROM {view} ORDER BY {key}"), (name, view))
                    self.assertEqual(whole.num_rows, sum(batch.num_rows
                                                         for batch in trace.batches(view, batch_rows=777)))

    def test_short_cut_of_another_view(self):
        """A view that says something else is read as it is."""
        path = os.path.join(self.folder, "other.db")
        shutil.copy(self.trace("heap"), path)
        with sqlite3.connect(path) as connection:
            text = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'event'").fetchone()[0]
            connection.executescript("PRAGMA writable_schema = 1; DROP VIEW event;" +
                                     text.replace("seq, ts_ns,", "seq, ts_ns + 1 AS ts_ns,")
                                     .replace("SELECT t.pid FROM", "SELECT t.pid + 1 FROM"))
        connection.close()
        trace = varve.open(path)
        self.assertIsNone(wide.plan(trace, "event"))
        self.assert_same(trace.arrow("events").slice(0, 50),
                         self.rows(path, "SELECT * FROM events ORDER BY seq LIMIT 50"), "events")

    def test_names_that_are_repeated(self):
        """Two codes of one name are one category."""
        path = os.path.join(self.folder, "repeated.db")
        shutil.copy(self.trace("heap"), path)
        with sqlite3.connect(path) as connection:
            connection.executescript("INSERT INTO domain(code, name, meaning) VALUES (77, 'heap', ''),"
                                     " (5000000, 'mmap', '');"
                                     "UPDATE allocation_row SET domain = iif(id % 2, 77, 5000000) WHERE id % 5 = 0")
        connection.close()
        with varve.open(path) as trace:
            expected = dict(self.rows(path, "SELECT domain, count(*) FROM allocations GROUP BY 1"))
            found = trace.allocations.domain.value_counts()
            self.assertEqual({name: count for name, count in found.items() if count > 0}, expected)

    def test_without_the_library(self):
        code = ("import sys, varve, pyarrow; trace = varve.open(sys.argv[1])\n"
                "with pyarrow.OSFile(sys.argv[2], 'wb') as file:\n"
                "    table = trace.arrow('allocations')\n"
                "    with pyarrow.ipc.new_file(file, table.schema) as out: out.write_table(table)\n")
        out = os.path.join(self.folder, "table.arrow")
        done = subprocess.run([sys.executable, "-c", code, self.trace("streams"), out], capture_output=True, text=True,
                              env={**os.environ, "VARVE_BUILD_DIR": self.folder})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("several times slower", done.stderr)
        import pyarrow
        with pyarrow.memory_map(out) as file:
            mine = pyarrow.ipc.open_file(file).read_all()
        theirs = varve.open(self.trace("streams")).arrow("allocations")
        self.assertEqual(mine.to_pylist(), theirs.to_pylist())

    def test_time_limit_without_the_library(self):
        """A batch has it, not the whole reading or what the reader does meanwhile; and the clock is the one of the
        thread that reads."""
        sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i FROM n"
        readers = []
        with unittest.mock.patch.object(reading, "library", lambda: None):
            begin = time.thread_time()
            varve.open(self.trace("heap")).batches(sql).read_all()
            limit = round(2 * (time.thread_time() - begin), 2)  # twice what all batches take, on a machine like this
            trace = varve.open(self.trace("heap"), timeout=limit)
            begin = time.thread_time()
            while time.thread_time() < begin + 1.2 * limit:
                pass
            maker = threading.Thread(target=lambda: readers.append(trace.batches(sql)))
            maker.start()
            maker.join()
            rows = 0
            for batch in readers[0]:
                rows += batch.num_rows
                begin = time.thread_time()
                while rows < 100000 and time.thread_time() < begin + limit:
                    pass
            self.assertEqual(rows, 300000)
            last = "SELECT CASE WHEN i < 300000 THEN i ELSE (SELECT max(a.i + b.i) FROM n a, n b) END FROM"
            late = trace.batches(sql.replace("SELECT i FROM", last))
            self.assert_one_line(late.read_all, f"no end after {limit:g} s of computing")

    def test_parameters(self):
        import decimal
        import fractions
        numpy = __import__("numpy")
        trace = varve.open(self.trace("heap"))
        for patched in (reading.library, lambda: None):
            with unittest.mock.patch.object(reading, "library", patched):
                for given, value, kind in ((numpy.float32(1.5), 1.5, "real"), (numpy.int64(-5), -5, "integer"),
                                           (True, 1, "integer"),
                                           (-2**63, -2**63, "integer"), (numpy.uint64(2**63 - 1), 2**63 - 1, "integer"),
                                           ("é", "é", "text"),
                                           (fractions.Fraction(1, 2), 0.5, "real"), (None, None, "null")):
                    found = trace.arrow("SELECT ? AS a, typeof(?) AS b", (given, given)).to_pylist()
                    self.assertEqual(found, [{"a": value, "b": kind}])
                for given, word in ((2**63, "64 bits"), (2**64 + 5, "64 bits"), (numpy.uint64(2**63), "64 bits"),
                                    (decimal.Decimal("2.7"), "Decimal"),
                                    (b"12", "bytes"), ("a\0b", "zero"), ("\udcff", "UTF-8"), (1j, "complex"),
                                    ([1], "list"), (fractions.Fraction(10**400), "large")):
                    self.assert_one_line(lambda: trace.query("SELECT ? AS a", (given,)), word)
                self.assert_one_line(lambda: trace.query("SELECT ? AS a", "1"), "a list")
                self.assert_one_line(lambda: trace.query("SELECT 1 AS a\0, 2 AS b"), "zero")
                self.assert_one_line(lambda: trace.query("SELECT '\udcff' AS a"), "UTF-8")

    def test_statements_without_a_space(self):
        trace = varve.open(self.trace("heap"))
        for sql in ("SELECT\n7\nAS\na", "VALUES(7)", "SELECT\t7"):
            self.assertEqual(trace.query(sql).values.tolist(), [[7]])
        self.assertEqual(len(trace.query(" mark\n")), len(trace.marks))

    def test_closed(self):
        with varve.open(self.trace("heap")) as trace:
            self.assertIn("nothing lost", repr(trace))
        for ask in (lambda: trace.health, lambda: trace.views, lambda: trace.help("events"),
                    lambda: trace.arrow("events"), lambda: trace.select("events"), lambda: trace.plot.timeline()):
            self.assert_one_line(ask, "closed")
        self.assertIn("closed", repr(trace))

    def test_names_of_files_that_are_no_text(self):
        path = os.path.join(self.folder, os.fsdecode(b"h\xff#?% ;.db"))
        shutil.copy(self.trace("heap"), path)
        for given in (path, os.fsencode(path)):
            trace = varve.open(given)
            self.assertGreater(len(trace.events), 0)
            with unittest.mock.patch.object(reading, "library", lambda: None):
                self.assertGreater(len(trace.callsites), 0)
        self.assert_one_line(lambda: varve.open("a\0b"), "null")
        out = os.path.join(self.folder, "runs")
        varve.to_parquet(path, out, ["mark"])
        self.assertEqual(os.listdir(os.path.join(out, "view=mark")), ["run=h%5Cxff%23%3F%25%20%3B"])

    def test_integers_stay_exact(self):
        frame = varve.open(self.trace("heap")).query("SELECT 9223372036854775807 AS a, NULL AS b UNION ALL SELECT 1,"
                                                     " 9007199254740993")
        self.assertEqual((str(frame.a.dtype), str(frame.b.dtype)), ("int64", "Int64"))
        self.assertEqual((frame.a[0], frame.b[1]), (2**63 - 1, 2**53 + 1))

    def test_questions_that_are_none(self):
        trace = varve.open(self.trace("heap"))
        for sql, word in (("SELECT nothing FROM events", "nothing"), ("DELETE FROM meta", "read-only"),
                          ("SELECT 1; SELECT 2", "one statement"),
                          ("SELECT ? AS a", "parameter"), ("no_such_view", "no view"),
                          ("ATTACH ':memory:' AS x", "read-only")):
            self.assert_one_line(lambda: trace.query(sql), word)
        short = varve.open(self.trace("heap"), timeout=0.05)
        self.assert_one_line(lambda: short.query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
                                                 " SELECT max(i) FROM n"),
                             "computing")
        trace.close()
        self.assert_one_line(lambda: trace.events, "closed")

    def test_names_that_are_no_text(self):
        trace = varve.open(self.hostile())
        names = set(trace.query("SELECT function FROM symbol WHERE id % 3 = 0").function)
        self.assertEqual(names, {"<script>alert(1)</script>\ufffd\ufffd\0tail"})
        self.assertEqual(trace.query("SELECT length(CAST(file AS BLOB)) AS n FROM symbol WHERE id = 1").n[0], 1000000)
        for view in trace.views:
            trace.arrow(view)

    @unittest.skipIf(missing("mypy"), "mypy is not installed")
    def test_annotations(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--ignore-missing-imports", "-p", "varve"],
                              capture_output=True, text=True, cwd=PACKAGE)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    recording.main()
