#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
# Reads damaged input: files of other tools.
"""What people hand in that is no trace database and no plain pickle of a snapshot: read where that is simple, else one
line that names the thing and says the way, from each door through which a file comes in."""

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import pathlib
import sqlite3
import struct
import zipfile
import zlib

from import_logs import Program, memory_event, profiler_trace, rmm_log
from pytorch_recordings import Case, load, path_of, recording

SNAPSHOT = load(path_of("pools_free"))
SNAPSHOT_PICKLE = pickle.dumps(SNAPSHOT, 4)
TENSORS = b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01X\x06\x00\x00\x00weightq\x02K\x01s."


def torch_save(data, folder="archive"):
    """As PyTorch's writer does it: members stored, their sizes only behind them, data aligned by an extra field."""
    out, directory = io.BytesIO(), b""
    members = (("data.pkl", data), (".format_version", b"1"), ("byteorder", b"little"), ("version", b"3\n"))
    for name, content in members:
        name = f"{folder}/{name}".encode()
        offset = out.tell()
        padding = -(offset + 30 + len(name) + 4) % 64
        extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        sizes = struct.pack("<III", zlib.crc32(content), len(content), len(content))
        out.write(b"PK\3\4" + struct.pack("<HHHHHIIIHH", 0, 0x808, 0, 0, 0, 0, 0, 0, len(name), len(extra)))
        out.write(name + extra + content + b"PK\7\x08" + sizes)
        directory += (b"PK\1\2" + struct.pack("<HHHHHH", 0, 0, 0x808, 0, 0, 0) + sizes +
                      struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, offset) + name)
    begin = out.tell()
    return out.getvalue() + directory + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(members), len(members),
                                                                 len(directory), begin, 0)


def old_torch_save(data):
    """Before version 1.6: pickles one behind the other, then tensors."""
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    return (b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, system)) + data +
            pickle.dumps([], 2) + b"\1" * 64)


def memory_viz(snapshot):
    buffer = pickle.dumps(snapshot)
    buffer += b"\0" * (3 - len(buffer) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(buffer).decode()}])
    return ('\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type="module">\nimport {add_local_files} from '
            '"https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js"\nconst local_files = '
            f"{files}\nadd_local_files(local_files, 'Active Memory Timeline')\n</script>\n</body>\n")


def npz():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("arr_0.npy", b"\x93NUMPY\1\0v\0{'descr': '<f8'}")
    return out.getvalue()


