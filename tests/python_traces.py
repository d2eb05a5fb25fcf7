# SPDX-License-Identifier: Apache-2.0
"""Trace databases of all kinds, made once for a test of the Python package, one with names that are no text among
them."""

import os
import shutil
import sqlite3
import unittest

from python_packages import ROOT
import recording
import varve

HISTORIES = os.path.join(ROOT, "tests", "conformance", "pytorch")
HOSTILE = b"<script>alert(1)</script>\xff\xfe\0tail"


class Case(recording.Case):
    made = {}

    @classmethod
    def trace(cls, name):
        folder = cls.made.setdefault("", os.path.join(os.environ.get("TMPDIR", "/tmp"), f"varve-python-{os.getpid()}"))
        path = cls.made.get(name)
        if path is None:
            os.makedirs(folder, exist_ok=True)
            unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
            path = cls.made[name] = os.path.join(folder, name + ".db")
            outcome = recording.varve(*{
                "resnet": ("replay", os.path.join(HISTORIES, "resnet50_train_stacks.pickle.xz"), "-o", path),
                "oom": ("replay", os.path.join(HISTORIES, "synthetic_oom.pickle.xz"), "-o", path),
                "short": ("replay", "--memory-limit", "40M",
                          os.path.join(HISTORIES, "cudagraph_private_pool.pickle.xz"), "-o", path),
                "streams": ("replay", os.path.join(HISTORIES, "multistream_record.pickle.xz"), "-o", path),
                "heap": ("record", "-q", "-o", path, "--", recording.program("churn"), "--ops", "3000", "--seed", "3"),
                "totals": ("record", "-q", "--keep", "totals", "-o", path, "--", recording.program("churn"), "--ops",
                           "1000"),
                "storages": ("record", "-q", "-o", path, "--", recording.program("storage_hunt")),
                "remat": ("dtr", "--ratio", "0.5", "-o", path, os.path.join(ROOT, "tests", "golden", "training.log")),
            }[name])
            assert outcome.returncode == 0, outcome
        return path

    TRACES = ("short", "heap", "totals", "storages", "remat")

    def assert_one_line(self, function, *words):
        with self.assertRaises(varve.TraceError) as caught:
            function()
        text = str(caught.exception)
        self.assertEqual(len(text.splitlines()), 1, text)
        for word in words:
            self.assertIn(word, text)

    def hostile(self):
        path = os.path.join(self.folder, "hostile.db")
        shutil.copy(self.trace("heap"), path)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE symbol SET function = CAST(? AS TEXT) WHERE id % 3 = 0", (HOSTILE,))
            connection.execute("UPDATE symbol SET file = CAST(zeroblob(1000000) AS TEXT) WHERE id = 1")
            connection.execute("UPDATE meta SET value = CAST(x'c328' AS TEXT) WHERE key = 'replay.source'")
        connection.close()
        return path
