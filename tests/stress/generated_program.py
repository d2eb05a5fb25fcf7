# SPDX-License-Identifier: Apache-2.0
"""Random C programs that write down each of their own operations, recorded and compared with what they wrote.

A program is a handful of functions of random operations (generated_runtime.h), of loops and recursion, of threads
that hand blocks to each other, of fork, vfork, posix_spawn and exec of itself, signal handlers and a library that is
opened and closed; and an end: exit, _exit, abort, SIGKILL, SIGSEGV, exec. The recording must hold, for each thread,
exactly those events in that order with those addresses and sizes; what else it holds must be the C library's own, and
little. """

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))
KINDS = {32: "heap_alloc", 33: "heap_free", 34: "heap_realloc", 35: "mmap", 36: "munmap"}
# struct log of generated_runtime.h
SLOTS, ENTRIES, HANDLER_BYTES = 64, 3000, 20480
HEAD = struct.Struct("<QQQQ")
ENTRY = struct.Struct("<QQQQ")
SLOT_BYTES = HEAD.size + ENTRIES * ENTRY.size
# A library call allocates for itself: opening a library most, a thread's table of thread-local storage least.
LIBRARY_EVENTS_MAX = 300
FUNCTIONS = 6
ENDS = {"END_EXIT": 3, "END_EXIT_NOW": 4, "END_ABORT": -signal.SIGABRT, "END_KILL": -signal.SIGKILL,
        "END_FAULT": -signal.SIGSEGV, "END_EXEC": 0}


# ---- writing programs ----

class Writer:
    """One program of a source file; all its functions begin with p<number>_."""

    def __init__(self, seed, number):
        self.chance = random.Random(seed)
        self.number = number
        self.end = self.chance.choice(("END_EXIT", "END_EXIT", *ENDS))
        self.alarm_us = self.chance.choice((0, 0, 500, 3000))
        self.may = {name for name in ("threads", "processes", "library", "signals", "maps")
                    if self.chance.random() < 0.6}

    def name(self, index):
        return f"p{self.number}_f{index}"

    def size(self):
        kind = self.chance.randrange(12)
        if kind == 0:
            return self.chance.choice((0, 1, 7, 8, 24, 25, 4095, 4096, 4097))
        if kind == 1:
            return self.chance.randrange(100000, 2000000)
        return self.chance.randrange(1, 300) if kind < 7 else self.chance.randrange(1, 20000)

    def operation(self, loop):
        """A statement on one of the thread's blocks; `loop`: the loop's variable or None."""
        chance = self.chance
        is_fixed = loop is None or chance.random() < 0.3
        at = f"{chance.randrange(16)}" if is_fixed else f"{loop} * {chance.randrange(1, 7)}"
        size = f"{self.size()}" if loop is None or chance.random() < 0.5 else f"{self.size()} + {loop}"
        kind = chance.randrange(20)
        if kind < 5:
            return f"op_malloc(me, {at}, {size});"
        if kind < 7:
            return f"op_calloc(me, {at}, {chance.randrange(1, 9)}, {chance.randrange(1, 500)});"
        if kind < 9:
            return f"op_aligned(me, {at}, {chance.randrange(24)}, {size});"
        if kind < 12:
            return f"op_realloc(me, {at}, {size});"
        if kind < 15:
            return f"op_free(me, {at});"
        if kind < 17:
            return f"op_give(me, {at});"
        if kind < 18:
            return f"op_take(me, {at}, {chance.choice((0, self.size()))});"
        if "maps" in self.may:
            return chance.choice((f"op_mmap(me, {at}, {chance.randrange(1, 40)});", f"op_munmap(me, {at});"))
        return f"op_free(me, {at});"

    def call(self, index):
        """A statement that reaches a function behind this one, or this one again."""
        chance = self.chance
        if index + 1 == FUNCTIONS or chance.random() < 0.2:
            return f"if (depth < {chance.randrange(2, 12)}) {self.name(index)}(me, depth + 1);"
        later = chance.randrange(index + 1, FUNCTIONS)
        kind = chance.randrange(8)
        if kind < 2 and "threads" in self.may:
            several = ", ".join(self.name(chance.randrange(index + 1, FUNCTIONS))
                                for _ in range(chance.randrange(1, 5)))
            return f"op_threads(me, (const body[]){{{several}}}, {several.count(',') + 1}, depth);"
        if kind < 4 and "processes" in self.may:
            return chance.choice((f"op_fork(me, {self.name(later)}, depth, {chance.choice(tuple(ENDS))});",
                                  f"op_fork(me, {self.name(later)}, depth, {chance.choice(tuple(ENDS))});",
                                  "op_spawn(me);", "op_vfork(me);"))
        if kind == 4 and "library" in self.may:
            return f"op_library(me, LIBRARY, {chance.randrange(16)});"
        if kind == 5 and "signals" in self.may:
            return "raise(SIGUSR1);"
        return f"{self.name(later)}(me, depth + 1);"

    def function(self, index):
        lines = []
        for _ in range(self.chance.randrange(3, 14)):
            kind = self.chance.randrange(10)
            if kind < 3:
                body = " ".join(self.operation("i") for _ in range(self.chance.randrange(1, 4)))
                lines.append(f"for (unsigned i = 0; i < {self.chance.randrange(2, 30)}; i++) {{ {body} }}")
            elif kind < 5 and index > 0 or kind < 7 and index == 0:
                lines.append(self.call(index))
            else:
                lines.append(self.operation(None))
        return f"static void {self.name(index)}(struct me *me, unsigned depth)\n{{\n    (void)depth;\n    " + \
            "\n    ".join(lines) + "\n}\n"

    def source(self):
        return "\n".join(self.function(index) for index in reversed(range(FUNCTIONS)))

    def entry(self):
        return f"{{{self.name(0)}, {self.name(FUNCTIONS - 1)}, {self.alarm_us}, {self.end}}}"


