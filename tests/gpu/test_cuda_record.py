#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""`varve record --cuda` on a real GPU: unmodified programs that reach the driver in every way, built here with nvcc.
They count what they do, and the database must say the same: each call once, with its bytes, its memory and, where the
runtime library is a shared one, its name."""

import concurrent.futures
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recording  # noqa: E402

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
OPTIONS = ("--cuda", "--stacks", "none", "--quiet", "--force")
KINDS = ("dev_alloc", "dev_free", "dev_alloc_async", "dev_free_async", "dev_oom", "dev_pool", "vmm_reserve",
         "vmm_create", "vmm_map", "vmm_unmap", "vmm_release", "vmm_address_free", "vmm_set_access")
# Of what is given back the collector fills in the bytes; a handle that is retained has none of its own.
WITHOUT_BYTES = ("dev_free", "dev_free_async", "vmm_release", "vmm_unmap", "dev_sync", "dev_reset", "dev_pool")
BUILDS = {
    "runtime_static": ("record_runtime.cu",),
    "runtime_shared": ("record_runtime.cu", "-cudart", "shared"),
    "runtime_own": ("record_runtime.cu", "--default-stream", "per-thread"),
    "steady_static": ("record_steady.cu",),
    "steady_shared": ("record_steady.cu", "-cudart", "shared"),
    "driver_linked": ("record_driver.c", "-DWAY=0", "-lcuda", "-cudart", "none"),
    "driver_dlsym": ("record_driver.c", "-DWAY=1", "-ldl", "-cudart", "none"),
    "driver_address": ("record_driver.c", "-DWAY=2", "-ldl", "-cudart", "none"),
    "driver_entry": ("record_driver.c", "-DWAY=3", "-ldl"),
}
folder = None


def gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no driver: {error}"
    count = ctypes.c_int()
    result = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return f"no device: the driver answers {result}" if result or not count.value else None


def build(name):
    source, *options = BUILDS[name]
    command = [NVCC, "-O1", "-arch=native", "-I", SOURCES, "-o", os.path.join(folder, name),
               os.path.join(SOURCES, source), *options]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return f"{' '.join(command)}\n{ended.stdout}{ended.stderr}" if ended.returncode else None


def environment(**more):
    """A shared runtime library is where nvcc is."""
    libraries = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(NVCC))), "lib64")
    paths = [libraries, libraries[:-2], os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(path for path in paths if path), **more)


class Record(recording.Case):
    def record_program(self, name, *arguments, options=OPTIONS, **more):
        outcome = self.record(os.path.join(folder, name), *arguments, options=options, env=environment(**more))
        self.assert_finished()
        self.assert_no_loss()
        self.assertEqual(self.sql("SELECT count(*), count(uuid) FROM device"), [(1, 1)])
        self.assertGreaterEqual(self.count("dev_memory", "size > requested AND requested > 0"), 1)
        self.assertEqual(self.count("dev_alloc", "requested <= 0"), 0, "calls take time")
        return outcome

    def grouped(self, has_names):
        """{(kind, function or memory, failed): (calls, bytes)} of the recording."""
        what = "cause" if has_names else "pool >> 12"
        return {(kind, key, failed): (calls, size or 0) for kind, key, failed, calls, size in self.sql(
            f"SELECT kind, {what}, flags & 1, count(*), sum(size) FROM events GROUP BY 1, 2, 3")}

    def assert_equal_to(self, outcome, has_names):
        expected = {}
        for kind, memory, function, failed, calls, size in json.loads(outcome.out.splitlines()[-1])["calls"]:
            key = (kind, function if has_names else memory, failed)
            before = expected.get(key, (0, 0))
            expected[key] = (before[0] + calls, before[1] + size)
        reported = self.grouped(has_names)
        for (kind, key, failed), (calls, size) in expected.items():
            found = reported.get((kind, key, failed), (0, 0))
            if kind in ("dev_sync", "dev_reset"):
                if has_names: # others wait, too
                    self.assertGreaterEqual(found[0], calls, (kind, key))
            elif kind in ("dev_free", "dev_free_async") and not has_names:
                continue # the memory of these is the collector's knowledge: counted below
            elif kind in WITHOUT_BYTES or key == "cuMemRetainAllocationHandle":
                self.assertEqual(found[0], calls, (kind, key))
            elif kind == "vmm_create" and not has_names:
                self.assertEqual(found[0], calls, (kind, key))
            else:
                self.assertEqual(found, (calls, size), (kind, key, "failed" if failed else ""))
        for kind in KINDS: # and nothing else
            self.assertEqual(sum(value[0] for key, value in reported.items() if key[0] == kind),
                             sum(value[0] for key, value in expected.items() if key[0] == kind), (kind, reported))

    def test_runtime_static(self):
        self.assert_equal_to(self.record_program("runtime_static"), False)

    def test_runtime_shared(self):
        self.assert_equal_to(self.record_program("runtime_shared"), True)

    def test_runtime_own_streams(self):
        self.assert_equal_to(self.record_program("runtime_own"), False)
        self.assertIn((2,), self.sql("SELECT handle FROM stream"), "the default stream of a thread has the handle 2")

    def test_driver_entry_points(self):
        for name in ("driver_linked", "driver_dlsym", "driver_address", "driver_entry"):
            with self.subTest(name):
                self.assert_equal_to(self.record_program(name), True)
                self.assertEqual(self.one("SELECT count(*) FROM leak WHERE domain = 'device'"), 0,
                                 "the ends of both contexts have ended what they had")

    def test_reset(self):
        self.assert_equal_to(self.record_program("runtime_shared", "reset"), True)
        self.assertEqual(self.sql("SELECT size FROM leak WHERE domain = 'device'"), [(4 << 20,)])

    def test_capture(self):
        """What the recorder asks the driver does not spoil a graph, and the allocations in it are reported as such."""
        for name in ("runtime_shared", "runtime_static"):
            with self.subTest(name):
                outcome = self.record_program(name, "capture")
                if name == "runtime_shared":
                    self.assert_equal_to(outcome, True)
                self.assertEqual(self.count("dev_alloc_async", "cause = 'graph'"), 2)
                self.assertGreaterEqual(self.count("dev_memory"), 3, "looks were due while the graph was recorded")

    def test_fork(self):
        outcome = self.record_program("runtime_shared", "fork")
        print(outcome.err.strip(), "; of the child:", self.sql(
            "SELECT kind, flags, arg FROM events WHERE pid <> (SELECT min(pid) FROM process) AND kind LIKE 'dev%'"))
        self.assertEqual(self.count("dev_alloc", "flags = 0"), 1)

    def test_free_at_the_end(self):
        outcome = self.record_program("runtime_shared", "atexit")
        print(outcome.err.strip(), "; reported:", self.sql(
            "SELECT kind, flags, arg FROM events WHERE cause = 'cudaFree' ORDER BY seq"))
        self.assertEqual(self.count("dev_alloc", "size = ?", 3 << 20), 1)

    def test_threads(self):
        self.assert_equal_to(self.record_program("runtime_shared", "threads"), True)
        self.assertEqual(self.one("SELECT count(*) FROM leak WHERE domain = 'device'"), 4 * 16)

    def test_with_heap_and_stacks(self):
        outcome = self.record_program("runtime_shared", options=("--heap", "--cuda", "--quiet", "--force"))
        self.assert_equal_to(outcome, True)
        callsite = self.one("SELECT callsite_id FROM events WHERE kind = 'dev_alloc' AND cause = 'cudaMallocPitch'")
        functions = [row[0] for row in self.sql("SELECT function FROM frame WHERE callsite_id = ? ORDER BY depth",
                                                callsite)]
        self.assertIn("main", functions)

    def test_replaced(self):
        library = os.path.join(os.path.dirname(recording.VARVE), "libvarve-replace.so")
        if not os.path.exists(library):
            self.skipTest("libvarve-replace.so is not built")
        for name in ("runtime_shared", "runtime_static"):
            for what in ("all", "threads"):
                with self.subTest(name=name, what=what):
                    outcome = self.record_program(name, what, options=("--cuda=replace", *OPTIONS[1:]))
                    self.assertNotIn("served by the driver", outcome.err)
                    self.assertEqual(self.count("dev_alloc", "cause = 'cudaMalloc'"), 0)
                    self.assertGreater(self.count("alloc"), 0, "the allocator reports its blocks")

    def test_addresses(self):
        """Nothing to assert: what the driver answers, for the table of versions."""
        outcome = recording.run([os.path.join(folder, "driver_dlsym"), "addresses"], env=environment())
        print(outcome.out.strip())


class Attach(recording.AttachCase):
    """A program that runs already: what it does from then on, without a gap."""

    def check(self, name):
        process = self.begin(os.path.join(folder, name), self.folder, env=environment())
        for number in (1, 2):
            self.path = os.path.join(self.folder, f"{number}.db")
            self.varve("attach", "--cuda", "--for", "0.3", "-o", self.path, str(process.pid))
            self.open()
            sizes = [size for size, in self.sql("SELECT size FROM events WHERE kind = 'dev_alloc' ORDER BY seq")]
            self.assertGreater(len(sizes), 2)
            self.assertEqual(sizes, list(range(sizes[0], sizes[0] + len(sizes))))
            self.assertEqual(self.sql("SELECT count(*), count(uuid) FROM device"), [(1, 1)])
        self.assertEqual(self.quit(process)[0], "rounds")

    def test_static(self):
        self.check("steady_static")

    def test_shared(self):
        self.check("steady_shared")


def main():
    global folder
    reason = None if os.access(NVCC, os.X_OK) else "nvcc is not there"
    reason = reason or gpu()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="varve-gpu-") as folder:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            problems = [problem for problem in pool.map(build, BUILDS) if problem]
        if problems:
            print("\n".join(problems))
            sys.exit(1)
        recording.main()


if __name__ == "__main__":
    main()
