#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s
"""Libraries that no preloaded library stands in front of (RTLD_DEEPBIND, dlmopen, an allocator of their own, functions
that dlsym finds in the C library) are recorded block for block, and opened exactly as without; what can't be recorded
is named, where leaks are listed too. Only with an unsanitized command: it attaches to programs."""

import glob
import os
import shutil
import subprocess
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

HOST = recording.program("bypass")
ALLOCATORS = ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0")


def library(name):
    return recording.program(name + ".so")


class Case(recording.Case):
    def host(self, mode, name, *steps, options=(), **more):
        outcome = self.record(HOST, mode, library(name), *steps, options=options, **more)
        self.assert_finished()
        return outcome

    def given(self, size):
        """Blocks of that size: allocated in any way, and freed."""
        return (self.one("SELECT count(*) FROM events WHERE kind IN ('heap_alloc', 'heap_realloc') AND size = ?", size),
                self.count("heap_free", "size = ?", size))

    def live(self, size):
        return self.one("SELECT count(*) FROM leak WHERE domain = 'heap' AND size = ?", size)

    def assert_blocks(self, texts=True):
        self.assert_no_loss()
        for size in (1009, 1013, 1019, 2027) + ((1031,) if texts else ()):
            self.assertEqual(self.given(size), (100, 100), size)
        self.assertEqual((self.given(5003), self.live(5003)), ((7, 0), 7))
        self.assertEqual(self.one("SELECT sum(live_allocations) FROM callsite_total WHERE domain = 'heap'"
                                  " AND user_function = 'lib_make'"), 7)


class Blocks(Case):
    """Made there and freed here, the other way round, grown there, made by the C library for it, kept."""

    def test_deep(self):
        for mode in ("plain", "deep"):
            with self.subTest(mode):
                self.host(mode, "lib_bypass", "blocks")
                self.assert_blocks()
                self.assertEqual(self.given(3001), (1, 1), "of its constructor and its destructor")

    def test_namespace(self):
        """Its C library is another one: what is made there is freed there."""
        self.host("namespace", "lib_bypass", "blocks")
        self.assert_blocks()
        self.assertEqual(self.given(3001), (1, 1))

    def test_operators(self):
        for mode in ("own", "namespace"):
            with self.subTest(mode):
                self.host(mode, "lib_bypass_cxx", "blocks")
                self.assert_blocks()

    def test_own_allocator(self):
        """None of its blocks gets to another one."""
        self.host("own", "lib_bypass_own", "blocks")
        self.assert_blocks()

    def test_wrapper(self):
        """It stands in front of the C library's: what both see counts once."""
        self.host("deep", "lib_bypass_own", "blocks", env=dict(os.environ, BYPASS_WRAPS="1"))
        self.assert_blocks()

    def test_looked_up(self):
        for mode in ("plain", "deep"):
            with self.subTest(mode):
                self.host(mode, "lib_bypass", "lookup")
                self.assert_no_loss()
                self.assertEqual(self.given(1049), (100, 100))

    def test_python(self):
        """An extension, by ctypes and by the import of one, as sys.setdlopenflags has it."""
        program = ("import ctypes, os, sys\n"
                   f"lib = ctypes.CDLL({library('lib_bypass')!r}, os.RTLD_DEEPBIND | os.RTLD_NOW)\n"
                   "lib.lib_make.restype = ctypes.c_void_p\n"
                   "def use():\n    lib.lib_make(30011)\n"
                   "for _ in range(100): use()\n"
                   "sys.setdlopenflags(os.RTLD_DEEPBIND | os.RTLD_NOW); import _json, _decimal\n"
                   "print(_decimal.Decimal(7) + 4)\n")
        outcome = self.record("/usr/bin/python3", "-S", self.write("use.py", program), options=recording.PLAIN)
        self.assertEqual(outcome.out, "11\n")
        self.assert_finished()
        self.assert_no_loss()
        self.assertEqual((self.given(30011), self.live(30011)), ((100, 0), 100))