def compile_programs(folder, seed, count):
    """One executable with the programs of the seeds `seed`, `seed` + 1, … in it: (path, writers)."""
    writers = [Writer(seed + number, number) for number in range(count)]
    chance = random.Random(f"options {seed}")
    library, path = os.path.join(folder, "library.so"), os.path.join(folder, "generated")
    source = os.path.join(folder, "generated.c")
    with open(source, "w", encoding="utf-8") as stream:
        stream.write(f'#define LIBRARY "{library}"\n#include "stress/generated_runtime.h"\n\n')
        stream.write("\n".join(writer.source() for writer in writers))
        stream.write(f"\nint main(int argc, char **argv)\n{{\n    static const struct program programs[] = {{"
                     f"{', '.join(writer.entry() for writer in writers)}}};\n"
                     "    return generated_main(argc, argv, programs);\n}\n")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-g", "-fno-builtin", "-Wno-unused-function", f"-I{recording.ROOT}/tests",
             chance.choice(("-O0", "-O1", "-O2", "-Os")), chance.choice(("-fno-omit-frame-pointer",
                                                                         "-fomit-frame-pointer"))]
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *flags, "-shared", "-fPIC", os.path.join(FOLDER, "generated_library.c"), "-o", library],
                   check=True)
    subprocess.run([compiler, *flags, "-Wall", "-Werror", "-rdynamic", "-pthread", source, "-o", path, "-ldl"],
                   check=True)
    return path, writers


# ---- running and comparing ----

def read_log(path):
    """({(pid, tid): [(kind, addr, size, old)]}, library calls, handler's pairs); slots are in the order of their
    beginning."""
    with open(path, "rb") as stream:
        slots, library_calls, handler_maps, _ = HEAD.unpack(stream.read(HEAD.size))
        threads = {}
        for index in range(min(slots, SLOTS)):
            stream.seek(HEAD.size + index * SLOT_BYTES)
            pid, tid, count, _ = HEAD.unpack(stream.read(HEAD.size))
            content = stream.read(count * ENTRY.size)
            threads.setdefault((pid, tid), []).extend(ENTRY.iter_unpack(content))
    return threads, library_calls, handler_maps


