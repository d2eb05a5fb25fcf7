#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
# Reads damaged input: databases.
"""Databases that are none of ours, newer than ours, damaged or cut short, and SQL that writes: one line, exit status
2, and the file unchanged."""

import hashlib
import os
import shutil
import sqlite3
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

READERS = ("info", "report", "leaks", "peak", "timeline")


class Databases(recording.Case):
    recorded = None

    def setUp(self):
        super().setUp()
        if not Databases.recorded:
            self.record(recording.program("churn"), "--ops", "2000", "--leak", options=["--stacks", "native"])
            keep = tempfile.TemporaryDirectory(prefix="varve-test-")
            unittest.addModuleCleanup(keep.cleanup)
            Databases.recorded = shutil.copy(self.path, keep.name)
        else:
            shutil.copy(Databases.recorded, self.path)

    def commands(self, path):
        for reader in READERS:
            yield [reader, path]
            yield [reader, "--json", path]
        yield ["query", path, "SELECT 1"]

    def digest(self, path):
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()

    def refuse_all(self, path, *words):
        before = self.digest(path) if os.path.isfile(path) else None
        for command in self.commands(path):
            with self.subTest(command=command):
                self.assert_refused(recording.varve(*command), *words)
        if before:
            self.assertEqual(self.digest(path), before)
        left = [name for name in os.listdir(self.folder) if name.endswith(("-wal", "-shm", "-journal"))]
        self.assertEqual(left, [])

    def test_readable(self):
        before = self.digest(self.path)
        for command in self.commands(self.path):
            outcome = self.varve(*command)
            self.assertNotEqual(outcome.out, "", command)
        self.assertEqual(self.digest(self.path), before)

    def test_readable_without_write_permission(self):
        os.chmod(self.path, 0o444)
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        self.varve("report", self.path)

    def test_missing(self):
        self.refuse_all(os.path.join(self.folder, "missing.db"), "missing.db")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "missing.db")))
        self.refuse_all(self.folder, self.folder)

    def test_other_tool(self):
        other = os.path.join(self.folder, "other.db")
        with sqlite3.connect(other) as connection:
            connection.execute("CREATE TABLE event(seq INTEGER PRIMARY KEY, kind)")
        connection.close()
        self.refuse_all(other, "other.db")

    def test_no_database(self):
        for name, content in (("text.db", b"hello\n" * 1000), ("empty.db", b""), ("short.db", b"SQLite format 3\0")):
            self.refuse_all(self.write(name, content), name)

    def test_newer_schema(self):
        with sqlite3.connect(self.path) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.close()
        self.refuse_all(self.path, "newer")

    def test_truncated(self):
        size = os.path.getsize(self.path)
        page = 16384
        for keep in (100, page, size // 2 // page * page, size // 2 + 77, size - page, size - 1):
            path = shutil.copy(self.path, os.path.join(self.folder, f"cut-{keep}.db"))
            os.truncate(path, keep)
            self.refuse_all(path, os.path.basename(path))

    def test_damaged(self):
        """Noise in the middle: reported, or not noticed by what does not read there; never a crash."""
        size = os.path.getsize(self.path)
        for offset in range(4096, size - 4096, max(size // 12, 1)):
            path = shutil.copy(self.path, os.path.join(self.folder, "damaged.db"))
            with open(path, "r+b") as stream:
                stream.seek(offset)
                stream.write(b"\xa5" * 3000)
            for command in self.commands(path):
                outcome = recording.varve(*command)
                self.assertIn(outcome.returncode, (0, 2), (offset, command, outcome))
                if outcome.returncode == 2:
                    self.assertIn("damaged.db", outcome.err)

    def test_sql_that_writes(self):
        before = self.digest(self.path)
        victim = os.path.join(self.folder, "victim.db")
        for sql in ("DELETE FROM event", "INSERT INTO meta VALUES ('a', 'b')", "UPDATE event SET size = 0",
                    "DROP TABLE event", "CREATE TABLE extra(x)", "CREATE TEMP TABLE extra(x)", "VACUUM",
                    f"VACUUM INTO '{victim}'", f"ATTACH '{victim}' AS other", "PRAGMA user_version = 99",
                    "PRAGMA writable_schema = 1", "PRAGMA journal_mode = WAL", "REINDEX", "ANALYZE",
                    "SELECT 1; DELETE FROM event", "WITH x AS (SELECT 1) DELETE FROM event",
                    "BEGIN; DELETE FROM event; COMMIT", "SELECT load_extension('x')",
                    f"SELECT writefile('{victim}', 'x')"):
            with self.subTest(sql=sql):
                self.assert_refused(recording.varve("query", self.path, sql))
        self.assertEqual(self.digest(self.path), before)
        self.assertEqual(os.listdir(self.folder), ["trace.db"])

    def test_wrong_sql(self):
        for sql, word in (("SELEC 1", "SELEC"), ("SELECT * FROM nowhere", "nowhere"), ("SELECT size FROM", "FROM"),
                          ("", ""), ("SELECT 'unfinished", "unfinished")):
            with self.subTest(sql=sql):
                self.assert_refused(recording.varve("query", self.path, sql), word)

    def test_closed_output(self):
        """`varve query … | head -1` ends quietly."""
        outcome = recording.run(["/bin/sh", "-c", f"{recording.VARVE} query {self.path} 'SELECT * FROM event' | head"
                                                  " -1"])
        self.assertEqual((outcome.returncode, outcome.err), (0, ""), outcome)
        self.assertEqual(len(outcome.out.splitlines()), 1)


if __name__ == "__main__":
    recording.main()
