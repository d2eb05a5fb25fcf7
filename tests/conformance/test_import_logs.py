#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 30 s
# Reads damaged input: logs of other tools.
"""Logs of RMM, PyTorch's profiler and Nsight Systems, imported: the sums of the program that was logged
(import_logs.py), what each format says beside them, every kind of contradiction counted, other policies replayed on
the requests, and files that are no log."""

import collections
import gzip
import json
import lzma
import pathlib
import random
import sqlite3

import import_logs
from import_logs import BASE, MIB, Nsight, Program, memory_event, profiler_trace, rmm_line, rmm_log, span
from pytorch_recordings import Case, load, path_of, recording


class Imports(Case):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.folder)
        self.database = pathlib.Path(self.path)

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return path

    def imported(self, *paths):
        """The command's JSON; what it has to say of the log is in self.said."""
        outcome = self.varve("import", "--force", "--json", *paths, "-o", self.database)
        self.said = outcome.err
        return json.loads(outcome.out)

    def refused(self, *paths, word):
        self.database.unlink(missing_ok=True)
        self.assert_refused(recording.varve("import", *paths, "-o", self.database), word)
        self.assertFalse(self.database.exists())

    def rows(self, query, *values):
        self.open()
        return self.sql(query, *values)

    def faults(self, result, **expected):
        self.assertEqual({key: value for key, value in result["faults"].items() if value}, expected)
        stored = dict(self.rows("SELECT name, value FROM stats WHERE source = 'import' AND name <> 'import_entries'"))
        self.assertEqual(stored, expected)
        self.assertEqual(self.said.count("\n"), len(expected) + (result["order"] == "time"), self.said)

    def check_sums(self, result, program, domain, device=0):
        counts = {key: getattr(program, key) for key in ("allocations", "frees", "failures")}
        self.assertEqual({key: result[key] for key in counts}, counts)
        self.assertEqual(self.rows("SELECT allocations, frees, peak_bytes, live_bytes, failed FROM total WHERE domain"
                                   " = ? AND device = ?", domain, device),
                         [(program.allocations, program.frees, program.peak, program.live_bytes, program.failures)])
        live = dict(self.rows("SELECT addr, size FROM leak WHERE domain = ? AND coalesce(device, 0) = ?", domain,
                              device))
        self.assertEqual(live, program.live)