def zipped(content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("snapshot.pickle", content)
    return out.getvalue()


def without_addresses():
    events = [memory_event(call, 77) for call in Program(5, calls=20, failures=False).calls]
    for event in events:
        del event["args"]["Addr"]
    return profiler_trace(events)


# A snapshot in each of them: what reads snapshots gives the answer of the plain pickle.
SNAPSHOTS = (
    ("json", json.dumps(SNAPSHOT)),
    ("json", json.dumps(SNAPSHOT, indent=1, ensure_ascii=False)),
    ("json", "\ufeff\n" + json.dumps(SNAPSHOT)),
    ("json.gz", gzip.compress(json.dumps(SNAPSHOT).encode())),
    ("json.xz", lzma.compress(json.dumps(SNAPSHOT).encode())),
    ("pt", torch_save(pickle.dumps(SNAPSHOT, 2))),
    ("pt", torch_save(pickle.dumps(SNAPSHOT, 2), folder="modèle")),
    ("old.pt", old_torch_save(pickle.dumps(SNAPSHOT, 2))),
    ("old.pt.gz", gzip.compress(old_torch_save(pickle.dumps(SNAPSHOT, 2)))),
    ("pickle", SNAPSHOT_PICKLE + b"\0\0\0"),  # as the base64 of a page has it
)

DUMP = "_dump_snapshot"
# file, content, what it is called, what to do
FOREIGN = (
    ("timeline.json", json.dumps([[1, 2, 3], [[0] * 9, [512] * 9, [1024] * 9]]), "export_memory_timeline", DUMP),
    ("timeline.raw.json.gz", gzip.compress(json.dumps([[1, 0, 512, 3], [2, 1, -512, 3]]).encode()),
     "export_memory_timeline", DUMP),
    ("timeline.html", "<html>\n<head><meta charset=\"utf-8\" /><title>GPU Memory Timeline HTML</title></head>\n<body>\n"
     "  <img src='data:image/png;base64,iVBORw0KGgo'>\n</body>\n</html>", "export_memory_timeline", DUMP),
    ("viz.html", memory_viz(SNAPSHOT), "memory_viz", "base64 -d"),
    ("page.html", "<!DOCTYPE html><p>hello", "HTML", "made from"),
    ("a.nsys-rep", b"NVIDIA Tegra Profiler Report 2026@4@1@191-264138605071v0.\n\x0bLocal (CLI)\x12\n" + bytes(500),
     "report of Nsight Systems", "nsys export --type sqlite"),
    ("a.qdrep", b"NVIDIA Tegra Profiler Report 5.0\n" + bytes(500), "report of Nsight Systems", "nsys export"),
    ("a.ncu-rep", b"NVR\0\x10\0\0\0" + bytes(500), "Nsight Compute", "--cuda-memory-usage=true"),
    ("execution.json", json.dumps({"schema": "1.0.2-chakra.0.0.4", "pid": 7, "nodes": []}), "execution trace",
     "profile_memory=True"),
    ("a.h5", b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5", "nsys export --type sqlite"),
    ("a.npz", npz(), "NumPy", "no allocations"),
    ("a.npy", b"\x93NUMPY\1\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", "NumPy", "no allocations"),
    ("a.zip", zipped(SNAPSHOT_PICKLE), "zip archive", "unpack it"),
    ("a.safetensors", struct.pack("<Q", 60) + b'{"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  ' +
     bytes(4), "safetensors", "no allocations"),
    ("a.pickle.bz2", bz2.compress(SNAPSHOT_PICKLE), "bzip2", "unpack it"),
    ("a.pickle.lz4", b"\x04\x22\x4d\x18\x64\x40\xa7" + bytes(50), "lz4", "unpack it"),
    ("memray.bin", b"memray\0\x0c\0\0\0" + bytes(100), "memray", "varve record"),
    ("heaptrack.gz", gzip.compress(b"v 10500 3\nX /bin/true\nI 1000 7d2f1\n"), "heaptrack", "varve record"),
    ("heaptrack.data", b"v 10200 2\nx /bin/true\n", "heaptrack", "varve record"),
    ("massif.out.7", "desc: --massif-out-file=x\ncmd: ./a\ntime_unit: i\n#-----------\nsnapshot=0\n", "massif",
     "varve record"),
    ("dhat.out.7", json.dumps({"dhatFileVersion": 2, "mode": "heap"}), "DHAT", "varve record"),
    ("a.pftrace", b"\n\x10\x50\x01" + bytes(100), "Perfetto", "trace database"),
    ("channel0_0", b"\xc1\x1f\xfc\xc1" + bytes(100), "LTTng", "its folder"),
    ("metadata", b"\x57\x1d\xd1\x75" + bytes(100), "LTTng", "its folder"),
    ("program", b"\x7fELF\2\1\1" + bytes(100), "program", "varve record"),
    ("rmm.csv", rmm_log(Program(1, calls=20).calls).encode("utf-16"), "UTF-16", "iconv"),
    ("old.pickle", pickle.dumps(SNAPSHOT, 0), "protocol 0 or 1", "protocol 2"),
    ("old.pickle", pickle.dumps(SNAPSHOT, 1), "protocol 0 or 1", "protocol 2"),
)

# What varve import reads, to the commands that read something else.
IMPORTED = (
    ("rmm.csv", rmm_log(Program(1, calls=20).calls), "log of RMM"),
    ("rmm.csv", b"\xef\xbb\xbf" + rmm_log(Program(1, calls=20).calls).replace("\n", "\r\n").encode(), "log of RMM"),
    ("trace.json", profiler_trace([memory_event(call, 77) for call in Program(1, calls=20).calls]),
     "trace of PyTorch's profiler"),
    ("trace.json.gz", gzip.compress(profiler_trace([]).encode()), "trace of PyTorch's profiler"),
)

# What looks like a snapshot, and why none is read.
NO_SNAPSHOTS = (
    ("model.pt", torch_save(TENSORS), "checkpoint of torch.save"),
    ("model.old.pt", old_torch_save(TENSORS), "checkpoint of torch.save"),
    ("ranks.pickle", pickle.dumps({0: SNAPSHOT, 1: SNAPSHOT, 7: SNAPSHOT}),
     "holds 3 of them (0 to 7), and varve reads one at a time: for rank, snapshot in snapshots.items()"),
    ("ranks.pickle", pickle.dumps({"rank0": SNAPSHOT, "rank1": SNAPSHOT}),
     "holds 2 of them (the text 'rank0' to the text 'rank1')"),
    ("ranks.pickle.gz", gzip.compress(pickle.dumps([SNAPSHOT, SNAPSHOT])),
     "holds 2 of them (0 to 1), and varve reads one at a time: for rank, snapshot in enumerate(snapshots)"),
    ("ranks.json", json.dumps({0: SNAPSHOT, 1: SNAPSHOT}), "holds 2 of them (the text '0' to the text '1')"),
    ("list.json", json.dumps([SNAPSHOT]), "holds 1 of them"),
    ("cut.pt", torch_save(pickle.dumps(SNAPSHOT, 2))[:2000], "truncated"),
    ("cut.json", json.dumps(SNAPSHOT)[:2000], "the JSON ends where"),
    ("wrong.json", '{"segments": [], "device_traces": [[{"action": "alloc" "addr": 1}]]}',
     "at byte 55: no JSON: a comma is due"),
    ("wrong.json", '{"segments": []} {}', "data follow the JSON"),
)


class Kinds(Case):
    def write(self, name, content):
        path = pathlib.Path(self.folder) / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def refused(self, *arguments, words):
        """One line with all words, and nothing left behind."""
        if arguments[0] == "report" and str(arguments[1]).endswith(".gz"):  # SQLite's files are not looked into
            words = ("compressed by gzip, not a trace database: unpack it",)
        before = sorted(path.name for path in pathlib.Path(self.folder).iterdir())
        done = recording.varve(*arguments)
        self.assert_refused(done)
        for word in words:
            self.assertIn(word, done.err, arguments)
        self.assertEqual(sorted(path.name for path in pathlib.Path(self.folder).iterdir()), before)

    def database(self):
        return pathlib.Path(self.folder) / "new.db"


class Read(Kinds):
    def answers(self, path):
        """What two commands make of a snapshot; all but the time that it took."""
        self.varve("import", "--force", "--quiet", path, "-o", self.database())
        self.open(self.database())
        replay = self.answer("replay", path)
        return ({key: value for key, value in replay.items() if "second" not in key},
                self.sql("SELECT kind, count(*), sum(size) FROM events GROUP BY 1 ORDER BY 1"),
                self.sql("SELECT function, file, line, count(*) FROM frame GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"))

    def test_snapshots(self):
        expected = self.answers(self.write("snapshot.pickle", SNAPSHOT_PICKLE))
        for end, content in SNAPSHOTS:
            with self.subTest(end):
                self.assertEqual(self.answers(self.write(f"snapshot.{end}", content)), expected)

    def test_page(self):
        """The line that the refusal of a page gives takes the snapshot out of it."""
        page = self.write("viz.html", memory_viz(SNAPSHOT))
        said = recording.varve("replay", page).err
        line = said[said.index("sed "):said.index(" takes")].replace("FILE", "viz.html")
        recording.run(["/bin/sh", "-c", line], cwd=self.folder)
        self.assertEqual(self.answers(pathlib.Path(self.folder) / "snapshot.pickle"),
                         self.answers(self.write("plain.pickle", SNAPSHOT_PICKLE)))

    def test_buffers_behind_a_mark(self):
        path = self.write("buffers.csv", b"\xef\xbb\xbfid,lower,upper,size\r\n1,0,3,4096\r\n2,1,4,4096\r\n")
        self.assertEqual(self.answer("bound", path)["load_bytes"], 8192)

    def test_json_texts(self):
        """Escapes, pairs and halves of pairs of UTF-16, numbers of any length; what is kept is written back."""
        note = 'a"\\/\b\f\n\r\tä€\U0001f600' + "x" * 300
        snapshot = {**SNAPSHOT, "note": [note, 1 << 63, -(1 << 63), -5, 1.5, 1e300, True, False, None, {}, []]}
        for options in ({}, {"ensure_ascii": False, "indent": 2}):
            path = self.write("snapshot.json", json.dumps(snapshot, **options))
            self.varve("export", path, "--to", "pytorch", "--force", "-o", self.database())
            self.assertEqual(pickle.loads(self.database().read_bytes())["note"], snapshot["note"])
        half = json.dumps({**SNAPSHOT, "note": "\ud800x\ud800\ud800\udc00\udc00\ud800"})
        self.varve("export", self.write("a.json", half), "--to", "pytorch", "--force", "-o", self.database())
        self.assertEqual(pickle.loads(self.database().read_bytes())["note"], "\ufffdx\ufffd\U00010000\ufffd\ufffd")


class Named(Kinds):
    def commands(self, path):
        return (("import", path, "-o", self.database()), ("replay", path), ("dtr", path), ("report", path))

    def test_foreign(self):
        for name, content, what, way in FOREIGN:
            path = self.write(name, content)
            for command in self.commands(path):
                self.refused(*command, words=(name, what, way))

    def test_imported(self):
        for name, content, what in IMPORTED:
            path = self.write(name, content)
            for command in self.commands(path)[1:]:
                self.refused(*command, words=(name, f"is a {what}, not a", "varve import"))

    def test_every_command(self):
        """One door for each kind of input, whatever the command."""
        path = self.write("rmm.csv", IMPORTED[0][1])
        for command in ("replay", "compare", "advise", "oom", "frontier", "bound", "dtr", "info", "report", "leaks",
                        "peak", "timeline", "tree", "flamegraph", "segments"):
            more = {"compare": ["--policies", "pytorch"], "frontier": ["--policy", "pytorch"]}.get(command, [])
            self.refused(command, path, *more, words=("rmm.csv is a log of RMM", "varve import"))
        self.refused("query", path, "SELECT 1", words=("log of RMM",))
        self.refused("diff", path, path, words=("log of RMM",))
        for to in ("pytorch", "perfetto"):
            self.refused("export", path, "--to", to, "-o", self.database(), words=("log of RMM",))

    def test_no_snapshots(self):
        for name, content, why in NO_SNAPSHOTS:
            path = self.write(name, content)
            for command in (("import", path, "-o", self.database()), ("replay", path)):
                self.refused(*command, words=(name, why))
        odd = self.write("odd.json", '{"segments": [], "device_traces": [[{"action": "alloc", "addr": true}]]}')
        self.assertIn("1 entry that this version cannot read is left out", recording.varve(
            "import", odd, "-o", self.database()).err)
        pages = self.write("snapshot.pickle", SNAPSHOT_PICKLE)
        self.refused("dtr", pages, words=("not a log of operators",))

    def test_traces_without_addresses(self):
        self.refused("import", self.write("trace.json", without_addresses()), "-o", self.database(),
                     words=("events of memory have no addresses", "newer PyTorch"))

    def test_databases(self):
        def make(name, *tables):
            path = pathlib.Path(self.folder) / name
            with sqlite3.connect(path) as database:
                for table in tables:
                    database.execute(f"CREATE TABLE {table} (id, globalTid, correlationId, value)")
            database.close()
            return path

        old = make("old.sqlite", "StringIds", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL")
        nvprof = make("a.nvvp", "StringTable", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL")
        for path, words in ((old, ("export of Nsight Systems", "--cuda-memory-usage=true", "2021")),
                            (nvprof, ("nvprof", "--cuda-memory-usage=true"))):
            self.refused("import", path, "-o", self.database(), words=words)
            self.refused("report", path, words=("another tool", "varve import"))
        packed = self.write("old.sqlite.gz", gzip.compress(old.read_bytes()))
        for command in self.commands(packed):
            self.refused(*command, words=("an SQLite database", "unpack it"))

    def test_unknown(self):
        for name, content in (("a.txt", "hello, world\n"), ("a.bin", bytes(1000)), ("a.csv", "x,y\n1,2\n")):
            path = self.write(name, content)
            for command in (*self.commands(path)[:2], ("report", path)):
                self.refused(*command, words=("that varve reads: trace databases, snapshots",))
        self.refused("report", self.folder, words=("directory", "varve import"))


if __name__ == "__main__":
    recording.main()
