#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""`varve export --to csv`, read by Python's csv: each file is its view row by row, hostile texts too, and a folder is
there whole or not at all."""

import csv
import glob
import io
import os
import signal
import sqlite3
import subprocess
import sys

csv.field_size_limit(1 << 24)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from export_databases import Case, recording  # noqa: E402

CONTRACT = ("events", "allocations", "segment", "callsite_total", "timeline", "timeline_process", "mark", "oom",
            "oom_retry", "process",
            "thread", "device", "callsite", "stack_node", "symbol", "block_op", "storages", "op", "fragmentation",
            "meta")


def text_of(value):
    """As varve query --csv has it, NULL is no text at all; but what no reader of UTF-8 takes is U+FFFD."""
    if value is None:
        return ""
    if isinstance(value, float):
        return None  # compared as a number
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


class Csv(Case):
    def assert_rows(self, data, view):
        cursor = self.connection.execute(f'SELECT * FROM "{view}"')
        rows = csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True)
        self.assertEqual(next(rows), [column[0] for column in cursor.description])
        count = 0
        for expected in cursor:
            row = next(rows)
            self.assertEqual(len(row), len(expected))
            for cell, value in zip(row, expected):
                if isinstance(value, float):
                    self.assertAlmostEqual(float(cell), value, delta=1e-12 * abs(value))
                else:
                    self.assertEqual(cell, text_of(value), (view, count))
            count += 1
        self.assertEqual(list(rows), [], view)
        return count

    def folder_of(self, name="tables"):
        target = os.path.join(self.folder, name)
        outcome = self.varve("export", self.path, "--to", "csv", "-o", target + "/")
        self.assertEqual((outcome.out, outcome.err), ("", ""))
        names = sorted(os.listdir(target))
        self.assertLessEqual({f"{view}.csv" for view in CONTRACT}, set(names))
        self.assertEqual([entry for entry in os.listdir(self.folder) if entry.startswith(name + ".")], [])
        return target, names

    def assert_folder(self):
        self.connect()
        target, names = self.folder_of()
        rows = {}
        for name in names:
            with open(os.path.join(target, name), "rb") as stream:
                rows[name] = self.assert_rows(stream.read(), name.removesuffix(".csv"))
        return rows

    def test_recording(self):
        self.heap()
        rows = self.assert_folder()
        self.assertGreater(rows["events.csv"], 40)
        self.assertGreater(rows["callsite_total_process.csv"], 10)

    def test_gpu(self):
        self.snapshot("multistream_record")
        self.assertGreater(self.assert_folder()["segment.csv"], 10)

    def test_hostile_texts(self):
        self.heap()
        with sqlite3.connect(self.path) as connection:
            for i, text in enumerate((b'a"b', b"a,b", b"a\nb", b"a\rb", b"", b"a\x00b", b"\xff\xfe",
                                      "ü\u2028€𝄞".encode(), b"y" * (1 << 20), b'"', b",", b"=1+1")):
                connection.execute("UPDATE symbol SET function = CAST(? AS TEXT) WHERE id = ?", (text, i + 1))
            connection.execute("INSERT INTO meta VALUES ('blob', ?), ('least', ?), ('minus', -1), ('real', 0.1)",
                               (b"\x00\x01", -(1 << 63)))
        connection.close()
        self.connect()
        data, _ = self.export("csv", "--view", "symbol")
        self.assert_rows(data, "symbol")
        meta, _ = self.export("csv", "--view", "meta")
        self.assertIn(b"\nblob,X'0001'\nleast,-9223372036854775808\nminus,-1\nreal,0.1\n", meta)

    def test_the_trace_itself_stays(self):
        self.heap()
        with open(self.path, "rb") as stream:
            before = stream.read()
        other = os.path.join(self.folder, "hard.db")
        os.link(self.path, other)
        for command in (["export", self.path, "--to", "csv", "--view", "peak", "-f", "-o", self.path],
                        ["export", self.path, "--to", "pytorch", "-f", "-o", other],
                        ["report", self.path, "-f", "--html", other],
                        ["flamegraph", self.path, "-f", "-o", self.path], ["import", self.path, "-f", "-o", self.path]):
            self.assert_refused(recording.varve(*command), "is what is read")
        with open(self.path, "rb") as stream:
            self.assertEqual(stream.read(), before)

    def test_ended_by_a_signal(self):
        """In the middle of a table that has no end: nothing is left, and it is the signal that ended the program."""
        self.heap()
        with sqlite3.connect(self.path) as connection:
            connection.executescript("DROP VIEW rss; CREATE VIEW rss AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL"
                                     " SELECT i + 1 FROM n) SELECT i FROM n")
        connection.close()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            target = os.path.join(self.folder, f"tables{number}")
            process = subprocess.Popen([recording.VARVE, "export", self.path, "--to", "csv", "-o", target],
                                       stdin=subprocess.DEVNULL)
            recording.wait_until(lambda: glob.glob(f"{target}.*/rss.csv"),
                                 what="rows of the table")  # pylint: disable=cell-var-from-loop
            process.send_signal(number)
            self.assertEqual((process.wait(), glob.glob(target + "*")), (-number, []))

    def test_damage_leaves_nothing(self):
        self.heap()
        with sqlite3.connect(self.path) as connection:
            connection.execute("DROP VIEW rss")
        connection.close()
        self.assert_refused(recording.varve("export", self.path, "--to", "csv", "-o", os.path.join(self.folder, "t")),
                            "rss")
        self.assertEqual([name for name in os.listdir(self.folder) if not name.startswith("trace.db")], [])


if __name__ == "__main__":
    recording.main()
