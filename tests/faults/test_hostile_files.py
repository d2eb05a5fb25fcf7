#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 20 s
# Reads damaged input: files of recordings.
"""Files from anybody: sizes that no device has, views that never end, pipes and holes where a trace should be,
targets that are no file or that came meanwhile, names that drive a terminal. One line and exit status 2, nothing
overwritten, nothing left behind."""

import itertools
import json
import os
import pickle
import resource
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402

ADDRESS = 0x7F0000000000
MIB = 1 << 20
CPU_S = 20  # far more than a refusal takes, far less than what is refused would
MEMORY_BYTES = 4 << 30
DISK_BYTES = 1 << 30
ENDLESS = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
EVIL = b"e\x1b]0;owned\x07\x1b[31m\xc2\x9b\x9b\x7f\xff\rz"


def event(action, size, address=ADDRESS, time_us=1):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": []}


def segment(size, blocks, address=ADDRESS, expandable=False):
    return {"device": 0, "address": address, "total_size": size, "allocated_size": 0, "active_size": 0,
            "requested_size": 0,
            "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": expandable, "frames": [],
            "blocks": blocks}


def snapshot(events, segments=(), conf=""):
    return {"segments": list(segments), "device_traces": [list(events)],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": conf, "expandable_segments": "expandable" in conf}}


def good_snapshot():
    blocks = [{"address": ADDRESS, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []},
              {"address": ADDRESS + 512, "size": 2 * MIB - 512, "requested_size": 0, "state": "inactive", "frames": []}]
    return snapshot([event("segment_alloc", 2 * MIB), event("alloc", 512, time_us=2)], [segment(2 * MIB, blocks)])


class Hostile(recording.Case):
    def name(self, name):
        return os.path.join(self.folder, name)

    def write_pickle(self, content):
        return self.write("snapshot.pickle", pickle.dumps(content))

    def change(self, sql):
        """The database, by a script."""
        connection = sqlite3.connect(self.path)
        connection.executescript(sql)
        connection.close()

    def succeed(self, *command):
        outcome = self.run_limited(*command)
        self.assertEqual(outcome.returncode, 0, (command, outcome))
        return outcome

    def assert_precious(self, path):
        with open(path, encoding="utf-8") as stream:
            self.assertEqual(stream.read().strip(), "precious")

    def run_limited(self, *arguments):
        """A command that must end soon and without gigabytes, in memory or on the disk."""
        def limit():
            if not recording.IS_SANITIZED:  # a sanitizer maps terabytes
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))

        return recording.varve(*arguments, preexec_fn=limit)

    def left(self, *expected):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(expected))