class Generated(recording.Case):
    """One program: run alone, then recorded, then compared."""

    def runTest(self):
        """Not run by unittest: play() drives it."""

    def new_log(self, name):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as stream:
            os.truncate(stream.fileno(), HEAD.size + SLOTS * SLOT_BYTES)
        return path

    def play(self, path, writer, chance):
        options = ["--overflow", chance.choice(("spill", "block")), "--ring-size", chance.choice(("4K", "64K", "4M")),
                   "--stacks", chance.choice(("none", "native", "all"))]
        self.setting = f"{' '.join(options[1::2])}, {writer.end}, {'+'.join(sorted(writer.may)) or 'plain'}"
        command = [path, str(writer.number)]
        alone = recording.run([*command, self.new_log("alone"), "0"])
        self.assertEqual(alone.returncode, ENDS[writer.end], alone)
        log = self.new_log("log")
        outcome = recording.run(self.record_command(*command, log, "0", options=options))
        self.assertEqual(outcome.returncode, alone.returncode, ("recorded, it ends otherwise", outcome))
        self.assert_recording()
        self.compare(log)

    def compare(self, log):
        threads, library_calls, handler_maps = read_log(log)
        stored = {}
        for pid, tid, kind, addr, size, arg, cause in self.sql(
                "SELECT e.pid, e.tid, e.kind, e.addr, e.size, e.arg, c.text FROM event e JOIN event_cause c ON c.code"
                " = e.cause WHERE e.kind BETWEEN 32 AND 36 AND NOT (e.kind IN (35, 36) AND e.size = ?) ORDER BY e.seq",
                HANDLER_BYTES):
            stored.setdefault((pid, tid), []).append((kind, addr, size, arg, cause))
        self.totals = {name: [0, 0] for name in KINDS.values()}
        others = 0
        for thread, entries in threads.items():
            others += self.compare_thread(thread, entries, stored.pop(thread, []))
        self.assertEqual(stored, {}, "events of threads that made none")
        self.assertLessEqual(others, LIBRARY_EVENTS_MAX * library_calls, f"events that are not the program's: {others}")
        for kind in ("mmap", "munmap"):
            self.assertEqual(self.count(kind, "size = ?", HANDLER_BYTES), handler_maps,
                             f"{kind} in the handler of SIGALRM")

    def compare_thread(self, thread, entries, events):
        """`entries` in their order within `events`; returns how many events are nobody's."""
        at = 0
        for index, (kind, addr, size, old_addr) in enumerate(entries):
            begin = at
            while at < len(events) and not self.is_same(events[at], kind, addr, size, old_addr):
                self.assertIn(events[at][0], (32, 33, 34), f"thread {thread}: a mapping that it did not make:"
                                                           f" {events[at]}")
                at += 1
            if at == len(events):
                self.fail(f"thread {thread}, operation {index} of {len(entries)}: {KINDS[kind]} {addr:#x} size {size}"
                          f" is missing; stored from there on: {events[begin:begin + 5]}")
            self.totals[KINDS[kind]][0] += 1
            self.totals[KINDS[kind]][1] += size
            at += 1
        return len(events) - len(entries)

    @staticmethod
    def is_same(event, kind, addr, size, old_addr):
        """A free is recorded without a size; assert_pairs() compares it with the allocation's."""
        return event[:2] == (kind, addr) and (kind == 33 or event[2] == size) and (kind != 34 or event[3] == old_addr)


def play(seed, count):
    """`count` programs, of the seeds from `seed` * 1000 on; a result as kill_round.play() gives it."""
    failures, operations, size, setting = [], 0, 0, ""
    folder = recording.tempfile.mkdtemp(prefix="varve-test-")
    try:
        path, writers = compile_programs(folder, seed * 1000, count)
        for writer in writers:
            case = Generated()
            case.setUp()
            case.setting = ""
            try:
                case.play(path, writer, random.Random(f"run {seed * 1000 + writer.number}"))
                operations += sum(total[0] for total in case.totals.values())
                size += case.totals["heap_alloc"][1] + case.totals["heap_realloc"][1]
            except Exception:  # the other programs are worth running whatever it is
                failures.append(f"program {writer.number} ({case.setting}):\n{traceback.format_exc()}")
                if os.environ.get("VARVE_STRESS_KEEP"):
                    kept = os.path.join(os.environ["VARVE_STRESS_KEEP"], f"seed-{seed}-{writer.number}")
                    shutil.copytree(case.folder, kept, symlinks=True, dirs_exist_ok=True)
                    shutil.copytree(folder, kept, symlinks=True, dirs_exist_ok=True)
            finally:
                case.doCleanups()
    except subprocess.CalledProcessError as error:
        failures.append(str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    exact = count - len(failures)
    setting = f"generated: {exact} of {count} programs exact, {operations} operations, {size} bytes"
    return {"setting": setting, "failure": "\n".join(failures) or None}