class Loading(Case):
    """As without the recorder."""

    def test_next(self):
        """Opened by the library, by its own search path, which nobody else's is."""
        for mode in ("plain", "deep", "namespace"):
            with self.subTest(mode):
                self.host(mode, "lib_bypass", "next")
                self.assert_no_loss()
                self.assertEqual(self.given(1033), (100, 100))

    def test_answers(self):
        for mode in ("plain", "deep", "namespace"):
            with self.subTest(mode):
                without = recording.run([HOST, mode, library("lib_bypass"), "answers"])
                self.assertIn("by name: not opened, lib_bypass_next.so: cannot open", without.out)
                self.assertEqual(self.host(mode, "lib_bypass", "answers").out, without.out)
                self.assert_no_loss()

    def test_often(self):
        """To the same addresses, mostly."""
        for mode, rounds in (("plain", 30), ("deep", 30), ("namespace", 30)):
            with self.subTest(mode):
                self.host(mode, "lib_bypass", "often", str(rounds))
                self.assert_no_loss()
                self.assertEqual(self.given(1039), (10 * rounds, 10 * rounds))

    def test_often_own(self):
        """More of them than there is place for at once."""
        self.host("own", "lib_bypass_own", "often", "40")
        self.assert_no_loss()
        self.assertEqual(self.given(1039), (400, 400))

    def test_threads(self):
        self.host("deep", "lib_bypass", "threads", "8")
        self.assert_no_loss()
        self.assertEqual(self.given(1039), (1600, 1600))

    def test_many(self):
        """Objects that stay."""
        copies = 400 if recording.IS_FULL else 100
        folder = os.path.join(self.folder, "copies")
        os.mkdir(folder)
        for i in range(copies):
            shutil.copy(library("lib_bypass"), os.path.join(folder, f"l.{i}"))
        self.record(HOST, "deep", os.path.join(folder, "l"), "kept", str(copies), options=recording.PLAIN)
        self.assert_finished()
        self.assert_no_loss()
        self.assertEqual(self.given(1039), (copies, copies))


class Attached(recording.AttachCase, Case):
    """What a program opens that was attached to."""

    def go_on(self, mode, name):
        """It opens the library once it is recorded, and goes on by hooks that record nothing, and by none."""
        steps = ["blocks"] + ["next"] * (mode == "deep")
        process = self.begin(HOST, mode, library(name), "wait", *steps, "wait", *steps, stdin=subprocess.PIPE)
        collector = self.attach(process.pid, "-f")
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.varve("detach", str(process.pid))
        self.assertEqual(recording.finish(collector).returncode, 0)
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assert_finished()

    def test_opened_later(self):
        self.go_on("deep", "lib_bypass")
        self.assert_blocks()
        self.assertEqual(self.given(1033), (100, 100))

    def test_allocators_that_are_not_hooked(self):
        """The loader does not allocate by the hooks of a library that it has loaded itself."""
        for mode, name in (("namespace", "lib_bypass"), ("own", "lib_bypass_own")):
            with self.subTest(mode):
                self.go_on(mode, name)
                self.assertEqual(self.sql("SELECT name, source FROM data_loss"), [
                    ("library_not_recorded", library(name) + ": an allocator of its own that could not be hooked")])
                self.assertEqual(self.given(1009), (0, 0))

    def test_namespace_that_was_there(self):
        process = self.begin(HOST, "namespace", library("lib_bypass"), "blocks", "wait", "lookup",
                             stdin=subprocess.PIPE)
        collector = self.attach(process.pid)
        process.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(recording.finish(collector).returncode, 0)
        self.assert_finished()
        self.assertEqual(self.sql("SELECT name, value FROM data_loss"), [("library_not_recorded", 1)])
        self.assertEqual(self.given(1049), (100, 100))


class Named(Case):
    """What could not be recorded, in data_loss, `info`, `report`, `leaks` and the closing line."""

    def assert_named(self, outcome, *words):
        self.assertNotIn("nothing lost", outcome.err)
        self.assertIn("; 1 library NOT RECORDED; ", outcome.err)
        rows = self.sql("SELECT source FROM data_loss WHERE name = 'library_not_recorded'")
        self.assertEqual(len(rows), 1, rows)
        for command in ("info", "report", "leaks"):
            shown = " ".join(self.varve(command, self.path).out.split())
            self.assertNotIn("nothing lost", shown)
            self.assertIn("1 library is not recorded: what is freed there counts as live here", shown)
            for word in words:
                self.assertIn(word, rows[0][0])
                self.assertIn(word, shown)

    def test_beside_an_allocator(self):
        """The C library's blocks of a program that has another one in front: not recorded, and not called leaks."""
        allocator = next((path for path in ALLOCATORS if os.path.exists(path)), None)
        if allocator is None:
            self.skipTest("no libjemalloc2")
        outcome = self.host("deep", "lib_bypass", "often", "3", env=dict(os.environ, LD_PRELOAD=allocator))
        self.assert_named(outcome, "lib_bypass.so", "RTLD_DEEPBIND")
        self.assertEqual(self.given(1039), (0, 0))
        self.host("plain", "lib_bypass", "often", "3", env=dict(os.environ, LD_PRELOAD=allocator))
        self.assert_no_loss()
        self.assertEqual(self.given(1039), (30, 30))


POOL = r"""
#include <stddef.h>
static char pool[100000];
static size_t used;
void *malloc(size_t size) { void *at = pool + used; used += (size + 15) & ~(size_t)15; return at; }
void free(void *memory) { (void)memory; }
void free_sized(void *memory, size_t size) { (void)memory, (void)size; }
void work(void) { for (int i = 0; i < 10; i++) free_sized(malloc(77), 77); }
"""