class Sizes(Hostile):
    def test_impossible_segments(self):
        """A size of a file must not become work: neither in a replay, nor in what reads the database of an import."""
        conf = "expandable_segments:True"
        histories = {
            "unmap": lambda size: snapshot([event("segment_unmap", size)], conf=conf),
            "map": lambda size: snapshot([event("segment_map", size), event("alloc", size, time_us=2)], conf=conf),
            "end": lambda size: snapshot([], [segment(size, [{"address": ADDRESS, "size": size, "requested_size": 0,
                                                              "state": "inactive", "frames": []}], expandable=True)],
                                         conf),
            "sum": lambda size: snapshot([event("segment_unmap", size // 64, ADDRESS + i * size, i) for i in range(64)],
                                         conf=conf),
            "alloc": lambda size: snapshot([event("segment_alloc", size), event("alloc", size, time_us=2)]),
        }
        for what, history in histories.items():
            for bits in (47, 50, 55) if recording.IS_FULL else (47, 55):
                path = self.write_pickle(history(1 << bits))
                with self.subTest(what, bits=bits):
                    for rules in ([], ["--policy", "first-fit", "--conf", conf]):
                        self.assert_refused(self.run_limited("replay", *rules, path), "no device has that much memory")
                    self.assert_refused(self.run_limited("replay", path, "-o", self.path),
                                        "no device has that much memory")
                    self.left("snapshot.pickle")
                    self.succeed("import", path, "-o", self.path)
                    for command in (["segments"], ["timeline"], ["report"], ["export", "-o", self.name("out.pickle")]):
                        self.succeed(*command, self.path)
                    self.assert_refused(self.run_limited("replay", self.path), "trace.db: ")
                for name in set(os.listdir(self.folder)) - {"snapshot.pickle"}:
                    os.unlink(self.name(name))

    def test_numbers_of_rows(self):
        """A number of a row is no size of an array, and never a place beyond its end."""
        history = good_snapshot()
        history["device_traces"][0][1]["frames"] = [{"name": "f", "filename": "f.py", "line": 3}]
        path = self.write_pickle(history)
        # beyond 31 bits, 32, 62 and at the end of 63
        for number in (1 << 31) - 1, 1 << 40, (1 << 62) + 1, (1 << 63) - 1:
            for far in (number, 1 << 40) if recording.IS_FULL else (number,):
                self.succeed("import", path, "--force", "-o", self.path)
                self.change(f"UPDATE callsite SET id = {number}; UPDATE callsite SET node_id = {far};"
                            f" UPDATE stack_node SET id = {far}, parent_id = {number};"
                            f" UPDATE thread SET id = {min(number, (1 << 31) - 1)}")
                with self.subTest(number=number, far=far):
                    for command in (*self.readers(), ["segments", self.path], ["flamegraph", "-o", "-", self.path]):
                        self.assertIn(self.run_limited(*command).returncode, (0, 1, 2), command)

    def readers(self):
        """What reads stacks."""
        yield ["replay", self.path]
        for to in ("pytorch", "speedscope", "folded", "pprof", "perfetto"):
            yield ["export", self.path, "--to", to, "--force", "-o", self.name("out")]
        for command in (["report"], ["leaks", "--json"], ["tree"], ["tree", "--inverted"], ["flamegraph", "--folded"]):
            yield [*command, self.path]
        for by in ([], ["--by", "stack"], ["--events"]):
            yield ["diff", *by, self.path, self.path]

    def test_stacks_without_an_end(self):
        """Callers that lead back, or nowhere: every reader comes to an end, and says what there is."""
        history = good_snapshot()
        history["device_traces"][0][1]["frames"] = [{"name": f"f{i}", "filename": "f.py", "line": i} for i in range(5)]
        path = self.write_pickle(history)
        chain = ("WITH RECURSIVE n(id) AS (SELECT 6 UNION ALL SELECT id + 1 FROM n WHERE id < 300000)"
                 " INSERT INTO stack_node SELECT id, id - 1, 1, NULL FROM n; UPDATE callsite SET node_id = 300000")
        readers = list(self.readers())
        turn = itertools.cycle(readers)
        for frames, sql in ((1, "UPDATE stack_node SET parent_id = id"),
                            (5, "UPDATE stack_node SET parent_id = 5 WHERE id = 1"),
                            (2, "UPDATE stack_node SET parent_id = 6 - id"),
                            (3, "DELETE FROM stack_node WHERE id = 2"),
                            (0, "UPDATE stack_node SET symbol_id = 1 << 62"),
                            (4, "UPDATE stack_node SET symbol_id = -symbol_id WHERE id = 3"),
                            (0, "UPDATE callsite SET node_id = -1"),
                            (0, "UPDATE callsite SET node_id = 6"),
                            (1, "UPDATE stack_node_row SET parent_lag = -9223372036854775807 - 1"),
                            (65536, chain)):
            self.succeed("import", path, "--force", "-o", self.path)
            self.change(sql)
            with self.subTest(sql):
                outcome = self.run_limited("query", "--no-header", self.path, "SELECT count(*) FROM frame")
                self.assertEqual((outcome.returncode, outcome.out.strip()), (0, str(frames)), outcome)
                for command in readers if recording.IS_FULL else itertools.islice(turn, 4):
                    self.succeed(*command)

    def test_a_large_device_is_believed(self):
        """What is refused for its size is replayed for who says that the device has it."""
        size = 3 << 40
        path = self.write_pickle(snapshot([event("segment_free", size)]))
        self.assert_refused(self.run_limited("replay", path), "no device has that much memory")
        self.succeed("replay", "--verify", "--capacity", str(4 << 40), path)


class Targets(Hostile):
    def setUp(self):
        super().setUp()
        self.snapshot = self.write_pickle(good_snapshot())

    def commands(self, target):
        yield ["import", self.snapshot, "--force", "-o", target]
        yield ["replay", self.snapshot, "--force", "-o", target]
        yield ["export", self.snapshot, "--force", "-o", target]
        yield ["record", "--force", "-o", target, "--", "/bin/true"]

    def test_failure_leaves_nothing(self):
        """Every decision came out, the end did not: exit status 2, and no database."""
        history = good_snapshot()
        history["segments"] = []
        self.write_pickle(history)
        self.assert_refused(self.run_limited("replay", self.snapshot, "-o", self.path), "the end differs")
        self.left("snapshot.pickle")
        self.varve("replay", "--verify", self.snapshot, "-o", self.path, status=2)
        self.left("snapshot.pickle")

    def test_only_files_are_replaced(self):
        unix = socket.socket(socket.AF_UNIX)
        self.addCleanup(unix.close)
        unix.bind(self.name("socket"))
        os.mkfifo(self.name("pipe"))
        os.mkdir(self.name("folder"))
        os.symlink("pipe", self.name("link"))
        before = sorted(os.listdir(self.folder))
        for name, word in (("socket", "a socket"), ("pipe", "a pipe"), ("folder", "a folder"), ("link", "a pipe")):
            before_this = os.lstat(self.name(name))
            for command in self.commands(self.name(name)):
                with self.subTest(command=command[0], target=name):
                    self.assert_refused(self.run_limited(*command), word, "only a file can be replaced")
                    after = os.lstat(self.name(name))
                    self.assertEqual((after.st_ino, after.st_mode, after.st_mtime_ns),
                                     (before_this.st_ino, before_this.st_mode, before_this.st_mtime_ns))
                    self.left(*before)

    def test_a_device_is_not_replaced(self):
        device = self.name("null")
        try:
            os.mknod(device, 0o20666, os.makedev(1, 3))
        except PermissionError:
            self.skipTest("only root makes devices")
        for command in self.commands(device):
            with self.subTest(command[0]):
                self.assert_refused(self.run_limited(*command), "a device", "only a file can be replaced")
                self.left("null", "snapshot.pickle")

    def test_a_link_is_replaced_itself(self):
        precious = self.write("precious", "precious")
        for command in self.commands(self.path):
            os.symlink("precious", self.path)
            self.succeed(*command)
            self.assertFalse(os.path.islink(self.path))
            self.assert_precious(precious)
            os.unlink(self.path)

    def meanwhile(self, *command):
        """The target appears while the command waits for its input."""
        os.mkfifo(self.name("pipe.pickle"))
        process = recording.start([recording.VARVE, *command, self.name("pipe.pickle"), "-o", self.path])
        with open(self.snapshot, "rb") as stream:
            content = stream.read()
        with open(self.name("pipe.pickle"), "wb") as pipe:  # opened: the target was looked at before
            self.write(self.path, "precious")
            pipe.write(content)
        self.assert_refused(recording.finish(process), "trace.db")
        self.assert_precious(self.path)
        self.left("pipe.pickle", "snapshot.pickle", "trace.db")
        os.unlink(self.name("pipe.pickle"))
        os.unlink(self.path)

    def test_what_came_meanwhile_stays(self):
        for command in ("import", "replay", "export"):
            with self.subTest(command):
                self.meanwhile(command)

    def test_a_recording_does_not_overwrite_what_came_meanwhile(self):
        churn = recording.program("churn")
        outcome = self.record("/bin/sh", "-c", f"echo precious > {self.path}; exec {churn} --ops 100", status=2)
        self.assertIn("was created meanwhile", outcome.err)
        self.assertIn("varve recover", outcome.err)
        self.assert_precious(self.path)
        self.varve("recover", self.path + ".d", "-o", self.name("other.db"))
        self.assert_finished(self.name("other.db"))
        self.left("snapshot.pickle", "trace.db", "other.db")

    def test_recover_refuses_what_is_there(self):
        """Whatever it is: recover has no --force."""
        churn = recording.program("churn")
        self.record("/bin/sh", "-c", f"touch {self.path}; exec {churn} --ops 100", status=2)
        os.mkfifo(self.name("pipe"))
        os.symlink("nowhere", self.name("link"))
        for name in ("pipe", "link", "trace.db"):
            outcome = recording.varve("recover", self.path + ".d", "-o", self.name(name))
            self.assert_refused(outcome, name)
            self.assertFalse(os.path.exists(self.name("nowhere")))


class Endless(Hostile):
    """A database whose views have no end."""

    def setUp(self):
        super().setUp()
        self.record(recording.program("churn"), "--ops", "100", "--leak", options=["--stacks", "none"])
        connection = sqlite3.connect(self.path)
        for view in ("leak", "total", "callsite_total", "peak", "timeline"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]
            connection.execute(f"DROP VIEW IF EXISTS {view}")
            connection.execute(f"CREATE VIEW {view} AS WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM"
                               " t) SELECT "
                               + ", ".join(f"count(*) AS {column}" for column in columns) + " FROM t")
        connection.commit()
        connection.close()

    def test_views(self):
        for command in (["report"], ["report", "--json"], ["leaks"], ["leaks", "--csv"], ["peak"]):
            with self.subTest(command):
                self.assert_refused(self.run_limited(*command, self.path, "--timeout", "0.2"), "0.2 s", "--timeout")

    def test_the_table_itself(self):
        """What replay, export, segments, info, oom and diff read: another view may stand in its place."""
        self.change("CREATE TABLE event_kept AS SELECT * FROM event; DROP VIEW event; CREATE VIEW event AS WITH"
                    " RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x AS seq, k.* FROM t, (SELECT *"
                    " FROM event_kept LIMIT 0) k")
        for command in (["replay", self.path], ["export", self.path, "-o", self.name("out")],
                        ["segments", self.path, "--at", "1s"], ["diff", "--events", self.path, self.path]):
            with self.subTest(command[0]):
                outcome = self.run_limited(*command, "--timeout", "0.2")
                self.assertEqual((outcome.returncode, outcome.out), (2, ""), outcome)
        self.left("trace.db")

    def test_sql_of_the_user(self):
        self.assert_refused(self.run_limited("query", "--timeout", "0.2", self.path, ENDLESS), "0.2 s", "--timeout")
        for form in ("--csv", "--json"):
            outcome = self.run_limited("query", form, "--timeout", "0.2", self.path, ENDLESS.replace("count(*)", "x"))
            self.assertEqual(outcome.returncode, 2, outcome.err)
            self.assertIn("--timeout", outcome.err)

    def test_the_limit_is_a_choice(self):
        sql = ENDLESS.replace("FROM t)", "FROM t WHERE x < 1000000)")
        self.assert_refused(self.run_limited("query", "--timeout", "0.05", self.path, sql), "--timeout")
        for options in ([], ["--timeout", "0"], ["--timeout=100"]):
            outcome = self.run_limited("query", "--no-header", *options, self.path, sql)
            self.assertEqual((outcome.returncode, outcome.out), (0, "1000000\n"), outcome)

    def test_help_says_so(self):
        for command in ("report", "leaks", "peak", "tree", "flamegraph", "timeline", "segments", "oom", "query", "diff",
                        "info", "export", "replay"):
            self.assertIn("--timeout SECONDS", recording.varve("help", command).out, command)
        self.assertNotIn("--timeout", recording.varve("help", "doctor").out)


@unittest.skipIf(recording.IS_SANITIZED, "the plug-in is not built with sanitizers")
class Ctf(Hostile):
    """LTTng traces in which not everything is a file."""

    METADATA = """/* CTF 1.8 */

typealias integer { size = 8; align = 8; } := uint8_t;
typealias integer { size = 16; align = 8; } := uint16_t;
typealias integer { size = 32; align = 8; } := uint32_t;
typealias integer { size = 64; align = 8; } := uint64_t;
trace { major = 1; minor = 8; uuid = "00112233-4455-6677-8899-aabbccddeeff"; byte_order = le;
packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id; }; };
env { domain = "ust"; tracer_name = "lttng-ust"; tracer_major = 2; tracer_minor = 13; };
clock { name = monotonic; freq = 1000000000; offset = 1700000000000000000; };
typealias integer { size = 64; align = 8; map = clock.monotonic.value; } := ticks_t;
stream { id = 0; event.header := struct { uint16_t id; ticks_t timestamp; };
packet.context := struct { ticks_t timestamp_begin; ticks_t timestamp_end; uint64_t content_size;
uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id; }; };
event { name = "other:event"; id = 0; stream_id = 0; fields := struct { uint32_t value; }; };
"""
    HOLE_BYTES = 1 << 40

    def setUp(self):
        super().setUp()
        if "CTF" not in recording.varve("help", "import").out:
            self.skipTest("built without babeltrace2")
        self.trace = self.name("trace")
        os.makedirs(os.path.join(self.trace, "index"))
        self.write("trace/metadata", self.METADATA)
        self.put("stream", self.packet())

    def packet(self, packet_bytes=0):
        events = struct.pack("<HQI", 0, 5, 7)
        size = 84 + len(events)
        return struct.pack("<I", 0xC1FC1FC1) + bytes.fromhex("00112233445566778899aabbccddeeff") + struct.pack(
            "<IQQQQQQQI", 0, 0, 1, 9, size * 8, 8 * (packet_bytes or size), 0, 0, 0) + events

    def put(self, name, content, hole_to=0):
        with open(os.path.join(self.trace, name), "wb") as stream:
            stream.write(content)
            if hole_to:
                stream.truncate(hole_to)

    def refuse_import(self, *words):
        self.assert_refused(self.run_limited("import", self.trace, "-o", self.path), *words)
        self.left("trace")

    def test_the_trace_is_read(self):
        """Without the tricks babeltrace2 reads it, and says what is in it."""
        self.refuse_import("no varve events in it; it has 1 of other")

    def test_pipes(self):
        for name in ("index/stream.idx", "stream"):
            with self.subTest(name):
                path = os.path.join(self.trace, name)
                if os.path.exists(path):
                    os.unlink(path)
                os.mkfifo(path)
                self.refuse_import(name, "is not a regular file")
                os.unlink(path)
                self.put("stream", self.packet())

    def test_a_link_to_a_device(self):
        os.symlink("/dev/zero", os.path.join(self.trace, "index", "stream.idx"))
        self.refuse_import("stream.idx", "is not a regular file")

    def test_holes(self):
        head = struct.pack(">IIII", 0xC1F1DCC1, 1, 1, 64)
        cases = {"index/stream.idx": head, "metadata": self.METADATA.encode(), "stream": self.packet()}
        for name, content in cases.items():
            with self.subTest(name):
                self.put(name, content, self.HOLE_BYTES)
                self.refuse_import(name)
                self.put(name, content)

    def test_a_packet_of_a_terabyte(self):
        """Of a damaged stream the whole packets are copied: this one would fill the disk."""
        self.put("stream", self.packet(self.HOLE_BYTES), self.HOLE_BYTES)
        with open(os.path.join(self.trace, "stream"), "ab") as stream:
            stream.write(b"damage")
        self.refuse_import("stream")

    def test_padding_that_became_holes(self):
        """As cp leaves it: a packet of 8 MiB, nearly all of it padding."""
        self.put("stream", self.packet(8 * MIB), 8 * MIB)
        self.refuse_import("no varve events in it; it has 1 of other")


class Neighbours(Hostile):
    """What lies beside a database is looked at, but never waited for."""

    def test_pipes(self):
        self.record(recording.program("churn"), "--ops", "100", options=["--stacks", "none"])
        os.mkdir(self.path + ".d")
        os.mkfifo(self.path + ".d/owner")
        self.varve("info", self.path, status=2)
        shutil.rmtree(self.path + ".d")
        for suffix in ("-journal", "-wal", "-shm"):
            os.mkfifo(self.path + suffix)
            with self.subTest(suffix):
                self.assert_refused(self.run_limited("info", self.path), suffix, "is not a regular file")
                self.left("trace.db", "trace.db" + suffix)
            os.unlink(self.path + suffix)

    def test_a_log_without_use(self):
        """Nothing is written beside a database that is only read."""
        self.record(recording.program("churn"), "--ops", "100", options=["--stacks", "none"])
        for content in (b"", b"x" * 5000):
            self.write(self.path + "-wal", content)
            self.succeed("info", self.path)
            self.left("trace.db", "trace.db-wal")


class Terminal(Hostile):
    """Names are any bytes; what a terminal gets of them is text."""

    def bytes_of(self, *command):
        outcome = subprocess.run([os.fsencode(recording.VARVE), *map(os.fsencode, command)], stdin=subprocess.DEVNULL,
                                 capture_output=True, check=False)
        return outcome.returncode, outcome.stdout, outcome.stderr

    def answer_text(self, *command):
        """What a command that ends well prints, of which all is text."""
        status, out, err = self.bytes_of(*command)
        self.assertEqual(status, 0, err)
        self.assertNotEqual(out, b"")
        self.assert_text(out + err, command)
        return out

    def assert_text(self, content, what):
        text = content.decode("utf-8")  # malformed UTF-8 fails here
        bad = [character for character in text if character != "\n"
               and (ord(character) < 32 or 127 <= ord(character) < 160)]
        self.assertEqual(bad, [], (what, text))

    def test_names_of_programs_and_files(self):
        program = os.path.join(os.fsencode(self.folder), EVIL)
        database = os.path.join(os.fsencode(self.folder), EVIL + b".db")
        shutil.copy(recording.program("churn"), program)
        status, _, err = self.bytes_of("record", "-o", database, "--", program, "--ops", "200", "--leak")
        self.assertEqual(status, 0, err)
        self.assert_text(err, "record")
        for command in (["info"], ["report"], ["leaks"], ["peak"], ["tree"], ["flamegraph", "-o", "-"], ["timeline"],
                        ["diff", database], ["diff", "--events", database], ["query"],
                        ["info", "--json"], ["report", "--json"], ["leaks", "--json"], ["query", "--json"]):
            more = ["SELECT executable, command_line FROM process"] if command[0] == "query" else []
            with self.subTest(command[:2]):
                self.answer_text(*command, database, *more)

    def test_messages(self):
        evil = os.path.join(os.fsencode(self.folder), EVIL)
        for command in (["report", evil], ["replay", evil], ["import", evil, "-o", self.path], ["recover", evil],
                        ["export", evil, "-o", self.path], ["record", "--", evil], [EVIL],
                        ["query", "--" + os.fsdecode(EVIL)]):
            self.refuse_text(*command)
        with open(evil, "wb") as stream:
            stream.write(b"text")
        for command in (["report", evil], ["import", evil, "-o", self.path]):
            self.refuse_text(*command)

    def test_results_of_sql(self):
        """Tables are filtered, column names too; CSV is exact, JSON escapes."""
        self.record(recording.program("churn"), "--ops", "100", options=["--stacks", "none"])
        sql = f"SELECT CAST(X'{EVIL.hex()}' AS TEXT) AS \"a\x1b[2J\x9b\""
        self.assertIn(b"e?]0;owned??[31m????? z", self.answer_text("query", self.path, sql))
        status, out, err = self.bytes_of("query", "--csv", "--no-header", self.path, sql)
        self.assertEqual((status, out, err), (0, b'"' + EVIL + b'"\n', b""))
        out = self.answer_text("query", "--json", self.path, sql)
        self.assertEqual(json.loads(out), [{"a\x1b[2J\x9b": EVIL.decode("utf-8", "replace")}])
        self.refuse_text("query", self.path, "SELECT " + os.fsdecode(EVIL))

    def refuse_text(self, *command):
        status, out, err = self.bytes_of(*command)
        self.assertEqual((status, out), (2, b""), err)
        self.assert_text(err, command)

    def test_call_sites(self):
        """A snapshot's frames and settings."""
        history = good_snapshot()
        evil = EVIL.replace(b"\x9b\x7f\xff", b"\x7f", 1).decode("utf-8")
        history["device_traces"][0][1]["frames"] = [{"name": evil, "filename": evil, "line": 3}]
        history["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = evil
        path = self.write_pickle(history)
        self.varve("import", path, "-o", self.path)
        for command in ("report", "leaks", "peak", "info", "segments"):
            self.answer_text(command, self.path)
        history["device_traces"][0][1]["action"] = evil
        status, _, err = self.bytes_of("import", self.write_pickle(history), "-o", self.name("second.db"))
        self.assertEqual(status, 0, err)
        self.assertIn(b"left out", err)
        self.assert_text(err, "an action that is no word")


if __name__ == "__main__":
    recording.main()