class Rmm(Imports):
    def test_sums(self):
        for seed, point, null in ((1, ".", "(nil)"), (2, ":", "0x0"), (3, ".", "0")):
            program = Program(seed)
            result = self.imported(self.write("rmm.csv", rmm_log(program.calls, point=point, null=null)))
            self.faults(result)
            self.check_sums(result, program, "block")
            self.assertEqual((result["format"], result["order"], result["peak_bytes"], result["live_bytes"]),
                             ("RMM log", "source", program.peak, program.live_bytes))
            times = [call[0] for call in program.calls]
            self.assertEqual(result["duration_ns"], 1000 * (times[-1] - times[0]))
            threads = collections.Counter(call[1] for call in program.calls
                                          for _ in range(2 if call[2] == "free" else 1))
            self.assertEqual(dict(self.rows("SELECT tid, emitted FROM thread")), threads)
            handles = self.rows("SELECT DISTINCT s.handle, a.addr FROM allocation a JOIN stream s ON s.number ="
                                " a.stream AND s.device = a.device")
            self.assertEqual(set(handles), {(call[5], call[3]) for call in program.calls if call[2] == "allocate"})
            self.assertEqual(self.rows("SELECT requested, allocated FROM oom ORDER BY seq"), self.failures(program))

    @staticmethod
    def failures(program):
        live, found = {}, []
        for _, _, action, addr, size, _ in program.calls:
            if action == "failure":
                found.append((size, sum(live.values())))
            elif action == "allocate":
                live[addr] = size
            else:
                del live[addr]
        return found

    def test_compressed_and_piped(self):
        program = Program(4, calls=300)
        text = rmm_log(program.calls).encode()
        for name, content in (("a.csv.gz", gzip.compress(text)), ("a.csv.xz", lzma.compress(text)),
                              ("a.csv", b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))):
            result = self.imported(self.write(name, content))
            self.faults(result)
            self.check_sums(result, program, "block")
        cut = gzip.compress(rmm_log(Program(4, calls=20000, slots=50).calls).encode())
        result = self.imported(self.write("cut.csv.gz", cut[:len(cut) // 2]))
        self.assertEqual(result["faults"]["import_cut"], 1)
        self.assertGreater(result["allocations"], 2000)

    def test_without_header_and_over_midnight(self):
        calls = [(86_399_999_999, 1, "allocate", BASE, 100, 0), (86_400_000_001, 1, "free", BASE, 100, 0)]
        result = self.imported(self.write("a.csv", "".join(rmm_line(call) + "\n" for call in calls)))
        self.faults(result)
        self.assertEqual(result["duration_ns"], 2000)
        text = "Thread,Time,Action,Pointer,Size,Stream\n7,1634567890.123456,allocate,0x7f00,1024,0x1\n" \
               "140573312345856,1634567890.223456,deallocate,0x7f00,1024,0x1\n"
        result = self.imported(self.write("a.csv", text))
        self.faults(result)
        self.assertEqual((result["frees"], result["duration_ns"]), (1, 100_000_000))
        self.assertEqual(self.rows("SELECT tid, name FROM thread ORDER BY id"), [(7, None), (2, "140573312345856")])

    def test_columns_are_found_by_name(self):
        text = "Time,Thread,Level,Size,Stream,Action,Pointer\n10:00:00.000001,5,info,64,0x2,allocate,0x7f00\n"
        result = self.imported(self.write("a.csv", text))
        self.faults(result)
        self.assertEqual(self.rows("SELECT tid, addr, size FROM allocation"), [(5, 0x7F00, 64)])

    def test_contradictions(self):
        a, b, c = BASE, BASE + MIB, BASE + 2 * MIB
        lines = [
            "1,10:00:00.000001,allocate,%#x,100,0x0" % a,
            "1,10:00:00.000002,allocate,%#x,200,0x0" % a,    # its free is missing
            "1,10:00:00.000003,free,%#x,50,0x0" % b,         # nothing there
            "1,10:00:00.000004,free,%#x,999,0x0" % a,        # another size
            import_logs.RMM_HEADER,
            "1,10:00:00.000005,reallocate,%#x,10,0x0" % a,   # unknown
            "hello, world",
            "Size,Pointer,Action,Time,,,,,,Thread",          # half a header: columns stay
            "1,10:00:00.000006,allocate,%#x,-5,0x0" % a,     # no size
            "1,25:00:00.000006,allocate,%#x,5,0x0" % a,      # no time
            "1,10:00:00.000007,allocate,%#x,%d,0x0" % (a, 1 << 60),
            "1,10:00:00.000008,allocate,0x0,0,0x0",          # of no bytes
            "1,10:00:00.000003,allocate,%#x,7,0x0" % c,      # back in time
            "1,10:00:00.000009,free,%#x" % c,                # cut off
        ]
        result = self.imported(self.write("a.csv", import_logs.RMM_HEADER + "\n" + "\n".join(lines)))
        self.faults(result, import_missing_frees=1, import_unknown_frees=1, import_other_sizes=1, import_headers=1,
                    import_unknown_actions=1, import_unreadable=5, import_empty=1, import_out_of_order=1, import_cut=1)
        self.assertIn("line 8", self.said)
        self.assertEqual(result["entries"], len(lines) - 1)
        self.assertEqual(self.rows("SELECT addr, size, free_ns IS NULL FROM allocation ORDER BY id"),
                         [(a, 100, 0), (a, 200, 0), (c, 7, 1)])
        self.assertEqual(self.rows("SELECT sum(value) FROM data_loss"), [(1 + 1 + 1 + 5 + 1,)])
        self.assertIn("import_unknown_frees", self.varve("report", self.database).out)

    def test_shuffled(self):
        program = Program(5, calls=1500, failures=False, slots=20)
        lines = [rmm_line(call) for call in program.calls]
        random.Random(1).shuffle(lines)
        result = self.imported(self.write("a.csv", "\n".join([import_logs.RMM_HEADER, *lines]) + "\n"))
        self.assertEqual(result["order"], "time")
        self.assertEqual({key for key, value in result["faults"].items() if value}, {"import_out_of_order"})
        self.check_sums(result, program, "block")

    def test_times_that_jitter(self):
        """Threads take the time before they take the log's lock: the order of the lines is right."""
        program = Program(6, calls=1500, slots=3)
        chance = random.Random(2)
        calls = [(call[0] + chance.randrange(0, 20000), *call[1:]) for call in program.calls]
        result = self.imported(self.write("a.csv", rmm_log(calls)))
        self.assertEqual(result["order"], "source")
        self.assertGreater(result["faults"]["import_out_of_order"], 0)
        self.check_sums(result, program, "block")

    def test_devices(self):
        programs = {0: Program(7, calls=400), 3: Program(8, calls=500)}
        paths = [self.write(f"log.dev{device}.csv", rmm_log(program.calls)) for device, program in programs.items()]
        result = self.imported(*paths)
        self.faults(result)
        begin_us = min(program.calls[0][0] for program in programs.values())
        for device, program in programs.items():
            self.assertEqual(self.rows("SELECT allocations, peak_bytes, live_bytes FROM total WHERE domain = 'block'"
                                       " AND device = ?",
                                       device), [(program.allocations, program.peak, program.live_bytes)])
            self.assertEqual(self.rows("SELECT ts_ns FROM event WHERE device = ? AND kind <> 3 ORDER BY seq", device),
                             [(1000 * (call[0] - begin_us),) for call in program.calls])
        self.refused(paths[0], self.write("x.csv", "hello\n"), word="no RMM log")

    def test_replays(self):
        program = Program(9, failures=False)
        self.imported(self.write("a.csv", rmm_log(program.calls)))
        for command in ("peak", "timeline", "leaks", "tree"):
            self.assertIn("block", self.varve(command, self.database).out.splitlines()[0])
        bound = self.answer("bound", self.database)
        self.assertEqual((bound[0] if isinstance(bound, list) else bound)["load_bytes"], program.peak)
        for options in ([], ["--policy", "first-fit"], ["--conf", "expandable_segments:True"],
                        ["--memory-limit", 8 << 30]):
            result = self.answer("replay", *options, self.database)
            self.assertEqual((result["before"]["peak_allocated"], result["before"]["peak_reserved"]),
                             (program.peak, None))
            self.assertEqual(result["allocations"] + result["ooms"], program.allocations)
            self.assertGreaterEqual(result["peak_reserved"], result["peak_allocated"])
        for command in (["replay", "--verify", self.database],
                        ["export", self.database, "--to", "pytorch", "-o", self.folder / "x"]):
            self.assert_refused(recording.varve(*command), "requests only")

    def import_blocks(self, freed, *more):
        """16 blocks of 24 MiB, of which each `freed`-th goes, and more calls."""
        blocks = [(BASE + 64 * MIB * number, 24 * MIB) for number in range(16)]
        calls = [("allocate", *block) for block in blocks] + [("free", *block) for block in blocks[::freed]] + [*more]
        self.imported(self.write("a.csv", rmm_log([(1000 + at, 1, *call, 0) for at, call in enumerate(calls)])))

    def test_what_requests_do_not_say(self):
        """What was reserved is not in the log: nothing is worked out from it, and settings are compared without it."""
        self.import_blocks(2, ("allocate", BASE + 2048 * MIB, 96 * MIB), ("failure", 0, 1 << 40))
        request, = self.answer("oom", self.database)["ooms"]
        self.assertEqual((request["allocated"], request["reserved"], request["memory"], request["cause"],
                          request["served"]),
                         (8 * 24 * MIB + 96 * MIB, None, None, None, None))
        limited = self.answer("oom", "--memory-limit", "512M", self.database)
        self.assertEqual((limited["memory_limit"], limited["ooms"][0]["served"]["by"]), (512 * MIB, []))
        self.assertGreater(limited["ooms"][0]["served"]["smallest_limit"], 1 << 40)
        advice = self.answer("advise", self.database, "--memory-limit", "512M")
        self.assertIsNone(advice["recorded"]["peak_reserved"])
        texts = [self.varve(*command, self.database).out for command in (["oom"], ["advise"], ["compare"], ["replay"],
                                                                         ["frontier"])]
        self.assertEqual([text for text in texts if not text or "-1 " in text], [])
        self.assertIn("1 allocation failed in block: varve oom says why", self.varve("report", self.database).out)
        self.assertIn("--memory-limit gives it", texts[0].replace("\n              ", " "))

    def test_advice_on_requests(self):
        self.import_blocks(1, ("allocate", BASE + 2048 * MIB, 192 * MIB))
        advice = self.answer("advise", self.database)
        self.assertEqual((advice["own"]["peak_reserved"], advice["settings"][0]["peak_reserved"],
                          advice["settings"][0]["conf"]),
                         ((16 * 24 + 192) * MIB, 400 * MIB, "expandable_segments:True"))  # 384 in pieces of 20

    def test_replays_as_the_snapshot(self):
        """The requests of a recorded training cost under any policy what they cost out of its snapshot, as long as
        nothing but requests mattered there: no waits, no releases."""
        names = {"alloc": "allocate", "free_requested": "free"}
        path = path_of("gpt2_train")
        calls = [(entry["time_us"] % 86_400_000_000, 1, names[entry["action"]], entry["addr"], entry["size"],
                  entry["stream"])
                 for entry in load(path)["device_traces"][0] if entry["action"] in names]
        self.imported(self.write("a.csv", rmm_log(calls)))
        for policy in ("pytorch", "first-fit"):
            log, original = (self.answer("replay", "--policy", policy, "--conf", "max_split_size_mb:64", one)
                             for one in (self.database, path))
            keys = ("allocations", "peak_reserved", "peak_allocated", "segments", "device_calls")
            self.assertEqual({key: log[key] for key in keys}, {key: original[key] for key in keys}, policy)


class Profiler(Imports):
    def test_sums(self):
        for seed, indent in ((11, None), (12, 2)):
            program = Program(seed)
            events = [memory_event(call, 77, device=1, reserved=7 * MIB + index)
                      for index, call in enumerate(program.calls)]
            random.Random(seed).shuffle(events)
            result = self.imported(self.write("trace.json", profiler_trace(events, indent)))
            self.faults(result)
            self.check_sums(result, program, "block", 1)
            self.assertEqual(result["peak_reserved"], 7 * MIB + len(events) - 1)
            self.assertEqual(self.rows("SELECT pid FROM process"), [(77,)])

    def test_begins_late(self):
        """What was live before the first event is in the totals that each event has."""
        program = Program(16, calls=1000, failures=False)
        live, blocks, events, lives = 0, {}, [], []
        for call in program.calls:
            _, _, action, addr, size, _ = call
            live += size - blocks.pop(addr, 0) if action != "free" else -blocks.pop(addr)
            if action != "free":
                blocks[addr] = size
            lives.append(live)
            events.append(memory_event(call, 77, total=live))
        for cut in (1, 333, 700):
            result = self.imported(self.write("trace.json", profiler_trace(events[cut:])))
            self.assertIn("begins in the middle of the run", self.said)
            self.assertEqual(set(result["faults"].values()), {0})
            self.assertEqual((result["inherited_bytes"], result["peak_bytes"], result["live_bytes"]),
                             (lives[cut - 1], max(lives[cut - 1:]), lives[-1]))
            self.assertEqual(self.rows("SELECT peak_bytes, live_bytes FROM total WHERE domain = 'block'"),
                             [(max(lives[cut - 1:]), lives[-1])])

    def test_forms(self):
        """Compressed, a list alone, events that span the reader's windows, and of the CPU."""
        program = Program(13, calls=600)
        events = [memory_event(call, 77, device=-1, device_type=0) for call in program.calls]
        filler = span("x" * 3000, 1, 0, 1)
        for content in (gzip.compress(profiler_trace(events).encode()), json.dumps(events).encode(),
                        profiler_trace([item for event in events for item in (event, filler)]).encode()):
            result = self.imported(self.write("trace.json", content))
            self.faults(result)
            self.check_sums(result, program, "heap")

    def test_equal_times(self):
        """Clocks of a microsecond: what comes first is what fits."""
        program = Program(14, calls=800, slots=4, failures=False)
        chance = random.Random(3)
        groups = [program.calls[i:i + 3] for i in range(0, len(program.calls), 3)]
        events = []
        for index, group in enumerate(groups):
            group = [(index + 1, *call[1:]) for call in group]
            if len({call[3] for call in group}) == len(group):
                chance.shuffle(group)
            events += [memory_event(call, 77) for call in group]
        result = self.imported(self.write("trace.json", profiler_trace(events)))
        self.faults(result)
        self.assertEqual(result["live_bytes"], program.live_bytes)

    def test_call_sites(self):
        def memory(time_us, thread, addr, size=512, action="allocate"):
            return memory_event((time_us, thread, action, addr, size, 0), 77)

        events = [
            span("train.py(37): step", 1, 0, 1000, "python_function"),
            span("torch/nn/modules/linear.py(5): forward", 1, 100, 400, "python_function"),
            span("aten::linear", 1, 150, 350), span("aten::empty", 1, 200, 210), span("aten::empty", 2, 0, 1000),
            memory(205, 1, BASE), memory(300, 1, BASE + 512), memory(500, 1, BASE + 1024), memory(2000, 1, BASE + 1536),
            memory(205, 2, BASE + 2048), memory(800, 1, BASE, action="free"),
        ]
        random.Random(4).shuffle(events)
        result = self.imported(self.write("trace.json", profiler_trace(events)))
        self.faults(result)
        stacks = collections.defaultdict(list)
        for addr, function, file, line in self.rows(
                "SELECT a.addr, f.function, f.file, f.line FROM allocation a JOIN frame f ON f.callsite_id ="
                " a.callsite_id ORDER BY a.id, f.depth"):
            stacks[addr - BASE].append((function, file, line))
        step, forward = ("step", "train.py", 37), ("forward", "torch/nn/modules/linear.py", 5)
        linear, empty = ("aten::linear", None, None), ("aten::empty", None, None)
        self.assertEqual(dict(stacks), {0: [empty, linear, forward, step], 512: [linear, forward, step], 1024: [step],
                                        2048: [empty]})
        self.assertEqual(self.rows("SELECT user_file, user_line FROM callsite_total WHERE user_function = 'step'"
                                   " LIMIT 1"),
                         [("train.py", 37)])

    def test_damage(self):
        program = Program(15, calls=400, failures=False)
        text = profiler_trace([memory_event(call, 77) for call in program.calls])
        result = self.imported(self.write("trace.json", text[:len(text) // 2]))
        self.assertEqual(result["faults"]["import_cut"], 1)
        self.assertEqual(result["faults"]["import_unreadable"], 0)
        events = [memory_event(call, 77) for call in program.calls]
        events[3]["args"]["Bytes"] = "many"
        events[5]["args"] = {}
        events[7]["ts"] = None
        events[9]["args"]["Addr"] = -1
        result = self.imported(self.write("trace.json", profiler_trace(events)))
        self.assertEqual(result["faults"]["import_unreadable"], 4)
        self.refused(self.write("a.json", '{"a": [1, 2]}'), word="traceEvents")
        self.refused(self.write("a.json", profiler_trace([span("aten::mm", 1, 0, 1)])), word="profile_memory=True")
        self.refused(self.write("a.json", "[" * 100000), word="profile_memory=True")


class NsightSystems(Imports):
    def make(self, fill, schema=import_logs.NSIGHT_SCHEMA):
        path = self.folder / "report.sqlite"
        path.unlink(missing_ok=True)
        nsight = Nsight(path, schema)
        fill(nsight)
        nsight.close()
        return path

    def test_sums(self):
        program = Program(21, failures=False)

        def fill(nsight):
            rows = list(program.calls)
            random.Random(5).shuffle(rows)
            for time_us, tid, action, addr, size, _ in rows:
                nsight.row(time_us * 1000, 500, int(action == "free"), addr, size, call="cudaMalloc_v3020", tid=tid)

        result = self.imported(self.make(fill))
        self.faults(result)
        self.check_sums(result, program, "device")
        self.assertEqual(dict(self.rows("SELECT tid, emitted FROM thread")),
                         collections.Counter(call[1] for call in program.calls))
        self.assertEqual(self.answer("replay", "--policy", "first-fit", self.database)["before"]["peak_allocated"],
                         program.peak)

    def test_processes_kinds_and_pools(self):
        def fill(nsight):
            nsight.database.execute("INSERT INTO PROCESSES VALUES (?, 501, '/bin/train')",
                                    (import_logs.global_pid(501),))
            nsight.database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 2, 'GPU two', '', ?)", (80 << 30,))
            nsight.database.executemany("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, 0, ?, NULL, 1)",
                                        [(0, 501), (2, 502)])
            nsight.chain(1, [("main", "/bin/train"), ("_start", "/bin/train")])
            nsight.row(1000, 501, 0, BASE, 4096, call="cudaMalloc_v3020", tid=9, chain=1, took=640)
            nsight.row(2000, 502, 0, BASE, 8192)                                   # the same address elsewhere
            nsight.row(3000, 501, 0, BASE + MIB, 100, kind=1, call="cuMemHostAlloc", tid=9, device=4294967295)
            nsight.row(4000, 501, 0, BASE + 2 * MIB, 200, kind=4)
            nsight.row(5000, 501, 0, BASE + 3 * MIB, 300, stream=13, pool=1 << 47, pool_size=32 * MIB,
                       call="cudaMallocAsync_v11020", tid=9)
            nsight.row(6000, 501, 1, BASE + 3 * MIB, 300, stream=13, pool=1 << 47, pool_size=32 * MIB,
                       call="cudaFreeAsync_v11020", tid=9)
            nsight.row(7000, 501, 1, BASE, 4096)
            nsight.row(8000, 501, 2, BASE, 4096)                                   # no such operation

        result = self.imported(self.make(fill))
        self.faults(result, import_unknown_actions=1)
        self.assertEqual((result["processes"], result["peak_reserved"]), (2, 32 * MIB))
        self.assertEqual(self.rows("SELECT pid, executable FROM process ORDER BY pid"),
                         [(501, "/bin/train"), (502, None)])
        self.assertEqual(
            self.rows("SELECT a.pid, d.name, a.device, a.size, a.free_ns IS NULL FROM allocation a JOIN domain d ON"
                      " d.code = a.domain ORDER BY a.id"),
            [(501, "device", 0, 4096, 0), (502, "device", 2, 8192, 1), (501, "pinned", 0, 100, 1),
             (501, "managed", 0, 200, 1), (501, "device", 0, 300, 0)])
        self.assertEqual(self.rows("SELECT kind, cause, stream FROM events WHERE kind LIKE 'dev_%async' ORDER BY seq"),
                         [("dev_alloc_async", "cudaMallocAsync", 1), ("dev_free_async", "cudaFreeAsync", 1)])
        self.assertEqual(self.rows("SELECT function FROM frame WHERE callsite_id = (SELECT callsite_id FROM"
                                   " allocation LIMIT 1) ORDER BY depth"),
                         [("main",), ("_start",)])
        self.assertEqual(self.rows("SELECT name, total_bytes FROM device WHERE id = 2"), [("GPU two", 80 << 30)])
        self.assert_refused(recording.varve("replay", self.database), "2 processes")

    def test_old_schema(self):
        def fill(nsight):
            nsight.database.executemany(
                "INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?, ?, 0, 1, ?, 0, ?, 2, ?, NULL)",
                [(1, import_logs.global_pid(5), BASE, 512, 0), (2, import_logs.global_pid(5), BASE, 512, 1),
                 (3, import_logs.global_pid(5), BASE + 9, 512, 1), (4, import_logs.global_pid(5), -9, 512, 0)])

        result = self.imported(self.make(fill, import_logs.NSIGHT_SCHEMA_OLD))
        self.faults(result, import_unknown_frees=1, import_unreadable=1)
        self.assertEqual((result["allocations"], result["frees"]), (1, 2))

    def test_refused(self):
        self.refused(self.make(lambda nsight: None), word="no allocations")
        self.refused(self.make(lambda nsight: None, "CREATE TABLE META_DATA_EXPORT (name, value)"),
                     word="--cuda-memory-usage=true")
        self.refused(self.make(lambda nsight: None, "CREATE TABLE t (a)"), word="neither a trace nor an export")
        whole = self.make(lambda nsight: [nsight.row(i, 1, 0, BASE + i * MIB, 1) for i in range(5000)]).read_bytes()
        self.refused(self.write("cut.sqlite", whole[:len(whole) // 2]), word="truncated")
        self.imported(self.write("a.csv", rmm_log(Program(22, calls=10).calls)))
        trace = self.folder / "other.db"
        self.database.rename(trace)
        self.refused(trace, word="is a trace database already")


class NoLogs(Imports):
    def test_refused(self):
        header = import_logs.RMM_HEADER + "\n"
        for name, content, word in (("a.txt", "hello\nworld\n", "not a file that varve reads"),
                                    ("a.txt", "x" * 1000000, "not a file that varve reads"),
                                    ("a.txt", b"\0" * 1000, "not a file that varve reads"),
                                    ("a.csv", "id,lower,upper,size\n1,2,3,4\n", "not a file that varve reads"),
                                    ("a.csv", header, "no allocations"),
                                    ("a.csv", header + "junk\n" * 1000, "no allocations")):
            self.refused(self.write(name, content), word=word)
        self.refused(self.folder / "missing.csv", word="missing.csv")

    def assert_import_or_refusal(self, path):
        """An import or one line, never more."""
        done = recording.varve("import", "--force", path, "-o", self.database)
        self.assertIn(done.returncode, (0, 2), done)
        if done.returncode == 0:
            self.varve("report", self.database)
            self.assertIn(recording.varve("replay", "--policy", "first-fit", self.database).returncode, (0, 2))
        else:
            self.assertEqual(done.err.count("\n"), 1, done.err)

    def spoiled(self, content, seed, begin=0):
        """Bytes of a good log, changed."""
        chance = random.Random(seed)
        for _ in range(40 if recording.IS_FULL else 4 if recording.IS_SANITIZED else 12):
            bad = bytearray(content)
            for _ in range(chance.randrange(1, 30)):
                bad[chance.randrange(begin, len(bad))] = chance.randrange(256)
            yield bytes(bad)

    def test_hostile(self):
        calls = Program(23, calls=300, failures=False).calls
        path = self.folder / "report.sqlite"
        nsight = Nsight(path)
        for call in calls:
            nsight.row(call[0], 5, int(call[2] == "free"), call[3], call[4], call="cudaMalloc_v3020", tid=call[1],
                       chain=1)
        nsight.chain(1, [("main", "/bin/train")])
        nsight.close()
        for name, content, begin in (
                ("a.csv", rmm_log(Program(23, calls=200).calls).encode(), 0),
                ("a.json", profiler_trace([memory_event(call, 77) for call in calls[:200]]).encode(), 0),
                ("bad.sqlite", path.read_bytes(), 100)):
            for bad in self.spoiled(content, 6, begin):
                self.assert_import_or_refusal(self.write(name, bad))

    def test_endless_view(self):
        path = self.folder / "report.sqlite"
        with sqlite3.connect(path) as database:
            database.executescript("CREATE TABLE t (start, globalPid, deviceId, contextId, address, bytes, memKind,"
                                   " memoryOperationType);"
                                   "CREATE VIEW CUDA_GPU_MEMORY_USAGE_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1"
                                   " UNION ALL SELECT i + 1 "
                                   "FROM n) SELECT i AS start, 0 AS globalPid, 0 AS deviceId, 0 AS contextId, i AS"
                                   " address, 1 AS bytes, 2 AS memKind, 0 AS memoryOperationType FROM n")
        database.close()
        self.assert_refused(recording.varve("import", path, "-o", self.database), "CUDA_GPU_MEMORY_USAGE_EVENTS is no")
        self.assertFalse(self.database.exists())

    def test_endless_parts(self):
        """Of a view in place of any table that is read no row is."""
        for name, columns in (("TARGET_INFO_CUDA_DEVICE", "n AS gpuId, n AS cudaId, n AS pid"),
                              ("target_info_gpu", "n AS id, 'x' AS name, n AS totalMemory"),
                              ("PROCESSES", "n AS globalPid, n AS pid, 'x' AS name")):
            path = self.folder / f"{name}.sqlite"
            Nsight(path).close()
            with sqlite3.connect(path) as database:
                database.executescript(f"DROP TABLE IF EXISTS {name}; CREATE VIEW {name} AS WITH RECURSIVE q(n) AS"
                                       f" (SELECT 1 UNION ALL SELECT n + 1 FROM q) SELECT {columns} FROM q")
            database.close()
            self.assert_refused(recording.varve("import", path, "-o", self.database), name)


if __name__ == "__main__":
    recording.main()