LOADS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
static void *load(void *path) { return dlopen(path, RTLD_NOW | RTLD_DEEPBIND); }
int main(int argc, char **argv)
{
    free(malloc(1));
    if (argc > 2) { /* a thread that loads, and calls nothing any more */
        pthread_t thread;
        void *library;
        pthread_create(&thread, NULL, load, argv[2]);
        pthread_join(thread, &library);
        dlclose(library);
    }
    void *library = load(argv[1]);
    if (library == NULL) return 2;
    ((void (*)(void))dlsym(library, "work"))();
    return 0;
}
"""


class Pools(Case):
    """Allocators that libraries of RTLD_DEEPBIND bring, in files that linkers make otherwise."""

    def load(self, flags=(), other=None):
        if not shutil.which("cc"):
            self.skipTest("no compiler")
        host, pool = os.path.join(self.folder, "loads"), os.path.join(self.folder, "pool.so")
        subprocess.run(["cc", "-o", host, self.write("loads.c", LOADS), "-pthread", "-ldl"], check=True)
        subprocess.run(["cc", "-fPIC", "-shared", "-fno-builtin", *flags, "-o", pool, self.write("pool.c", POOL)],
                       check=True)
        outcome = self.record(host, pool, *([other] if other else []))
        self.assert_finished()
        return outcome

    def test_old_hash_table(self):
        self.load(["-Wl,--hash-style=sysv"])
        self.assertEqual(self.given(77), (10, 10))

    def test_after_a_thread_that_loads(self):
        self.load(other=library("lib_callback"))
        self.assertEqual(self.given(77), (10, 10))

    def test_first_segment_elsewhere(self):
        """Its headers are not where the object is said to lie; the program lives, and it is named."""
        outcome = self.load(["-Wl,-Ttext-segment=0x8000"])
        self.assertIn("1 library NOT RECORDED", outcome.err)


EMBEDDED = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
int main(void)
{
    Py_Initialize();
    PyRun_SimpleString("kept = []\ndef fill():\n    kept.append(bytearray(50_000))\nfor i in range(40): fill()\n");
    return 0;
}
"""


class Interpreters(Case):
    """Of Python, which lie in the program itself, where no other object sees them; one line says whose frames are not
    read."""

    def assert_unread(self, outcome, what):
        said = f"no lines of Python in 1 process: {what} (3.9 to 3.15 are read)"
        self.assertIn("; nothing lost; no lines of Python in 1 process; ", outcome.err)
        for command in ("info", "report", "leaks"):
            self.assertIn(said, " ".join(self.varve(command, self.path).out.split()))
        self.assertEqual(self.sql("SELECT * FROM data_loss"), [])

    def test_unknown(self):
        program = recording.program("interpreter")
        for version, what in (("3.8.18 (default, May  9 2026)", "Python 3.8.18"), ("3.99.0", "Python 3.99.0"),
                              ("3.13.0 experimental free-threading build (main)", "Python 3.13.0 without the GIL"),
                              ("3.12.1 (main)", "Python 3.12.1, of which symbols are missing")):
            with self.subTest(version):
                outcome = self.record(program, env=dict(os.environ, INTERPRETER_VERSION=version))
                self.assert_finished()
                self.assert_unread(outcome, what)
        self.record(program, options=["--stacks", "native"])
        self.assert_finished()
        self.assertEqual(self.sql("SELECT * FROM stats WHERE name = 'python_lines_missing'"), [], "nobody asked")

    def test_stripped(self):
        program = shutil.copy(recording.program("interpreter"), os.path.join(self.folder, "stripped"))
        subprocess.run(["strip", program], check=True)
        outcome = self.record(program)
        self.assert_finished()
        self.assert_unread(outcome, "a stripped one in the program")

    def test_embedded(self):
        """Linked statically, as a program's own."""
        library = sysconfig.get_config_var("LIBPL") + "/libpython" + sysconfig.get_config_var("LDVERSION") + ".a"
        debian = glob.glob("/usr/lib/python3*/config-*/libpython3*[0-9].a")
        library = next((path for path in [*debian, library] if os.path.exists(path)), None)
        headers = library and "/usr/include/" + os.path.basename(library)[3:-2]
        if library is None or not os.path.exists(headers + "/Python.h"):
            self.skipTest("no static libpython")
        program = os.path.join(self.folder, "embedded")
        subprocess.run(["cc", "-no-pie", "-o", program, self.write("embedded.c", EMBEDDED), "-I", headers, library,
                        "-lm", "-lz", "-lexpat", "-ldl", "-lutil", "-lpthread"], check=True)
        outcome = self.record(program)
        self.assertIn("; nothing lost; next", outcome.err)
        self.assert_finished()
        self.assertEqual(self.sql("SELECT user_function, user_line, live_allocations, live_bytes >= 2000000"
                                  " FROM callsite_total WHERE user_function = 'fill' AND domain = 'heap'"),
                         [("fill", 3, 40, 1)])
        self.record(program, options=["--python-allocators"])
        self.assert_finished()
        self.assertEqual(self.one("SELECT sum(live_allocations) FROM callsite_total WHERE user_function = 'fill' AND"
                                  " domain = 'python' AND live_bytes >= 2000000"), 40)


if __name__ == "__main__":
    recording.main()
