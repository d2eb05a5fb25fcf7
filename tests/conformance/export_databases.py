# SPDX-License-Identifier: Apache-2.0
"""What the tests of exports share: databases of every sort, and readers of protocol buffers that are made from the
.proto files of the tree by protoc, which is not what wrote them."""

import importlib
import os
import shutil
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recording  # noqa: E402

SNAPSHOTS = os.path.join(recording.ROOT, "tests", "conformance", "pytorch")
PROTOS = os.path.join(recording.ROOT, "analysis", "export")
# A function's name as a hostile program may have it: quotes, controls, NUL, an end of line, no UTF-8, and a megabyte
# of letters.
HOSTILE = b'a;b"c<\\,\x1b[2J\x00d\ne\xff\xfe' + b"x" * (1 << 20)


class Case(recording.Case):
    """Makes databases in its folder; the class keeps none."""

    def heap(self):
        """Several processes and threads, with stacks."""
        self.record(recording.program("forker"), "storm", "6", options=["--heap", "--quiet"])
        return self.path

    def python(self):
        self.record(sys.executable, "-c", "import json\nx = [json.dumps({str(i): i for i in range(50)}) for _ in"
                                          " range(50)]",
                    options=["--heap", "--quiet"])
        return self.path

    def cuda(self):
        """Calls of a fake driver."""
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(recording.PROGRAMS, "cuda_fake"))
        self.record(recording.program("cuda_linked"), options=["--heap", "--cuda", "--quiet"], env=environment)
        return self.path

    def marks(self):
        self.record(recording.program("storage_hunt"), options=["--quiet"])
        return self.path

    def snapshot(self, name, *options):
        """A replay of a recording of PyTorch's allocator, other decisions with options of one's own."""
        self.varve("replay", os.path.join(SNAPSHOTS, f"{name}.pickle.xz"), *options, "-o", self.path)
        return self.path

    def hostile(self):
        """The first database with names of functions, files, modules, marks and processes that no viewer may trip
        over."""
        self.heap()
        with sqlite3.connect(self.path) as connection:
            for table, column in (("symbol", "function"), ("symbol", "file"), ("symbol", "module"),
                                  ("process", "command_line"), ("thread", "name")):
                connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT)", (HOSTILE,))
        connection.close()
        return self.path

    def bare(self, keep, *options):
        self.record(recording.program("churn"), "--ops", "2000", "--leak",
                    options=["--heap", "--quiet", "--keep", keep, *options])
        return self.path

    def export(self, to, *options, name="export.out"):
        """Contents of the file, and what was said of it."""
        target = os.path.join(self.folder, name)
        outcome = self.varve("export", self.path, "--to", to, "-o", target, "--force", *options)
        self.assertEqual(outcome.out, "")
        with open(target, "rb") as stream:
            return stream.read(), outcome.err

    def connect(self):
        self.open()
        self.connection.text_factory = bytes
        return self.connection

    def protobuf(self, name):
        """The Python module of a .proto file; skips the test where there is no compiler or no library."""
        if not shutil.which("protoc"):
            self.skipTest("no protoc")
        if "built without protobuf-c" in recording.varve("export", "nothing.db", "--to", "pprof", "-o", "x").err:
            self.skipTest("varve was built without protobuf-c")
        try:
            importlib.import_module("google.protobuf")
        except ImportError:
            self.skipTest("no python3-protobuf")
        subprocess.run(["protoc", f"--python_out={self.folder}", f"-I{PROTOS}", f"{name}.proto"], check=True)
        sys.path.insert(0, self.folder)
        self.addCleanup(sys.modules.pop, f"{name}_pb2", None)
        self.addCleanup(sys.path.remove, self.folder)
        return importlib.import_module(f"{name}_pb2")


def unknown_fields(message):
    """Of a message and all within it: what the .proto file does not know."""
    count = len(message.UnknownFields())
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.label == field.LABEL_REPEATED else [value]:
                count += unknown_fields(item)
    return count
